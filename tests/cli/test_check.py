import json

import jsonschema
import pytest
from factories import failing, passing, raising, result, skipped, undecided

from gradverify.cli.check import followed
from gradverify.cli.progress import Progress
from gradverify.model.event import RunFinished, RunStarted, Selection
from gradverify.model.report import Gate
from gradverify.model.result import FunctionInfo
from gradverify.report.json import report_schema


@pytest.mark.parametrize(
    "results, options, code",
    [
        ([passing()], [], 0),
        ([passing(), failing()], [], 1),
        ([raising()], [], 3),
        ([skipped()], [], 5),
        ([failing(), raising()], [], 1),
        ([undecided()], [], 0),
        ([undecided()], ["--undecided", "fail"], 3),
        ([passing(), skipped()], ["--fail-on-skip"], 3),
        ([passing(), skipped()], ["--require-device", "cuda"], 3),
        ([passing(), skipped()], ["--require-device", "cpu"], 0),
        ([failing(expect=("GV101",))], [], 0),
        ([passing(expect="fail")], [], 1),
    ],
)
def test_the_exit_code_is_the_reports(gradverify, engine, spec, results, options, code):
    engine(*results)
    assert gradverify("check", "s.yaml", *options)[0] == code


def test_undecided_checks_fail_in_ci(gradverify, engine, spec, monkeypatch):
    monkeypatch.setenv("CI", "true")
    engine(undecided())
    assert gradverify("check", "s.yaml")[0] == 3
    assert gradverify("check", "s.yaml", "--undecided", "warn")[0] == 0


def test_an_interrupt_still_shows_and_writes_what_there_is(gradverify, engine, spec, folder):
    engine(passing(), result("late", "not_run", reason="interrupted"), interrupted=130)
    code, out, _ = gradverify("check", "s.yaml", "--report", "json:r.json")
    written = json.loads((folder / "r.json").read_text())
    assert code == written["exit_code"] == 130 and written["interrupted"] is True
    assert "interrupted: 1 passed, 1 not run" in out.splitlines()[-1]


def test_an_interrupt_between_two_checks_keeps_what_was_seen():
    def events():
        yield RunStarted("", (), None, None, 2)
        raise KeyboardInterrupt

    assert [type(event) for event in followed(events(), Progress(None), print)] == [
        RunStarted,
        RunFinished,
    ]
    assert followed(events(), Progress(None), print)[-1].interrupted == 130


def test_an_interrupt_before_anything_was_seen_goes_on():
    def events():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        followed(events(), Progress(None), print)


def test_a_fault_of_our_own_is_4_and_a_bug_report_on_stderr(gradverify, engine, spec):
    engine(passing(), crashed="KeyError: 'x'")
    code, _, err = gradverify("check", "s.yaml")
    assert (
        code == 4
        and "fault in gradverify" in err
        and "KeyError: 'x'" in err
        and "command: gradverify check s.yaml" in err
    )


def test_stdout_is_only_the_format_asked_for(gradverify, engine, spec):
    engine(passing(), failing())
    code, out, err = gradverify("check", "s.yaml", "--format", "json")
    jsonschema.validate(json.loads(out), report_schema())
    assert code == 1 and err == ""


def test_the_report_file_is_the_json_of_stdout(gradverify, engine, spec, folder):
    engine(passing(), failing())
    _, out, _ = gradverify(
        "check",
        "s.yaml",
        "--format",
        "json",
        "--report",
        "json:deep/er/r.json",
        "--report",
        "json:second.json",
    )
    assert (folder / "deep/er/r.json").read_text() == (folder / "second.json").read_text() == out
    written = {
        path.name
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != ".gradverify_cache"
    }
    assert written == {"r.json", "s.yaml", "second.json"}


def test_a_report_that_fails_costs_neither_the_others_nor_the_summary(
    gradverify, engine, spec, folder, monkeypatch
):
    engine(passing(), failing())
    calls = []

    def render(report):
        calls.append(1)
        # a.json as the run begins and as it ends: drawn whole, then each of two checks alone
        if len(calls) in (1, 5):
            raise ValueError("odd")
        return "whole"

    monkeypatch.setattr("gradverify.report.json.render", render)
    code, out, err = gradverify(
        "check", "s.yaml", "--report", "json:a.json", "--report", "json:b.json"
    )
    assert (
        code == 4
        and "1 failed, 1 passed" in out
        and "ValueError: odd" in err
        and "a.json could not be written" in err
    )
    assert not (folder / "a.json").exists() and (folder / "b.json").read_text() == "whole"


def test_an_older_report_is_gone_when_the_run_starts(gradverify, spec, folder, monkeypatch):
    report = folder / "r.json"
    report.write_text("old")

    def killed(*arguments, **options):
        assert not report.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("gradverify.running.schedule.run", killed)
    assert gradverify("check", "s.yaml", "--report", "json:r.json")[0] == 130
    assert not report.exists()


def test_the_engine_gets_what_was_asked(gradverify, engine, spec):
    asked = engine(passing())
    gradverify(
        "check",
        "s.yaml",
        "--eps",
        "1e-5",
        "--seed",
        "7",
        "--select",
        "GV1,GV224",
        "--select",
        "GV201",
        "--strict",
        "-x",
        "-k",
        "op",
        "-m",
        "fast",
        "--require-device",
        "cuda",
    )
    (case,) = asked["cases"]
    assert case.name == "op[a=1]" and (
        case.settings.eps,
        case.settings.seed,
        case.settings.strict,
    ) == (1e-5, 7, True)
    assert case.settings.select == ("GV1", "GV224", "GV201")
    assert (
        asked["maxfail"] == 1
        and asked["argv"][:2] == ("check", "s.yaml")
        and asked["gate"] == Gate(require_device=("cuda",))
    )
    assert asked["selection"] == Selection(("s.yaml",), "op", "fast", deselected=1)


@pytest.mark.parametrize(
    "path, names",
    [
        ("s.yaml", ["op[a=1]", "other"]),
        ("s.yaml::op[a=1]", ["op[a=1]"]),
        ("s.yaml::other", ["other"]),
    ],
)
def test_one_check_can_be_named(gradverify, engine, spec, path, names):
    asked = engine(passing())
    gradverify("check", path)
    assert [case.name for case in asked["cases"]] == names


def test_quiet_and_verbose(gradverify, engine, spec):
    engine(passing(), failing("broken"))
    quiet, normal, verbose = (
        gradverify("check", "s.yaml", *option)[1] for option in (["-q"], [], ["-v"])
    )
    assert "linear" not in quiet and "broken" in quiet
    assert "PASS       linear" in normal and "GV111 not applicable" not in normal
    assert "GV111 not applicable: the function has no parameters" in verbose


def test_what_is_piped_is_plain_and_without_colour(gradverify, engine, spec):
    engine(failing())
    out = gradverify("check", "s.yaml")[1]
    assert "\x1b" not in out and "╭" not in out and "== FAIL  swish" in out
    assert "╭" in gradverify("check", "s.yaml", "--format", "table")[1]


def test_rows_are_capped_as_asked(gradverify, engine, spec):
    engine(failing())
    assert "… and 62 more of 96" in gradverify("check", "s.yaml", "--max-rows", "2")[1]


def test_a_folder_without_specs_is_5(gradverify, engine, folder):
    engine()
    code, out, err = gradverify("check")
    assert (
        code == 5
        and "no specs" in err
        and "`gradverify init` writes a first one" in err
        and "nothing was checked" in out
    )


def test_a_required_device_that_is_missing_is_told_everywhere(gradverify, engine, spec):
    engine(passing(), skipped())
    code, out, _ = gradverify(
        "check", "s.yaml", "--require-device", "cuda", "-q", "--format", "table", "--width", "100"
    )
    assert (
        code == 3 and out.count("no CUDA device was found, required by --require-device cuda") == 2
    )
    assert "1 skipped though required, 1 passed in" in out


def test_functions_in_files_are_shown_below_the_current_folder(gradverify, engine, folder):
    (folder / "ops").mkdir()
    (folder / "ops" / "act.py").touch()
    (folder / "specs").mkdir()
    (folder / "specs" / "s.yaml").write_text(
        "gradverify: 1\nchecks: [{function: ../ops/act.py:F, inputs: [1]}]\n"
    )
    target = f"{folder.resolve()}/ops/act.py:F"
    engine(failing(function=FunctionInfo(target)))
    out = gradverify("check", "specs")[1]
    assert "\nops/act.py:F on cpu" in out and str(folder) not in out
    assert (
        json.loads(gradverify("check", "specs", "--format", "json")[1])["checks"][0]["function"][
            "target"
        ]
        == "ops/act.py:F"
    )
