"""Globs over files: `*` and `?` within one name, `**` for any number of folders, a folder's name for all that lies in it."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

ANY_DEPTH = "**"


def matches(pattern: str, folder: str, file: str) -> bool:
    """Does the glob `pattern`, relative to `folder`, stand for `file`? Both are absolute; neither needs to exist."""
    base, wanted = based(pattern, folder)
    path = PurePath(file)
    if not path.is_relative_to(base):
        return False
    parts = path.relative_to(base).parts
    is_folder = not wanted or not glob.has_magic(wanted[-1])
    return _fits(wanted, parts) or (is_folder and any(_fits(wanted, parts[:end]) for end in range(len(parts))))


def any_file(pattern: str, folder: str) -> bool:
    """Is there anything that the glob stands for?"""
    return not based(pattern, folder)[1] or any(True for _ in _found(pattern, folder))


def files_of(pattern: str, folder: str) -> Iterator[Path]:
    """All files that the glob stands for."""
    for path in _found(pattern, folder):
        yield from (each for each in (path.rglob("*") if path.is_dir() else (path,)) if each.is_file())


def _found(pattern: str, folder: str) -> Iterator[Path]:
    base, wanted = based(pattern, folder)
    names = [name if name == ANY_DEPTH else name.replace(ANY_DEPTH, "*") for name in wanted]     # pathlib refuses `**.cu`; here it is `*.cu`
    yield from Path(base).glob("/".join(names)) if wanted else (Path(base),)


def based(pattern: str, folder: str) -> tuple[str, tuple[str, ...]]:
    """The folder that a pattern starts from, its leading `..` followed, and the names below it, which may be globs."""
    if PurePath(pattern).is_absolute():
        folder = PurePath(pattern).anchor
        pattern = pattern[len(folder):]
    base, parts = PurePath(folder), list(PurePath(os.path.normpath(pattern)).parts)
    while parts and parts[0] == os.pardir:
        base, parts = base.parent, parts[1:]
    return str(base), tuple(parts)


def _fits(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == ANY_DEPTH:
        return any(_fits(wanted[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _fits(wanted[1:], parts[1:])
