"""Globs over files: `*` and `?` within one name, `**` for any number of folders, a folder's name for all that lies in it."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

ANY_DEPTH = "**"


def matches(pattern: str, folder: str, file: str) -> bool:
    """Does the glob `pattern`, relative to `folder`, stand for `file`? Both are absolute; neither needs to exist."""
    base, wanted = based(pattern, folder)
    if not f"{file}{os.sep}".startswith(f"{base.rstrip(os.sep)}{os.sep}"):
        return False
    parts = tuple(filter(None, file[len(base):].split(os.sep)))  # noqa: PTH206 - of every changed file and text
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
    parts = os.path.normpath(pattern).split(os.sep)  # noqa: PTH206 - PurePath is ten times slower
    if os.path.isabs(pattern):  # noqa: PTH117
        folder, parts = f"{parts[0]}{os.sep}", parts[1:]
    while parts and parts[0] == os.pardir:
        folder, parts = os.path.dirname(folder), parts[1:]  # noqa: PTH120
    return folder, tuple(part for part in parts if part not in ("", os.curdir))


def _fits(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == ANY_DEPTH:
        return any(_fits(wanted[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _fits(wanted[1:], parts[1:])
