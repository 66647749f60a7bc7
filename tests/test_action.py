"""The GitHub action: sound by GitHub's schema, no input in a script, and its script run as a runner
would run it. The workflows: sound."""

import json
import sys
from pathlib import Path

import pytest
from commands import process
from repository import ACTION, ROOT, action

STEPS = ACTION["runs"]["steps"]
SPEC = """gradverify: 1
checks:
  - {name: "right[n=2]", function: relu, inputs: {input: {shape: [2]}}}
  - {name: "two words", function: sigmoid, inputs: {input: {shape: [2]}}}
  - {name: wrong, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, expected: {x: [2, 2]}}
"""


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-actions", "action.yml"), ("github-workflows", ".github/workflows/*.yml")],
)
def test_the_action_and_the_workflows_are_sound(schema, files):
    found = [str(path) for path in ROOT.glob(files)]
    done = process(
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *found,
        cwd=ROOT,
    )
    assert found and done.returncode == 0, done.stdout + done.stderr


def test_no_input_stands_in_a_script():
    """Text of a pull request in a script would be run as one."""
    assert not [step["run"] for step in STEPS if "${{" in step["run"]]
    assert all(step["shell"] == "bash" for step in STEPS)


@pytest.fixture
def runner(tmp_path):
    """`runner(**inputs)`: exit code, outputs, text and job summary of the check step."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/ops.yaml").write_text(SPEC)

    def run(**inputs):
        code, text, outputs, summary = action(tmp_path, **inputs)
        return code, outputs, text, summary

    return run


def test_a_wrong_gradient_fails_the_step_and_is_annotated(runner, tmp_path):
    """No module of the repository takes the place of another."""
    for name in (
        "json.py",
        "token.py",
        "typer.py",
        "runpy.py",
        "gradverify/__init__.py",
        "gradverify/__main__.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit(0)\n")
    code, outputs, text, summary = runner(paths="specs\n")
    assert (code, outputs) == (
        1,
        {"exit-code": "1", "report": "gradverify-report.json", "failed": "1"},
    ), text
    assert "::error" in text and "wrong" in summary
    assert json.loads((tmp_path / "gradverify-report.json").read_text())["summary"]["pass"] == 2


def test_a_path_that_is_named_like_an_option_is_a_path(runner):
    code, outputs, text, _ = runner(paths="--help\nspecs\n")
    assert (code, outputs["failed"]) == (2, "") and "--help" in text


def test_paths_stand_on_lines_and_options_between_blanks(runner, tmp_path):
    code, outputs, text, _ = runner(
        paths="specs/ops.yaml::two words\nspecs/ops.yaml::right[n=2]\n",
        args="-q  --seed\n3\n",
        report="out/r.json",
    )
    assert (code, outputs["failed"]) == (0, "0"), text
    report = json.loads((tmp_path / "out/r.json").read_text())
    assert {(check["name"], check["seed"]) for check in report["checks"]} == {
        ("two words", 3),
        ("right[n=2]", 3),
    }


def test_what_cannot_run_has_its_exit_code_and_no_count(runner):
    code, outputs, text, _ = runner(paths="nowhere.yaml", args="$(touch hacked)")
    assert code == 2 and outputs["failed"] == "" and outputs["exit-code"] == "2", text
    assert not Path("hacked").exists()


def test_options_are_quoted_as_in_a_shell(runner):
    code, outputs, text, _ = runner(args="-k 'two or right'\n--durations 1")
    assert code == 0 and "2 passed" in text and "1 deselected" in text
    code, outputs, text, _ = runner(args="-k 'two or right")
    assert code == 2 and "args: No closing quotation" in text and outputs["exit-code"] == "2"
