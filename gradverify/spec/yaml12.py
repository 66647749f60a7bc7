"""YAML as its version 1.2 and editors read it: `1e-6` is a number, `no` and `010` are not a boolean and an octal.

PyYAML reads YAML 1.1, where `1e-6` is a string, `no` is False and `1:30` is 90. Only the tables of scalars differ, so a subclass with
its own tables suffices; the shared tables of `SafeLoader` are copied, never touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

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
