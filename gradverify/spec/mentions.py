"""What a spec names, read from its YAML alone: more than it means, never less.

For those who ask which specs may be concerned, and do not want to wait for the format's models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gradverify.spec.text import decode

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)      # the same tree, five times faster where PyYAML was built with it
TARGET = re.compile(r".+:[A-Za-z_][\w.]*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True)
class Mentions:
    """`path`, `imports`: the file's own keys; `targets`: texts that may name a function; `others`: those that may name files."""

    path: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def mentions(file: Path) -> Mentions | None:
    """None where the file cannot be read so: then it may name anything."""
    try:
        text = decode(file.read_bytes()) if file.is_file() else None
        root = yaml.compose(text, Loader=LOADER) if isinstance(text, str) else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    if not isinstance(root, MappingNode) or any(key.value == "<<" for key, _ in root.value):
        return None
    texts = tuple(dict.fromkeys(_texts(root)))
    targets = tuple(text for text in texts if TARGET.fullmatch(text))
    return Mentions(_listed(root, "path"), _listed(root, "import"), targets, texts)


def _listed(root: MappingNode, key: str) -> tuple[str, ...]:
    value = next((value for name, value in root.value if name.value == key), None)
    items = value.value if isinstance(value, SequenceNode) else [value]
    return tuple(item.value for item in items if isinstance(item, ScalarNode))


def _texts(root: Node) -> Iterator[str]:
    """Every value, none twice for an alias."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            waiting += [value for _, value in node.value]
        elif isinstance(node, SequenceNode):
            waiting += node.value
        elif isinstance(node, ScalarNode):
            yield node.value
