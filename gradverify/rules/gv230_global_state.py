"""GV230 global-state: a call leaves torch's global state changed."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.at_forward import at_forward
from gradverify.subject.left import Left, generator_name

HINT = "put it back before the call ends (a `with` statement, or `finally`), or set it once where the program starts"
OWN_GENERATOR = "seed inside `with torch.random.fork_rng(devices=[]):`, or draw from a generator of its own (torch.Generator, numpy.random.Generator)"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    yield from (at_forward(_of_setting("forward", each), evidence) for each in evidence.forward.left)
    yield from (_of_setting("backward", each) for each in evidence.worked.left)
    by_forward = evidence.fixed_by_forward
    yield from (at_forward(_of_generator("forward", place), evidence) for place in by_forward)
    yield from (_of_generator("backward", place) for place in evidence.fixed_by_backward if place not in by_forward)


def _of_setting(who: str, left: Left) -> Finding:
    return Finding("GV230", f"{who} leaves {left.what} changed: {left.before} before, {left.after} after", severity="warning", hint=HINT)


def _of_generator(who: str, place: int) -> Finding:
    message = f"{who} seeds {generator_name(place)}: what is drawn after it is the same after every call"
    return Finding("GV230", message, severity="warning", hint=OWN_GENERATOR)
