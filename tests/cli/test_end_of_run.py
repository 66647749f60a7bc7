"""What is said when a run has ended, and the code it ends with: --durations, --exit-zero."""

import json
from dataclasses import replace

import jsonschema
import pytest
from factories import failing, passing, raising, result, skipped, undecided

from gradverify.model.result import Calls
from gradverify.report.json import report_schema


def took(name, seconds, calls=7, verdict="pass", **changes):
    return replace(result(name, verdict, **changes), seconds=seconds, calls=Calls(calls - 1, 1))


SLOW = (
    took("quick", 0.5),
    took("slow", 12.34, 12_345),
    took("middle[a=1]", 3.0, 1),
    took("late", 0.0, verdict="not_run", reason="interrupted"),
)


@pytest.mark.parametrize(
    "options, lines",
    [
        (
            ["--durations", "2"],
            [
                "the slowest 2 of 3 checks:",
                "    12.3 s    12,345 calls  slow",
                "    3.00 s         1 call   middle[a=1]",
            ],
        ),
        (
            ["--durations=0"],
            [
                "how long each check took:",
                "    12.3 s    12,345 calls  slow",
                "    3.00 s         1 call   middle[a=1]",
                "    0.50 s         7 calls  quick",
            ],
        ),
        (["--durations", "100"], ["how long each check took:", "    12.3 s    12,345 calls  slow"]),
        ([], []),
    ],
)
@pytest.mark.parametrize("format", ["plain", "table"])
def test_the_slowest_checks_are_listed_before_the_last_line(
    gradverify, engine, spec, options, lines, format
):
    engine(*SLOW)
    out = gradverify("check", "s.yaml", "--format", format, *options)[1]
    assert "\n".join(lines) in out and ("call" in out.partition("slowest")[2]) == (
        options == ["--durations", "2"]
    )
    assert out.splitlines()[-1] == "3 passed, 1 not run in 1.00 s"


def test_durations_are_for_a_reader_of_text(gradverify, engine, spec):
    engine(*SLOW)
    assert [
        check["seconds"]
        for check in json.loads(
            gradverify("check", "s.yaml", "--durations", "1", "--format", "json")[1]
        )["checks"]
    ] == [0.5, 12.34, 3.0, 0.0]
    engine(skipped())
    assert "slowest" not in gradverify("check", "s.yaml", "--durations", "1")[1]


@pytest.mark.parametrize(
    "results, code",
    [
        ([failing()], 1),
        ([raising()], 3),
        ([failing(), raising()], 1),
        ([skipped()], 5),
        ([passing(expect="fail")], 1),
    ],
)
def test_exit_zero_forgives_verdicts_and_says_so_in_the_last_line(
    gradverify, engine, spec, folder, results, code
):
    engine(*results)
    assert gradverify("check", "s.yaml")[0] == code
    ended, out, _ = gradverify("check", "s.yaml", "--exit-zero", "--report", "json:r.json")
    data = json.loads((folder / "r.json").read_text())
    jsonschema.validate(data, report_schema())
    assert ended == data["exit_code"] == 0 and data["forgiven"] == code
    assert (
        out.splitlines()[-1]
        == f"--exit-zero: verdicts do not count; without it the exit code is {code}"
    )


def test_exit_zero_says_nothing_where_there_is_nothing_to_forgive(gradverify, engine, spec):
    engine(passing(), undecided())
    code, out, _ = gradverify("check", "s.yaml", "--exit-zero")
    assert code == 0 and out.splitlines()[-1].startswith("1 undecided, 1 passed")


@pytest.mark.parametrize(
    "arguments, ending, code",
    [
        (["s.yaml", "--eps", "x"], {}, 2),
        (["nowhere.yaml"], {}, 2),
        (["s.yaml"], {"interrupted": 130}, 130),
        (["s.yaml"], {"interrupted": 143}, 143),
        (["s.yaml"], {"crashed": "KeyError: 1"}, 4),
        (["s.yaml", "--report", "json:/dev/full"], {}, 4),
    ],
)
def test_exit_zero_forgives_nothing_but_verdicts(gradverify, engine, spec, arguments, ending, code):
    engine(failing(), **ending)
    assert gradverify("check", *arguments, "--exit-zero")[0] == code


def test_a_check_that_ends_its_process_has_its_seconds(gradverify, folder):
    """Nothing comes back from it: the time is the supervisor's."""
    (folder / "op.py").write_text(
        "import os, time\n\ndef dies(x):\n    time.sleep(0.5)\n    os.abort()\n"
    )
    (folder / "s.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {function: 'op.py:dies', inputs: {x: {shape: [2]}}}\n"
    )
    code, out, _ = gradverify("check", "s.yaml", "--format", "json")
    (check,) = json.loads(out)["checks"]
    assert code == 3 and check["findings"][0]["code"] == "GV004" and check["seconds"] >= 0.5
