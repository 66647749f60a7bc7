"""What came of one check: plain data without tensors. The field names are those of the JSON
report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gradverify.model.case import Json, Lines, SpecPlace
from gradverify.model.element import FunctionInfo as FunctionInfo
from gradverify.model.element import Index as Index
from gradverify.model.element import Outcome as Outcome

Verdict = Literal["pass", "fail", "undecided", "error", "skip", "not_run"]
Severity = Literal["error", "warning"]

LEFT_OUT = "left out: "
"""How the reason begins of a rule that the budget did not afford; with something before it, of one
that ran in part."""


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
    """One thing that is wrong, or could not be judged: what was measured against what, why it
    matters, what to change.

    `input` and `output` name the pair it stands for, `output_name` the output by its path (`y0`,
    `y.loss`). `also` lists the codes of less specific findings at the same pair. `file`, `line` and
    `source` show the code to change (usually the user's `backward`); `frames` are the user's frames
    of what was raised.
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
    """Does a baseline name it?"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of a Jacobian as compared. Where a complex tensor is involved the part of the
    index is named: "re" or "im"."""

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
    """A small Jacobian as a picture: `ratio[j][i]` is |error| / tolerance of output element j
    against input element i."""

    ratio: tuple[tuple[float, ...], ...]


WORST = 100
"""The most failing elements that a comparison keeps, to be shown."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison of an (input, output) pair by one rule. `resolution`: the smallest error that
    would have been seen everywhere.

    `lines`: what was compared and is counted, instead of elements, by the modes `columns`, `rows`
    and `blocks`; `worst` are elements. `groups`, `row_groups`: how many groups of input elements
    were moved, and of output elements pulled back, one after the other.
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
    """What became of one rule; `reason` says why it was not applicable or ignored, or of one that
    ran what else is to be known."""

    code: str
    status: Literal["ran", "not_applicable", "ignored"]
    reason: str | None = None
    calls: Calls = Calls()


def left_out(rules: Iterable[RuleRun]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The codes of the rules that the budget did not afford, and of those that it afforded in
    part."""
    short = sorted(
        (rule.code, rule.status) for rule in rules if rule.reason and LEFT_OUT in rule.reason
    )
    return tuple(code for code, status in short if status != "ran"), tuple(
        code for code, status in short if status == "ran"
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of gradverify's own, met in this check. `during`: what was being done; `what`: the
    exception in one line; `place`: the line of gradverify it came from; `trace`: its last frames.
    `costs`: a rule did not run for it, or the whole check; else only a cause or a hint is missing.
    """

    during: str
    what: str
    place: str
    trace: str
    costs: bool = True


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One tensor input; `layout` as in a spec, of a sparse one `csr` and the like, `jagged` of a
    nested one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """One tensor output, by its place among the flattened outputs; `name`: by its path, `y0` or
    `y.loss`."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Reproduced:
    """How identical calls repeat themselves: `of`: an output, or `grad of x`; how many of the
    `calls` gave different results (1: all the same bits);
    `spread`: the largest difference of an element, and that in roundings of the tensor's largest
    number."""

    of: str
    calls: int
    distinct: int
    spread: float
    roundings: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one check. `ok`: did it come out as `expect` says? None until the gate has
    judged it (model/report.py).

    `reason`: why it was skipped, could not be judged, or was not run; `mode`, `mode_reason`: how
    the Jacobian was compared, and why so;
    `could_miss`: which errors it may not have seen, a sentence; `missing`: the device that is
    absent; `faults`: those of gradverify itself.
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
    """What the user's code printed while the check ran, cut to its last lines."""
    faults: tuple[Fault, ...] = ()
    changed: tuple[str, ...] = ()
    """What importing its modules did to the process of the check: it was put back, or no other
    check ran in that process."""
    baselined: bool = False
    """Is it ok only because a baseline names every error that was not expected?"""
    interpreter: str | None = None
    """`triton`, where Triton kernels of the function ran under Triton's interpreter, on the CPU."""
    reproducibility: tuple[Reproduced, ...] = ()
    """Of each output and gradient whose identical calls were compared (GV205, GV206)."""
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
        """Those that `expect` does not name."""
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
        """The codes of `expect` whose rules were not to run (`--select`, `--ignore`, `rules`), and
        which did not occur."""
        ignored = {rule.code for rule in self.rules if rule.status == "ignored"} - {
            finding.code for finding in self.findings
        }
        return tuple(code for code in self.expected_codes if code in ignored)
