"""Run the rules on a subject one after the other, and record the results of each.

A rule may also end early: by an exception of the user's code, by the budget, or by a fault of
gradverify itself.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from gradverify.evidence import Evidence
from gradverify.model.fault import fault_of
from gradverify.model.interrupt import Spent, is_interrupt
from gradverify.model.result import LEFT_OUT, Comparison, Fault, Finding, RuleRun
from gradverify.model.rule import RuleInfo
from gradverify.numerics.function.coordinates import DOUBLE
from gradverify.rules.catalogue import book, runnable
from gradverify.rules.shown import Findings
from gradverify.rules.unjudged import CODE as UNDECIDED
from gradverify.rules.unjudged import not_finished as of_the_rest
from gradverify.rules.unjudged import uncompared
from gradverify.subject.failure import UserCodeError, is_users, unnamed
from gradverify.subject.on_cuda import lost


# ---- Exceptions by which a rule ends early
class NotApplicable(Exception):  # noqa: N818 - not an error
    """Raised by a rule where only the measurement shows that it cannot run; its text is a short
    reason."""


class Found(Exception):  # noqa: N818 - not an error
    """Raised by a rule with its last finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@contextmanager
def refused(
    code: str, when: str, hint: str | None = None, only: str | None = None, **about: Any
) -> Iterator[None]:
    """Turn an error of the user's code inside the block into the rule's finding.

    With `only`, errors of that code become the finding, and any other makes the rule not
    applicable. `about`: further fields of the finding.
    """
    try:
        yield
    except UserCodeError as error:
        message = f"{when} {error.message}"
        if only not in (None, error.code):
            raise NotApplicable(message) from None
        raise Found(Finding(code, message, frames=error.frames, hint=hint, **about)) from None


# ---- Preconditions of rules, by the names that the catalogue uses in `needs`
def _against(found: frozenset[str], reason: str, apart: bool = False) -> str | None:
    """Return the reason, formatted with the first code found that means a wrong gradient (with
    `apart`, also at another point than the check's); None where there is none."""
    first = min(
        (
            code
            for code in found
            if book()[code].verdict == "fail" and (apart or not book()[code].apart)
        ),
        default=None,
    )
    return first and reason.format(first)


NEEDS: Mapping[str, Callable[[Evidence, frozenset[str]], object]] = {
    "nothing found": lambda e, found: _against(found, "{} was found already", apart=True),
    "right": lambda e, found: _against(found, "{} was found already"),
    "sound": lambda e, found: _against(found, "{} has to be repaired first"),
    "strided": lambda e, found: e.odd,
    "function": lambda e, found: not e.forward.nodes and "no custom Function is in the graph",
    "autograd.Function": lambda e, found: (
        e.subject.target.kind != "autograd.Function" and "the target is no autograd Function"
    ),
    "several inputs": lambda e, found: len(e.inputs) < 2 and "there is one differentiable input",
    "elements": lambda e, found: (
        not all(sum(x.numel() for x in each) for each in (e.outputs, e.subject.inputs))
        and "there are no elements"
    ),
    "not empty": lambda e, found: e.empty and "the spec asks for an empty tensor",
    "no writes": lambda e, found: e.subject.writes and "the function writes into its inputs",
    "no draws": lambda e, found: e.draws and "the function draws random numbers",
    "reference": lambda e, found: (
        not e.subject.case.oracles.reference and "the spec names no `reference`"
    ),
    "bars": lambda e, found: e.settings.eps != "auto" and "a fixed `eps` has no error bars",
    "float64": lambda e, found: (
        not all(
            a.value.dtype in DOUBLE
            for a in e.subject.arguments
            if a.is_tensor and (a.value.is_floating_point() or a.value.is_complex())
        )
        and "an input is of lower precision"
    ),
}
"""Need → why it is not met (text), given the codes found so far; any other value where it is."""
SETTING = "setting "


def unmet(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> str | None:
    """Return why a rule cannot run; None where it can."""
    for need in filter(None, info.needs.split(", ")):
        key = need.removeprefix(SETTING)
        value: object = getattr(evidence.settings, key, None)
        if need in book():
            why: object = need in found and (book()[need].spoils or f"{need} was found already")
        elif key == need:
            why = NEEDS[need](evidence, found)
        else:
            why = (
                f"the spec says `{key}: false`"
                if value is False
                else value == "auto" and evidence.odd
            )
        if isinstance(why, str):
            return why
    return None


# Rules that met the same fault of gradverify, after which the check stops: they share its cause,
# and each would measure it again
SAME_FAULT = 3


class Examined(NamedTuple):
    """The results of one rule."""

    run: RuleRun
    findings: tuple[Finding, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    fault: Fault | None = None


def examine(
    evidence: Evidence,
    briefly: bool = False,
    wrong: Callable[[Sequence[Examined]], None] | None = None,
) -> tuple[Examined, ...]:
    """Run all selected rules in order. `briefly`: stop after the first rule that finds an error.
    `wrong` is called after each such rule with all results so far."""
    place, ran = {info.code: n for n, info in enumerate(runnable())}, list[Examined]()
    with evidence.spending.limited(asked_for=evidence.settings.mode != "auto"):
        for each in _examine_all(evidence, briefly):
            ran.append(each)
            if wrong is not None and _has_error(each):
                wrong(ran)
    examined = tuple(sorted(ran, key=lambda each: place[each.run.code]))
    if any(each.fault or _has_error(each) for each in examined):
        return examined
    finding = uncompared(
        evidence,
        {each.run.code: each.run for each in examined},
        [pair for each in examined for pair in each.comparisons],
    )
    if finding is None:
        return examined
    return (*examined, Examined(RuleRun(finding.code, "ran"), (with_severity(finding),)))


def _has_error(examined: Examined) -> bool:
    return any(finding.severity == "error" for finding in examined.findings)


def with_severity(finding: Finding) -> Finding:
    """Return the finding with its rule's name and severity. `strict` is applied later, to all
    findings (`graded`), as it must not change what is found."""
    info = book()[finding.code]
    return replace(
        finding,
        name=info.name,
        severity="warning" if "warning" in (finding.severity, info.severity) else "error",
    )


def _examine_all(evidence: Evidence, briefly: bool) -> Iterator[Examined]:
    found: frozenset[str] = frozenset()
    stopped: str | None = None
    settings, met, ran = evidence.settings, Counter[str](), set[str]()
    for info in _waiting(evidence):
        if info.code in ran:  # ahead of its place
            continue
        if not settings.looks_for(info.code):
            yield Examined(RuleRun(info.code, "ignored"))
            continue
        if stopped:
            yield Examined(RuleRun(info.code, "not_applicable", f"the check stopped at {stopped}"))
            continue
        for examined in _with_presupposed(info, evidence, found, ran):
            ran.add(examined.run.code)
            # A code that another rule has already reported (GV201 by GV210) is not repeated
            own = tuple(
                each
                for each in examined.findings
                if each.code not in found or each.code == examined.run.code or each.code < "GV1"
            )
            examined = examined._replace(findings=own)
            errors = [finding.code for finding in own if finding.severity == "error"]
            found |= set(errors)
            stops = (code for code in errors if book()[code].stops)
            # Once a rule explains why backward raises, nothing that needs a backward can run
            refused = (
                code
                for code in sorted(found)
                if book()[code].refused and evidence.backward.error is not None
            )
            stopped = stopped or next(chain(stops, refused), None)
            if (own or examined.fault) and lost(evidence.subject.on):
                stopped = stopped or f"{info.code}, where the device was lost"
            if examined.fault is not None:
                met[examined.fault.place] += 1
                stopped = stopped or (
                    "a fault of gradverify's own"
                    if met[examined.fault.place] == SAME_FAULT
                    else None
                )
            yield examined
            if found and briefly:
                return


def _with_presupposed(
    info: RuleInfo, evidence: Evidence, found: frozenset[str], ran: set[str]
) -> Sequence[Examined]:
    """Run a rule. Where it finds anything, first come the rules that this presupposes or is
    reported as and that have not run yet; if one of those finds an error, the rule does not
    apply."""
    own = _bounded(info, evidence, found)
    if not own.findings or lost(evidence.subject.on):
        return (own,)
    evidence.doubted = True
    needs = info.needs.split(", ")
    first = [
        _bounded(each, evidence, found)
        for each in runnable()
        if each.code in (*needs, *(finding.code for finding in own.findings))
        and not (each.last or each.code in (*ran, info.code))
        and evidence.settings.looks_for(each.code)
    ]
    reported = [found for each in first for found in each.findings]
    own = own._replace(findings=tuple(each for each in own.findings if each not in reported))
    wrong = frozenset(each.run.code for each in first if _has_error(each))
    if wrong.intersection(needs):
        reason = unmet(info, evidence, wrong)
        own = Examined(RuleRun(info.code, "not_applicable", reason, own.run.calls))
    return (*first, own)


def _bounded(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> Examined:
    """Run a rule, within the budget if it has a price."""
    price = info.price
    with evidence.spending.bound(price.forward, price.backward) if price else nullcontext():
        return _tried(info, evidence, found)


def _waiting(evidence: Evidence) -> Iterator[RuleInfo]:
    """Yield the rules in their order. Where the budget is tight, rules with a price are postponed
    until the Jacobian was compared, and then run in order of decreasing worth."""
    postponed = list[RuleInfo]()
    for info in runnable():
        if info.last:
            yield from sorted(postponed, key=lambda each: -each.worth)
            postponed.clear()
        if info.price is not None and evidence.spending.tight:
            postponed.append(info)
        else:
            yield info


def _tried(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> Examined:
    module = importlib.import_module(f"gradverify.rules.{info.file or info.module}")
    seen, before = list[Finding | Comparison | str](), evidence.subject.calls
    ran, fault = True, None
    try:
        reason = unmet(info, evidence, found)
        if reason is not None:
            raise NotApplicable(reason)
        seen += getattr(module, info.code.lower())(evidence)
    except NotApplicable as refused:
        ran, reason, seen = False, str(refused), []
    except Found as found_last:
        seen.append(found_last.finding)
    except Spent as spent:
        if seen:
            seen.append(f"the rest {LEFT_OUT}{spent}")
        else:
            ran, reason = False, f"{LEFT_OUT}{spent}"
        if info.numeric and info.price is None and UNDECIDED not in found:
            seen.append(of_the_rest(f"{info.code} {info.name}", spent))
    # An error of the user's code becomes a finding; one of gradverify's own is a fault that costs
    # the rest of this rule
    except BaseException as error:
        if is_interrupt(error):
            raise
        ran = False
        if isinstance(error, UserCodeError) or is_users(error):
            theirs = error if isinstance(error, UserCodeError) else unnamed(error)
            reason, seen = theirs.message, [theirs.finding]
        else:
            fault = fault_of(error, f"the rule {info.code}")
            reason = f"gradverify itself failed here: {fault.what}"
    if ran:
        notes = [*(each for each in seen if isinstance(each, str)), evidence.spending.cut]
        reason = "; ".join(filter(None, notes)) or None
    run = RuleRun(
        info.code, "ran" if ran else "not_applicable", reason, evidence.subject.calls - before
    )
    findings = tuple(with_severity(each) for each in seen if isinstance(each, Finding))
    comparisons = tuple(each for each in seen if isinstance(each, Comparison))
    return Examined(run, findings, comparisons, fault)


# ---- One mistake, one code: of several rules that found the same mistake, the one with the lowest
# declared rank reports it
def specific(findings: Findings) -> tuple[Finding, ...]:
    """Keep the most specific finding of each (input, output), which lists the codes of the others
    in `also`."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        better = next((i for i, other in enumerate(kept) if _explains(other, finding)), None)
        if better is None:
            kept.append(finding)
        elif finding.code not in (kept[better].code, *kept[better].also):
            kept[better] = replace(kept[better], also=(*kept[better].also, finding.code))
    return tuple(kept)


def _rank(finding: Finding) -> float:
    rank = book()[finding.code].rank
    return math.inf if rank is None else rank


def _explains(better: Finding, finding: Finding) -> bool:
    """Return whether both findings are about one pair, and `better` has the more specific rank. A
    finding without an input or output is about all of them."""
    if (
        _rank(better) >= _rank(finding)
        or _rank(finding) == math.inf
        or better.severity == "warning"
    ):
        return False
    if book()[better.code].apart or book()[finding.code].apart:
        return False
    spread = book()[better.code].spreads and book()[finding.code].numeric
    same_input = (
        spread or better.input == finding.input or better.input is None or finding.input is None
    )
    return same_input and (
        better.output == finding.output or better.output is None or finding.output is None
    )
