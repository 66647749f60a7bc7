"""Specs as `gradverify init` writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from gradverify.model.case import InputRecipe, Json, TensorRecipe
from gradverify.model.proposal import Proposal
from gradverify.spec.document import Loader12
from gradverify.spec.names import own_name
from gradverify.spec.schema import FORMAT_VERSION, Matrix, Settings

LONGEST = 10**6  # characters of a value, which is written on one line
WIDTH = 118
REMARK_AT = 40  # the column of remarks, if the line is short enough


@dataclass(frozen=True, slots=True)
class Entry:
    """One function: its name in the spec, its place in the source (for a comment), the call found,
    and further keys of the check."""

    function: str
    where: str
    proposal: Proposal
    keys: Mapping[str, Json] = field(default_factory=dict)


def scaffold(
    about: str,
    schema: str,
    entries: Sequence[Entry],
    path: Sequence[str] = (),
    imports: Sequence[str] = (),
    recorded: bool = False,
) -> str:
    """Return the text of a spec, which is valid even if nothing in it runs yet. `about`: the
    functions that it was written for; `schema`: relative to the file; `path`, `imports` as in the
    spec; `recorded`: the calls are recorded ones, and not found by trying."""
    written = (
        f"Written by `gradverify record` for {about}, from calls that were made; sizes are smaller."
        if recorded
        else f"Written by `gradverify init` for {about}. Shapes and numbers were found by trying: "
        "change them to those that matter."
    )
    head = [f"# yaml-language-server: $schema={schema}", *_comment(written, "")]
    return "\n".join(head) + "\n" + spec_of(entries, path, imports, recorded)


def spec_of(
    entries: Sequence[Entry],
    path: Sequence[str] = (),
    imports: Sequence[str] = (),
    recorded: bool = False,
) -> str:
    """Return the text of a spec with these checks, without a comment at its head."""
    lines = [f"gradverify: {FORMAT_VERSION}"]
    lines += [f"path: {_flow(list(path))}"] if path else []
    lines += [f"import: {_flow(list(imports))}"] if imports else []
    running = any(entry.proposal.missing is None for entry in entries)
    lines += ["", "checks:" if running else "checks: []      # none runs yet: see below"]
    names = [own_name(entry.function) for entry in entries]
    used = set[str]()
    for place, (entry, own) in enumerate(zip(entries, names, strict=True)):
        last = re.split(r"[:/]", entry.function)[-1]
        free = next(
            name
            for name in (last, *(f"{last} {number}" for number in range(2, len(used) + 3)))
            if name not in used
        )
        named = None if names.count(own) == 1 and own not in used else free
        used.add(named or own)
        lines += [""] * (place > 0)
        lines += (
            _check(entry, named, recorded)
            if entry.proposal.missing is None
            else _open(entry, recorded)
        )
    return "\n".join(lines) + "\n"


def _check(entry: Entry, named: str | None, recorded: bool) -> Iterator[str]:
    proposal = entry.proposal
    # A matrix variable with the name of a setting would set that
    variables = {
        name: f"{name}_value" if name in {*Settings.model_fields, *Matrix.model_fields} else name
        for name in proposal.varied
    }
    if proposal.note:
        yield from _comment(proposal.note, "  ")
    yield _remarked(f"  - function: {_flow(entry.function)}", entry.where)
    if named:
        yield f"    name: {_flow(named)}"
    yield from _body(proposal, variables, recorded)
    yield from (f"    {key}: {_flow(value)}" for key, value in entry.keys.items())
    if variables:
        yield "    matrix:"
        width = max(map(len, variables.values())) + 1
        yield from (
            f"      {variables[name] + ':':{width}} {_flow(list(values))}"
            for name, values in proposal.varied.items()
        )
    for name in proposal.left_out:
        yield ""
        yield f"  - function: {_flow(entry.function)}"
        yield f"    name: {_flow(f'{named or own_name(entry.function)} without {name}')}"
        yield from _body(_without(proposal, name), {}, recorded)
        yield from (f"    {key}: {_flow(value)}" for key, value in entry.keys.items())


def _without(proposal: Proposal, name: str) -> Proposal:
    """Return the proposal with null for one argument, without remarks, which the check before
    has."""

    def changed(recipes: Sequence[InputRecipe]) -> tuple[InputRecipe, ...]:
        return tuple(InputRecipe(name) if each.name == name else each for each in recipes)

    return Proposal(
        proposal.target,
        changed(proposal.inputs),
        changed(proposal.keywords),
        proposal.init,
        dtype=proposal.dtype,
        device=proposal.device,
    )


def _body(proposal: Proposal, variables: Mapping[str, str], recorded: bool) -> Iterator[str]:
    if proposal.init:
        yield f"    init: {_flow(proposal.init)}"
    for key, recipes in (("inputs", proposal.inputs), ("kwargs", proposal.keywords)):
        if recipes:
            yield f"    {key}:"
            width = max(len(str(each.name)) for each in recipes) + 1
            yield from (
                _remarked(
                    f"      {f'{each.name}:':{width}} {_value(each, variables)}",
                    proposal.remarks.get(str(each.name), ""),
                )
                for each in recipes
            )
    if not proposal.inputs and not proposal.keywords:
        yield "    inputs: {}"
    if proposal.dtype != "float64":
        why = "" if recorded else "it refused float64"
        yield _remarked(f"    dtype: {proposal.dtype}", why)
    if proposal.device != "cpu":
        yield f"    device: {proposal.device}"


def _open(entry: Entry, recorded: bool) -> Iterator[str]:
    """Yield a check that does not run yet, as a comment."""
    proposal = entry.proposal
    advice = (
        ""
        if proposal.advised
        else " Give inputs that it takes, or write down those of your tests: "
        "`gradverify record -- pytest`."
    )
    yield from _comment(
        f"TODO {own_name(entry.function)}{f' ({entry.where})' if entry.where else ''}: "
        f"{proposal.missing}.{advice}",
        "  ",
    )
    yield f"  # - function: {_flow(entry.function)}"
    for line in _body(proposal, {}, recorded):
        yield f"  # {line[2:]}"


def _value(recipe: InputRecipe, variables: Mapping[str, str]) -> str:
    if recipe.name in variables:
        return f"${variables[str(recipe.name)]}"
    if recipe.tensor is not None:
        return _tensor(recipe.tensor)
    return f"[{', '.join(map(_tensor, recipe.tensors))}]" if recipe.tensors else _flow(recipe.value)


def _tensor(tensor: TensorRecipe) -> str:
    keys: dict[str, Json] = {} if tensor.shape is None else {"shape": list(tensor.shape)}
    if tensor.draw != "normal" or list(tensor.arguments) != [0, 1]:
        keys[tensor.draw] = tensor.arguments
    for name in ("distinct", "dtype", "device", "layout"):
        if (value := getattr(tensor, name)) is not None:
            keys[name] = value
    if tensor.symmetric and tensor.draw != "kind":
        keys["symmetric"] = True
    if tensor.requires_grad is False:
        keys["requires_grad"] = False
    return _flow(keys)


class Dumper12(yaml.SafeDumper):
    """A dumper that quotes text which YAML 1.2 would read as another type."""

    yaml_implicit_resolvers = Loader12.yaml_implicit_resolvers

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _flow(value: Json) -> str:
    """Return plain data as YAML on one line."""
    text: str = yaml.dump(
        value, Dumper=Dumper12, default_flow_style=True, width=LONGEST, sort_keys=False
    )
    return text.strip().removesuffix("\n...")


def _remarked(line: str, remark: str) -> str:
    return f"{line:{REMARK_AT}}  # {remark}" if remark else line


def _comment(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
