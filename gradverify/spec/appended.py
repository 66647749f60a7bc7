"""A spec with more checks at the end of its list; comments, order and everything else stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from yaml.nodes import CollectionNode, MappingNode, Node, SequenceNode

from gradverify.spec.document import Document, locate
from gradverify.spec.scaffold import NONE_YET, Entry, checks

INDENT = 2      # of the list as `scaffold` writes it


def takes_more(document: Document) -> bool:
    """Is there a list of checks, empty or with each check in lines of its own?"""
    listed = locate(document.root, ("checks",))
    return isinstance(listed, SequenceNode) and (not listed.flow_style or not listed.value)


def appended(document: Document, text: str, entries: Sequence[Entry], taken: Collection[str]) -> str:
    """The text of a document that takes more. `taken`: the names of its checks."""
    listed, lines, more = locate(document.root, ("checks",)), text.splitlines(keepends=True), checks(entries, taken)
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = listed.start_mark.column if listed.value else INDENT
    end = len(lines) if _is_last(document.root, listed) and listed.value else _end(listed)
    while not lines[end - 1].strip():
        end -= 1
    if not listed.value and any(entry.proposal.missing is None for entry in entries):
        lines[:end] = _without_brackets(lines[:end], listed, newline)
        end = listed.start_mark.line + 1
    apart = [""] if listed.value else []
    added = [*apart, *(" " * indent + line[INDENT:] if line else "" for line in more), *([""] if "".join(lines[end:end + 1]).strip() else [])]
    return "".join(lines[:end]).rstrip("\r\n") + newline + "".join(line + newline for line in added) + "".join(lines[end:])


def _without_brackets(lines: Sequence[str], listed: Node, newline: str) -> list[str]:
    """`checks:` in place of `checks: []`."""
    place, end = listed.start_mark, listed.end_mark
    rest = lines[end.line][end.column:].rstrip().removesuffix(NONE_YET)
    return [*lines[: place.line], lines[place.line][: place.column].rstrip() + rest + newline]


def _is_last(root: Node, listed: Node) -> bool:
    return isinstance(root, MappingNode) and root.value[-1][1] is listed and not root.flow_style


def _end(node: Node) -> int:
    """The number of lines up to its last word: the end of a block also holds the comments behind it."""
    if isinstance(node, CollectionNode) and not node.flow_style and node.value:
        return max(_end(part) for member in node.value for part in (member if isinstance(member, tuple) else (member,)))
    return int(node.end_mark.line) + (node.end_mark.column > 0)
