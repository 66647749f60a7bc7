"""A check under damage: which of it the check finds, why damage lives, and what would find it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gradverify.evidence import Evidence
from gradverify.model.case import Case, Settings
from gradverify.model.dtypes import WIDER
from gradverify.model.mutation import Mutant, MutatedCheck
from gradverify.model.result import CaseResult
from gradverify.model.rule import Kills
from gradverify.mutation.measured import Measured
from gradverify.mutation.sight import Sights, other_point
from gradverify.report.numbers import counted
from gradverify.rules.catalogue import rules
from gradverify.subject.damage import Damage, Damaged, damages
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.machine import compute_on_one_thread
from gradverify.subject.prepare import prepare
from gradverify.subject.subject import Subject
from gradverify.verify import verify

OTHERS = (0, 1, 2)  # kinds of other points: near by, with other signs, drawn anew
NOTHING = 1e-8  # of an element: finite differences are off by as much
NONE = (
    "nothing that was tried instead finds it: other inputs, `eps: auto`, default tolerances, "
    "float64, `mode: entries`"
)


def _codes(*kinds: Kills) -> tuple[str, ...]:
    """Of the rules that declare to judge one of these, those of each kind in a row."""
    return tuple(info.code for kind in kinds for info in rules() if info.kills == kind)


ELSEWHERE = _codes("elsewhere")  # what backward returns at another point than the check's
COMPARES = _codes("values", "elsewhere")  # what it returns, against something else
REMEMBERS = _codes("memory")  # ... and against what it returned before: a state that is stale


def mutate(case: Case) -> MutatedCheck:
    """All damage that can be done to a case. Raises UserCodeError where the user's code does."""
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
        found = (each for each in undamaged.findings if each.severity == "error")
        finding = next((f" ({each.code} {each.name})" for each in found), "")
        why = f"it does not pass undamaged: {undamaged.verdict}{finding}"
        return replace(blank, left_out=why, broken=True)
    sights, measured = Sights(right), Measured(right)
    tried = (_mutant(subject, sights, measured, damage) for damage in damages(subject.inputs))
    return replace(blank, mutants=tuple(tried))


def _mutant(subject: Subject, sights: Sights, measured: Measured, damage: Damage) -> Mutant:
    """What becomes of damage: the whole check runs with it, where it changes anything here."""
    struck = [subject.differentiable[place] for place in damage.inputs]
    names = [argument.name for argument in struck]
    lives = partial(Mutant, damage.name, () if damage.how in ("deaf", "stale") else tuple(names))
    of, points = f"the gradient of {' and '.join(names)}", len(sights.elsewhere)
    if sights.changes(damage):
        off = measured.finds(damage)
        if off is not None:
            code = "GV111" if subject.differentiable[off].parameter else "GV101"
            if code in _looked_for(subject.case.settings, COMPARES):
                return lives("killed", by=code)
        result = _run(subject, damage)
        found = _killed_by(result)
        if found:
            return lives("killed", by=found)
        return lives("survived", why=f"{_seen(result)}; {next(_remedies(subject, damage), NONE)}")
    if damage.needs:
        shape = list(struck[0].value.shape)
        return lives("unseen", why=f"{' and '.join(names)} has shape {shape}: {damage.needs}")
    if not points:
        return lives(
            "unseen",
            why="no other inputs were found at which the function is defined: whether it would show "
            "there is not known",
        )
    if damage.how == "stale":
        why = "the gradient does not depend on the inputs: there is no state to be stale"
        return lives("equivalent", why=why)
    if not sights.changes_elsewhere(damage):
        why = f"the same gradient here and at {counted(points, 'other point')}"
        return lives("equivalent", why=why)
    if _looked_for(subject.case.settings, ELSEWHERE) and (
        found := _killed_by(_run(subject, damage, ELSEWHERE))
    ):
        return lives("killed", by=found)
    if all(sights.vanishes(place) for place in damage.inputs):
        return lives("unseen", why=f"{of} is 0 at these inputs; it shows at others")
    if damage.how == "swap":
        same = of.replace("gradient", "gradients")
        return lives("unseen", why=f"{same} are the same at these inputs; it shows at unequal ones")
    return lives("unseen", why=f"it leaves {of} as it is at these inputs; it shows at others")


def _run(subject: Subject, damage: Damage, among: tuple[str, ...] | None = None) -> CaseResult:
    """The whole check (or some of its rules), up to the rule that finds the damage."""
    twin = _focused(
        subject, among or (COMPARES + REMEMBERS if damage.how == "stale" else COMPARES)
    )
    evidence = Evidence(twin, differentiate=partial(Damaged, damage=damage))
    return verify(twin, evidence=evidence, briefly=True)


def _focused(subject: Subject, among: tuple[str, ...] = COMPARES) -> Subject:
    """A subject as fresh as the one that was prepared, whose check looks for no other rules: those
    look at the calls of a function, which damage leaves as they are."""
    settings = subject.case.settings
    narrowed = replace(settings, select=_looked_for(settings, among), ignore=())
    case = replace(subject.case, settings=narrowed)
    twin = Subject(case, subject.target, subject.arguments, subject.kwargs)
    twin.writes = subject.writes
    return twin


def _looked_for(settings: Settings, among: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these rules that a check looks for."""
    select, ignore = settings.select or ("",), settings.ignore
    return tuple(
        code for code in among if code.startswith(select) and not (ignore and code.startswith(ignore))
    )


def _killed_by(result: CaseResult) -> str | None:
    """The code of the first error that says something is wrong."""
    errors = (finding.code for finding in result.findings if finding.severity == "error")
    return next((code for code in errors if code in COMPARES + REMEMBERS), None)


def _seen(result: CaseResult) -> str:
    """What the check saw of the damage and forgave."""
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
    return f"an error of {relative:.2g} of an element, which atol {atol:g} and rtol {rtol:g} forgive"


def _remedies(subject: Subject, damage: Damage) -> Iterator[str]:
    """Other checks of the same function that find the damage: stricter settings, the gentlest change
    first, then other inputs."""
    now = subject.case.settings
    plain = replace(now, atol=None, rtol=None)
    wider = WIDER.get(now.dtype, now.dtype)
    for said, settings in (
        ("all rules", replace(now, select=(), ignore=())),
        ("the default tolerances", plain),
        ("`eps: auto`", now if now.eps == "auto" else replace(plain, eps="auto")),
        ("`mode: entries`", now if now.mode == "auto" else replace(now, mode="entries")),
        (f"`dtype: {wider}`", now if wider == now.dtype else replace(plain, eps="auto", dtype=wider)),
    ):
        try:
            if settings != now:
                other = prepare(replace(subject.case, settings=settings))
                if _killed_by(_run(other, damage)):
                    yield f"found with {said}"
        except UserCodeError:
            continue
    for n in OTHERS:
        moved = []
        for a in subject.arguments:
            source = generator(now.seed, subject.case.check, f"{a.name} other {n}")
            moved.append(replace(a, value=other_point(a, n, source)) if a.differentiable else a)
        twin = Subject(subject.case, subject.target, moved, subject.kwargs)
        twin.writes = subject.writes
        try:
            if verify(_focused(twin), briefly=True).verdict == "pass" and _killed_by(_run(twin, damage)):
                yield "found at other inputs of the same shapes"
        except UserCodeError:
            continue
