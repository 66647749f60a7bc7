"""A check under damage: which of it the check finds, and what would find the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradverify.evidence import Evidence
from gradverify.model.case import Case
from gradverify.model.mutation import Fate, Mutant, MutatedCheck
from gradverify.model.result import CaseResult
from gradverify.mutation.focus import COMPARES, ELSEWHERE, REMEMBERS, compared, focused, killed_by
from gradverify.mutation.measured import Measured
from gradverify.mutation.remedy import remedy
from gradverify.mutation.sight import Sights
from gradverify.report.numbers import counted
from gradverify.subject.damage import Damage, Damaged, damages
from gradverify.subject.machine import compute_on_one_thread
from gradverify.subject.prepare import prepare
from gradverify.subject.subject import Argument, Subject
from gradverify.verify import verify

NOWHERE = "no other inputs were found at which the function is defined: whether it would show there is not known"
NO_STATE = "the gradient does not depend on the inputs: there is no state to be stale"


def mutate(case: Case) -> MutatedCheck:
    """All damage that can be done to a case. Raises UserCodeError where the user's code does."""
    blank = MutatedCheck(case.id, case.name, case.target)
    if case.expect != "pass":
        return replace(blank, left_out="it is expected to fail")
    if not compared(case.settings):
        return replace(blank, left_out="`select` and `ignore` leave no rule that compares a gradient")
    subject = prepare(case)
    compute_on_one_thread(subject.size)
    right = Evidence(focused(subject))
    undamaged = verify(right.subject, evidence=right)
    if undamaged.outputs and not (any(x.numel() for x in subject.inputs) and any(math.prod(y.shape) for y in undamaged.outputs)):
        return replace(blank, left_out="it has no element to compare")
    if undamaged.verdict != "pass":
        return replace(blank, left_out=f"it does not pass undamaged: {_verdict(undamaged)}", broken=True)
    return replace(blank, mutants=tuple(Trial(subject, right).mutants()))


class Trial:
    """One check that passes, whose gradients are damaged in one way after the other."""

    def __init__(self, subject: Subject, right: Evidence) -> None:
        self.subject = subject
        self.sights, self.measured = Sights(right), Measured(right)

    def mutants(self) -> Iterator[Mutant]:
        for damage in damages(self.subject.inputs):
            if self.sights.changes(damage):
                yield self._tried(damage)
            else:
                yield self._without_effect(damage)

    def _tried(self, damage: Damage) -> Mutant:
        place = self.measured.finds(damage)
        code = None if place is None else "GV111" if self._arguments[place].parameter else "GV101"
        if code in compared(self.subject.case.settings):
            return self._mutant(damage, "killed", by=code)
        result = _run(self.subject, damage)
        found = killed_by(result)
        if found:
            return self._mutant(damage, "killed", by=found)
        why = remedy(self.subject, result, lambda other: killed_by(_run(other, damage)) is not None)
        return self._mutant(damage, "survived", why=why)

    def _without_effect(self, damage: Damage) -> Mutant:
        """It changes nothing at these inputs: would it at others?"""
        names, points = self._names(damage), len(self.sights.elsewhere)
        if damage.needs:
            return self._mutant(damage, "unseen", why=f"{names} has shape {list(self._arguments[damage.inputs[0]].value.shape)}: {damage.needs}")
        if not points:
            return self._mutant(damage, "unseen", why=NOWHERE)
        if damage.how == "stale":
            return self._mutant(damage, "equivalent", why=NO_STATE)
        if not self.sights.changes_elsewhere(damage):
            return self._mutant(damage, "equivalent", why=f"the same gradient here and at {counted(points, 'other point')}")
        found = killed_by(_run(self.subject, damage, ELSEWHERE)) if {*ELSEWHERE} & {*compared(self.subject.case.settings)} else None
        if found:
            return self._mutant(damage, "killed", by=found)
        if all(self.sights.vanishes(place) for place in damage.inputs):
            return self._mutant(damage, "unseen", why=f"the gradient of {names} is 0 at these inputs; it shows at others")
        if damage.how == "swap":
            return self._mutant(damage, "unseen", why=f"the gradients of {names} are the same at these inputs; it shows at unequal ones")
        return self._mutant(damage, "unseen", why=f"it leaves the gradient of {names} as it is at these inputs; it shows at others")

    @property
    def _arguments(self) -> tuple[Argument, ...]:
        return self.subject.differentiable

    def _names(self, damage: Damage) -> str:
        return " and ".join(self._arguments[place].name for place in damage.inputs)

    def _mutant(self, damage: Damage, fate: Fate, by: str | None = None, why: str | None = None) -> Mutant:
        places = () if damage.how in ("deaf", "stale") else damage.inputs
        return Mutant(damage.name, tuple(self._arguments[place].name for place in places), fate, by, why)


def _run(subject: Subject, damage: Damage, among: tuple[str, ...] | None = None) -> CaseResult:
    """The whole check (or some of its rules), up to the rule that finds the damage."""
    twin = focused(subject, among or (COMPARES + REMEMBERS if damage.how == "stale" else COMPARES))
    return verify(twin, evidence=Evidence(twin, differentiate=partial(Damaged, damage=damage)), briefly=True)


def _verdict(result: CaseResult) -> str:
    found = next((finding for finding in result.findings if finding.severity == "error"), None)
    return f"{result.verdict} ({found.code} {found.name})" if found else result.verdict
