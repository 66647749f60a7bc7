"""Read a YAML 1.2 file as plain data, with the place of every value. Any error in the file is
returned as problems."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from gradverify.model.case import Json
from gradverify.model.problem import Problem
from gradverify.spec.fault import MAX_SHOWN, Fault, Path, dotted
from gradverify.spec.walk import decode

MAX_DEPTH = 64  # tensors have a handful of dimensions; deeper nesting is an attack or an accident

_TAG = "tag:yaml.org,2002:"
_REPLACED = {_TAG + name for name in ("float", "int", "bool", "timestamp", "value")}
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class Loader12(yaml.SafeLoader):
    """A loader of one document that rejects nesting beyond MAX_DEPTH, anchors that contain
    themselves, and tags."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name for the table
        first: [(tag, pattern) for tag, pattern in table if tag not in _REPLACED]
        for first, table in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.open_anchors: list[str | None] = []

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias:
            if event.anchor in self.open_anchors:
                raise ComposerError(
                    None,
                    None,
                    f"the alias *{event.anchor} stands inside its own anchor &{event.anchor}: a "
                    "loop",
                    event.start_mark,
                )
            return super().compose_node(parent, index)
        if event.tag is not None:
            shown_tag = "".join(
                c if c.isprintable() else "\ufffd" for c in event.tag.replace(_TAG, "!!")
            )[:MAX_SHOWN]
            raise ComposerError(
                None,
                None,
                f"the tag {shown_tag} is not allowed: a spec holds plain data",
                event.start_mark,
            )
        if len(self.open_anchors) >= MAX_DEPTH:
            raise ComposerError(
                None, None, f"nested more than {MAX_DEPTH} levels deep", event.start_mark
            )
        self.open_anchors.append(event.anchor)
        node = super().compose_node(parent, index)
        self.open_anchors.pop()
        return node


def scalar(text: str) -> Json:
    """Return the value of a scalar that is no Boolean: a number, or the text."""
    if len(text) <= MAX_DIGITS and INT.match(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    return number(text) if FLOAT.match(text) else text


def number(text: str) -> float:
    """Return the float of a YAML 1.2 scalar."""
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


Loader12.add_implicit_resolver(_TAG + "bool", BOOL, list("tTfF"))
Loader12.add_implicit_resolver(_TAG + "int", INT, list("-+0123456789"))
Loader12.add_implicit_resolver(_TAG + "float", FLOAT, list("-+0123456789."))
Loader12.add_constructor(_TAG + "int", lambda _, node: scalar(node.value))
Loader12.add_constructor(_TAG + "float", lambda _, node: number(node.value))
Loader12.add_constructor(_TAG + "merge", lambda _, node: node.value)  # `<<` where it is no key


MAX_NODES = 100_000  # after aliases are expanded: a 200-byte file can stand for millions
MAX_DIGITS = 400  # the largest float64 has 309 digits


def tree_faults(root: Node) -> list[tuple[Mark, str]]:
    """Return all faults of a tree: duplicate and non-string keys, numbers that do not fit, an
    expansion that is too large."""
    faults: list[tuple[Mark, str]] = []

    @cache
    def visit(node: Node) -> tuple[int, int]:
        """Return the numbers of (nodes, levels) below and including this node. Every alias is
        counted in full, but visited once."""
        faults.extend(_own_faults(node))
        children = (
            [each for pair in node.value for each in pair]
            if isinstance(node, MappingNode)
            else node.value
        )
        below = [] if isinstance(node, ScalarNode) else [visit(child) for child in children]
        return 1 + sum(size for size, _ in below), 1 + max((depth for _, depth in below), default=0)

    size, depth = visit(root)
    if size > MAX_NODES:
        faults.insert(
            0,
            (
                root.start_mark,
                f"{size:,} values once its aliases are expanded; at most {MAX_NODES:,} are read",
            ),
        )
    elif depth > MAX_DEPTH:
        faults.insert(
            0,
            (
                root.start_mark,
                f"nested more than {MAX_DEPTH} levels deep once its aliases are expanded",
            ),
        )
    return faults


def _own_faults(node: Node) -> Iterator[tuple[Mark, str]]:
    if isinstance(node, ScalarNode):
        if "\0" in node.value:
            yield (
                node.start_mark,
                "a text with the character NUL (\\0), which no name and no path can hold",
            )
        if node.tag in (_TAG + "int", _TAG + "float") and len(node.value) > MAX_DIGITS:
            yield (
                node.start_mark,
                f"a number of {len(node.value):,} characters; at most {MAX_DIGITS} are read",
            )
        elif (
            node.tag == _TAG + "float"
            and "inf" not in node.value.lower()
            and math.isinf(number(node.value))
        ):
            yield (
                node.start_mark,
                f"{node.value} does not fit into a float64; infinity is written .inf",
            )
    first: dict[str, Mark] = {}
    for key, _ in node.value if isinstance(node, MappingNode) else ():
        if not isinstance(key, ScalarNode):
            yield key.start_mark, "a list or mapping cannot be a key"
        elif key.tag not in (_TAG + "str", _TAG + "merge"):
            yield key.start_mark, f"the key {key.value or 'null'} is no string: put it in quotes"
        elif key.value in first:
            blank = (
                f"; write `- {key.value[1:]}: …`, with a blank after the `-`"
                if key.value.startswith("-")
                else ""
            )
            lines = (
                f"first on line {first[key.value].line + 1}, again on line "
                f"{key.start_mark.line + 1}"
            )
            yield key.start_mark, f"duplicate key {key.value!r}: {lines}{blank}"
        else:
            first[key.value] = key.start_mark


MAX_BYTES = 1 << 20  # 1 MiB: 15,000 checks; numbers beyond that belong into a data file
# Characters that end a line for PyYAML, but not in an editor
BREAKS = re.compile("[\x85\u2028\u2029]")
# Escapes that are no character: PyYAML does not report their place
ESCAPES = re.compile(r"\\U(?!000|0010)[0-9a-fA-F]{8}")
MAX_LINE = 400  # characters; a longer line is not shown


@dataclass(frozen=True, slots=True)
class Document:
    """A document. `file`: the path as shown; `lines`: the source; `data`: plain data of the same
    structure as the nodes below `root`."""

    file: str
    lines: tuple[str, ...]
    root: Node
    data: Json

    def problem(self, fault: Fault) -> Problem:
        """Return a fault as a problem with line and column; if its path does not exist, those of
        the last value on the path."""
        node = locate(self.root, fault.path, fault.key)
        mark = node.start_mark
        return _at(self.file, self.lines, mark.line, mark.column, fault.message, dotted(fault.path))

    def line(self, path: Path) -> int:
        """Return the line, counted from 1, at which a value begins."""
        return int(locate(self.root, path).start_mark.line) + 1


def read(file: str, path: FilePath) -> Document | tuple[Problem, ...]:
    """Return the document at `path`, shown as `file`, or its problems."""
    try:
        if path.exists() and not path.is_file():
            return (Problem("cannot be read: it is no regular file", file),)
        raw = path.read_bytes()
    except OSError as error:
        return (Problem(f"cannot be read: {error.strerror or error}", file),)
    if len(raw) > MAX_BYTES:
        return (
            Problem(
                f"larger than {MAX_BYTES >> 20} MiB ({len(raw):,} bytes): move numbers into a "
                "file and name it with `file:`",
                file,
                1,
                1,
            ),
        )
    text = decode(raw)
    return (replace(text, file=file),) if isinstance(text, Problem) else parse(file, text)


def parse(file: str, text: str) -> Document | tuple[Problem, ...]:
    """Return the document in `text`, or its problems. It is composed once: positions, duplicate
    keys and data come from one tree."""
    lines = tuple(text.splitlines())

    def after(offset: int, message: str) -> tuple[Problem]:
        before = text[:offset].splitlines() or [""]
        return (_at(file, lines, len(before) - 1, len(before[-1]), message),)

    if odd := BREAKS.search(text):
        code = f"{ord(odd.group()):04X}"
        return after(
            odd.start(),
            f"the line break U+{code}, which editors do not show: in a text in double quotes it "
            f"is written \\u{code}",
        )
    if odd := ESCAPES.search(text):
        return after(odd.start(), "an escape of no character: they end with \\U0010FFFF")
    try:
        loader = Loader12(text)
        root = loader.get_single_node()
        if root is None:
            return (Problem("the file is empty; a spec begins with `gradverify: 1`", file, 1, 1),)
        faults = tree_faults(root)
        if faults:
            return tuple(
                _at(file, lines, mark.line, mark.column, message) for mark, message in faults
            )
        return Document(file, lines, root, loader.construct_document(root))
    except yaml.MarkedYAMLError as error:
        # Imports the models of the format, which valid files do not need here
        from gradverify.spec.wording import complaint

        return (_at(file, lines, *complaint(error, lines)),)
    except ReaderError as error:
        return after(
            error.position, f"the character U+{error.character:04X} is not allowed in YAML"
        )
    except ValueError as error:  # a version of YAML of a thousand digits
        return after(0, f"not valid YAML: {error}")


def _at(
    file: str, lines: tuple[str, ...], line: int, column: int, message: str, path: str | None = None
) -> Problem:
    text = lines[line] if line < len(lines) else ""
    # Without control characters, which would act on a terminal
    shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
    return Problem(
        message, file, line + 1, column + 1, path or None, shown if len(text) <= MAX_LINE else None
    )


def locate(root: Node, path: Path, key: bool = False) -> Node:
    """Return the node at a path, or that of its key; if the path leaves the document, the last
    node on it. Of a repeated (merged) key the last one counts."""
    node = root
    for depth, part in enumerate(path):
        found = None
        if isinstance(node, MappingNode):
            found = next(
                ((name, value) for name, value in reversed(node.value) if name.value == part), None
            )
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part], node.value[part]
        if found is None:
            return node
        node = found[0] if key and depth == len(path) - 1 else found[1]
    return node
