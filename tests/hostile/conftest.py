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
