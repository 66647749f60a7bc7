import pytest
from commands import SQUARES, checks, here, spec

AFTER = "name: after, function: 'op.py:Square', inputs: {x: {shape: [2]}}, rules: {select: [GV101]}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that is the current one, outside of any CI."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "")
    return tmp_path


@pytest.fixture
def verdicts(folder):
    """`verdicts(cases)` runs a check of each `(code, check)` by name in one run, and a right one at
    its end: the parts of the report by name."""

    def call(cases):
        lines = []
        for number, (name, (code, check)) in enumerate(cases.items()):
            (folder / f"op{number}.py").write_text(SQUARES + code)
            lines.append(f"name: '{name}', function: 'op{number}.py:f', {check}")
        (folder / "op.py").write_text(SQUARES)
        (folder / "s.yaml").write_text(spec(*lines, AFTER))
        exit_code, stdout, stderr = here("check", "s.yaml", "--report", "json:r.json")
        assert stderr == "" and "Traceback" not in stdout and exit_code in (0, 1, 3), stdout
        found = checks(folder / "r.json")
        assert found.pop("after")["verdict"] == "pass" and found.keys() == cases.keys()
        return found

    return call


@pytest.fixture
def verdict(folder):
    """`verdict(code, check)` runs one check of `op.py:f` and a right one after it: (exit code, the
    first check's part of the report)."""

    def call(code, check="inputs: {x: {shape: [4]}}", *options):
        (folder / "op.py").write_text(SQUARES + code)
        (folder / "s.yaml").write_text(spec(f"name: first, function: 'op.py:f', {check}", AFTER))
        exit_code, stdout, stderr = here("check", "s.yaml", "--report", "json:r.json", *options)
        assert stderr == "" and "Traceback" not in stdout
        found = checks(folder / "r.json")
        assert found["after"]["verdict"] == "pass" and exit_code in (0, 1, 3), stdout
        return exit_code, found["first"]

    return call
