"""A YAML file as plain data, read as YAML 1.2, with the place of every value. Whatever is in the file, it comes back as problems."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from gradverify.model.case import Json
from gradverify.model.problem import Problem
from gradverify.spec.fault import MAX_SHOWN, Fault, Path, dotted, shown
from gradverify.spec.text import decode

MAX_DEPTH = 64  # tensors have a handful of dimensions; deeper nesting is an attack or an accident

_TAG = "tag:yaml.org,2002:"
_REPLACED = {_TAG + name for name in ("float", "int", "bool", "timestamp", "value")}
BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
SCALARS = {_TAG + "bool": BOOL, _TAG + "int": INT, _TAG + "float": FLOAT, _TAG + "null": NULL}
STRING, MERGE = _TAG + "str", _TAG + "merge"
PLAIN_TAGS: Mapping[str, type[Node]] = {**dict.fromkeys((*SCALARS, STRING, MERGE), ScalarNode), _TAG + "seq": SequenceNode, _TAG + "map": MappingNode}
"""The tags of plain data, and the kind of node that each can stand on."""


class Loader12(yaml.SafeLoader):
    """Composes one document, refusing nesting beyond MAX_DEPTH and anchors that contain themselves."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name for the table
        first: [(tag, pattern) for tag, pattern in table if tag not in _REPLACED]
        for first, table in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.open_anchors: list[str | None] = []

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        anchor, is_alias = event.anchor, isinstance(event, yaml.AliasEvent)
        if is_alias:
            if anchor in self.open_anchors:
                raise ComposerError(None, None, f"the alias *{anchor} stands inside its own anchor &{anchor}: a loop", event.start_mark)
            return super().compose_node(parent, index)
        if len(self.open_anchors) >= MAX_DEPTH:
            raise ComposerError(None, None, f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
        self.open_anchors.append(anchor)
        node = super().compose_node(parent, index)
        self.open_anchors.pop()
        return node


def _integer(_: Loader12, node: ScalarNode) -> int:
    text = node.value
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


def _float(_: Loader12, node: ScalarNode) -> float:
    return number(node.value)


def number(text: str) -> float:
    """The float that a YAML 1.2 scalar stands for."""
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


Loader12.add_implicit_resolver(_TAG + "bool", BOOL, list("tTfF"))
Loader12.add_implicit_resolver(_TAG + "int", INT, list("-+0123456789"))
Loader12.add_implicit_resolver(_TAG + "float", FLOAT, list("-+0123456789."))
Loader12.add_constructor(_TAG + "int", _integer)
Loader12.add_constructor(_TAG + "float", _float)


MAX_NODES = 100_000  # after aliases are expanded: a 200-byte file can stand for millions
MERGES = "<<"
NUL = "\0"
MAX_DIGITS = 400  # the largest float64 has 309 digits

MarkedFault = tuple[Mark, str]


@dataclass(slots=True)
class _Measure:
    """Expanded size and depth by node identity: an alias is looked up, never walked again."""

    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    faults: list[MarkedFault] = field(default_factory=list)


def tree_faults(root: Node) -> Iterator[MarkedFault]:
    """All of them: tags, duplicate and non-string keys, numbers that do not fit; or an expansion that is too large."""
    measure = _Measure()
    size, depth = _visit(root, measure)
    if size > MAX_NODES:
        yield root.start_mark, f"{size:,} values once its aliases are expanded; at most {MAX_NODES:,} are read"
    elif depth > MAX_DEPTH:
        yield root.start_mark, f"nested more than {MAX_DEPTH} levels deep once its aliases are expanded"
    yield from measure.faults


def _visit(node: Node, measure: _Measure) -> tuple[int, int]:
    """(nodes, levels) below and including this one, with every alias counted in full."""
    known = measure.sizes.get(id(node))
    if known is None:
        measure.faults += _own_faults(node)
        below = [_visit(child, measure) for child in _children(node)]
        known = 1 + sum(size for size, _ in below), 1 + max((depth for _, depth in below), default=0)
        measure.sizes[id(node)] = known
    return known


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, SequenceNode) else []


def _own_faults(node: Node) -> Iterator[MarkedFault]:
    if node.tag not in PLAIN_TAGS:
        yield node.start_mark, f"the tag {_short(node.tag)} is not allowed: a spec holds plain data"
    elif not isinstance(node, PLAIN_TAGS[node.tag]):
        yield node.start_mark, f"{_kind(node)} cannot have the tag {_short(node.tag)}: leave the tag out"
    elif isinstance(node, ScalarNode):
        yield from _scalar_faults(node)
    else:
        yield from _merge_faults(node)
        yield from _key_faults(node) if isinstance(node, MappingNode) else ()


def _short(tag: str) -> str:
    short = "".join(c if c.isprintable() else "\ufffd" for c in tag.replace("tag:yaml.org,2002:", "!!"))
    return short if len(short) <= MAX_SHOWN else f"{short[:MAX_SHOWN]}…"


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, SequenceNode) else "a mapping" if isinstance(node, MappingNode) else f"the value {shown(node.value)}"


def _scalar_faults(node: ScalarNode) -> Iterator[MarkedFault]:
    pattern = SCALARS.get(node.tag)
    if NUL in node.value:
        yield node.start_mark, "a text with the character NUL (\\0), which no name and no path can hold"
    if node.tag == MERGE and node.value != MERGES:
        yield node.start_mark, f"{shown(node.value)} cannot have the tag !!merge: leave the tag out"
    if pattern is None:
        return
    if not pattern.match(node.value):
        yield node.start_mark, f"{shown(node.value)} is no {_short(node.tag).lstrip('!')}"
    elif len(node.value) > MAX_DIGITS:
        yield node.start_mark, f"a number of {len(node.value):,} characters; at most {MAX_DIGITS} are read"
    elif node.tag.endswith("float") and math.isinf(number(node.value)) and "inf" not in node.value.lower():
        yield node.start_mark, f"{node.value} does not fit into a float64; infinity is written .inf"


def _merge_faults(node: Node) -> Iterator[MarkedFault]:
    """`<<` merges as a key; elsewhere it stands for nothing."""
    for child in node.value if isinstance(node, SequenceNode) else [value for _, value in node.value]:
        if isinstance(child, ScalarNode) and child.tag == MERGE and child.value == MERGES:
            yield child.start_mark, f"{MERGES} merges as a key only: put it in quotes"


def _key_faults(node: MappingNode) -> Iterator[MarkedFault]:
    first: dict[str, Mark] = {}
    for key, _ in node.value:
        if not isinstance(key, ScalarNode):
            yield key.start_mark, "a list or mapping cannot be a key"
        elif key.tag not in PLAIN_TAGS:
            continue        # told already
        elif key.tag not in (STRING, MERGE):
            yield key.start_mark, f"the key {key.value or 'null'} is no string: put it in quotes"
        elif key.value in first:
            blank = f"; write `- {key.value[1:]}: …`, with a blank after the `-`" if key.value.startswith("-") else ""
            lines = f"first on line {first[key.value].line + 1}, again on line {key.start_mark.line + 1}"
            yield key.start_mark, f"duplicate key {key.value!r}: {lines}{blank}"
        else:
            first[key.value] = key.start_mark


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
        from gradverify.spec.wording import complaint  # knows the whole format, which readers of sound files do without

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
