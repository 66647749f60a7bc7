from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.rules.catalogue import codes
from gradverify.spec.fault import Fault
from gradverify.spec.project import OPTIONS, Project, project_of
from spec.marked import unmarked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.gradverify]\n«path = ['a']\n", "unknown key 'path'; did you mean 'paths'?"),
        (
            "[tool.other]\nseed = 'x'\n[tool.gradverify.defaults]\n«seed = 'x'\n",
            "expected an integer, got 'x'",
        ),
        (
            "[tool.gradverify.defaults]\n«dtype = 'float8_e5m2'\n",
            "outputs and saved tensors may hold 8-bit floats",
        ),
        (
            "[tool.gradverify.«defualts]\nseed = 1\n",
            "unknown key 'defualts'; did you mean 'defaults'?",
        ),
        ("[tool.gradverify]\n«defaults = {eps = -1}\n", "must be greater than 0"),
        ("[tool.gradverify]\n«max_rows = 3\n", "unknown key 'max_rows'; did you mean 'max-rows'?"),
        (
            "[tool.gradverify]\n«eps = 1e-6\n",
            "'eps' is a setting of checks: it belongs in [tool.gradverify.defaults]",
        ),
        (
            "[tool.gradverify]\n«timeout = 3\n",
            "'timeout' is a setting of checks: it belongs in [tool.gradverify.defaults]",
        ),
        (
            "[tool.gradverify.defaults]\n«jobs = 3\n",
            "'jobs' is an option of the run: it belongs in [tool.gradverify]",
        ),
        (
            "[tool.gradverify]\n«ignore = ['GV2']\n",
            "'ignore' stands in `rules`: [tool.gradverify.defaults] rules = {ignore = ",
        ),
        (
            "[tool.gradverify.defaults]\n«select = ['GV2']\n",
            "'select' stands in `rules`: rules = {select = ",
        ),
        (
            "[tool.gradverify.defaults]\n«tags = ['slow']\n",
            "'tags' belongs to a spec (its `defaults`, or a check), not to a project",
        ),
        (
            "[tool.gradverify.defaults]\n«strict = 'yes'\n",
            "expected true or false, got 'yes'; write true or false",
        ),
        ("[tool.gradverify]\n«undecided = 'fial'\n", "unknown value 'fial'; did you mean 'fail'?"),
        (
            "[tool.gradverify]\n«jobs = 'all'\n",
            "expected a whole number of processes, or auto, got 'all'",
        ),
        (
            "[tool.gradverify]\n«paths = 'specs'\n",
            "expected a list, got 'specs'; for example [\"specs\"]",
        ),
        ("[tool.gradverify.defaults]\n«budget = 3\n", "expected a table, got 3"),
        ("[tool.gradverify]\n«jobs = 0\n", "must be at least 1, got 0"),
        ("[tool.gradverify]\n«max-rows = 101\n", "must be less than 101, got 101"),
        ("[tool.gradverify.defaults]\n«seed = -1\n", "must be at least 0, got -1"),
        (
            "[tool.gradverify]\n«require-device = ['gpu']\n",
            "expected cpu, cuda, cuda:<number> or auto, got 'gpu'",
        ),
        ("[tool.gradverify.defaults.rules]\n«ignore = ['GV999']\n", "GV999"),
    ],
)
def test_a_fault_in_the_project_has_its_line(text: str, words: str, tmp_path: Path) -> None:
    text, places = unmarked(text)
    (tmp_path / "pyproject.toml").write_text(text)
    problems = project_of(tmp_path, codes()).problems
    assert [(problem.line, problem.column) for problem in problems] == places
    assert (
        words in problems[0].message
        and "YAML" not in problems[0].message
        and '{"' not in problems[0].message
    )
    assert problems[0].path is not None and problems[0].path.startswith("tool.gradverify")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[tool.gradverify.defaults]\n  seed = 1\n", (2, 3)),
        ("[tool.gradverify]\ndefaults.seed = 1\n", (2, 10)),
        ("[tool]\ngradverify.defaults.seed = 1\n", (2, 21)),
        ("[ tool . 'gradverify' . defaults ]  # seed = 3\n\"seed\" = 1\n", (2, 2)),
        (
            "text = '''\n[tool.gradverify.defaults]\nseed = 2\n'''\n[tool.gradverify.defaults]\n# "
            "seed = 3\nseed = 1\n",
            (7, 1),
        ),
        ("[tool.gradverify.defaults]\neps = 'seed = 2'\nseed = 1\n", (3, 1)),
        (
            "[tool.other.defaults]\nseed = 2\n[tool.gradverify.defaults]\nseed = 1\n[more]\nseed "
            "= 3\n",
            (4, 1),
        ),
        (
            "[[tool.other]]\nseed = 1\n[tool.gradverify.defaults.rules]\nignore = []\n"
            "[tool.gradverify.defaults]\nseed = 1\n",
            (6, 1),
        ),
        ("[tool.gradverify]\ndefaults = {seed = 1}\n", (2, 1)),
        ("[tool.gradverify.defaults]\n", (1, 18)),
        ("[other]\n", (None, None)),
    ],
)
def test_a_key_is_found_where_it_stands_or_what_is_around_it(
    text: str, place: tuple[int | None, int | None]
) -> None:
    problem = Project(text=text).problem(Fault(("defaults", "seed"), "x"))
    assert (problem.line, problem.column) == place and problem.text == (
        None if place[0] is None else text.split("\n")[place[0] - 1]
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\nb = \n", 2), ("[a\n", 1), ("a = 1\na = 2\n", 2), ("a = '''\nb\n", 3)],
)
def test_what_is_no_toml_has_its_line_and_a_message_without_it(
    text: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    [problem] = project_of(tmp_path).problems
    assert (
        problem.line == line
        and "line" not in problem.message
        and problem.message.startswith("no TOML: ")
    )


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
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradverify.defaults]\neps = 1e-6\nrules = {ignore = ['GV2']}\n"
    )
    layer = project_of(tmp_path).layer
    assert layer.values == {"eps": 1e-6, "ignore": ["GV2"]}
    assert (layer.places["eps"], layer.places["ignore"]) == ("pyproject.toml:2", "pyproject.toml:3")


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 20_000, "a = " + "1" * 5000],
    ids=["nested too deeply", "too many digits"],
)
def test_what_python_cannot_read_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    [problem] = project_of(tmp_path).problems
    assert problem.message.startswith("cannot be read: ") and "\n" not in problem.message


def test_every_fault_is_told_in_the_order_of_the_file_as_seen_from_the_current_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gradverify.defaults]\nseed = 'x'\nsede = 1\n[tool.gradverify]\njobs = 0\nwidth = 3\n"
    )
    (tmp_path / "inner").mkdir()
    problems = project_of(tmp_path / "inner").problems
    assert [(problem.file, problem.line) for problem in problems] == [
        ("../pyproject.toml", line) for line in (2, 3, 5, 6)
    ]


def test_the_options_are_those_of_check_by_their_names() -> None:
    """Each is a parameter of the command, so that none is given in vain."""
    from gradverify.cli.options import OF_CHECK

    assert {name.replace("-", "_") for name in OPTIONS} <= set(OF_CHECK)
