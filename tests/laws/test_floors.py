"""Imports go down only, and the light half stays light: import-linter's contracts hold, and they
bite."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gradverify

PACKAGE = Path(gradverify.__file__).parent
PROJECT = PACKAGE.parent
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the package that lies in a folder, beside its pyproject.toml."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {LINT}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package and its contracts in a folder of their own; each test plants its import and takes
    it out again."""
    folder = tmp_path_factory.mktemp("floors")
    shutil.copytree(PACKAGE, folder / "gradverify", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", folder)
    return folder


def test_the_contracts_hold():
    seen = lint(PROJECT)
    assert seen.returncode == 0, seen.stdout + seen.stderr
    contracts = len(
        tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
            "importlinter"
        ]["contracts"]
    )
    assert f"{contracts} kept, 0 broken" in seen.stdout


@pytest.mark.parametrize(
    ("file", "planted", "broken"),
    [
        (
            "numerics/function/coordinates.py",
            "from gradverify.subject import find",
            "imports go down only",
        ),
        (
            "model/case.py",
            "def later():\n    from gradverify.spec import load",
            "imports go down only",
        ),
        ("spec/load.py", "import numpy", "the light half never imports torch or numpy"),
        (
            "report/json.py",
            "def later():\n    import torch",
            "the light half never imports torch or numpy",
        ),
        (
            "numerics/survey.py",
            "from gradverify.numerics.entries import run",
            "numerics stands on what is measured once",
        ),
        (
            "numerics/judging.py",
            "from gradverify.numerics import compare",
            "numerics stands on what is measured once",
        ),
        ("cellar.py", "", "imports go down only"),
    ],
)
def test_a_planted_import_breaks_its_contract(copied, file, planted, broken):
    path = copied / "gradverify" / file
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{planted}\n", encoding="utf-8")
    try:
        seen = lint(copied)
    finally:
        path.unlink() if before is None else path.write_text(before, encoding="utf-8")
    assert seen.returncode != 0
    if file == "cellar.py":  # a new file must choose its floor
        assert "cellar" in seen.stdout + seen.stderr
    else:
        assert f"{broken} BROKEN" in " ".join(seen.stdout.split())
