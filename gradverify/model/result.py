"""The result of one check: plain data without tensors. The field names are those of the JSON
report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gradverify.model.case import Case, Json, Lines, SpecPlace
from gradverify.model.codec import to_json
from gradverify.model.element import FunctionInfo as FunctionInfo
from gradverify.model.element import Index as Index
from gradverify.model.element import Outcome as Outcome

Verdict = Literal["pass", "fail", "undecided", "error", "skip", "not_run"]
Severity = Literal["error", "warning"]

LEFT_OUT = "left out: "
"""The beginning of the reason of a rule that the budget did not afford; further inside the reason,
of a rule that ran in part."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of the user's function and of its backward; `batched` of them ran inside vmapped
    calls."""

    forward: int = 0
    backward: int = 0
    batched: int = 0

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            self.forward + other.forward,
            self.backward + other.backward,
            self.batched + other.batched,
        )

    def __sub__(self, other: Calls) -> Calls:
        return Calls(
            self.forward - other.forward,
            self.backward - other.backward,
            self.batched - other.batched,
        )


@dataclass(frozen=True, slots=True)
class Cause:
    """The known mistake that explains all mismatched elements of a finding."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the user's own code in a traceback; `line` counts from 1, `text` is the source
    line."""

    file: str
    line: int
    function: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One error or hazard, or a reason why the check could not be judged: the quantities compared,
    why the difference matters, what to change.

    `input` and `output`: the pair that the finding is about; `output_name`: the path of the output
    (`y0`, `y.loss`). `also`: the codes of less specific findings on the same pair. `file`, `line`
    and `source`: the code to change (usually the user's `backward`); `inside`: its method
    (`Swish.backward`) where that belongs to a Function inside the checked callable or module;
    `frames`: the user's frames in the traceback of an exception.
    """

    code: str
    name: str = field(default="", kw_only=True)
    severity: Severity = field(default="error", kw_only=True)
    message: str
    input: str | None = None
    output: int | None = None
    cause: Cause | None = None
    also: tuple[str, ...] = ()
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    source: str | None = None
    frames: tuple[Frame, ...] = ()
    output_name: str | None = None
    known: bool = False
    """Whether a baseline lists the finding."""
    inside: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of a Jacobian as compared. For a complex tensor the part is named: "re" or
    "im"."""

    output_index: Index
    input_index: Index
    analytic: float
    numeric: float
    bar: float
    tolerance: float
    abs_error: float
    rel_error: float
    outcome: Outcome
    output_part: Literal["re", "im"] | None = None
    input_part: Literal["re", "im"] | None = None


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """The errors of a small Jacobian, for a picture: `ratio[j][i]` is |error| / tolerance of
    output element j against input element i."""

    ratio: tuple[tuple[float, ...], ...]


WORST = 100
"""The greatest number of failing elements that a comparison keeps for display."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison of an (input, output) pair by one rule. `resolution`: the smallest error that
    would have been detected in every element.

    `lines`: the unit that was compared and counted instead of elements, in the modes `columns`,
    `rows` and `blocks`; `worst` lists elements always. `groups`, `row_groups`: how many groups of
    input elements were moved, and of output elements pulled back, one after the other.
    """

    rule: str
    input: str
    output: int | None
    elements: int
    mismatched: int = 0
    kinks: int = 0
    undecided: int = 0
    non_finite: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    resolution: float = 0.0
    groups: int = 0
    row_groups: int = 0
    lines: Literal["", Lines] = ""
    worst: tuple[Entry, ...] = ()
    error_map: ErrorMap | None = None
    output_name: str | None = None


@dataclass(frozen=True, slots=True)
class RuleRun:
    """The status of one rule. `reason`: why it was not applicable or ignored, or a remark on one
    that ran."""

    code: str
    status: Literal["ran", "not_applicable", "ignored"]
    reason: str | None = None
    calls: Calls = Calls()


def left_out(rules: Iterable[RuleRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the codes of the rules that the budget did not afford, and of those that it afforded
    in part."""
    short = sorted(
        (rule.code, rule.status) for rule in rules if rule.reason and LEFT_OUT in rule.reason
    )
    return tuple(code for code, status in short if status != "ran"), tuple(
        code for code, status in short if status == "ran"
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """An internal error of gradverify in this check.

    `during`: the step in which it was raised; `what`: the exception in one line; `place`: the line
    of gradverify that raised it; `trace`: the last frames. `costs`: because of it a rule, or the
    whole check, did not run; else only a cause or a hint is missing.
    """

    during: str
    what: str
    place: str
    trace: str
    costs: bool = True


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One tensor input. `layout`: as in a spec; for a sparse tensor its sparse layout (`csr`, …),
    for a nested one `jagged`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """One tensor output. `index`: among the flattened outputs; `name`: its path, `y0` or
    `y.loss`."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Reproduced:
    """How far identical calls give identical results. `of`: an output, or `grad of x`; `distinct`:
    how many different results the `calls` gave (1: all the same bits); `spread`: the largest
    difference of an element; `roundings`: that difference in roundings of the tensor's largest
    number."""

    of: str
    calls: int
    distinct: int
    spread: float
    roundings: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one check. `ok`: whether it is as `expect` declares; None until the gate has
    judged it (model/report.py).

    `reason`: why it was skipped, could not be judged, or was not run; `mode`, `mode_reason`: how
    the Jacobian was compared, and why that mode was chosen;
    `could_miss`: a sentence on the errors that the check may have missed; `missing`: the kind of
    device that is absent; `faults`: internal errors of gradverify.
    """

    id: str
    spec: SpecPlace
    name: str
    function: FunctionInfo
    device: str
    dtype: str
    seed: int
    settings: Mapping[str, Json]
    verdict: Verdict
    expect: str | tuple[str, ...] = "pass"
    ok: bool | None = None
    reason: str | None = None
    inputs: tuple[InputInfo, ...] = ()
    outputs: tuple[OutputInfo, ...] = ()
    calls: Calls = Calls()
    seconds: float = 0.0
    mode: str | None = None
    mode_reason: str | None = None
    could_miss: str | None = None
    rules: tuple[RuleRun, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    missing: str | None = None
    captured: str | None = None
    """The last lines that the user's code printed while the check ran."""
    faults: tuple[Fault, ...] = ()
    changed: tuple[str, ...] = ()
    """Changes that importing its modules made to the process of the check: they were undone, or no
    other check ran in that process."""
    baselined: bool = False
    """Whether the check is ok only because a baseline lists every unexpected error."""
    interpreter: str | None = None
    """`triton`, where Triton kernels of the function ran under Triton's interpreter, on the CPU."""
    reproducibility: tuple[Reproduced, ...] = ()
    """One entry for each output and gradient whose identical calls were compared (GV205, GV206)."""
    device_memory: int | None = None
    """The most bytes that tensors held on the check's CUDA device at a time; None on the CPU."""

    @property
    def was_run(self) -> bool:
        return self.verdict not in ("skip", "not_run")

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The warnings that `expect` does not name."""
        return tuple(
            finding
            for finding in self.findings
            if finding.severity == "warning" and finding.code not in self.expect
        )

    @property
    def expected_codes(self) -> tuple[str, ...]:
        """The codes that `expect` lists."""
        return self.expect if isinstance(self.expect, tuple) else ()

    @property
    def not_judged(self) -> tuple[str, ...]:
        """The codes of `expect` that did not occur and whose rules were not to run (`--select`,
        `--ignore`, `rules`)."""
        ignored = {rule.code for rule in self.rules if rule.status == "ignored"} - {
            finding.code for finding in self.findings
        }
        return tuple(code for code in self.expected_codes if code in ignored)


def blank(case: Case) -> CaseResult:
    """Return the result of a case before anything is known of it."""
    settings = case.settings
    return CaseResult(
        case.id,
        case.spec,
        case.name,
        FunctionInfo(case.target),
        settings.device,
        settings.dtype,
        settings.seed,
        to_json(settings),
        "pass",
        expect=case.expect,
    )


def unjudged(result: CaseResult, finding: Finding, verdict: Verdict = "error") -> CaseResult:
    """Return the result of a check that cannot be judged, for the reason that the finding gives."""
    return replace(result, verdict=verdict, reason=finding.message, findings=(finding,), faults=())
