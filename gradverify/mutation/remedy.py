"""Why damage lives, and what would kill it: said only after it was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gradverify.model.case import Case, Settings
from gradverify.model.dtypes import WIDER
from gradverify.model.result import CaseResult
from gradverify.mutation.focus import focused
from gradverify.mutation.sight import other_point
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import prepare
from gradverify.subject.subject import Subject
from gradverify.verify import verify

OTHERS = (0, 1, 2)  # kinds of other points: near by, with other signs, drawn anew
NOTHING = 1e-8  # of an element: finite differences are off by as much
NONE = "nothing that was tried instead finds it: other inputs, `eps: auto`, default tolerances, float64, `mode: entries`"

Kills = Callable[[Subject], bool]


def remedy(subject: Subject, result: CaseResult, kills: Kills) -> str:
    """What the check saw of the damage and forgave; and the first other check of the same function that finds it."""
    return f"{_seen(result)}; {next(_remedies(subject, kills), NONE)}"


def _seen(result: CaseResult) -> str:
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


def _remedies(subject: Subject, kills: Kills) -> Iterator[str]:
    """What finds the damage, tried in turn: the settings, then other inputs."""
    for said, settings in _settings(subject.case.settings):
        if _found(replace(subject.case, settings=settings), kills):
            yield f"found with {said}"
    others = (_moved(subject, n) for n in OTHERS)
    if any(other is not None and kills(other) for other in others):
        yield "found at other inputs of the same shapes"


def _settings(now: Settings) -> Iterator[tuple[str, Settings]]:
    """Stricter ones, the gentlest change first."""
    if now.select or now.ignore:
        yield "all rules", replace(now, select=(), ignore=())
    plain = replace(now, atol=None, rtol=None)
    if (now.atol, now.rtol) != (None, None):
        yield "the default tolerances", plain
    if now.eps != "auto":
        yield "`eps: auto`", replace(plain, eps="auto")
    if now.mode not in ("auto", "entries"):
        yield "`mode: entries`", replace(now, mode="entries")
    if now.dtype in WIDER:
        yield f"`dtype: {WIDER[now.dtype]}`", replace(plain, eps="auto", dtype=WIDER[now.dtype])


def _found(case: Case, kills: Kills) -> bool:
    try:
        return kills(prepare(case))
    except UserCodeError:
        return False


def _moved(subject: Subject, n: int) -> Subject | None:
    """The same function at other inputs, where it passes undamaged."""
    arguments = [replace(a, value=other_point(a, n, generator(subject.case.settings.seed, subject.case.check, f"{a.name} other {n}")))
                 if a.differentiable else a for a in subject.arguments]
    twin = Subject(subject.case, subject.target, arguments, subject.kwargs)
    twin.writes = subject.writes
    try:
        return twin if verify(focused(twin), briefly=True).verdict == "pass" else None
    except UserCodeError:
        return None
