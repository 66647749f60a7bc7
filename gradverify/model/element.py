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
    """The rung (place in `rungs`) that the numeric value rests on, and how often it was
    extrapolated from coarser ones."""

    rung: int
    order: int


@dataclass(frozen=True, slots=True)
class Truncation:
    """How the quotient's error falls where noise does not hide it: about factor · step^power."""

    power: float
    factor: float


@dataclass(frozen=True, slots=True)
class Tolerance:
    """value = atol + max(rtol · size, floor); size: the larger of |analytic| and |numeric|; floor:
    what counts as dust (method.md)."""

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
    """What the rule of torch.autograd.gradcheck says, where the check gives `eps`: it has no bar,
    and tolerance = atol + rtol·|quotient|."""

    step: float
    quotient: float
    atol: float
    rtol: float
    tolerance: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """One element on every rung, coarsest first, and what came of it in the check.

    f: the output element at x; sigma: the noise of f (standard deviation); unit: the unit roundoff
    it was seen to compute in. numeric ± bar: the finite difference (bar inf: it has none; at a kink
    see `sides`). second: another derivative that is as consistent, on other steps.
    limit: what keeps the element undecided, in words (as numerics gives it: by the name of its
    `Limit`). forward, backward: calls.
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
    """What `explain PATH::NAME` shows. `pair`: under `symmetric`, the element that moves together
    with the input's.

    conclusion: the verdict in a sentence. in_check: what the whole check says where it did not
    judge this element by itself, and passes what is wrong.
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
