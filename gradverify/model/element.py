"""One element of a Jacobian with the evidence for its verdict: plain data, JSON both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["pass", "mismatch", "kink", "jump", "staircase", "undecided", "non_finite"]
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """The checked function; `file` and `line` where its source could be found (an autograd
    Function: of its `backward`)."""

    target: str
    kind: str | None = None
    file: str | None = None
    line: int | None = None


Part = Literal["re", "im"]
Decision = Literal["pass", "mismatch", "undecided"]


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder. Quotients are NaN where f has no value.

    step: half the realised distance between x+ and x−. quotient: (f(x+) − f(x−)) / (2·step); left,
    right: one-sided. noise: the standard deviation that the noise of f gives the quotient. bar: its
    error estimate, the change from the next coarser step plus six times the noise.
    """

    step: float
    quotient: float
    bar: float
    noise: float
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rung (index in `rungs`) that the numeric value is taken from, and how often it was
    extrapolated from coarser ones."""

    rung: int
    order: int


@dataclass(frozen=True, slots=True)
class Truncation:
    """The truncation error of the quotient, where noise does not hide it: about
    factor · step^power."""

    power: float
    factor: float


@dataclass(frozen=True, slots=True)
class Tolerance:
    """value = atol + max(rtol · size, floor); size: the larger of |analytic| and |numeric|; floor:
    an error below it is due to rounding alone (method.md)."""

    value: float
    atol: float
    rtol: float
    size: float
    floor: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A derivative and its bar."""

    value: float
    bar: float


@dataclass(frozen=True, slots=True)
class Sides:
    """The slopes of f from the left and from the right, where it has a kink."""

    left: Reading
    right: Reading


@dataclass(frozen=True, slots=True)
class FixedStep:
    """The comparison by torch.autograd.gradcheck's rule, where the check gives `eps`: without a
    bar, and with tolerance = atol + rtol·|quotient|."""

    step: float
    quotient: float
    atol: float
    rtol: float
    tolerance: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """One element on every rung, coarsest first, and its outcome in the check.

    f: the output element at x; sigma: the noise of f (standard deviation); unit: the unit roundoff
    that f was found to compute in. numeric ± bar: the finite difference (bar inf: none is known; at
    a kink see `sides`). second: another derivative that is as consistent, on other steps.
    limit: why the element is undecided, in words (from numerics: the name of its `Limit`).
    forward, backward: calls.
    """

    x: float
    f: float
    analytic: float
    numeric: float
    bar: float
    tolerance: Tolerance
    sigma: float
    unit: float
    verdict: Decision
    outcome: Outcome
    limit: str | None
    sides: Sides | None
    second: Reading | None
    chosen: Chosen | None
    truncation: Truncation | None
    rungs: tuple[Rung, ...]
    fixed: FixedStep | None = None
    forward: int = 0
    backward: int = 0

    @property
    def error(self) -> float:
        return abs(self.analytic - self.numeric)


@dataclass(frozen=True, slots=True)
class Place:
    """An element of a tensor by name and index; of a complex tensor, a part of it."""

    name: str
    index: Index
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Element:
    """The content of `explain PATH::NAME`. `pair`: under `symmetric`, the element that is moved
    together with that of the input.

    conclusion: the verdict in a sentence. in_check: the verdict of the whole check, where that did
    not judge this element individually and passes although the element is wrong.
    """

    id: str
    name: str
    spec: str
    function: FunctionInfo
    device: str
    dtype: str
    input: Place
    output: Place
    measured: Measured
    conclusion: str
    pair: Place | None = None
    in_check: str | None = None
    notes: tuple[str, ...] = ()
