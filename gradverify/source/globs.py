"""Globs over files: `*` and `?` within one name, `**` for any number of folders, a folder's name
for all that lies in it."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Sequence
from pathlib import Path

ANY_DEPTH = "**"


def matches(pattern: str, folder: str, file: str) -> bool:
    """Return whether the glob `pattern`, relative to `folder`, matches `file`. Folder and file are
    absolute, and need not exist."""
    base, wanted = based(pattern, folder)
    if not f"{file}{os.sep}".startswith(f"{base.rstrip(os.sep)}{os.sep}"):
        return False
    parts = tuple(filter(None, file[len(base) :].split(os.sep)))  # noqa: PTH206 - of every changed file and text
    is_folder = not wanted or not glob.has_magic(wanted[-1])
    return _fits(wanted, parts) or (
        is_folder and any(_fits(wanted, parts[:end]) for end in range(len(parts)))
    )


def any_file(pattern: str, folder: str) -> bool:
    """Return whether the glob matches any existing file or folder."""
    base, wanted = based(pattern, folder)
    # Pathlib rejects `**.cu`; here it is `*.cu`
    names = [name if name == ANY_DEPTH else name.replace(ANY_DEPTH, "*") for name in wanted]
    return not wanted or any(True for _ in Path(base).glob("/".join(names)))


def based(pattern: str, folder: str) -> tuple[str, tuple[str, ...]]:
    """Return the folder that a pattern starts from, with its leading `..` applied, and the names
    below it, which may be globs."""
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
