"""`--report` and `--format` of every kind, on a run: where each goes, what an interrupt leaves, and
what GitHub Actions reads unasked."""

import json

import jsonschema
import pytest
from factories import failing, passing, undecided

from gradverify.report.formats import NAMES
from gradverify.report.json import report_schema


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_kind_can_be_written_in_one_run_and_one_kind_twice(gradverify, engine, spec, folder):
    engine(passing(), failing())
    wanted = [argument for name in NAMES for argument in ("--report", f"{name}:out/r.{name}.txt")]
    code, out, err = gradverify(
        "check",
        "s.yaml",
        *wanted,
        "--report",
        "junit:out/twice.xml",
        "--report",
        "out/guessed.sarif",
    )
    assert (code, err) == (1, "") and "1 failed, 1 passed" in out
    assert {path.name for path in (folder / "out").iterdir()} == {
        *(f"r.{name}.txt" for name in NAMES),
        "twice.xml",
        "guessed.sarif",
    }
    assert (folder / "out/guessed.sarif").read_text() == (folder / "out/r.sarif.txt").read_text()
    assert (folder / "out/twice.xml").read_text() == (folder / "out/r.junit.txt").read_text()
    assert "How it is measured" in (folder / "out/guessed.sarif").read_text()


def test_lines_come_one_by_one_on_stdout_and_whole_in_files(gradverify, engine, spec, folder):
    engine(passing(), failing())
    code, out, err = gradverify("check", "s.yaml", "--format", "jsonl", "--report", "jsonl:r.jsonl")
    assert (code, err) == (1, "")
    events = lines(out)
    assert [each["event"] for each in events] == [
        "run_started",
        "check_started",
        "check_finished",
        "check_started",
        "check_finished",
        "run_finished",
    ]
    assert lines((folder / "r.jsonl").read_text())[1:] == [
        each for each in events[1:] if each["event"] != "check_started"
    ]
    schema = report_schema()
    for each in events:
        if "check" in each:
            jsonschema.validate(
                each["check"], {**schema, "allOf": [{"$ref": "#/definitions/CaseResult"}]}
            )
    assert events[-1]["exit_code"] == 1 and events[-1]["summary"]["fail"] == 1
    assert [each["check"]["ok"] for each in events if "check" in each] == [True, False]


def test_after_an_interrupt_the_lines_are_whole(gradverify, spec, folder, monkeypatch):
    from factories import ENVIRONMENT

    from gradverify.model.event import CheckStarted, RunStarted

    def fake(request, *others):
        when = "2026-01-02T03:04:05+00:00"
        yield RunStarted(when, request.argv, request.selection, ENVIRONMENT, 1)
        yield CheckStarted("a", "a")
        raise KeyboardInterrupt

    monkeypatch.setattr("gradverify.running.schedule.run", fake)
    code, out, _ = gradverify("check", "s.yaml", "--format", "jsonl")
    last = lines(out)[-1]
    assert code == 130 and last["event"] == "run_finished" and last["interrupted"]


# ---- GitHub
@pytest.fixture
def actions(monkeypatch, folder):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    return folder / "summary.md"


def test_github_actions_gets_annotations_and_a_summary_unasked(gradverify, engine, spec, actions):
    engine(passing(), failing(captured="::add-mask::secret\n"), undecided())
    actions.write_text("before\n")
    _, out, err = gradverify("check", "s.yaml")
    assert err == "" and [
        line.split(" ")[0] for line in out.splitlines() if line.startswith("::")
    ] == ["::error", "::warning"]
    assert "\\u003a:add-mask::secret" in out
    assert actions.read_text().startswith(
        "before\n\n### gradverify: 1 failed, 1 undecided, 1 passed"
    )


@pytest.mark.parametrize("format", ["json", "jsonl", "plain", "table"])
def test_a_format_that_was_asked_for_is_kept_to(gradverify, engine, spec, actions, format):
    engine(failing())
    out = gradverify("check", "s.yaml", "--format", format)[1]
    assert not [line for line in out.splitlines() if line.startswith("::")] and actions.exists()


def test_elsewhere_nothing_is_annotated_but_on_request(
    gradverify, engine, spec, folder, monkeypatch
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    engine(failing())
    assert (
        "::error" not in gradverify("check", "s.yaml")[1] and not (folder / "summary.md").exists()
    )
    out = gradverify("check", "s.yaml", "--format", "github")[1]
    assert out.splitlines()[-1].startswith("::error file=my_ops/act.py,line=41") and "╭" not in out


def test_a_summary_that_cannot_be_written_is_told_and_costs_nothing(
    gradverify, engine, spec, actions, monkeypatch
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/at/all.md")
    engine(passing())
    code, out, err = gradverify("check", "s.yaml")
    assert (
        code == 0
        and "1 passed" in out
        and "the job summary /nowhere/at/all.md could not be written" in err
    )


def test_no_more_is_added_to_a_summary_than_it_can_hold(gradverify, engine, spec, actions):
    actions.write_text("x" * 899 * 1024)
    engine(*(failing(f"f{i}") for i in range(20)))
    gradverify("check", "s.yaml")
    assert actions.stat().st_size <= 900 * 1024 + 1 and "left out here" in actions.read_text()


def test_a_run_in_a_folder_of_a_repository_names_its_files_from_the_root(
    gradverify, folder, monkeypatch
):
    (folder / ".git").mkdir()
    (folder / "lib").mkdir()
    (folder / "lib/op.py").write_text(WRONG)
    (folder / "packages/ops").mkdir(parents=True)
    spec = (
        "gradverify: 1\nchecks: [{name: op, function: '../../lib/op.py:Double', inputs: {x: "
        "{shape: [2]}}}]\n"
    )
    (folder / "packages/ops/s.yaml").write_text(spec)
    monkeypatch.chdir(folder / "packages/ops")
    code, out, _ = gradverify("check", "s.yaml", "--report", "r.sarif", "--format", "github")
    [result] = json.loads((folder / "packages/ops/r.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "lib/op.py"
    assert (
        result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        == "packages/ops/s.yaml"
    )
    assert (
        code == 1
        and "\n::error file=lib/op.py,line=11,title=op" in out
        and "\nat ../../lib/op.py:11\n" in out
    )


WRONG = """import torch


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "a\x1b[2Jb.yaml"],
        ["check", "s.yaml", "-k", "\x1b]0;x\x07"],
        ["explain", "GV\x1b[31m"],
    ],
)
def test_what_was_typed_reaches_no_terminal_raw(gradverify, spec, arguments):
    _, out, err = gradverify(*arguments)
    assert "\x1b" not in out + err and "\x07" not in out + err and "\\x1b" in err
