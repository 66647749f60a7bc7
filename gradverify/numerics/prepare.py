"""What is measured of a function at its point before anything is compared: noise, structure, the inputs in which it is linear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from gradverify.numerics.function.clock import Clock
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.memory import keep_freed
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.judging.reach import Reach
from gradverify.numerics.judging.run import OverBudget, Run, no_budget
from gradverify.numerics.pairs.pair import Asked
from gradverify.numerics.rungs import Index
from gradverify.numerics.seeds import Seed
from gradverify.numerics.structure import Structure, detected, find_other_structure, find_structure
from gradverify.numerics.survey import DirectionSample, Survey, linear_inputs, survey


@dataclass(frozen=True)
class Prepared:
    """A function at its point, with what was measured before anything is compared. `linear`: the tensors in which f is linear, and what
    showed it."""

    point: Point
    survey: Survey
    linear: Mapping[int, DirectionSample | None]
    structure: Structure
    atol: float
    rtol: float | None
    over_budget: OverBudget = no_budget
    asked: Asked | None = None
    stops: bool = False

    def run(self) -> Run:
        """A fresh start: nothing learnt yet of how far the outputs go."""
        return Run(self.point, self.survey, self.atol, self.rtol, Reach(self.point), frozenset(self.linear),
                   over_budget=self.over_budget, asked=self.asked, stops=self.stops)

    def again(self, broken: frozenset[int]) -> Prepared:
        """With other groups for these tensors."""
        return replace(self, structure=find_other_structure(self.point, self.survey, detected, self.structure, broken))

    def holding(self, columns: Index) -> Prepared:
        """With these columns held where they are, now and in the `point` itself; what was sampled along directions that move them is forgotten."""
        self.point.hold(columns)
        moved = set(self.point.columns.tensor[columns].tolist())
        samples = tuple(None if t in moved else sample for t, sample in enumerate(self.survey.direction_samples))
        linear = {t: sample for t, sample in self.linear.items() if t not in moved}
        return replace(self, survey=replace(self.survey, direction_samples=samples), linear=linear)


def prepare(
    function: Function, *, atol: float = 0.0, rtol: float | None = None, domains: Sequence[tuple[float, float] | None] | None = None,
    symmetric: Sequence[bool] | None = None, specified: Sequence[Tensor | None] = (), seed: Seed = Seed(),
    grouped: bool = True, thrifty: bool = False, clock: Clock | None = None,
) -> Prepared | None:
    """Noise, structure and linearity; None where there is no input. `rtol` None: 1e-6, and 1e-3 where inputs or outputs are float32 or
    the output bits show float32 inside. `domains`, `symmetric`, `specified`: one entry per input. `thrifty`: with what saves
    calls of small tensors where every element is compared. Raises what the function raises at its own inputs.
    """
    n = len(function.inputs)
    if not n:
        return None
    keep_freed()
    columns = columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n, specified)
    with np.errstate(all="ignore"):
        point = Point(function, columns, clock, seed)
        noise_survey = survey(point)
        structure = find_structure(point, noise_survey, detected, thrifty=thrifty) if grouped else Structure()
        linear = linear_inputs(point, noise_survey, thrifty)
    return Prepared(point, noise_survey, linear, structure, atol, rtol)
