"""GV212 gradient-metadata: backward returns the wrong number, dtype, device or shape of gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.raw import edges_by_place, input_at
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.failure import shown
from gradverify.subject.forms import is_jagged
from gradverify.subject.graph import Edge, RawReturn
from gradverify.subject.guard import of_type
from gradverify.subject.native import wrong_number

OWN = "return a gradient of the input's own shape, dtype and device"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    refused = wrong_number(evidence.backward.error.message) if evidence.backward.error else None
    if refused is not None:
        yield _counted(*refused)
    for raw in _first_of_each(evidence.backward.raw):
        if _is_one_list(evidence, raw):
            yield _listed(raw.name, len(raw.returned[0]))
            continue
        yield from _number(raw)
        for name, edge, gradient in _aligned(raw, evidence):
            if not (isinstance(gradient, Tensor) and is_jagged(gradient) and evidence.odd is not None):     # its input is nested too
                yield from _metadata(raw.name, name, edge, gradient)


def _first_of_each(raws: tuple[RawReturn, ...]) -> list[RawReturn]:
    """One return per class is enough: the others would repeat the sentence."""
    return list({raw.cls: raw for raw in reversed(raws)}.values())


def _number(raw: RawReturn) -> Iterator[Finding]:
    """Trailing Nones are allowed by autograd."""
    expected, got = len(raw.needs), len(raw.returned)
    if got < expected or any(gradient is not None for gradient in raw.returned[expected:]):
        yield _counted(raw.name, expected, got)


def _is_one_list(evidence: Evidence, raw: RawReturn) -> bool:
    """Did backward return a list in place of a tuple? One in the place of an argument that is a list is GV217's."""
    own = evidence.subject.positions if raw.cls is evidence.subject.target.subject else ()
    return len(raw.returned) == 1 and isinstance(raw.returned[0], list) and not (own and own[0][0].of)


def _listed(name: str, got: int) -> Finding:
    return Finding("GV212", f"backward of {name} returns a list of {got}, which autograd takes for one gradient that is no tensor",
                   hint="return a tuple: `return a, b`")


def _counted(name: str, expected: int, got: int) -> Finding:
    return Finding("GV212", f"backward of {name} returns {got} gradient{'s' if got != 1 else ''}, but forward has {expected} "
                   f"argument{'s' if expected != 1 else ''}", hint="return one value per argument of forward, None where there is no gradient")


def _aligned(raw: RawReturn, evidence: Evidence) -> Iterator[tuple[str, Edge, object]]:
    """(argument, what autograd expects, what was returned) for the tensor arguments that need a gradient."""
    for place, edge in edges_by_place(raw).items():
        if place < len(raw.returned) and raw.returned[place] is not None:
            yield input_at(evidence, raw, place) or f"argument {place}", edge, raw.returned[place]


def _metadata(cls: str, name: str, edge: Edge, gradient: object) -> Iterator[Finding]:
    if not isinstance(gradient, Tensor):
        yield Finding("GV212", f"backward of {cls} returns {shown(gradient):.40} for {name}, which is no tensor", input=name)
        return
    odd = of_type(gradient)
    if odd is not None:
        yield Finding("GV212", f"backward of {cls} returns {odd[0]} for {name}, which is a dense one", input=name,
                      hint=f"return a plain tensor: {odd[1]}")
        return
    wrong = []
    if gradient.dtype != edge.dtype:
        wrong.append(f"a {_short(gradient.dtype)} gradient for {name}, which is {_short(edge.dtype)}")
    if gradient.device != edge.device:
        wrong.append(f"a gradient on {gradient.device} for {name}, which is on {edge.device}")
    if tuple(gradient.shape) != edge.shape and not _sums_to(gradient.shape, edge.shape):
        wrong.append(f"a gradient of shape {list(gradient.shape)} for {name}, which has {list(edge.shape)}")
    if wrong:
        yield Finding("GV212", f"backward of {cls} returns {' and '.join(wrong)}", input=name,
                      hint=OWN)
    elif tuple(gradient.shape) != edge.shape:
        yield Finding("GV212", f"backward of {cls} returns a gradient of shape {list(gradient.shape)} for {name}, which has {list(edge.shape)}: "
                      "autograd sums it down", severity="warning", input=name, hint=OWN)


def _sums_to(shape: torch.Size, wanted: tuple[int, ...]) -> bool:
    """Can a gradient of this shape be summed to the wanted one, as for a broadcast argument?"""
    if len(shape) < len(wanted):
        return False
    return all(want in (1, have) for have, want in zip(shape[len(shape) - len(wanted):], wanted, strict=True))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
