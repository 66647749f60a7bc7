"""Check a Subject under all its rules: from its measurements to the result of the case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from gradverify.causes.attach import with_causes
from gradverify.evidence import Evidence
from gradverify.model.case import Case
from gradverify.model.codec import to_json
from gradverify.model.event import Plan, Planned
from gradverify.model.fault import fault_of, of_fault, verdictless
from gradverify.model.interrupt import is_interrupt
from gradverify.model.paths import shown_path
from gradverify.model.result import (
    LEFT_OUT,
    CaseResult,
    Comparison,
    Fault,
    Finding,
    FunctionInfo,
    InputInfo,
    OutputInfo,
    RuleRun,
    Verdict,
    blank,
    unjudged,
)
from gradverify.numerics.choose import Choice, Mode
from gradverify.oracles.legs import first_leg
from gradverify.rules import chosen
from gradverify.rules.at_line import placed
from gradverify.rules.catalogue import book
from gradverify.rules.engine import Examined, examine, specific, with_severity
from gradverify.rules.low_precision import without_float64
from gradverify.rules.repeated import graded
from gradverify.subject.failure import UserCodeError, is_users, of_a_list, unnamed
from gradverify.subject.find import run_folder
from gradverify.subject.forms import dtype_name
from gradverify.subject.subject import Subject

EVERY_ELEMENT = "every element of the Jacobian is compared"
FIXED_STEP = (
    "every element is compared under one fixed step, torch.autograd.gradcheck's own rule, which "
    "has no error bar"
)
MISSES = (
    "errors below the tolerance, which is printed for every pass; everything that shows at other "
    "inputs only"
)
MISSES_NOTHING_YET = "everything: no element was compared"

Located = TypeVar("Located", Finding, Comparison)


def verify(
    subject: Subject,
    planned: Planned | None = None,
    so_far: Callable[[CaseResult], None] | None = None,
    *,
    evidence: Evidence | None = None,
    briefly: bool = False,
) -> CaseResult:
    """Run all selected rules on a subject, or on `evidence` of it. An error of the user's code
    becomes a finding.

    `planned` is called with the planned comparison and its cost, `so_far` with the preliminary
    result after each rule that finds an error. `briefly`: stop after the first such rule, and skip
    the search for a cause.
    """
    evidence = evidence or evidence_of(subject, planned)
    if evidence.first_leg.refusal:
        own = subject.own
        finding = without_float64(own.case.settings.dtype, evidence.first_leg.refusal)
        result = unjudged(described(own.case, own), with_severity(finding), "undecided")
        return replace(result, inputs=_inputs(own))

    def wrong(some: Sequence[Examined]) -> None:
        if so_far is not None:
            so_far(_result(subject, evidence, some, brief=True))

    with evidence.first_leg.mode():
        examined = examine(evidence, briefly, wrong if so_far else None)
        return _result(subject, evidence, examined, briefly)


def _result(
    subject: Subject, evidence: Evidence, examined: Sequence[Examined], brief: bool
) -> CaseResult:
    # With the output's name, and the line of code
    reported = (
        placed(_named(of_a_list(finding, evidence.subject.case), evidence), evidence)
        for each in examined
        for finding in each.findings
    )
    found = graded(specific(reported), evidence.settings)
    findings = found if brief else with_causes(found, evidence, book())
    faults = tuple(
        dict.fromkeys([*(each.fault for each in examined if each.fault), *evidence.missing])
    )
    verdict = _verdict(findings, faults)
    interpreter = (
        None if brief or evidence.spending.ending or evidence.damaging else evidence.interpreter
    )
    # Where a reference is examined in float64 in place of the checked function, its comparisons
    # are reported only under rules that look at the function's own dtype, or that found something
    own = {
        code
        for code, info in book().items()
        if not evidence.first_leg.of_reference or info.own_dtype
    } | {each.code for each in findings}
    mode, mode_reason, could_miss = _mode(evidence, any(each.comparisons for each in examined))
    return replace(
        described(subject.own.case, subject),
        verdict=verdict,
        reason=_reason(verdict, findings, faults),
        interpreter=interpreter,
        calls=evidence.subject.calls,
        findings=findings,
        faults=faults,
        inputs=_inputs(subject.own),
        outputs=_outputs(evidence),
        rules=tuple(_final_run(each.run, findings, evidence) for each in examined),
        mode=mode,
        mode_reason=mode_reason,
        could_miss=could_miss,
        comparisons=tuple(
            _named(comparison, evidence)
            for each in examined
            for comparison in each.comparisons
            if comparison.rule in own
        ),
        reproducibility=tuple(evidence.reproduced),
    )


def evidence_of(subject: Subject, planned: Planned | None = None) -> Evidence:
    """Return the evidence of a subject, nothing of it measured yet; `planned` as in `verify`."""
    found = first_leg(subject)

    def announce(choice: Choice) -> None:
        cost = choice.cost
        if planned is not None:
            planned(Plan(choice.mode.value, cost.forward, cost.backward, cost.seconds, cost.memory))

    evidence = Evidence(found.subject, announce if planned else None)
    evidence.first_leg = found
    return evidence


def _mode(evidence: Evidence, compared: bool) -> tuple[str, str, str]:
    """Return the mode in which the Jacobian was compared, why that one, and what it could miss."""
    choice = evidence.choice
    if choice is None:
        reason = EVERY_ELEMENT if evidence.settings.eps == "auto" else FIXED_STEP
        return "entries", reason, MISSES if compared else MISSES_NOTHING_YET
    how = "; ".join(filter(None, (_clause(chosen.reason(choice)), evidence.numeric_precision)))
    screened = (
        f"{_clause(chosen.could_miss(choice)).removeprefix('could miss ')}; "
        if choice.mode is not Mode.ENTRIES
        else ""
    )
    return choice.mode.value, how, screened + MISSES


def _clause(sentence: str) -> str:
    """Return a sentence as it is written after a colon: in lower case, without a full stop."""
    return sentence[0].lower() + sentence[1:].removesuffix(".")


def broken(case: Case, error: BaseException) -> CaseResult:
    """Return the result of a case that ended by an exception: the subject could not be prepared,
    the user's code raised outside of a guarded call, or gradverify itself failed. An interrupt is
    raised again."""
    if is_interrupt(error):
        raise error
    if not isinstance(error, UserCodeError) and is_users(error):
        error = unnamed(error)
    if isinstance(error, UserCodeError):
        return unjudged(described(case), with_severity(error.finding))
    return of_fault(described(case), fault_of(error, "the check"))


def described(case: Case, subject: Subject | None = None) -> CaseResult:
    """Return a result that describes the case, with tolerances filled in and no findings yet."""
    atol, rtol = case.settings.tolerances()
    function = FunctionInfo(case.target)
    if subject is not None:
        function = replace(function, kind=subject.target.kind)
        if subject.target.place:
            file, line, _ = subject.target.place
            function = replace(function, file=shown_path(file, run_folder()), line=line)
    settings = to_json(replace(case.settings, atol=atol, rtol=rtol))
    return replace(blank(case), function=function, settings=settings)


# ---- findings
def _final_run(run: RuleRun, findings: tuple[Finding, ...], evidence: Evidence) -> RuleRun:
    """Return the record of a rule as it is reported: with a note where the budget left no time for
    a cause, and as run where another rule's finding was reported under its code."""
    if run.code in evidence.spending.unexplained:
        left_out = f"the cause {LEFT_OUT}{evidence.spending.ended}"
        return replace(run, reason="; ".join(filter(None, (run.reason, left_out))))
    if run.status == "not_applicable" and any(finding.code == run.code for finding in findings):
        return replace(run, status="ran", reason="by the elements that were found wrong")
    return run


def _named(each: Located, evidence: Evidence) -> Located:
    """Return a finding or comparison with the name of its output."""
    return each if each.output is None else replace(each, output_name=evidence.name_of(each.output))


def _verdict(findings: tuple[Finding, ...], faults: tuple[Fault, ...] = ()) -> Verdict:
    """Return the verdict of all findings; a fault of gradverify that cost a rule its result makes
    it an error where no other rule finds anything wrong."""
    errors = [book()[finding.code] for finding in findings if finding.severity == "error"]
    if stopping := [info.verdict for info in errors if info.stops]:
        return stopping[0]
    verdicts = {info.verdict for info in errors} | {"error" for fault in faults if fault.costs}
    ranked: tuple[Verdict, ...] = ("fail", "error", "undecided")
    return next((verdict for verdict in ranked if verdict in verdicts), "pass")


def _reason(
    verdict: Verdict, findings: tuple[Finding, ...], faults: tuple[Fault, ...] = ()
) -> str | None:
    if verdict not in ("error", "undecided"):
        return None
    errors = [finding for finding in findings if finding.severity == "error"]
    return [
        *(finding.message for finding in errors if book()[finding.code].stops),
        *(verdictless(fault) for fault in faults if fault.costs),
        *(finding.message for finding in errors),
    ][0]


# ---- what was checked
def _inputs(subject: Subject) -> tuple[InputInfo, ...]:
    return tuple(
        InputInfo(
            a.name,
            tuple(a.value.shape),
            dtype_name(a.value),
            a.form.layout if a.form else a.layout or "contiguous",
            a.differentiable,
        )
        for a in subject.tensors
    )


def _outputs(evidence: Evidence) -> tuple[OutputInfo, ...]:
    if evidence.damaging and "forward" not in vars(evidence):
        return ()
    try:
        outputs, own = evidence.forward.outputs, evidence.kernel.returned if evidence.kernel else {}
    except BaseException as error:  # reported by the first rule that called forward
        if is_interrupt(error):
            raise
        return ()
    return tuple(
        OutputInfo(i, tuple(y.shape), own.get(i, dtype_name(y)), evidence.name_of(i))
        for i, y in enumerate(outputs)
        if isinstance(y, Tensor)
    )
