from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.rules.catalogue import codes
from gradverify.spec.project import OPTIONS, project_of


@pytest.mark.parametrize(("text", "words"), [
    ("[tool.gradverify]\npahts = ['a']\n", "unknown key 'pahts'; did you mean 'paths'?"),
    ("[tool.other]\nseed = 'x'\n[tool.gradverify.defaults]\nseed = 'x'\n", "expected an integer, got 'x'"),
    ("[tool.gradverify.defaults]\ndtype = 'float8_e5m2'\n", "outputs and saved tensors may hold 8-bit floats"),
    ("[tool.gradverify.defualts]\nseed = 1\n", "unknown key 'defualts'; did you mean 'defaults'?"),
    ("[tool.gradverify]\ndefaults = {eps = -1}\n", "must be greater than 0"),
    ("[tool.gradverify]\nmax_rows = 3\n", "unknown key 'max_rows'; did you mean 'max-rows'?"),
    ("[tool.gradverify]\neps = 1e-6\n", "unknown key 'eps' here: it belongs in a check, or in `defaults`"),
    ("[tool.gradverify]\ntimeout = 3\n", "unknown key 'timeout' here: it belongs in a check, or in `defaults`"),
    ("[tool.gradverify.defaults]\njobs = 3\n", "unknown key 'jobs'"),
    ("[tool.gradverify]\nignore = ['GV2']\n", "it belongs in `rules: {"),
    ("[tool.gradverify.defaults]\nselect = ['GV2']\n", "it belongs in `rules: {"),
    ("[tool.gradverify.defaults]\ntags = ['slow']\n", "it belongs in a spec: in a check, or in its `defaults`"),
    ("[tool.gradverify.defaults]\nstrict = 'yes'\n", "expected true or false, got 'yes'; write true or false"),
    ("[tool.gradverify]\nundecided = 'fial'\n", "unknown value 'fial'; did you mean 'fail'?"),
    ("[tool.gradverify]\njobs = 'all'\n", "expected a whole number of processes, or auto, got 'all'"),
    ("[tool.gradverify]\npaths = 'specs'\n", "expected a list, got 'specs'; for example [\"specs\"]"),
    ("[tool.gradverify.defaults]\nbudget = 3\n", "expected a table, got 3"),
    ("[tool.gradverify]\njobs = 0\n", "must be at least 1, got 0"),
    ("[tool.gradverify]\nmax-rows = 101\n", "must be less than 101, got 101"),
    ("[tool.gradverify.defaults]\nseed = -1\n", "must be at least 0, got -1"),
    ("[tool.gradverify]\nrequire-device = ['gpu']\n", "expected cpu, cuda, cuda:<number> or auto, got 'gpu'"),
    ("[tool.gradverify.defaults.rules]\nignore = ['GV999']\n", "GV999"),
])
def test_a_fault_in_the_project_has_its_key(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    problems = project_of(tmp_path, codes()).problems
    assert len(problems) == 1
    assert words in problems[0].message and "YAML" not in problems[0].message and "{\"" not in problems[0].message
    assert problems[0].path is not None and problems[0].path.startswith("tool.gradverify")


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = \n", 2), ("[a\n", 1), ("a = 1\na = 2\n", 2), ("a = '''\nb\n", 3)])
def test_what_is_no_toml_has_its_line(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    [problem] = project_of(tmp_path).problems
    assert (f"line {line}" in problem.message or "end of document" in problem.message) and problem.message.startswith("no TOML: ")


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
    layer = project_of(tmp_path).layer
    assert layer.said == {"eps": 1e-6, "ignore": ["GV2"]}


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a = " + "1" * 5000], ids=["nested too deeply", "too many digits"])
def test_what_python_cannot_read_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    [problem] = project_of(tmp_path).problems
    assert problem.message.startswith("cannot be read: ") and "\n" not in problem.message


def test_every_fault_is_told_as_seen_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.gradverify.defaults]\nseed = 'x'\nsede = 1\n[tool.gradverify]\njobs = 0\nwidth = 3\n")
    (tmp_path / "inner").mkdir()
    problems = project_of(tmp_path / "inner").problems
    assert [problem.file for problem in problems] == ["../pyproject.toml"] * 4


def test_the_options_are_those_of_check_by_their_names() -> None:
    """Each is a parameter of the command, so that none is given in vain."""
    from gradverify.cli.options import OF_CHECK

    assert {name.replace("-", "_") for name in OPTIONS} <= set(OF_CHECK)
