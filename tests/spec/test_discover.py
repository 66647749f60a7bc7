from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.spec.discover import discover, select
from gradverify.spec.load import load
from spec.marked import BUILTINS, CODES

SPEC = (
    "gradverify: 1\nchecks:\n  - {name: a, function: mul, inputs: [1, 2], matrix: {seed: [1, 2]}}\n"
    "  - {function: relu, inputs: [1]}\n"
)


def write(folder: Path, **texts: str) -> None:
    """Files by their path with `__` for `/` and `_yaml` for the suffix."""
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace(
            "_toml", ".toml"
        ).replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(paths: list[str], cwd: Path) -> list[str]:
    return [file.as_posix() for file in discover(paths, cwd).files]


def test_files_are_shown_relative_to_the_current_folder(tmp_path: Path) -> None:
    write(tmp_path, a_yaml=SPEC, sub__b_yaml=SPEC)
    assert names(["a.yaml", "./sub/b.yaml", str(tmp_path / "a.yaml")], tmp_path) == [
        "a.yaml",
        "sub/b.yaml",
    ]
    assert names(["../a.yaml"], tmp_path / "sub") == ["../a.yaml"]
    assert names([str(tmp_path / "a.yaml")], tmp_path / "sub") == [str(tmp_path / "a.yaml")]


def test_a_folder_gives_its_specs_sorted_and_leaves_other_yaml_alone(tmp_path: Path) -> None:
    write(
        tmp_path,
        s__b_yaml=SPEC,
        s__a_yaml=SPEC,
        s__deep__c_yaml=SPEC,
        s__other_yaml="on: push\njobs: {}\n",
        s__broken_yaml="a: [",
        s__text_yaml="doc: |\n  gradverify: 1\n",
        s__ops_py="gradverify = 1",
    )
    assert names(["s"], tmp_path) == ["s/a.yaml", "s/b.yaml", "s/deep/c.yaml"]


def test_hidden_folders_environments_and_packages_are_not_searched(tmp_path: Path) -> None:
    write(tmp_path, s__a_yaml=SPEC, s__node_modules__b_yaml=SPEC, s__env__c_yaml=SPEC)
    write(tmp_path / "s" / ".hidden", d_yaml=SPEC)
    (tmp_path / "s" / "env" / "pyvenv.cfg").write_text("")
    assert names(["s"], tmp_path) == ["s/a.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "checks:\n  - {a: [\n",
        "gradverify: 1\nchecks: [\n",
        "gradverfy: 1\nchecks:\n  - function: mul\n    inputs: [1, 2]\n",
        "# a\n'gradverify': 1\n",
    ],
)
def test_a_file_in_a_folder_that_is_meant_as_a_spec_is_not_passed_over(
    text: str, tmp_path: Path
) -> None:
    is_meant = "function" in text or "gradverify" in text
    write(tmp_path, s__a_yaml=text)
    assert names(["s"], tmp_path) == (["s/a.yaml"] if is_meant else [])


def test_a_file_with_the_suffix_must_be_a_spec(tmp_path: Path) -> None:
    write(tmp_path, s__placeholder_yaml="a: 1")
    (tmp_path / "s" / "b.gradverify.yaml").write_text("a: 1")
    found = discover(["s"], tmp_path)
    problems = load(found.files, builtins=BUILTINS, codes=CODES, cwd=tmp_path).problems
    assert [file.name for file in found.files] == ["b.gradverify.yaml"]
    assert "`gradverify: 1`" in problems[0].message


def test_a_missing_path_is_a_problem_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, linear_yaml=SPEC)
    found = discover(["liner.yaml", "gone/x.yaml"], tmp_path)
    assert [str(problem) for problem in found.problems] == [
        "liner.yaml: no such file or folder; did you mean 'linear.yaml'?",
        "gone/x.yaml: no such file or folder",
    ]


def test_a_folder_without_specs_is_no_problem_but_said(tmp_path: Path) -> None:
    write(tmp_path, s__other_yaml="a: 1")
    found = discover(["s"], tmp_path)
    assert (found.files, found.problems) == ((), ())
    assert found.message is not None and "s" in found.message


def test_without_paths_the_project_says_where_to_look(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_toml='[tool.gradverify]\npaths = ["checks"]\n[tool.gradverify.defaults]\nseed = 3\n',
        checks__a_yaml=SPEC,
        specs__b_yaml=SPEC,
        sub__x_py="",
    )
    assert names([], tmp_path) == ["checks/a.yaml"]
    found = discover([], tmp_path / "sub")
    assert [(tmp_path / "sub" / file).resolve() for file in found.files] == [
        tmp_path / "checks" / "a.yaml"
    ]
    assert found.project.layer.values == {"seed": 3}


def test_without_paths_and_project_specs_then_the_suffix_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path, sub__x_yaml=SPEC)
    assert discover([], tmp_path).files == () and "specs/" in str(discover([], tmp_path).message)
    (tmp_path / "sub" / "op.gradverify.yaml").write_text(SPEC)
    assert names([], tmp_path) == ["sub/op.gradverify.yaml"]
    write(tmp_path, specs__b_yaml=SPEC)
    assert names([], tmp_path) == ["specs/b.yaml"]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["s.yaml"], ["a[seed=1]", "a[seed=2]", "relu"]),
        (["s.yaml::relu"], ["relu"]),
        (["s.yaml::a"], ["a[seed=1]", "a[seed=2]"]),
        (["s.yaml::a[seed=2]"], ["a[seed=2]"]),
        (["s.yaml::a[seed=2]", "s.yaml::relu"], ["a[seed=2]", "relu"]),
        (["s.yaml::relu", "s.yaml"], ["a[seed=1]", "a[seed=2]", "relu"]),
    ],
)
def test_a_name_after_two_colons_selects_a_case_or_all_of_a_check(
    paths: list[str], expected: list[str], tmp_path: Path
) -> None:
    write(tmp_path, s_yaml=SPEC)
    found = discover(paths, tmp_path)
    cases = load(found.files, builtins=BUILTINS, codes=CODES, cwd=tmp_path).cases
    chosen, problems = select(found, cases)
    assert [case.name for case in chosen] == expected
    assert problems == ()


def test_a_name_that_no_case_has_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, s_yaml=SPEC)
    found = discover(["s.yaml::relo"], tmp_path)
    chosen, problems = select(
        found, load(found.files, builtins=BUILTINS, codes=CODES, cwd=tmp_path).cases
    )
    assert chosen == ()
    assert len(problems) == 1 and "no check 'relo'; did you mean 'relu'?" in problems[0].message


@pytest.mark.parametrize(
    ("given", "written"),
    [("ops.py", "ops.py:Name"), ("ops.py:Swish", "ops.py:Swish"), ("gone.py", "gone.py:Name")],
)
def test_a_python_file_is_told_to_stand_in_a_spec(tmp_path: Path, given: str, written: str) -> None:
    write(tmp_path, ops_py="def f(x): return x")
    (problem,) = discover([given], tmp_path).problems
    assert (
        str(problem)
        == f"{given}: Python is no spec: name it in a YAML file, as `function: {written}`, or check "
        f"a function in it, as `gradverify check {written}`"
    )


def test_links_in_a_circle_are_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "a.yaml").symlink_to(tmp_path / "specs" / "a.yaml")
    found = discover([], tmp_path)
    assert [str(file) for file in found.files] == ["specs/a.yaml"]
    [problem] = load(found.files, builtins=BUILTINS, codes=CODES, cwd=tmp_path).problems
    assert problem.message.startswith("cannot be read: ")
