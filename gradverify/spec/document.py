"""A YAML file as plain data, with the place of every value and key. Whatever is in the file, it comes back as problems, never as a raise."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode
from yaml.reader import ReaderError

from gradverify.model.case import Json
from gradverify.model.problem import Problem
from gradverify.spec.fault import Fault, Path, dotted
from gradverify.spec.text import decode
from gradverify.spec.tree import tree_faults
from gradverify.spec.yaml12 import Loader12

MAX_BYTES = 1 << 20  # 1 MiB: 15,000 checks; numbers beyond that belong into a data file
ESCAPES = re.compile(r"\\U[0-9a-fA-F]{8}")
BREAKS = re.compile("[\x85\u2028\u2029]")  # a line ends there for PyYAML, and for nobody who looks at the file
MAX_LINE = 400  # characters; a longer line with a caret below it helps nobody


@dataclass(frozen=True, slots=True)
class Document:
    """`file` is the path as shown; `lines` the source; `data` plain data of the same shape as the nodes below `root`."""

    file: str
    lines: tuple[str, ...]
    root: Node
    data: Json

    def problem(self, fault: Fault) -> Problem:
        """The fault with its line and column; a path that leads nowhere is reported at the last value on the way."""
        node = locate(self.root, fault.path, fault.key)
        mark = node.start_mark
        return _at(self.file, self.lines, mark.line, mark.column, fault.message, dotted(fault.path))

    def line(self, path: Path) -> int:
        """The line, counted from 1, at which a value begins."""
        return int(locate(self.root, path).start_mark.line) + 1


def read(file: str, path: FilePath) -> Document | tuple[Problem, ...]:
    """The document at `path`, shown as `file`, or why there is none."""
    try:
        if path.exists() and not path.is_file():
            return (Problem("cannot be read: it is no regular file", file),)
        raw = path.read_bytes()
    except OSError as error:
        return (Problem(f"cannot be read: {error.strerror or error}", file),)
    if len(raw) > MAX_BYTES:
        return (Problem(f"larger than {MAX_BYTES >> 20} MiB ({len(raw):,} bytes): move numbers into a file and name it with `file:`", file, 1, 1),)
    text = decode(raw)
    return (replace(text, file=file),) if isinstance(text, Problem) else parse(file, text)


def parse(file: str, text: str) -> Document | tuple[Problem, ...]:
    """The document that `text` holds, composed once: positions, duplicate keys and data come from one tree."""
    lines = tuple(text.splitlines())
    odd = BREAKS.search(text)
    if odd is not None:
        before = text[: odd.start()].splitlines() or [""]
        code = f"{ord(odd.group()):04X}"
        return (_at(file, lines, len(before) - 1, len(before[-1]),
                    f"the line break U+{code}, which editors do not show: in a text in double quotes it is written \\u{code}"),)
    try:
        loader = Loader12(text)
        root = loader.get_single_node()
        if root is None:
            return (Problem("the file is empty; a spec begins with `gradverify: 1`", file, 1, 1),)
        faults = tuple(tree_faults(root))
        if faults:
            return tuple(_at(file, lines, mark.line, mark.column, message) for mark, message in faults)
        return Document(file, lines, root, loader.construct_document(root))
    except (ValueError, OverflowError):       # an escape beyond U+10FFFF, of which PyYAML does not say where it stands
        return (_escaped(file, lines),)
    except yaml.MarkedYAMLError as error:
        from gradverify.spec.yaml_wording import complaint  # knows the whole format, which readers of sound files do without

        return (_at(file, lines, *complaint(error, lines)),)
    except ReaderError as error:
        before = text[: error.position].splitlines() or [""]
        return (_at(file, lines, len(before) - 1, len(before[-1]), f"the character U+{error.character:04X} is not allowed in YAML"),)


def _escaped(file: str, lines: tuple[str, ...]) -> Problem:
    place = next(((number, found.start()) for number, line in enumerate(lines) for found in ESCAPES.finditer(line)
                  if int(found.group()[2:], 16) > sys.maxunicode), (0, 0))
    return _at(file, lines, *place, "an escape of no character: they end with \\U0010FFFF")


def _at(file: str, lines: tuple[str, ...], line: int, column: int, message: str, path: str | None = None) -> Problem:
    return Problem(message, file, line + 1, column + 1, path or None, _printable(lines[line] if line < len(lines) else ""))


def _printable(line: str) -> str | None:
    """A source line fit for a terminal: control characters replaced, so that a file cannot steer it; None where too long to show."""
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line) if len(line) <= MAX_LINE else None


def locate(root: Node, path: Path, key: bool = False) -> Node:
    """The node at a path, or its key's; where the path leaves the document, the last node on the way."""
    node = root
    for depth, part in enumerate(path):
        found = _child(node, part)
        if found is None:
            return node
        node = found[0] if key and depth == len(path) - 1 else found[1]
    return node


def _child(node: Node, part: str | int) -> tuple[Node, Node] | None:
    """(key node, value node) of a member; of a merged key the last one, which wins."""
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, MappingNode):
        return next(_members(node, part), None)
    return None


def _members(node: MappingNode, part: str | int) -> Iterator[tuple[Node, Node]]:
    return ((key, value) for key, value in reversed(node.value) if key.value == part)
