"""Run a check on damaged gradients: which damage it finds, why other damage survives, and which
settings would find it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Case, Settings
from gradverify.model.dtypes import WIDER
from gradverify.model.mutation import Fate, Mutant, MutatedCheck
from gradverify.model.result import CaseResult
from gradverify.model.rule import Kills
from gradverify.numerics.function.coordinates import UNITS, numbers, one_hot
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.rungs import U64
from gradverify.report.numbers import counted
from gradverify.rules.catalogue import rules
from gradverify.rules.differ import dust, flat, largest
from gradverify.subject.damage import Damage, Damaged, damages, done
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.draw import generator
from gradverify.subject.failure import tried
from gradverify.subject.machine import compute_on_one_thread
from gradverify.subject.prepare import prepare
from gradverify.subject.subject import Argument, Subject
from gradverify.verify import verify

# ---- Whether damage changes a gradient at all, at the inputs of a check or at others
PROBES = 2  # random cotangents under which damage must show
SPREADS = (1.0, 1.0, 1.0, 0.1, 10.0)  # of other points, of which the first two are nearby
# Roundings of a gradient's largest element up to which a change does not show (1e-13, in float32
# 6e-5)
ROUNDINGS = 2.0**10
NEAR = (0.5, 1.5)  # range of factors: the nearest point stays on the same side of 0

Replies = list[tuple[list[Tensor], Gradients]]
"""Cotangents and the gradients for them, at one point: random cotangents, then one of ones."""


class Samples:
    """Gradients of an undamaged function, at the inputs of its check, and at other points where it
    is defined."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.here = self._at(evidence.subject.inputs)
        self.elsewhere = [seen for n in range(len(SPREADS)) if (seen := self._other(n)) is not None]

    def changes(self, damage: Damage) -> bool:
        """Return whether damage changes a gradient at the check's inputs."""
        return self._changes(damage, self.here, self.elsewhere)

    def changes_elsewhere(self, damage: Damage) -> bool:
        """Return whether damage changes a gradient at any other point."""
        return any(self._changes(damage, seen, [self.here]) for seen in self.elsewhere)

    def vanishes(self, place: int) -> bool:
        """Return whether the gradient of an input is zero at the check's inputs."""
        return all(self._same(place, gradients[place], None) for _, gradients in self.here)

    def _changes(self, damage: Damage, at: Replies, others: Sequence[Replies]) -> bool:
        for number, (cotangents, gradients) in enumerate(at[:-1]):
            changed = [done(damage, gradients, cotangents)]
            if damage.how == "stale":
                changed = [other[number][1] for other in others]
            elif damage.how == "deaf":
                changed = [at[-1][1]]
            for other in changed:
                if not all(map(self._same, range(len(other)), gradients, other)):
                    return True
        return False

    def _same(self, place: int, one: Tensor | None, other: Tensor | None) -> bool:
        """Return whether two gradients agree within rounding of their size, and of the natural size
        ‖v‖‖f‖/‖x‖, to which sums over softmax rows cancel."""
        argument = self._evidence.inputs[place]
        a, b = flat(argument, one), flat(argument, other)
        rounding = max(largest(a), largest(b)) * ROUNDINGS * UNITS.get(argument.value.dtype, U64)
        return bool(((a - b).abs() <= rounding + dust(self._evidence, argument.value)).all())

    def _at(self, inputs: Sequence[Tensor]) -> Replies:
        probes = [list(self._evidence.cotangents(f"damage {n}")) for n in range(PROBES)]
        probes.append([torch.ones_like(y) for y in self._evidence.outputs])
        vjp = self._evidence.function.vjp
        return [(v, copied(vjp([cotangent.clone() for cotangent in v], inputs))) for v in probes]

    def _other(self, n: int) -> Replies | None:
        """Return the gradients at another point; None where the function is not defined there."""
        inputs = []
        for argument in self._evidence.inputs:
            seed, check = self._evidence.settings.seed, self._evidence.subject.case.check
            source = generator(seed, check, f"{argument.name} elsewhere {n}")
            inputs.append(other_point(argument, n, source))
        seen = tried(self._at, inputs)
        if seen is None:
            return None
        finite = (
            bool(g.isfinite().all()) for _, gradients in seen for g in gradients if g is not None
        )
        return seen if all(finite) else None


def other_point(argument: Argument, n: int, source: torch.Generator) -> Tensor:
    """Return other values of an input's shape, inside its domain. n = 0: every element times a
    factor of its own; 1: with other signs, too; from 2 on: all drawn anew, at the input's size
    times a spread."""
    x = argument.value.detach()
    size = (float(x.abs().square().mean().sqrt()) or 1.0) * SPREADS[n]
    low, high = NEAR
    factor = low + (high - low) * torch.rand(x.shape, generator=source, dtype=torch.float64)
    drawn = torch.randn(x.shape, generator=source, dtype=torch.float64)
    moved = (drawn * size).to(dtype=x.dtype, device=x.device)
    if n < 2:
        factor = factor if n == 0 else factor * drawn.sign()
        moved = torch.where(x == 0, moved, x * factor.to(dtype=x.dtype, device=x.device))
    if argument.domain is None or moved.is_complex():
        return moved
    return torch.clamp(moved, *argument.domain)


# ---- Damage that the finite differences of the undamaged check find without another forward or
# backward
MARGIN = 8.0  # times the largest error that the check forgives: the check finds it without doubt
ROWS, KEPT = 1024, 2**22  # most backwards, and most numbers that they return


class Measured:
    """Rows of the Jacobian of a check that passed, by which some damage is found beyond doubt. For
    all other damage the check must run."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, outputs = evidence, evidence.outputs
        self._rows = []
        places = [(n, j) for n, y in enumerate(outputs) for j in range(len(numbers(y)))]
        size = sum(x.numel() for x in evidence.subject.inputs)
        count = min(len(places), ROWS, KEPT // max(size, 1))
        for n in np.unique(np.linspace(0, len(places) - 1, count).astype(int)) if count else ():
            output, j = places[n]
            y = outputs[output]
            cotangents: list[Tensor | None] = [None] * len(outputs)
            cotangents[output] = one_hot(y.shape, y.dtype, y.device, j)
            self._rows.append((output, cotangents, copied(evidence.function.vjp(cotangents))))

    def finds(self, damage: Damage) -> int | None:
        """Return the place of an input with an element that is clearly off under this damage; None
        where there is none."""
        pairs, inputs = self._evidence.jacobian.pairs, self._evidence.inputs
        coarse = any(pair.low_precision for pair in pairs.values())
        _, rtol = self._evidence.settings.tolerances(coarse)
        for output, cotangents, gradients in (
            self._rows if damage.how in ("element", "swap") else ()
        ):
            damaged = done(damage, gradients, cotangents)
            for place in damage.inputs:
                argument, pair = inputs[place], pairs[place, output]
                # Where every element was compared by itself, and none is at a kink
                if argument.symmetric or argument.form or pair.lines or pair.entries is None:
                    continue
                if pair.count(Outcome.PASS) == pair.compared:
                    a, b = (flat(argument, each[place]) for each in (gradients, damaged))
                    if ((a - b).abs() > MARGIN * (pair.resolution + rtol * b.abs())).any():
                        return place
        return None


# ---- A check under damage
OTHERS = (0, 1, 2)  # kinds of other points: nearby, with other signs, drawn anew
NOTHING = 1e-8  # relative error of an element that finite differences have themselves
NONE = (
    "nothing that was tried instead finds it: other inputs, `eps: auto`, default tolerances, "
    "float64, `mode: entries`"
)


def _codes(*kinds: Kills) -> tuple[str, ...]:
    """Return the codes of the rules that judge these kinds, kind by kind."""
    return tuple(info.code for kind in kinds for info in rules() if info.kills == kind)


ELSEWHERE = _codes("elsewhere")  # rules that compare gradients at another point than the check's
COMPARES = _codes("values", "elsewhere")  # rules that compare gradients with other numbers
REMEMBERS = _codes("memory")  # rules that compare gradients with those of earlier calls


def mutate(case: Case) -> MutatedCheck:
    """Run a case under all damage that can be done to its gradients. Raises UserCodeError where the
    user's code raises."""
    blank = MutatedCheck(case.id, case.name, case.target)
    if case.expect != "pass":
        return replace(blank, left_out="it is expected to fail")
    if not _looked_for(case.settings, COMPARES):
        why = "`select` and `ignore` leave no rule that compares a gradient"
        return replace(blank, left_out=why)
    subject = prepare(case)
    compute_on_one_thread(subject.size)
    right = Evidence(_focused(subject))
    undamaged = verify(right.subject, evidence=right)
    some = any(x.numel() for x in subject.inputs)
    if undamaged.outputs and not (some and any(math.prod(y.shape) for y in undamaged.outputs)):
        return replace(blank, left_out="it has no element to compare")
    if undamaged.verdict != "pass":
        finding = next((f" ({each.code} {each.name})" for each in undamaged.errors), "")
        why = f"it does not pass undamaged: {undamaged.verdict}{finding}"
        return replace(blank, left_out=why, broken=True)
    samples, measured = Samples(right), Measured(right)
    tried = (_mutant(subject, samples, measured, damage) for damage in damages(subject.inputs))
    return replace(blank, mutants=tuple(tried))


def _mutant(subject: Subject, samples: Samples, measured: Measured, damage: Damage) -> Mutant:
    """Return the fate of damage: if it changes a gradient at these inputs, the whole check runs
    with it."""
    struck = [subject.differentiable[place] for place in damage.inputs]
    names = [argument.name for argument in struck]
    lives = partial(Mutant, damage.name, () if damage.how in ("deaf", "stale") else tuple(names))
    of = f"the gradient of {' and '.join(names)}"
    points = len(samples.elsewhere)
    at = "at these inputs; it shows at others"
    if samples.changes(damage):
        off = measured.finds(damage)
        code = "GV111" if off is not None and subject.differentiable[off].parameter else "GV101"
        if off is not None and subject.case.settings.looks_for(code):
            return lives("killed", by=code)
        result = _run(subject, damage)
        found = _killed_by(result)
        if found:
            return lives("killed", by=found)
        return lives("survived", why=f"{_seen(result)}; {next(_remedies(subject, damage), NONE)}")
    fate: Fate = "unseen"
    if damage.needs:
        why = f"{' and '.join(names)} has shape {list(struck[0].value.shape)}: {damage.needs}"
    elif not points:
        why = (
            "no other inputs were found at which the function is defined: whether it would show "
            "there is not known"
        )
    elif damage.how == "stale":
        fate = "equivalent"
        why = "the gradient does not depend on the inputs: there is no state to be stale"
    elif not samples.changes_elsewhere(damage):
        fate, why = "equivalent", f"the same gradient here and at {counted(points, 'other point')}"
    elif _looked_for(subject.case.settings, ELSEWHERE) and (
        found := _killed_by(_run(subject, damage, ELSEWHERE))
    ):
        return lives("killed", by=found)
    elif all(samples.vanishes(place) for place in damage.inputs):
        why = f"{of} is 0 {at}"
    elif damage.how == "swap":
        why = (
            f"{of.replace('gradient', 'gradients')} are the same at these inputs; it shows at "
            "unequal ones"
        )
    else:
        why = f"it leaves {of} as it is {at}"
    return lives(fate, why=why)


def _run(subject: Subject, damage: Damage, among: tuple[str, ...] | None = None) -> CaseResult:
    """Run the whole check (or some of its rules), up to the rule that finds the damage."""
    twin = _focused(subject, among or (COMPARES + REMEMBERS if damage.how == "stale" else COMPARES))
    return verify(
        twin, evidence=Evidence(twin, differentiate=partial(Damaged, damage=damage)), briefly=True
    )


def _focused(subject: Subject, among: tuple[str, ...] = COMPARES) -> Subject:
    """Return a fresh subject with only these rules selected: the others are about the calls of the
    function, which damage does not change."""
    settings = subject.case.settings
    case = replace(
        subject.case, settings=replace(settings, select=_looked_for(settings, among), ignore=())
    )
    twin = Subject(case, subject.target, subject.arguments, subject.kwargs)
    twin.writes = subject.writes
    return twin


def _looked_for(settings: Settings, among: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of these rules that the settings select."""
    return tuple(filter(settings.looks_for, among))


def _killed_by(result: CaseResult) -> str | None:
    """Return the code of the first error of a rule that judges gradients; None where there is
    none."""
    codes = (finding.code for finding in result.errors)
    return next((code for code in codes if code in COMPARES + REMEMBERS), None)


def _seen(result: CaseResult) -> str:
    """Describe how much of the damage the check saw, and why it forgave that."""
    if result.verdict != "pass":
        return f"it leaves the check {result.verdict}: {result.reason}"
    if any(comparison.kinks for comparison in result.comparisons):
        return "it stays within the slopes on both sides of the kinks, and the tolerance elsewhere"
    if not result.comparisons:
        return "no rule that was selected compares it with anything"
    relative = max(comparison.max_rel_error for comparison in result.comparisons)
    if relative <= NOTHING:
        return "it shows in no element that was compared"
    atol, rtol = (result.settings[name] for name in ("atol", "rtol"))
    return (
        f"an error of {relative:.2g} of an element, which atol {atol:g} and rtol {rtol:g} forgive"
    )


def _remedies(subject: Subject, damage: Damage) -> Iterator[str]:
    """Yield other checks of the same function that find the damage: with stricter settings, the
    smallest change first, then at other inputs."""
    now = subject.case.settings
    plain = replace(now, atol=None, rtol=None)
    wider = WIDER.get(now.dtype, now.dtype)

    def moved(n: int) -> Subject | None:
        """Return the subject at other inputs; None where the undamaged check does not pass
        there."""
        drawn = (
            replace(
                a,
                value=other_point(
                    a, n, generator(now.seed, subject.case.check, f"{a.name} other {n}")
                ),
            )
            if a.differentiable
            else a
            for a in subject.arguments
        )
        twin = Subject(subject.case, subject.target, list(drawn), subject.kwargs)
        twin.writes = subject.writes
        return twin if verify(_focused(twin), briefly=True).verdict == "pass" else None

    stricter = (
        ("all rules", replace(now, select=(), ignore=())),
        ("the default tolerances", plain),
        ("`eps: auto`", now if now.eps == "auto" else replace(plain, eps="auto")),
        ("`mode: entries`", now if now.mode == "auto" else replace(now, mode="entries")),
        (
            f"`dtype: {wider}`",
            now if wider == now.dtype else replace(plain, eps="auto", dtype=wider),
        ),
    )
    ways: list[tuple[str, Callable[[], Subject | None]]] = [
        (f"found with {words}", partial(prepare, replace(subject.case, settings=settings)))
        for words, settings in stricter
        if settings != now
    ]
    ways += [("found at other inputs of the same shapes", partial(moved, n)) for n in OTHERS]
    for sentence, other in ways:
        twin = tried(other)
        result = None if twin is None else tried(_run, twin, damage)
        if result is not None and _killed_by(result):
            yield sentence
