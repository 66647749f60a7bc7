"""Globs must stand for what Python's own `Path.glob` finds on a disk, and for files that are gone
too: a deleted kernel is a changed one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradverify.source.globs import any_file, matches

FILES = (
    "csrc/a.cu",
    "csrc/a.cpp",
    "csrc/deep/b.cu",
    "csrc/deep/er/c.cuh",
    "other/a.cu",
    "specs/x.yaml",
    "[odd]/a.cu",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "csrc/*.cu",
        "csrc/*",
        "csrc/**/*.cu",
        "**/*.cu",
        "csrc/**/*.cu*",
        "csrc/deep/b.cu",
        "csrc/a.c[pu]*",
        "*/a.cu",
        "./csrc/*.cu",
        "csrc/../other/*.cu",
        "csrc/*.hip",
        "a.cu",
        "*",
    ],
)
def test_a_glob_stands_for_the_files_that_glob_finds(pattern: str, tree: Path) -> None:
    found = {
        os.path.normpath(path.relative_to(tree)) for path in tree.glob(pattern) if path.is_file()
    }
    assert {name for name in FILES if matches(pattern, str(tree), str(tree / name))} == found
    assert any_file(pattern, str(tree)) == bool(list(tree.glob(pattern)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("../csrc/*.cu", {"csrc/a.cu"}),
        ("../csrc", {"csrc/a.cu", "csrc/a.cpp", "csrc/deep/b.cu", "csrc/deep/er/c.cuh"}),
        ("../csrc/deep", {"csrc/deep/b.cu", "csrc/deep/er/c.cuh"}),
        ("../c*c", set()),
        ("../[[]odd]/*.cu", {"[odd]/a.cu"}),
        ("..", set(FILES)),
    ],
)
def test_it_starts_from_the_spec_and_a_folder_stands_for_all_in_it(
    pattern: str, expected: set[str], tree: Path
) -> None:
    assert {
        name for name in FILES if matches(pattern, str(tree / "specs"), str(tree / name))
    } == expected


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("csrc/**.cu", "csrc/a.cu"), ("csrc/a**", "csrc/a.cpp"), ("c**/a.cu", "csrc/a.cu")],
)
def test_two_stars_beside_other_letters_are_one(pattern: str, name: str, tree: Path) -> None:
    """`Path.glob` refuses them before Python 3.13."""
    assert matches(pattern, str(tree), str(tree / name)) and any_file(pattern, str(tree))
    assert not matches("csrc/**.hip", str(tree), str(tree / name)) and not any_file(
        "csrc/**.hip", str(tree)
    )


def test_the_folder_of_the_spec_is_no_glob(tree: Path) -> None:
    assert matches("a.cu", str(tree / "[odd]"), str(tree / "[odd]" / "a.cu"))
    assert any_file("a.cu", str(tree / "[odd]"))


def test_a_file_that_is_gone_is_stood_for_too(tree: Path) -> None:
    assert matches("../csrc/*.cu", str(tree / "specs"), str(tree / "csrc" / "gone.cu"))
    assert not matches("../csrc/*.cu", str(tree / "specs"), str(tree / "csrc" / "deep" / "gone.cu"))


def test_an_absolute_glob_is_one(tree: Path) -> None:
    assert matches(str(tree / "csrc" / "*.cu"), "/elsewhere", str(tree / "csrc" / "a.cu"))
    assert any_file(str(tree / "csrc" / "*.cu"), "/elsewhere")
