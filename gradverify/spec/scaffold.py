"""Specs as `gradverify init` writes them, and specs that are there with more checks at the end."""

from __future__ import annotations

import itertools
import json
import math
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from yaml.nodes import CollectionNode, MappingNode, Node, SequenceNode

from gradverify.model.case import InputRecipe, Json, TensorRecipe
from gradverify.model.proposal import Proposal
from gradverify.spec.document import Document, locate
from gradverify.spec.names import own_name
from gradverify.spec.schema import FORMAT_VERSION, Matrix, Settings

PLAIN = re.compile(r"[A-Za-z_][\w./-]*( [\w./-]+)*")     # words that YAML reads as themselves, unless they are one of these
NOT_PLAIN = re.compile(r"(?i)true|false|null|yes|no|on|off|~")
NOT_IN_YAML = re.compile(r"[\x7f-\x9f\ud800-\udfff\ufffe\uffff]")       # characters that a YAML file holds as escapes alone, and JSON as they are
NONE_YET = "      # none runs yet: see below"
WIDTH = 118
REMARK_AT = 40      # the column that remarks begin in, where lines are short enough


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: as the spec names it, where it stands in the source (for a comment), and what was found."""

    function: str
    where: str
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Draft:
    """What one file is to hold. `about`: what it was written for; `schema`: relative to the file; `path`, `imports` as in the spec."""

    about: str
    schema: str
    entries: Sequence[Entry]
    path: Sequence[str] = ()
    imports: Sequence[str] = ()


def scaffold(draft: Draft) -> str:
    """The text of a spec, which is valid, also where nothing in it runs yet."""
    lines = [f"# yaml-language-server: $schema={draft.schema}",
             *_comment(f"Written by `gradverify init` for {draft.about}. Shapes and numbers were found by trying: change them to those that "
                       "matter.", ""),
             f"gradverify: {FORMAT_VERSION}"]
    lines += [f"path: {_flow(list(draft.path))}"] if draft.path else []
    lines += [f"import: {_flow(list(draft.imports))}"] if draft.imports else []
    running = [entry for entry in draft.entries if entry.proposal.missing is None]
    lines += ["", "checks:" if running else f"checks: []{NONE_YET}"]
    return "\n".join([*lines, *checks(draft.entries)]) + "\n"


def checks(entries: Sequence[Entry], taken: Collection[str] = ()) -> list[str]:
    """The lines below `checks:`, with an empty one between two functions. `taken`: names of checks that are there already."""
    names = [own_name(entry.function) for entry in entries]
    used, lines = set(taken), list[str]()
    for entry in entries:
        own = own_name(entry.function)
        named = None if names.count(own) == 1 and own not in used else _free(re.split(r"[:/]", entry.function)[-1], used)
        used.add(named or own)
        lines += ["", *(_check(entry, named) if entry.proposal.missing is None else _open(entry))]
    return lines[1:]


def _free(name: str, used: Collection[str]) -> str:
    return name if name not in used else next(f"{name} {number}" for number in itertools.count(2) if f"{name} {number}" not in used)


def _check(entry: Entry, named: str | None) -> Iterator[str]:
    proposal = entry.proposal
    variables = {name: _variable(name) for name in proposal.varied}
    if proposal.note:
        yield from _comment(proposal.note, "  ")
    yield _remarked(f"  - function: {_flow(entry.function)}", entry.where)
    if named:
        yield f"    name: {_flow(named)}"
    yield from _body(proposal, variables)
    if variables:
        yield "    matrix:"
        width = max(map(len, variables.values())) + 1
        yield from (f"      {variables[name] + ':':{width}} {_flow(list(values))}" for name, values in proposal.varied.items())
    for name in proposal.left_out:
        yield ""
        yield f"  - function: {_flow(entry.function)}"
        yield f"    name: {_flow(f'{named or own_name(entry.function)} without {name}')}"
        yield from _body(_without(proposal, name), {})


def _without(proposal: Proposal, name: str) -> Proposal:
    """With null for one argument, and no remarks, which stand in the check before."""
    def changed(recipes: Sequence[InputRecipe]) -> tuple[InputRecipe, ...]:
        return tuple(InputRecipe(name) if each.name == name else each for each in recipes)

    return Proposal(proposal.target, changed(proposal.inputs), changed(proposal.keywords), proposal.init, dtype=proposal.dtype,
                    device=proposal.device)


def _body(proposal: Proposal, variables: Mapping[str, str]) -> Iterator[str]:
    if proposal.init:
        yield f"    init: {_mapping(proposal.init)}"
    for key, recipes in (("inputs", proposal.inputs), ("kwargs", proposal.keywords)):
        if recipes:
            yield f"    {key}:"
            width = max(len(str(each.name)) for each in recipes) + 1
            yield from (_remarked(f"      {f'{each.name}:':{width}} {_value(each, variables)}", proposal.remarks.get(str(each.name), ""))
                        for each in recipes)
    if not proposal.inputs and not proposal.keywords:
        yield "    inputs: {}"
    if proposal.dtype != "float64":
        yield _remarked(f"    dtype: {proposal.dtype}", "it refused float64")
    if proposal.device != "cpu":
        yield f"    device: {proposal.device}"


def _open(entry: Entry) -> Iterator[str]:
    """A check that does not run yet, as a comment."""
    proposal = entry.proposal
    yield from _comment(f"{own_name(entry.function)}{f' ({entry.where})' if entry.where else ''} has no check yet: {proposal.missing}.", "  ")
    yield f"  # - function: {_flow(entry.function)}"
    for line in _body(proposal, {}):
        yield f"  # {line[2:]}"


def _value(recipe: InputRecipe, variables: Mapping[str, str]) -> str:
    if recipe.name in variables:
        return f"${variables[str(recipe.name)]}"
    if recipe.tensor is not None:
        return _tensor(recipe.tensor)
    return f"[{', '.join(map(_tensor, recipe.tensors))}]" if recipe.tensors else _flow(recipe.value)


def _tensor(tensor: TensorRecipe) -> str:
    said: dict[str, Json] = {} if tensor.shape is None else {"shape": list(tensor.shape)}
    if tensor.draw != "normal":
        said[tensor.draw] = tensor.arguments
    if tensor.dtype is not None:
        said["dtype"] = tensor.dtype
    if tensor.requires_grad is False:
        said["requires_grad"] = False
    return _mapping(said)


def _mapping(value: Mapping[str, Json]) -> str:
    return "{" + ", ".join(f"{name}: {_flow(item)}" for name, item in value.items()) + "}"


def _flow(value: Json) -> str:
    """Plain data as YAML 1.2 on one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, str):
        plain = (PLAIN.fullmatch(value) and not NOT_PLAIN.fullmatch(value)) or re.fullmatch(r"[\w./-]+:[A-Za-z_][\w.]*", value)
        return value if plain else NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    return str(value)


def _variable(name: str) -> str:
    """A matrix variable; one that is called as a setting is would set it."""
    return f"{name}_value" if name in {*Settings.model_fields, *Matrix.model_fields} else name


def _remarked(line: str, remark: str) -> str:
    return f"{line:{REMARK_AT}}  # {remark}" if remark else line


def _comment(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_long_words=False,
                             break_on_hyphens=False)


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
