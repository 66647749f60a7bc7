"""Inputs that make a forward run: the likely ones first, then changes of the one that came furthest, one argument at a time."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product, zip_longest

from gradverify.model.case import InputRecipe
from gradverify.trial.attempt import Attempts, Level, Outcome
from gradverify.trial.choices import BASES, Assignment, Shape, all_choices, beside, default_value, first_choices, fits, reshaped, shape_of, tensor
from gradverify.trial.wanted import Wanted, kinds

COMBINATIONS = 48       # of likely values for one shape of the first tensor
MOST, SECONDS = 4000, 20.0      # attempts, and the time for them: one takes about 0.5 ms; the op with most sizes of its own took 600
HELD_UP = 300           # attempts of which the furthest failed at an argument that is used as an object, which no value of a spec is
DEADLY = 2              # attempts with the same shapes that ended their process, or did not come back, before no other is made
SHAPE_TOLD = re.compile(r"invalid gradient at index (\d+) - got \[([\d, ]*)\]")
TENSOR_TOLD = re.compile(r"gradient different than None at position (\d+), but the corresponding forward input was not a Variable")
SETTLES = 300           # further attempts once forward ran and only backward, or its zeros, stand in the way


@dataclass
class Search:
    """The furthest so far; `left`: attempts until what was found is taken as it is."""

    attempts: Attempts
    best: tuple[Assignment, Outcome] = field(default_factory=lambda: ({}, Outcome(Level.LEFT_OUT)))
    left: int = MOST
    _started: float = field(default_factory=time.monotonic)
    _heap: list[tuple[tuple[int, int, int, int], Assignment]] = field(default_factory=list)
    _since: int = 0     # attempts since the furthest one
    _seen: set[str] = field(default_factory=set)
    _deadly: dict[str, int] = field(default_factory=dict)

    def run(self) -> tuple[Assignment, Outcome]:
        """The first call that has a gradient, or the furthest one."""
        for seed in seeds(self.attempts.wanted):
            if self._tried(seed, 0):
                return self.best
        if self.best[1].elsewhere:
            return self.best
        while self._heap and self._goes_on():
            (_, _, depth, _), assignment = heapq.heappop(self._heap)
            for changed in neighbours(assignment, self.attempts.wanted):
                if self._tried(changed, depth + 1):
                    return self.best
        return self.best

    def _goes_on(self) -> bool:
        held_up = self._since > HELD_UP and self.best[1].wants_object
        return self.left > 0 and not held_up and time.monotonic() < self._started + SECONDS

    def _tried(self, assignment: Assignment, depth: int) -> bool:
        """Is the search over?"""
        key = repr(sorted((name, repr(recipe)) for name, recipe in assignment.items()))
        if key in self._seen:
            return False
        self._seen.add(key)
        shapes = repr([shape_of(recipe) for recipe in assignment.values()])
        if self._deadly.get(shapes, 0) >= DEADLY:
            return False
        outcome = self.attempts.run(assignment)
        self._deadly[shapes] = self._deadly.get(shapes, 0) + (outcome.level == Level.LEFT_OUT)
        self.left, self._since = self.left - 1, self._since + 1
        if (outcome.level, outcome.progress) > (self.best[1].level, self.best[1].progress):
            self.best = assignment, outcome
            self._since = 0
            if outcome.level > Level.RAISED:
                self.left = min(self.left, SETTLES if outcome.level >= Level.NO_BACKWARD else 4 * SETTLES)
        heapq.heappush(self._heap, ((-outcome.level, -outcome.progress, depth, len(self._seen)), assignment))
        if outcome.level == Level.WHOLE or not self._goes_on():
            return True
        return any(self._tried(told, depth) for told in as_told(assignment, outcome, self.attempts.wanted))


def as_told(assignment: Assignment, outcome: Outcome, wanted: Sequence[Wanted]) -> Iterator[Assignment]:
    """What autograd's refusal of a gradient says of an argument: the shape that backward has in mind, or that it is a tensor there."""
    given = [each for each in wanted if not each.init and not each.keyword]
    shape = SHAPE_TOLD.search(outcome.error or "")
    if shape is not None and int(shape[1]) < len(given):
        each, sizes = given[int(shape[1])], tuple(int(size) for size in shape[2].split(",") if size.strip())
        if each.name in assignment and assignment[each.name].recipes:
            yield {**assignment, each.name: reshaped(assignment[each.name], sizes)}
    place = TENSOR_TOLD.search(outcome.error or "")
    if place is not None and 0 < int(place[1]) <= len(given):
        name = given[int(place[1]) - 1].name
        shapes = [found for recipe in assignment.values() if (found := shape_of(recipe)) is not None]
        likely = beside(name, shapes[0])[:3] if shapes else []
        yield from ({**assignment, name: InputRecipe(name, tensor(each, draw="uniform", arguments=[0.5, 1.5]))} for each in (*likely, ()))


def seeds(wanted: Sequence[Wanted]) -> Iterator[Assignment]:
    """The likely values of all arguments, for one shape of the first tensor after the other."""
    first = next((each for each in wanted if not each.init and kinds(each)[0] in ("tensor", "tensors")), None)
    bases = [base for base in BASES if first is None or fits(first, base)] or list(BASES)
    for base in bases if first is not None or any("index" in kinds(each) for each in wanted) else bases[:1]:
        given = {each.name: _likely(each, base, each is first) for each in wanted}
        places = product(*(range(max(1, len(choices))) for choices in given.values()))
        for place in sorted(islice(places, 20_000), key=sum)[:COMBINATIONS]:
            chosen = {name: choices[at] for at, (name, choices) in zip(place, given.items(), strict=True) if choices}
            yield {name: recipe for name, recipe in chosen.items() if recipe is not None}


def _likely(wanted: Wanted, base: Shape, is_first: bool) -> list[InputRecipe | None]:
    """None stands for a default that a spec cannot say."""
    if kinds(wanted)[0] == "default":
        says, value = default_value(wanted)
        return [InputRecipe(wanted.name, value=value) if says else None]
    return list(first_choices(wanted, base, is_first))


def neighbours(assignment: Assignment, wanted: Sequence[Wanted]) -> Iterator[Assignment]:
    """One argument otherwise; or all tensors of one shape in another."""
    shapes = {name: shape for name, recipe in assignment.items() if (shape := shape_of(recipe)) is not None}
    changes = []
    for each in wanted:
        others = [shape for name, shape in shapes.items() if name != each.name]
        changes.append([(each.name, recipe) for recipe in all_choices(each, others, shapes.get(each.name))])
    for turn in zip_longest(*changes):      # the likeliest of every argument before the unlikely ones of any
        yield from ({**assignment, change[0]: change[1]} for change in turn if change is not None)
    for shape in dict.fromkeys(shapes.values()):
        together = [name for name in shapes if shapes[name] == shape]
        for other in BASES if len(together) > 1 else ():
            yield {**assignment, **{name: reshaped(assignment[name], other) for name in together}}
