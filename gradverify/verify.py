"""A Subject under all its rules: what a check is, from top to bottom."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TypeVar

from torch import Tensor

from gradverify.causes.attach import with_causes
from gradverify.evidence import Evidence
from gradverify.model.case import Case, Settings
from gradverify.model.codec import to_json
from gradverify.model.event import Plan, Planned
from gradverify.model.fault import fault_of, verdictless
from gradverify.model.interrupt import is_interrupt
from gradverify.model.paths import shown_path
from gradverify.model.result import LEFT_OUT, Calls, CaseResult, Comparison, Fault, Finding, FunctionInfo, InputInfo, OutputInfo, RuleRun, Verdict
from gradverify.numerics.columns.choose import Choice
from gradverify.numerics.columns.costs import Mode
from gradverify.rules.catalogue import RuleInfo, rules
from gradverify.rules.precedence import specific
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.worth import PRICES
from gradverify.subject.failure import Spent, UserCodeError, describe, is_users, user_frames
from gradverify.subject.returned_line import returned_line
from gradverify.subject.subject import Subject

# Later ones rest on earlier ones: no Jacobian is judged after GV201, and what remains open is said last.
ORDER = ("GV008", "GV006", "GV205", "GV216", "GV212", "GV217", "GV221", "GV206", "GV202", "GV203", "GV204", "GV219",
         "GV224", "GV227", "GV201", "GV213", "GV207", "GV220", "GV208", "GV218", "GV215", "GV214",
         "GV209", "GV210", "GV211", "GV225", "GV226",
         "GV107", "GV106", "GV105", "GV101", "GV111", "GV102", "GV103", "GV104", "GV114", "GV108", "GV109", "GV110", "GV222",
         "GV223", "GV113", "GV228", "GV229", "GV009", "GV007")
STOPPING = frozenset({"GV001", "GV002", "GV003", "GV006", "GV008"})      # after these nothing more can be said of the check
SAID_LAST = "GV009"     # and what follows it
EXPLAINING = frozenset({"GV212", "GV217", "GV221"})     # why the engine refused what backward returned
OF_A_GRADIENT = frozenset({"GV101", "GV102", "GV103", "GV104", "GV106", "GV107", "GV113", "GV114", "GV201", "GV212", "GV217", "GV223"})
SAME_FAULT = 3      # rules that met one fault of ours: they share what it comes from, and each measures that again
EVERY_ELEMENT = "every element of the Jacobian is compared"
FIXED_STEP = "every element is compared under one fixed step, torch.autograd.gradcheck's own rule, which has no error bar"
MISSES = "errors below the tolerance, which is printed for every pass; everything that shows at other inputs only"
MISSES_NOTHING_YET = "everything: no element was compared"

Told = TypeVar("Told", Finding, Comparison)


@dataclass(frozen=True, slots=True)
class Examined:
    """What one rule left."""

    run: RuleRun
    findings: tuple[Finding, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    fault: Fault | None = None


def verify(subject: Subject, planned: Planned | None = None, *, evidence: Evidence | None = None, briefly: bool = False) -> CaseResult:
    """The result of all selected rules on a subject, or on `evidence` of it. What the user's code raises becomes a finding.

    `planned` hears how it will be compared. `briefly`: up to the first rule that finds an error, and without its cause.
    """
    evidence = evidence or Evidence(subject, _teller(subject, planned) if planned else None)
    infos = {info.code: info for info in rules()}
    examined = sorted(_examine_all(evidence, infos, briefly), key=lambda each: ORDER.index(each.run.code))
    if all(each.run.status == "ignored" for each in examined if not each.run.code.startswith("GV0")):
        examined.append(Examined(RuleRun("GV008", "ran"), (Finding("GV008", "every rule that looks at a gradient is ignored"),)))
    found = specific(_completed(finding, infos, evidence) for each in examined for finding in each.findings)
    found = tuple(replace(finding, severity="error") for finding in found) if evidence.settings.strict else found
    findings = found if briefly else with_causes(found, evidence)
    faults = tuple(dict.fromkeys([*(each.fault for each in examined if each.fault), *evidence.missing]))
    verdict = _verdict(findings, faults)
    result = described(subject.case, subject)
    mode, mode_reason, could_miss = _mode(evidence, any(each.comparisons for each in examined))
    return replace(
        result, verdict=verdict, reason=_reason(verdict, findings, faults), calls=subject.calls, findings=findings, faults=faults,
        inputs=_inputs(subject), outputs=_outputs(evidence), rules=tuple(_said(each.run, findings) for each in examined),
        comparisons=tuple(_named(comparison, evidence) for each in examined for comparison in each.comparisons),
        mode=mode, mode_reason=mode_reason, could_miss=could_miss)


def _teller(subject: Subject, planned: Planned) -> Callable[[Choice], None]:
    def tell(choice: Choice) -> None:
        cost, before = choice.cost, subject.calls
        planned(Plan(choice.mode.value, cost.forward, cost.backward, cost.seconds, cost.memory),
                lambda: subject.calls.forward + subject.calls.backward - before.forward - before.backward)
    return tell


def _mode(evidence: Evidence, compared: bool) -> tuple[str, str, str]:
    """How the Jacobian was compared, why so, and what that could miss."""
    choice = evidence.choice
    if choice is None:
        reason = EVERY_ELEMENT if evidence.settings.eps == "auto" else FIXED_STEP
        return "entries", reason, MISSES if compared else MISSES_NOTHING_YET
    how = "; ".join(filter(None, (_clause(choice.reason), evidence.numeric_precision)))
    screened = f"{_clause(choice.could_miss).removeprefix('could miss ')}; " if choice.mode is not Mode.ENTRIES else ""
    return choice.mode.value, how, screened + MISSES


def _clause(sentence: str) -> str:
    """A sentence as it stands behind a colon."""
    return sentence[0].lower() + sentence[1:].removesuffix(".")


def failed(case: Case, error: UserCodeError) -> CaseResult:
    """The result of a case whose subject could not be prepared."""
    infos = {info.code: info for info in rules()}
    finding = _with_severity(Finding(error.code, error.message, hint=error.hint, frames=error.frames), infos)
    return replace(described(case), verdict="error", reason=finding.message, findings=(finding,))


def broken(case: Case, error: BaseException) -> CaseResult:
    """The result of a case that an exception ended which no rule expects: the user's code raised it where it was not called by name, or it is a
    fault of gradverify's own. Raises what ends the run."""
    if is_interrupt(error):
        raise error
    if is_users(error):
        return failed(case, UserCodeError("GV002", f"the function's code raised {describe(error)}", user_frames(error)))
    faults = (fault_of(error, "the check"),)
    return replace(described(case), verdict="error", reason=_reason("error", (), faults), faults=faults)


def described(case: Case, subject: Subject | None = None) -> CaseResult:
    """A result that says what was to be checked, with nothing found yet."""
    found = subject.target if subject else None
    function = FunctionInfo(case.target, found.kind, _shown_path(found.file), found.line) if found else FunctionInfo(case.target)
    return CaseResult(case.id, case.spec, case.name, function, case.settings.device, case.settings.dtype, case.settings.seed,
                      settings_shown(case.settings), "pass", expect=case.expect)


def settings_shown(settings: Settings) -> dict[str, object]:
    """The settings as the report has them, tolerances filled in."""
    atol, rtol = settings.tolerances()
    shown: dict[str, object] = to_json(replace(settings, atol=atol, rtol=rtol))
    return shown


# ---- rules
def _examine_all(evidence: Evidence, infos: dict[str, RuleInfo], briefly: bool) -> Iterator[Examined]:
    found: frozenset[str] = frozenset()
    stopped: str | None = None
    settings, met = evidence.settings, Counter[str]()
    for code in _codes(evidence):
        if not settings.looks_for(code):
            yield Examined(RuleRun(code, "ignored"))
        elif stopped:
            yield Examined(RuleRun(code, "not_applicable", f"the check stopped at {stopped}"))
        else:
            examined = _examine(infos[code], evidence, found)
            found |= {finding.code for finding in examined.findings if _with_severity(finding, infos).severity == "error"}
            stopped = next((finding.code for finding in examined.findings if _stops(finding)), None) or _broken(evidence, found)
            if examined.fault is not None:
                met[examined.fault.place] += 1
                stopped = stopped or ("a fault of gradverify's own" if met[examined.fault.place] == SAME_FAULT else None)
            yield examined
            if found and briefly:
                return


def _codes(evidence: Evidence) -> Iterator[str]:
    """In ORDER; where the budget is tight, rules that vary the call wait until the Jacobian was compared, the most worth first."""
    postponed = list[str]()
    for code in ORDER:
        if code == SAID_LAST:
            yield from sorted(postponed, key=list(PRICES).index)
        if code in PRICES and evidence.spending.tight:
            postponed.append(code)
        else:
            yield code


def _stops(finding: Finding) -> bool:
    return finding.code in STOPPING and finding.severity == "error"


def _broken(evidence: Evidence, found: frozenset[str]) -> str | None:
    """The rule that explains why backward raises, once one was found: nothing that needs a backward can run then."""
    explains = sorted(found & EXPLAINING)
    return explains[0] if explains and evidence.backward.error is not None else None


def _examine(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> Examined:
    price = PRICES.get(info.code)
    if price is None:
        return _tried(info, evidence, found)
    with evidence.spending.bound(price.forward, price.backward):
        return _tried(info, evidence, found)


def _tried(info: RuleInfo, evidence: Evidence, found: frozenset[str]) -> Examined:
    rule, seen = _module(info), list[Finding | Comparison | str]()
    before = evidence.subject.calls
    try:
        reason = rule.applies(evidence, found)
        if reason is not None:
            return Examined(RuleRun(info.code, "not_applicable", reason, evidence.subject.calls - before))
        seen.extend(rule.check(evidence))
    except NotApplicable as reason:
        return Examined(RuleRun(info.code, "not_applicable", str(reason), evidence.subject.calls - before))
    except UserCodeError as error:
        finding = Finding(error.code, error.message, hint=error.hint, frames=error.frames)
        return Examined(RuleRun(info.code, "not_applicable", error.message, evidence.subject.calls - before), (finding,))
    except Spent as spent:
        if not seen:
            return Examined(RuleRun(info.code, "not_applicable", f"{LEFT_OUT}{spent}", evidence.subject.calls - before))
        seen.append(f"the rest {LEFT_OUT}{spent}")
    except BaseException as error:
        return _unforeseen(info, error, evidence.subject.calls - before, seen)
    seen += [evidence.spending.cut] if evidence.spending.cut else []
    notes = "; ".join(each for each in seen if isinstance(each, str))
    return _of(RuleRun(info.code, "ran", notes or None, evidence.subject.calls - before), seen)


def _of(run: RuleRun, seen: list[Finding | Comparison | str], fault: Fault | None = None) -> Examined:
    found = tuple(each for each in seen if isinstance(each, Finding))
    return Examined(run, found, tuple(each for each in seen if isinstance(each, Comparison)), fault)


def _unforeseen(info: RuleInfo, error: BaseException, calls: Calls, seen: list[Finding | Comparison | str]) -> Examined:
    """What the user's code raised where it was not called by name; or a fault of ours, which costs what this rule had not yet seen."""
    if is_interrupt(error):
        raise error
    if is_users(error):
        message = f"the function's code raised {describe(error)}"
        return Examined(RuleRun(info.code, "not_applicable", message, calls), (Finding("GV002", message, frames=user_frames(error)),))
    fault = fault_of(error, f"the rule {info.code}")
    return _of(RuleRun(info.code, "not_applicable", f"gradverify itself failed here: {fault.what}", calls), seen, fault)


def _module(info: RuleInfo) -> ModuleType:
    return importlib.import_module(f"gradverify.rules.{info.module}")


# ---- findings
def _completed(finding: Finding, infos: dict[str, RuleInfo], evidence: Evidence) -> Finding:
    """With its rule's name and severity, its output's name, and the line of backward for what is wrong with it."""
    subject = evidence.subject
    finding = _named(_with_severity(finding, infos), evidence)
    if finding.file is None and finding.code >= "GV1" and subject.target.file:
        made = returned_line(subject, finding.input) if finding.input and finding.code in OF_A_GRADIENT else None
        line, source = (made.number, made.text) if made else (subject.target.line, subject.target.source)
        return replace(finding, file=_shown_path(subject.target.file), line=line, source=source)
    return replace(finding, file=_shown_path(finding.file))


def _said(run: RuleRun, findings: tuple[Finding, ...]) -> RuleRun:
    """A rule that did not run, and whose finding another one's turned out to be."""
    theirs = run.status == "not_applicable" and any(finding.code == run.code for finding in findings)
    return replace(run, status="ran", reason="by the elements that were found wrong") if theirs else run


def _named(told: Told, evidence: Evidence) -> Told:
    return told if told.output is None else replace(told, output_name=evidence.name_of(told.output))


def _with_severity(finding: Finding, infos: dict[str, RuleInfo]) -> Finding:
    """With its own severity. `strict` is applied when all is found: it must not change what is."""
    info = infos[finding.code]
    return replace(finding, name=info.name, severity="warning" if "warning" in (finding.severity, info.severity) else "error")


def _verdict(findings: tuple[Finding, ...], faults: tuple[Fault, ...] = ()) -> Verdict:
    """By the rules of command-line.md. A rule that a fault of ours has cost leaves an error where the others find nothing wrong."""
    errors = {finding.code for finding in findings if finding.severity == "error"}
    if errors & STOPPING:
        return "error"
    if any(code.startswith(("GV1", "GV2")) for code in errors):
        return "fail"
    return "error" if "GV009" in errors or any(fault.costs for fault in faults) else "undecided" if "GV007" in errors else "pass"


def _reason(verdict: Verdict, findings: tuple[Finding, ...], faults: tuple[Fault, ...] = ()) -> str | None:
    if verdict not in ("error", "undecided"):
        return None
    stopping = next((finding.message for finding in findings if finding.severity == "error" and finding.code in STOPPING), None)
    fault = next((verdictless(fault) for fault in faults if fault.costs), None)
    return stopping or fault or next(finding.message for finding in findings if finding.severity == "error")


# ---- what was checked
def _inputs(subject: Subject) -> tuple[InputInfo, ...]:
    tensors = (a for a in subject.arguments if a.is_tensor)
    return tuple(InputInfo(a.name, tuple(a.value.shape), _dtype(a.value), a.layout or "contiguous", a.differentiable) for a in tensors)


def _outputs(evidence: Evidence) -> tuple[OutputInfo, ...]:
    try:
        outputs = evidence.forward.outputs
    except BaseException as error:      # told already, by the first rule that asked
        if is_interrupt(error):
            raise
        return ()
    return tuple(OutputInfo(i, tuple(y.shape), _dtype(y), evidence.name_of(i)) for i, y in enumerate(outputs) if isinstance(y, Tensor))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shown_path(file: str | None) -> str | None:
    return None if file is None else shown_path(file)
