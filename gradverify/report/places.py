"""Paths relative to the root of the repository, as build servers need them; and the package that a file belongs to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gradverify.model.event import Environment
from gradverify.model.result import Finding, Frame, FunctionInfo

PACKAGE = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\](?P<name>[^/\\]+)")
LIBRARY = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*t?[/\\]")


@dataclass(frozen=True, slots=True)
class Place:
    """A line (from 1) of a file below the repository's root, its folders separated by `/`; None: the file as a whole."""

    file: str
    line: int | None = None


def in_repository(file: str | None, environment: Environment) -> str | None:
    """A file named relative to the run's folder, from the root of the repository; None where it lies elsewhere or in an installed package."""
    if not file or posixpath.isabs(file) or package(file) or file.startswith("<"):
        return None
    path = posixpath.normpath(posixpath.join(environment.folder or "", file))
    return None if path.startswith("..") else path


def place_of(found: Finding | None, function: FunctionInfo, environment: Environment) -> Place | None:
    """What to change: the line of the finding, else the innermost line of the repository that raised, else the function's; None: none is here."""
    frames = [(frame.file, frame.line) for frame in reversed(found.frames)] if found else []
    candidates = ([(found.file, found.line)] if found else []) + frames + ([(function.file, function.line)] if found else [])
    for file, line in candidates:
        path = in_repository(file, environment)
        if path:
            return Place(path, line)
    return None


def package(file: str) -> str | None:
    """The installed package that a file belongs to, `Python` for its library; None for anybody's own code."""
    installed = PACKAGE.search(file)
    return installed["name"].removesuffix(".py") if installed else "Python" if LIBRARY.search(file) else None


def folded(frames: Sequence[Frame], own: str | None) -> Iterator[Frame | str]:
    """The frames; in place of those of other packages a note. `own`: the file of what is checked, whose package is not another one."""
    for is_other, group in groupby(frames, lambda frame: package(frame.file) not in (None, package(own or ""))):
        same = tuple(group)
        if not is_other:
            yield from same
            continue
        names = dict.fromkeys(package(frame.file) or "" for frame in same)
        yield f"{len(same)} {'frame' if len(same) == 1 else 'frames'} in {', '.join(names)}"
