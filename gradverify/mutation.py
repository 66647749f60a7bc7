"""A check under damage: which of it the check's own comparisons find, and what would find the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Case, Settings
from gradverify.model.mutation import MutatedCheck, Mutant
from gradverify.model.result import CaseResult, Comparison
from gradverify.subject.damage import Damage, Damaged, damages
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.prepare import prepare
from gradverify.subject.subject import Subject
from gradverify.verify import verify

COMPARES = ("GV101", "GV102", "GV103", "GV104", "GV106", "GV107", "GV111", "GV201")  # what backward returns, against something else
PROBES = 2  # random cotangents under which damage must show
MOVED = 0.3  # of each element's size: far enough for a stale state to show
DUST = 1e-13  # of the gradient's size
UNDAMAGED = "it does not pass as it is"


def mutate(case: Case) -> MutatedCheck:
    """All damage that can be done to a case. Raises UserCodeError where the user's code does."""
    codes = tuple(code for code in COMPARES if _looked_for(code, case.settings))
    if not codes:
        return MutatedCheck(case.id, left_out="`select` and `ignore` leave no rule that looks at a gradient")
    narrow = replace(case, settings=replace(case.settings, select=codes, ignore=()))
    subject = prepare(narrow)
    undamaged = verify(subject)
    if undamaged.verdict != "pass":
        return MutatedCheck(case.id, left_out=f"{UNDAMAGED}: {undamaged.verdict}")
    if not any(comparison.elements for comparison in undamaged.comparisons):
        return MutatedCheck(case.id, left_out="it has no element to compare")
    return MutatedCheck(case.id, tuple(_mutants(subject)))


def _looked_for(code: str, settings: Settings) -> bool:
    return (not settings.select or code.startswith(settings.select)) and not (settings.ignore and code.startswith(settings.ignore))


def _mutants(subject: Subject) -> Iterator[Mutant]:
    """Each on a subject as fresh as the check's own."""
    right = Evidence(subject)
    for damage in damages(subject.inputs):
        names = [subject.differentiable[place].name for place in damage.inputs]
        name = None if damage.deaf or damage.stale else " and ".join(names)
        if not _differs(right, damage):
            yield Mutant(damage.name, name, "no_difference", why=damage.spares)
            continue
        result = verify(subject, Evidence(subject, differentiate=partial(Damaged, damage=damage)))
        found = next((finding.code for finding in result.findings if finding.severity == "error" and finding.code in COMPARES), None)
        yield Mutant(damage.name, name, "killed", by=found) if found else Mutant(damage.name, name, "survived", why=_why(damage, names, result))


def _differs(right: Evidence, damage: Damage) -> bool:
    """Does a random cotangent show the damage at these inputs?"""
    damaged = Damaged(right.subject, right.forward.checked, damage)
    if damage.stale:
        damaged.values([_moved(x) for x in right.subject.inputs])
    for n in range(PROBES):
        cotangents = right.cotangents(f"damage {n}")
        if _unequal(right.function, right.function.vjp(cotangents), damaged.vjp(cotangents)):
            return True
    return False


def _moved(x: Tensor) -> Tensor:
    return x * (1 + MOVED) + MOVED * (x == 0)


def _unequal(function: Differentiable, one: Gradients, other: Gradients) -> bool:
    for x, a, b in zip(function.inputs, one, other, strict=True):
        a, b = (torch.zeros_like(x) if gradient is None else gradient for gradient in (a, b))
        off = (a - b).abs()
        if off.numel() and not bool((off <= DUST * a.abs().amax()).all()):
            return True
    return False


# ---- why damage lives
def _why(damage: Damage, names: Sequence[str], result: CaseResult) -> str:
    """What the check saw of it and forgave, and what would not forgive it."""
    if result.verdict == "undecided":
        return f"it leaves the check undecided: {result.reason}"
    seen = [comparison for comparison in result.comparisons if comparison.input in names]
    if not any(comparison.max_abs_error > 0 for comparison in seen) and any(comparison.kinks for comparison in seen):
        return "what it changes lies at a kink, where every subgradient is right: inputs that `avoid` it"
    return f"{_forgiven(seen, result)}; {_stricter(result)}"


def _forgiven(seen: Sequence[Comparison], result: CaseResult) -> str:
    relative, absolute = (max((getattr(c, name) for c in seen), default=0.0) for name in ("max_rel_error", "max_abs_error"))
    atol, rtol = (result.settings[name] for name in ("atol", "rtol"))
    return f"the error is {relative:.2g} of an element at most ({absolute:.2g}), which atol {atol:g} and rtol {rtol:g} forgive"


def _stricter(result: CaseResult) -> str:
    if result.settings["eps"] != "auto":
        return "`eps: auto` sees 1e-06"
    return "a check in float64 sees 1e-06" if result.dtype in ("float32", "complex64") else "larger gradients or a smaller tolerance would show it"


