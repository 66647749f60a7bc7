"""Names and places as they are shown, and the escaping of untrusted text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from gradverify.model.event import Environment
    from gradverify.model.result import CaseResult, Entry, Finding, Frame, FunctionInfo, Index

INTERPRETERS = {"triton": "Triton's interpreter"}
"""Interpreters that run kernels in place of a GPU, by their names in the report."""

Part = Literal["re", "im"] | None

ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that move the cursor, reverse text, end a line, cannot be encoded, or are not allowed
in XML 1.0."""

COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#(?:|vso|teamcity)\[)", re.MULTILINE | re.IGNORECASE)
"""The beginning of a command of GitHub Actions, Azure Pipelines or TeamCity."""


def clean(text: str) -> str:
    """Return text with every control character (as in escape sequences) written as `\\x07`, and
    lines ended by `\\n`."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return CONTROL.sub(
        lambda found: found.group().encode("unicode_escape").decode(), text
    ).expandtabs(4)


def inert(text: str) -> str:
    """Return text with every beginning of a command of a CI service escaped (validly in JSON too):
    output of checked code, or the name of a file, must not run commands of the service."""
    return COMMAND.sub(lambda found: "\\u0023" if found[1] is None else f"{found[1]}\\u003a", text)


def uncolored(text: str) -> str:
    """Return the output of a program for a terminal without its escape sequences."""
    return clean(ESCAPE_SEQUENCE.sub("", text))


def one_line(text: str) -> str:
    """Return a name or id with its line breaks escaped."""
    return clean(text).replace("\n", "\\n")


def element(name: str, index: Index, part: Part = None) -> str:
    """Return the name of an element: x[3,1], y0[2], z[4].real; of a 0-dim tensor just its name."""
    place = f"[{','.join(str(i) for i in index)}]" if index else ""
    return name + place + {None: "", "re": ".real", "im": ".imag"}[part]


def output(number: int | None, name: str | None = None) -> str:
    """Return the name of an output; y0, y1… if it has none; `y` for all outputs together."""
    return "y" if number is None else f"y{number}" if name is None else name


def output_element(entry: Entry, number: int | None, name: str | None = None) -> str:
    return element(output(number, name), entry.output_index, entry.output_part)


def input_element(entry: Entry, name: str) -> str:
    return element(name, entry.input_index, entry.input_part) if name else "-"


def device_of(check: CaseResult) -> str:
    """Return the device of a check: `cpu`; `cpu, under Triton's interpreter`."""
    return check.device + (
        f", under {INTERPRETERS.get(check.interpreter, check.interpreter)}"
        if check.interpreter
        else ""
    )


def title_of(found: Finding) -> str:
    """Return the title of a finding: `GV101 jacobian`."""
    return f"{found.code} {found.name}".strip()


def pair_of(found: Finding) -> str:
    """Return `y0 / x`: the output and the input that a finding is about, as far as it names
    them."""
    parts = [output(found.output, found.output_name)] if found.output is not None else []
    return " / ".join([*parts, *([found.input] if found.input else [])])


T = TypeVar("T")

LINES = frozenset(
    {
        *("message", "detail", "hint", "reason", "source", "text", "trace", "crashed"),
        *("conclusion", "in_check", "notes", "limit"),
    }
)
"""Fields that may have several lines; names, paths and everything else stay on one."""


def readable(value: T) -> T:
    """Return a report, or a part of one, with all texts fit for display. Parts that are already are
    not copied."""
    seen: T = _readable(value, "")
    return seen


def _readable(value: Any, field: str) -> Any:
    if isinstance(value, str):
        return (
            uncolored(value)
            if field == "captured"
            else clean(value)
            if field in LINES
            else one_line(value)
        )
    if isinstance(value, (tuple, list)):
        items = type(value)(_readable(item, field) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, Mapping):
        return {_readable(name, field): _readable(item, field) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: (getattr(value, each.name), each.name) for each in fields(value)}
        changed = {
            name: new
            for name, (old, _) in found.items()
            if (new := _readable(old, name)) is not old
        }
        return replace(value, **changed) if changed else value
    return value


PACKAGE = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\](?P<name>[^/\\]+)")
LIBRARY = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*t?[/\\]")


@dataclass(frozen=True, slots=True)
class Place:
    """A line (from 1; None: the file as a whole) of a file, given by its path from the root of the
    repository, with `/`."""

    file: str
    line: int | None = None


def in_repository(file: str | None, environment: Environment) -> str | None:
    """Return the path from the root of the repository of a file given relative to the run's folder;
    None if it lies elsewhere or in an installed package."""
    if not file or posixpath.isabs(file) or package(file) or file.startswith("<"):
        return None
    path = posixpath.normpath(posixpath.join(environment.folder or "", file))
    return None if path.startswith("..") else path


def place_of(
    found: Finding | None, function: FunctionInfo, environment: Environment
) -> Place | None:
    """Return the place to change: the line of the finding, else the innermost line of the
    repository in the traceback, else that of the function; None if none is in the repository."""
    frames = [(frame.file, frame.line) for frame in reversed(found.frames)] if found else []
    candidates = (
        ([(found.file, found.line)] if found else [])
        + frames
        + ([(function.file, function.line)] if found else [])
    )
    for file, line in candidates:
        path = in_repository(file, environment)
        if path:
            return Place(path, line)
    return None


def package(file: str) -> str | None:
    """Return the installed package that a file belongs to, `Python` for the standard library; None
    for other code."""
    installed = PACKAGE.search(file)
    return (
        installed["name"].removesuffix(".py")
        if installed
        else "Python"
        if LIBRARY.search(file)
        else None
    )


def folded(frames: Sequence[Frame], own: str | None) -> Iterator[Frame | str]:
    """Yield the frames, with a note in place of those of other packages. `own`: the file of the
    checked function, whose package is not another one."""
    for is_other, group in groupby(
        frames, lambda frame: package(frame.file) not in (None, package(own or ""))
    ):
        same = tuple(group)
        if not is_other:
            yield from same
            continue
        names = dict.fromkeys(package(frame.file) or "" for frame in same)
        yield f"{len(same)} {'frame' if len(same) == 1 else 'frames'} in {', '.join(names)}"
