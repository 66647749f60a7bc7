from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.spec.project import project_of
from spec.marked import unmarked


@pytest.mark.parametrize(("text", "words"), [
    ("[tool.gradverify]\n«path = ['a']\n", "unknown key 'path'; did you mean 'paths'?"),
    ("[tool.other]\nseed = 'x'\n[tool.gradverify.defaults]\n«seed = 'x'\n", "expected an integer, got 'x'"),
    ("[tool.gradverify.defaults]\n«dtype = 'bfloat16'\n", "not supported yet"),
    ("[tool.gradverify.«defualts]\nseed = 1\n", "unknown key 'defualts'; did you mean 'defaults'?"),
    ("[tool.gradverify]\ndefaults = {«eps = -1}\n", "must be greater than 0"),
])
def test_a_fault_in_the_project_has_its_line(text: str, words: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    (tmp_path / "pyproject.toml").write_text(text)
    problems = project_of(tmp_path).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert words in problems[0].message
    assert problems[0].path is not None and problems[0].path.startswith("tool.gradverify")


@pytest.mark.parametrize("text", ["[tool.gradverify\n", "[tool]\ngradverify = 3\n", "tool = 3\n"])
def test_a_file_that_cannot_be_read_is_one_problem(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert len(project_of(tmp_path).problems) == 1


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    (tmp_path / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.gradverify]\npaths = ['a']\n")
    assert project_of(tmp_path / "inner" / "deep").paths == ("a",)
    (tmp_path / "inner" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert project_of(tmp_path / "inner" / "deep").paths == ()


def test_rules_and_tolerances_become_a_layer(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gradverify.defaults]\neps = 1e-6\nrules = {ignore = ['GV2']}\n")
    assert project_of(tmp_path).layer.said == {"eps": 1e-6, "ignore": ["GV2"]}
