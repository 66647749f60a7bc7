"""Where keys stand in a TOML text, which `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gradverify.spec.fault import Path

WHERE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
ENDS = ("]", '"""', "'''")      # one of them is in the last line of every value over several lines; others are not worth parsing all that precedes


@dataclass(frozen=True, slots=True)
class Statement:
    """One header or one `key = value` of a sound text: `prefix` is the table it stands in, `data` what it says inside; `line` counts from 1."""

    prefix: Path
    data: Any       # nested dicts and lists, as `tomllib` reads these lines alone
    line: int
    lines: tuple[str, ...]

    def says(self, path: Path) -> bool:
        """Does it write the key or the item of `path`, or something below it?"""
        value = self.data
        for part in path[len(self.prefix):]:
            if isinstance(value, list):
                value = dict(enumerate(value))
            if not isinstance(value, dict) or part not in value:
                return False
            value = value[part]
        return path[: len(self.prefix)] == self.prefix


@dataclass(frozen=True, slots=True)
class Place:
    """A key's line and column, from 1, and its line as written."""

    line: int
    column: int
    text: str


def place_of(text: str, path: Path) -> Place | None:
    """Where the key of `path` stands in a sound text, else the nearest table or key around it; None where none of them is written."""
    every = statements(text)
    for length in range(len(path), 0, -1):
        found = next((statement for statement in every if statement.says(path[:length])), None)
        if found is not None:
            return _in_statement(found, path[:length])
    return None


@lru_cache(maxsize=1)
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a sound text. Kept: every key of a table is looked for in the same one."""
    return tuple(_statements(text))


def _statements(text: str) -> Iterator[Statement]:
    """A statement is the fewest lines that are TOML by themselves: values over several lines, in brackets or quotes, are none before their end."""
    lines = text.replace("\r\n", "\n").split("\n")
    prefix: Path = ()
    begin = 0
    for end in range(1, len(lines) + 1):
        is_first = end == begin + 1
        data = _sound("\n".join(lines[begin:end])) if is_first or any(mark in lines[end - 1] for mark in ENDS) else None
        if data is None:
            continue
        if lines[begin].lstrip().startswith("["):
            prefix = tuple(_header(data))
            yield Statement((), data, begin + 1, tuple(lines[begin:end]))
        elif data:
            yield Statement(prefix, data, begin + 1, tuple(lines[begin:end]))
        begin = end


def refusal(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, Place | None]:
    """What is wrong with a text that is no TOML, and where."""
    match = WHERE.search(str(error))
    message = str(error)[: match.start()] if match else str(error)
    lines = text.replace("\r\n", "\n").split("\n")
    if match is None:
        return message, None
    line, column = (int(match["line"]), int(match["column"])) if match["line"] else (len(lines), len(lines[-1]) + 1)
    return message[:1].lower() + message[1:], Place(line, column, lines[line - 1] if line <= len(lines) else "")


def _sound(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _header(data: Any) -> Iterator[str]:
    """The path of `[a.b]`, which is the only thing that `data` holds."""
    while isinstance(data, dict) and data:
        [(name, data)] = data.items()
        yield name


def _in_statement(statement: Statement, path: Path) -> Place:
    """At the last name of `path` that is written there as a key; where it stands otherwise (quoted with escapes), the statement's first line."""
    names = [part for part in path if isinstance(part, str)]
    for name in names[: -len(names) - 1 : -1]:
        for number, line in enumerate(statement.lines):
            match = re.search(rf"(?<![\w-]){re.escape(name)}(?=[\s\"']*=|[\s.\"'\w-]*[\]=])", line)
            if match:
                return Place(statement.line + number, match.start() + 1, line)
    return Place(statement.line, 1, statement.lines[0])
