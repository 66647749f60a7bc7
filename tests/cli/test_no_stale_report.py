"""No report says more than this run saw: one of an earlier run does not survive a run that is
refused or does not end, and none takes the place of a file that is no report."""

from __future__ import annotations

import pytest
from factories import passing

GREEN = '{"schema_version": 1, "checks": [], "exit_code": 0}\n'


@pytest.mark.parametrize(
    "name", ["s.yaml", "linked.json", "odd.txt", "ops.py", "pyproject.toml", "other.YML"]
)
def test_a_report_in_place_of_what_is_read_is_refused_and_the_file_is_left(
    gradverify, engine, spec, folder, name
):
    engine(passing())
    (folder / "odd.txt").write_text(spec.read_text())
    (folder / "ops.py").write_text("x = 1\n")
    (folder / "other.YML").write_text(spec.read_text())
    (folder / "pyproject.toml").write_text("[tool.gradverify]\n")
    (folder / "linked.json").symlink_to(spec)
    before = (folder / name).read_bytes()
    code, out, err = gradverify("check", "s.yaml", "odd.txt", "--report", f"json:{name}")
    assert (code, out) == (2, "") and err.startswith("--report: a report ") and err.count("\n") == 1
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "bad.yaml"),
        ("check", "nowhere.yaml"),
        ("check", "s.yaml", "-k", "and and"),
        ("check", "s.yaml", "--baseline", "nowhere.json"),
    ],
    ids=" ".join,
)
def test_a_run_that_is_refused_leaves_no_report_of_an_earlier_one(
    gradverify, spec, folder, arguments
):
    (folder / "bad.yaml").write_text("gradverify: 1\nchecks: 3\n")
    for name in ("r.json", "r.xml"):
        (folder / name).write_text(GREEN)
    code, _, _ = gradverify(*arguments, "--report", "json:r.json", "--report=junit:r.xml")
    assert code == 2 and not (folder / "r.json").exists() and not (folder / "r.xml").exists()


def test_what_a_refused_command_names_otherwise_is_left(gradverify, spec, folder):
    (folder / "known.json").write_text("{}")
    assert (
        gradverify("check", "s.yaml", "--baseline", "known.json", "--report", "json:known.json")[0]
        == 2
    )
    assert (folder / "known.json").exists()


ENDS = "import ctypes; ctypes.CDLL(None)._exit(0)"


@pytest.mark.timeout(600)
def test_code_that_ends_the_process_of_the_whole_run_leaves_no_green_report(process, folder):
    (folder / "op.py").write_text(f"def f(x):\n    {ENDS}\n")
    (folder / "s.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {function: 'op.py:f', inputs: {x: {shape: [2]}}}\n"
    )
    (folder / "r.json").write_text(GREEN)
    done = process("check", "s.yaml", "--no-isolate", "--report", "json:r.json", timeout=500)
    assert done.returncode == 0  # which nothing can change any more
    assert not (folder / "r.json").exists()
