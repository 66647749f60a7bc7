"""Text that a CI service could take for a command (GitHub Actions, Azure Pipelines, TeamCity): at
every door it is printed so that it is none.

The class of faults: a spec, a file name or what checked code prints sets variables, hides output or
ends the step of the service that runs it all.
"""

from __future__ import annotations

import json
import re
import warnings

import pytest
from factories import failing, report

import gradverify as package
from gradverify.cli.output import Output, keep
from gradverify.direct import GradientError
from gradverify.model.codec import to_json
from gradverify.report.names import inert

COMMANDS = [
    "::stop-commands::x",
    "  ::error::x",
    "\t::x",
    "##[error]x",
    "##vso[task.complete]x",
    "##VSO[task.complete]x",
    "##teamcity[x]",
]
HARMLESS = [
    "a ::b",
    "specs/a.yaml::x",
    "#[x]",
    "## [x]",
    "##vso",
    "vso[",
    ": :",
    "a\n\n:b",
    "::"[:1],
]
A_COMMAND = re.compile(r"^[^\S\n]*::|##(vso|teamcity)?\[", re.MULTILINE | re.IGNORECASE)
each = pytest.mark.parametrize("text", COMMANDS)


@pytest.fixture
def spec(folder):
    def write(check):
        (folder / "s.yaml").write_text("gradverify: 1\nchecks:\n" + check)

    return write


@each
@pytest.mark.parametrize("before", ["", "a\n", "\n\n", "a\n  \n"])
def test_commands_are_broken_and_can_still_be_read(text, before):
    shown = inert(before + text)
    assert A_COMMAND.search(before + text) and not A_COMMAND.search(shown)
    assert re.sub(r"\\u00(..)", lambda found: chr(int(found[1], 16)), shown) == before + text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_is_left_as_it_is(text):
    assert inert(text) == text


@each
def test_json_stays_what_it_is(text):
    assert json.loads(inert(json.dumps({text: [text]}))) == {text: [text]} and not A_COMMAND.search(
        inert(json.dumps([text]))
    )


def hold(*texts):
    """None of it is a command."""
    assert not [text for text in texts if A_COMMAND.search(text)]


@each
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--format", "plain"),
        ("--format", "table"),
        ("--format", "json"),
        ("--format", "jsonl"),
        ("-q", "--report", "json:/dev/null"),
    ],
    ids=" ".join,
)
def test_check(text, options, gradverify, engine, spec):
    spec("  - {name: linear, function: relu, inputs: [1]}\n")
    engine(failing(captured=f"{text}\n", name="linear"))
    _, out, err = gradverify("check", "s.yaml", *options)
    hold(out, err)
    assert "plain" not in options or "\\u00" in out


@each
def test_validate_list_and_what_is_refused(text, gradverify, spec, folder):
    spec(f"  - function: relu\n    inputs: [1]\n    no_such: |\n      a\n{text}\n")
    for command in (("validate",), ("check",), ("list",), ("hook", "--")):
        code, out, err = gradverify(*command, "s.yaml")
        hold(out, err)
        assert code == 2
    spec(
        f"  - {{name: {json.dumps(text)}, function: relu, inputs: [1], tags: "
        f"[{json.dumps(text)}]}}\n"
    )
    hold(*gradverify("list", "s.yaml")[1:])
    hold(*gradverify("check", f"a\n{text}")[1:])
    hold(*gradverify("no\n" + text)[1:])


@each
def test_show_and_reports_that_go_to_stdout(text, gradverify, folder, capfd):
    found = report(failing(captured=f"{text}\n"))
    (folder / "r.json").write_text(json.dumps(to_json(found)))
    for kind in ("plain", "table", "junit", "markdown"):
        hold(gradverify("show", "r.json", "--format", kind)[1])
    keep(folder.joinpath("/dev/stdout"), f"{text}\n")
    hold(capfd.readouterr().out)


def test_our_own_annotations_are_commands(capsys):
    Output().write("::a\n", "::error::x\n")
    assert capsys.readouterr().out == "\\u003a:a\n::error::x\n"


@each
def test_what_python_and_pytest_show(text):
    import torch

    def wrong(x):
        print(f"\n{text}")
        raise ValueError(f"a\n{text}")

    with warnings.catch_warnings(), pytest.raises(GradientError) as raised:
        warnings.simplefilter("ignore")
        package.assert_gradients(wrong, [torch.ones(2)], msg=f"a\n{text}")
    assert "\\u00" in str(raised.value)
    hold(str(raised.value))
