"""A Subject under all its rules: what a check is, from top to bottom."""

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
from gradverify.model.fault import fault_of, verdictless
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
)
from gradverify.numerics.choose import Choice, Mode
from gradverify.oracles.legs import first_leg
from gradverify.rules import chosen
from gradverify.rules.asking import Examined, examine, specific, with_severity
from gradverify.rules.at_line import placed
from gradverify.rules.catalogue import book
from gradverify.rules.low_precision import without_a_leg
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

Told = TypeVar("Told", Finding, Comparison)


def verify(
    subject: Subject,
    planned: Planned | None = None,
    so_far: Callable[[CaseResult], None] | None = None,
    *,
    evidence: Evidence | None = None,
    briefly: bool = False,
) -> CaseResult:
    """The result of all selected rules on a subject, or on `evidence` of it. What the user's code
    raises becomes a finding.

    `planned` gets how it will be compared, `so_far` what is known after each rule that finds an
    error. `briefly`: up to the first rule that finds one, and without its cause.
    """
    evidence = evidence or evidence_of(subject, planned)
    if evidence.first_leg.refusal:
        own = subject.own
        told = without_a_leg(own.case.settings.dtype, evidence.first_leg.refusal)
        return replace(
            described(own.case, own),
            verdict="undecided",
            reason=told.message,
            findings=(with_severity(told),),
            inputs=_inputs(own),
        )

    def wrong(some: Sequence[Examined]) -> None:
        if so_far is not None:
            so_far(_result(subject, evidence, some, brief=True))

    with evidence.first_leg.mode():
        examined = examine(evidence, briefly, wrong if so_far else None)
        return _result(subject, evidence, examined, briefly)


def _result(
    subject: Subject, evidence: Evidence, examined: Sequence[Examined], brief: bool
) -> CaseResult:
    # With its output's name, and the line of backward for what is wrong with it
    said = (
        placed(_named(of_a_list(finding, evidence.subject.case), evidence), evidence)
        for each in examined
        for finding in each.findings
    )
    found = graded(specific(said), evidence.settings)
    findings = found if brief else with_causes(found, evidence, book())
    faults = tuple(
        dict.fromkeys([*(each.fault for each in examined if each.fault), *evidence.missing])
    )
    verdict = _verdict(findings, faults)
    interpreter = (
        None if brief or evidence.spending.ending or evidence.damaging else evidence.interpreter
    )
    # Of a reference that stands in for it in float64, and of which there is nothing to say, are no
    # comparisons of what is checked
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
        rules=tuple(_said(each.run, findings, evidence) for each in examined),
        mode=mode,
        mode_reason=mode_reason,
        could_miss=could_miss,
        comparisons=tuple(
            _named(told, evidence)
            for each in examined
            for told in each.comparisons
            if told.rule in own
        ),
        reproducibility=tuple(evidence.reproduced),
    )


def evidence_of(subject: Subject, planned: Planned | None = None) -> Evidence:
    """What is going to be measured of a subject; `planned` as in `verify`."""
    found = first_leg(subject)

    def tell(choice: Choice) -> None:
        cost = choice.cost
        if planned is not None:
            planned(Plan(choice.mode.value, cost.forward, cost.backward, cost.seconds, cost.memory))

    evidence = Evidence(found.subject, tell if planned else None)
    evidence.first_leg = found
    return evidence


def _mode(evidence: Evidence, compared: bool) -> tuple[str, str, str]:
    """How the Jacobian was compared, why so, and what that could miss."""
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
    """A sentence as it stands behind a colon."""
    return sentence[0].lower() + sentence[1:].removesuffix(".")


def broken(case: Case, error: BaseException) -> CaseResult:
    """The result of a case that an exception ended: the subject could not be prepared, the user's
    code raised where it was not called by name, or it is a fault of gradverify's own. Raises what
    ends the run."""
    if is_interrupt(error):
        raise error
    if not isinstance(error, UserCodeError) and is_users(error):
        error = unnamed(error)
    if isinstance(error, UserCodeError):
        finding = with_severity(error.finding)
        return replace(
            described(case), verdict="error", reason=finding.message, findings=(finding,)
        )
    faults = (fault_of(error, "the check"),)
    return replace(
        described(case), verdict="error", reason=_reason("error", (), faults), faults=faults
    )


def described(case: Case, subject: Subject | None = None) -> CaseResult:
    """A result that says what was to be checked, tolerances filled in, with nothing found yet."""
    atol, rtol = case.settings.tolerances()
    found = subject.target if subject else None
    file = shown_path(found.file, run_folder()) if found and found.file is not None else None
    function = (
        FunctionInfo(case.target, found.kind, file, found.line)
        if found
        else FunctionInfo(case.target)
    )
    return CaseResult(
        case.id,
        case.spec,
        case.name,
        function,
        case.settings.device,
        case.settings.dtype,
        case.settings.seed,
        to_json(replace(case.settings, atol=atol, rtol=rtol)),
        "pass",
        expect=case.expect,
    )


# ---- findings
def _said(run: RuleRun, findings: tuple[Finding, ...], evidence: Evidence) -> RuleRun:
    """A rule that did not run, and whose finding another one's turned out to be; one whose finding
    has no cause, as the budget was spent."""
    if run.code in evidence.spending.unexplained:
        left_out = f"the cause {LEFT_OUT}{evidence.spending.ended}"
        return replace(run, reason="; ".join(filter(None, (run.reason, left_out))))
    if run.status == "not_applicable" and any(finding.code == run.code for finding in findings):
        return replace(run, status="ran", reason="by the elements that were found wrong")
    return run


def _named(told: Told, evidence: Evidence) -> Told:
    return told if told.output is None else replace(told, output_name=evidence.name_of(told.output))


def _verdict(findings: tuple[Finding, ...], faults: tuple[Fault, ...] = ()) -> Verdict:
    """A rule that a fault of ours has cost leaves an error where the others find nothing wrong."""
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
    except BaseException as error:  # told already, by the first rule that asked
        if is_interrupt(error):
            raise
        return ()
    return tuple(
        OutputInfo(i, tuple(y.shape), own.get(i, dtype_name(y)), evidence.name_of(i))
        for i, y in enumerate(outputs)
        if isinstance(y, Tensor)
    )
