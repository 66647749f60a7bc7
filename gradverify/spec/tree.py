"""Faults of a composed YAML tree: what PyYAML accepts and a spec does not. Each node is visited once, however often it is aliased."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gradverify.spec.fault import MAX_SHOWN, shown
from gradverify.spec.yaml12 import MAX_DEPTH, MERGE, PLAIN_TAGS, SCALARS, STRING, number

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
