"""Counts, extremes and the worst elements of one (input, output) pair, folded from a stream: never the whole Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.numerics.compare import Judged
from gradverify.numerics.derivative import Derivative, Outcome

WORST = 100             # failing elements kept for the table
MAP_ROWS, MAP_COLUMNS = 40, 80      # a Jacobian up to this size is also kept as a picture
_SEVERITY = ((Outcome.MISMATCH,), (Outcome.UNDECIDED, Outcome.NON_FINITE, Outcome.JUMP, Outcome.STAIRCASE), (Outcome.KINK, Outcome.PASS))


@dataclass(frozen=True, slots=True)
class Element:
    """One element: flat real coordinates of output and input, and what was compared."""

    output: int
    input: int
    analytic: float
    numeric: float
    bar: float
    tolerance: float
    error: float
    outcome: Outcome

    @property
    def ratio(self) -> float:
        """Error over tolerance; infinite where it is not a number."""
        ratio = self.error / self.tolerance if self.tolerance else torch.inf if self.error else 0.0
        return ratio if ratio == ratio else torch.inf


@dataclass(frozen=True, slots=True)
class Tally:
    """What was seen of a pair. `counts` by outcome; `resolution`: largest tolerance + bar of the elements that passed; `largest`: the
    largest gradient seen, over its tolerance (≤ 1: nothing here could have failed); `absent`: backward gave None throughout;
    `ratios` [m, n]: error over tolerance of a small pair."""

    counts: tuple[int, ...] = (0,) * len(Outcome)
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    resolution: float = 0.0
    largest: float = 0.0
    largest_analytic: float = 0.0
    absent: bool = False
    worst: tuple[Element, ...] = ()
    ratios: Tensor | None = None

    def count(self, *outcomes: Outcome) -> int:
        return sum(self.counts[outcome] for outcome in outcomes)

    @property
    def elements(self) -> int:
        """Elements compared: all but the masked ones."""
        return sum(self.counts) - self.counts[Outcome.MASKED]

    def __add__(self, other: Tally) -> Tally:
        """Both runs of columns as one; `other` stands to the right."""
        ratios = torch.cat([self.ratios, other.ratios], 1) if self.ratios is not None and other.ratios is not None else None
        return Tally(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)), max(self.max_abs_error, other.max_abs_error),
            max(self.max_rel_error, other.max_rel_error), max(self.resolution, other.resolution), max(self.largest, other.largest),
            max(self.largest_analytic, other.largest_analytic), self.absent and other.absent, _worst_of(self.worst + other.worst), ratios)


def tally(analytic: Tensor, derivative: Derivative, judged: Judged, first_column: int, absent: bool, keep_map: bool) -> Tally:
    """The tally of a run of columns [m, T] that begins at `first_column` of its input."""
    outcome, error = judged.outcome, judged.error
    counts = torch.bincount(outcome.reshape(-1).long(), minlength=len(Outcome))
    passed, shown = outcome == Outcome.PASS, outcome != Outcome.MASKED
    measured = shown & (outcome != Outcome.NON_FINITE)
    size = torch.maximum(analytic.abs(), derivative.value.abs().nan_to_num(nan=0.0, posinf=0.0))
    ratio = (error / judged.tolerance).nan_to_num(nan=torch.inf, posinf=torch.inf)
    ratio[(error == 0) | ~shown] = 0.0
    return Tally(
        tuple(counts.tolist()), _largest(error[measured]), _largest((error / size)[measured & (size > 0)]),
        _largest((judged.tolerance + derivative.bar)[passed]), _largest((size / judged.tolerance)[shown & (size > 0)]),
        _largest(analytic.abs()), absent, _worst(analytic, derivative, judged, ratio, first_column), ratio if keep_map else None)


def _largest(values: Tensor) -> float:
    """The largest value; infinite where one is not a number, 0 where there is none."""
    return float(values.nan_to_num(nan=torch.inf, posinf=torch.inf).max()) if values.numel() else 0.0


def _worst(analytic: Tensor, derivative: Derivative, judged: Judged, ratio: Tensor, first_column: int) -> tuple[Element, ...]:
    """The worst elements, mismatches before undecided ones before the rest; of the rest only the nearest to its tolerance."""
    found: list[Element] = []
    height = ratio.shape[0]
    by_column = ratio.t().reshape(-1)       # ties: the leftmost column first, so that runs of columns merge to the tally of the whole
    for severity, outcomes in enumerate(_SEVERITY):
        wanted = 1 if severity == 2 else WORST - len(found)
        member = torch.isin(judged.outcome, torch.tensor(outcomes, dtype=torch.int8)).t().reshape(-1)
        candidates = member.nonzero().reshape(-1)
        if candidates.numel() and wanted > 0 and not (severity == 2 and found):
            best = by_column[candidates].sort(descending=True, stable=True).indices[:wanted]
            found += [_element(analytic, derivative, judged, int(flat) % height, int(flat) // height, first_column) for flat in candidates[best]]
    return tuple(found)


def _element(analytic: Tensor, derivative: Derivative, judged: Judged, row: int, column: int, first_column: int) -> Element:
    at = (row, column)
    return Element(row, first_column + column, float(analytic[at]), float(derivative.value[at]), float(derivative.bar[at]),
                   float(judged.tolerance[at]), float(judged.error[at]), Outcome(int(judged.outcome[at])))


def _worst_of(elements: tuple[Element, ...]) -> tuple[Element, ...]:
    rank = {outcome: place for place, outcomes in enumerate(_SEVERITY) for outcome in outcomes}
    ordered = sorted(elements, key=lambda element: (rank[element.outcome], -element.ratio, element.input, element.output))
    bad = [element for element in ordered if rank[element.outcome] < 2]
    return tuple(bad[:WORST] or ordered[:1])
