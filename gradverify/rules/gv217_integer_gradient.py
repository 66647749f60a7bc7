"""GV217 integer-gradient: backward returns a gradient for an argument that has none."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.subject.failure import type_name
from gradverify.subject.subject import Argument


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.target.kind != "autograd.Function":
        return "the target is no autograd Function"
    return None if any(map(_has_none, evidence.subject.arguments)) else "every argument is a floating tensor"


def check(evidence: Evidence) -> Iterator[Finding]:
    cls = evidence.subject.target.subject
    raw = next((raw for raw in evidence.backward.raw if raw.cls is cls), None)
    if raw is None:
        return
    for (argument, *_), gradient in zip(evidence.subject.positions, raw.returned, strict=False):
        if _has_none(argument) and gradient is not None:
            name = argument.whole
            severity: Severity = "warning" if argument.is_tensor and not argument.of else "error"      # the engine refuses anything else
            yield Finding("GV217", f"backward returns a gradient for {name}, which is a {_kind(argument)} and has none", severity=severity,
                          input=name, hint=_in_its_place(argument, evidence))


def _in_its_place(argument: Argument, evidence: Evidence) -> str:
    """Autograd does not look into a list: its tensors get no gradients through it, whatever is returned in its place."""
    members = [each for each in evidence.subject.arguments if each.of == argument.of]
    if argument.of and any(each.differentiable for each in members):
        return f"autograd does not look into lists: give each tensor of {argument.whole} as an argument of its own, `apply(*{argument.whole}, …)`"
    return f"return None in the place of {argument.whole}"


def _kind(argument: Argument) -> str:
    if argument.of:
        return "list"
    return str(argument.value.dtype).removeprefix("torch.") + " tensor" if argument.is_tensor else type_name(argument.value)


def _has_none(argument: Argument) -> bool:
    """Has this argument no gradient by its nature? (A floating tensor that does not require one may be given one.)"""
    return argument.of is not None or not argument.is_tensor or not (argument.value.is_floating_point() or argument.value.is_complex())
