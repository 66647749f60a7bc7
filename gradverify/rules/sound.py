"""What has to hold before a rule can say anything: the names that the catalogue uses, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gradverify.evidence import Evidence
from gradverify.model.rule import RuleInfo
from gradverify.numerics.function.coordinates import DOUBLE
from gradverify.rules.catalogue import book

Found = Iterable[str]


def _is_double(evidence: Evidence) -> bool:
    """Are all floating arguments float64 or complex128?"""
    values = (argument.value for argument in evidence.subject.arguments if argument.is_tensor)
    return all(x.dtype in DOUBLE for x in values if x.is_floating_point() or x.is_complex())


def _any(reason: str, apart: bool = False) -> Callable[[Evidence, Found], str | None]:
    """Any code that speaks against the gradient, by default at this point."""
    def why(evidence: Evidence, found: Found) -> str | None:
        first = min((code for code in found if book()[code].verdict == "fail" and (apart or not book()[code].apart)), default=None)
        return first and reason.format(first)
    return why


NEEDS: Mapping[str, Callable[[Evidence, frozenset[str]], object]] = {
    "nothing found": _any("{} was found already", apart=True),
    "right": _any("{} was found already"),
    "sound": _any("{} has to be repaired first"),
    "strided": lambda e, found: e.odd,
    "function": lambda e, found: not e.forward.nodes and "no custom Function is in the graph",
    "autograd.Function": lambda e, found: e.subject.target.kind != "autograd.Function" and "the target is no autograd Function",
    "several inputs": lambda e, found: len(e.inputs) < 2 and "there is one differentiable input",
    "elements": lambda e, found: not all(sum(x.numel() for x in each) for each in (e.outputs, e.subject.inputs)) and "there are no elements",
    "not empty": lambda e, found: e.empty and "the spec asks for an empty tensor",
    "no writes": lambda e, found: e.subject.writes and "the function writes into its inputs",
    "no draws": lambda e, found: e.draws and "the function draws random numbers",
    "bars": lambda e, found: e.settings.eps != "auto" and "a fixed `eps` has no error bars",
    "float64": lambda e, found: not _is_double(e) and "an input is of lower precision",
}
SETTING = "setting "


def unmet(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> str | None:
    """Why a rule cannot be asked; None where it can."""
    return next((why for need in filter(None, info.needs.split(", ")) if (why := _unmet(need, evidence, found))), None)


def _unmet(need: str, evidence: Evidence, found: frozenset[str]) -> str | None:
    if need in book():
        return (book()[need].spoils or f"{need} was found already") if need in found else None
    if not need.startswith(SETTING):
        why = NEEDS[need](evidence, found)
        return why if isinstance(why, str) else None
    key = need.removeprefix(SETTING)
    value = getattr(evidence.settings, key)
    return f"the spec says `{key}: false`" if value is False else evidence.odd if value == "auto" else None
