"""A YAML file as plain data, with the place of every value and key. Whatever is in the file, it comes back as problems, never as a raise."""

from __future__ import annotations

import codecs
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
from gradverify.spec.tree import tree_faults
from gradverify.spec.yaml12 import Loader12

MAX_BYTES = 1 << 20  # 1 MiB: 15,000 checks; numbers beyond that belong into a data file
ESCAPES = re.compile(r"\\U[0-9a-fA-F]{8}")
MAX_LINE = 400  # characters; a longer line with a caret below it helps nobody
HEAD = 4096  # bytes by which UTF-16 without a byte order mark is known: half of them are NUL
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
        raw = path.read_bytes()
    except OSError as error:
        return (Problem(f"cannot be read: {error.strerror or error}", file),)
    if len(raw) > MAX_BYTES:
        return (Problem(f"larger than {MAX_BYTES >> 20} MiB ({len(raw):,} bytes): move numbers into a file and name it with `file:`", file, 1, 1),)
    text = decode(raw)
    return (replace(text, file=file),) if isinstance(text, Problem) else parse(file, text)


def decode(raw: bytes) -> str | Problem:
    """The text of a UTF-8 file (a byte order mark is dropped)."""
    if raw.startswith(UTF16):
        return Problem("UTF-16 text: save the file as UTF-8", line=1, column=1)
    if any(len(raw) > 1 and half.count(0) > len(half) // 2 and raw.count(0) < len(raw) * 3 // 4 for half in (raw[0:HEAD:2], raw[1:HEAD:2])):
        return Problem("UTF-16 text without a byte order mark: save the file as UTF-8", line=1, column=1)
    if b"\0" in raw:
        return _at_byte(raw, raw.index(b"\0"), "a binary file, not YAML: a NUL byte")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _at_byte(raw, error.start, f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}")


def _at_byte(raw: bytes, offset: int, message: str) -> Problem:
    """The problem with the line and column of a byte, columns counted in characters."""
    before = raw[:offset].decode("utf-8-sig", errors="replace")
    line = before.replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
    return Problem(message, line=line[0].count("\n") + len(line[1]) + 1, column=len(line[2]) + 1)


def parse(file: str, text: str) -> Document | tuple[Problem, ...]:
    """The document that `text` holds, composed once: positions, duplicate keys and data come from one tree."""
    lines = tuple(text.splitlines())
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
        mark = error.problem_mark or error.context_mark
        return (_at(file, lines, mark.line if mark else 0, mark.column if mark else 0, _plainly(error, lines)),)
    except ReaderError as error:
        before = text[: error.position].splitlines() or [""]
        return (_at(file, lines, len(before) - 1, len(before[-1]), f"the character U+{error.character:04X} is not allowed in YAML"),)


def _escaped(file: str, lines: tuple[str, ...]) -> Problem:
    place = next(((number, found.start()) for number, line in enumerate(lines) for found in ESCAPES.finditer(line)
                  if int(found.group()[2:], 16) > sys.maxunicode), (0, 0))
    return _at(file, lines, *place, "an escape that stands for no character: they end with \\U0010FFFF")


def _plainly(error: yaml.MarkedYAMLError, lines: tuple[str, ...]) -> str:
    """PyYAML's complaint as a sentence that says what to do."""
    problem, mark = str(error.problem), error.problem_mark
    if "'\\t'" in problem or (mark and "\t" in _indent(lines, mark.line)):
        return "a tab: YAML is indented with spaces"
    if error.context and "expected a single document" in error.context:
        return "a second document begins here: a spec is one document, without a second `---`"
    if "cannot start any token" in problem:
        return f"{problem}: put the text in quotes"
    if "mapping values are not allowed here" in problem:
        return "a `:` where no key can stand: check the indentation, or put text that contains `: ` in quotes"
    begun = error.context_mark
    return f"not valid YAML: {problem} ({error.context}, begun on line {begun.line + 1})" if begun and error.context else problem


def _indent(lines: tuple[str, ...], line: int) -> str:
    text = lines[line] if line < len(lines) else ""
    return text[: len(text) - len(text.lstrip())]


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
