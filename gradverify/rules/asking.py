"""Rules asked one after the other: what each leaves, and what the user's code, the budget or a fault of ours makes of one that could not end."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from gradverify.evidence import Evidence
from gradverify.model.fault import fault_of
from gradverify.model.interrupt import Spent, is_interrupt
from gradverify.model.result import LEFT_OUT, Comparison, Fault, Finding, RuleRun
from gradverify.model.rule import RuleInfo
from gradverify.rules.catalogue import asked, book
from gradverify.rules.protocol import Found, NotApplicable
from gradverify.rules.sound import unmet
from gradverify.rules.unjudged import CODE as UNDECIDED
from gradverify.rules.unjudged import uncompared
from gradverify.rules.unjudged import unfinished as of_the_rest
from gradverify.subject.failure import UserCodeError, is_users, unnamed
from gradverify.subject.on_cuda import lost

SAME_FAULT = 3      # rules that met one fault of ours: they share what it comes from, and each measures that again


@dataclass(frozen=True, slots=True)
class Examined:
    """What one rule left."""

    run: RuleRun
    findings: tuple[Finding, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    fault: Fault | None = None


def examine(evidence: Evidence, briefly: bool = False, wrong: Callable[[Sequence[Examined]], None] | None = None) -> tuple[Examined, ...]:
    """Run all selected rules in order. `briefly`: up to the first that finds an error. `wrong` gets what is examined after each that does."""
    place, ran = {info.code: n for n, info in enumerate(asked())}, list[Examined]()
    with evidence.spending.limited(asked_for=evidence.settings.mode != "auto"):
        for each in _examine_all(evidence, briefly):
            ran.append(each)
            if wrong is not None and _has_error(each):
                wrong(ran)
    examined = tuple(sorted(ran, key=lambda each: place[each.run.code]))
    if any(each.fault or _has_error(each) for each in examined):
        return examined
    finding = uncompared(evidence, {each.run.code: each.run for each in examined}, [pair for each in examined for pair in each.comparisons])
    return examined if finding is None else (*examined, Examined(RuleRun(finding.code, "ran"), (finding,)))


def _has_error(examined: Examined) -> bool:
    return any(with_severity(finding).severity == "error" for finding in examined.findings)


def with_severity(finding: Finding) -> Finding:
    """With its rule's name and severity. `strict` is applied when all is found: it must not change what is."""
    info = book()[finding.code]
    return replace(finding, name=info.name, severity="warning" if "warning" in (finding.severity, info.severity) else "error")


def _examine_all(evidence: Evidence, briefly: bool) -> Iterator[Examined]:
    found: frozenset[str] = frozenset()
    stopped: str | None = None
    settings, met = evidence.settings, Counter[str]()
    for info in _waiting(evidence):
        if not settings.looks_for(info.code):
            yield Examined(RuleRun(info.code, "ignored"))
        elif stopped:
            yield Examined(RuleRun(info.code, "not_applicable", f"the check stopped at {stopped}"))
        else:
            with evidence.spending.bound(info.price.forward, info.price.backward) if info.price else nullcontext():
                examined = _tried(info, evidence, found)
            # what another rule has reported already under its own code (GV201 by GV210) is not repeated
            own = tuple(each for each in examined.findings if each.code not in found or each.code == info.code or each.code < "GV1")
            examined = replace(examined, findings=own)
            found |= {finding.code for finding in own if with_severity(finding).severity == "error"}
            stops = (finding.code for finding in own if book()[finding.code].stops and finding.severity == "error")
            # once a rule explains why backward raises, nothing that needs a backward can run
            refused = (code for code in sorted(found) if book()[code].refused and evidence.backward.error is not None)
            stopped = next(chain(stops, refused), None)
            if (own or examined.fault) and lost(evidence.subject.on):
                stopped = stopped or f"{info.code}, where the device was lost"
            if examined.fault is not None:
                met[examined.fault.place] += 1
                stopped = stopped or ("a fault of gradverify's own" if met[examined.fault.place] == SAME_FAULT else None)
            yield examined
            if found and briefly:
                return


def _waiting(evidence: Evidence) -> Iterator[RuleInfo]:
    """In their order; where the budget is tight, rules that vary the call wait until the Jacobian was compared, the most worth first."""
    postponed = list[RuleInfo]()
    for info in asked():
        if info.last:
            yield from sorted(postponed, key=lambda each: -each.worth)
            postponed.clear()
        if info.price is not None and evidence.spending.tight:
            postponed.append(info)
        else:
            yield info


def _tried(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> Examined:
    name = f"gradverify.rules.{info.file or info.module}"
    module = sys.modules.get(name) or importlib.import_module(name)
    seen, before = list[Finding | Comparison | str](), evidence.subject.calls

    def ran(status: Literal["ran", "not_applicable"], reason: str | None) -> RuleRun:
        return RuleRun(info.code, status, reason, evidence.subject.calls - before)

    try:
        if (reason := unmet(info, evidence, found)) is not None:
            raise NotApplicable(reason)
        seen.extend(getattr(module, info.code.lower())(evidence))
    except NotApplicable as refused:
        return Examined(ran("not_applicable", str(refused)))
    except Found as found_last:
        seen.append(found_last.finding)
    except Spent as spent:
        unknown = info.numeric and info.price is None and UNDECIDED not in found
        unfinished = (of_the_rest(f"{info.code} {info.name}", spent),) if unknown else ()
        if not seen:
            return Examined(ran("not_applicable", f"{LEFT_OUT}{spent}"), unfinished)
        seen += [f"the rest {LEFT_OUT}{spent}", *unfinished]
    except BaseException as error:      # of the user's code a finding, of gradverify a fault that costs the rest of this rule
        if is_interrupt(error):
            raise
        if isinstance(error, UserCodeError) or is_users(error):
            theirs = error if isinstance(error, UserCodeError) else unnamed(error)
            return Examined(ran("not_applicable", theirs.message), (theirs.finding,))
        fault = fault_of(error, f"the rule {info.code}")
        return _of(ran("not_applicable", f"gradverify itself failed here: {fault.what}"), seen, fault)
    seen += [evidence.spending.cut] if evidence.spending.cut else []
    return _of(ran("ran", "; ".join(each for each in seen if isinstance(each, str)) or None), seen)


def _of(run: RuleRun, seen: list[Finding | Comparison | str], fault: Fault | None = None) -> Examined:
    found = tuple(each for each in seen if isinstance(each, Finding))
    return Examined(run, found, tuple(each for each in seen if isinstance(each, Comparison)), fault)
