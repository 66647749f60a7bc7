"""Random numbers of the checked function: the same for every forward, others for every backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gradverify.model.case import Case
from gradverify.subject.machine import next_draws, random_states, seed_all

Measured = TypeVar("Measured")
BACKWARD, ELSEWHERE = 104_729, 2    # added to the seed, beside 0 of forwards; the first is no seed that a backward is likely to set itself


class Seeded:
    """What seeds the generators before its calls, as its case's settings say (`reseed`)."""

    case: Case

    def __init__(self, on_cuda: bool) -> None:
        self.on_cuda = on_cuda
        self._followed: Seeded | None = None
        self._quiet = False     # nothing is seeded, as nothing is drawn
        self._fresh = dict[int, tuple[object, ...]]()

    def follow(self, other: Seeded) -> None:
        """From now on nothing is seeded while the other one seeds nothing."""
        self._followed = other

    def reseed(self, offset: int = 0) -> None:
        """Every forward draws the same random numbers (dropout, samplers), from torch, NumPy and Python; every backward others."""
        quiet = self._quiet or (self._followed is not None and self._followed._quiet)
        if not quiet and self.case.settings.reseed:
            seed_all(self.case.settings.seed + offset, self.on_cuda)

    def fresh_states(self, offset: int = 0) -> tuple[object, ...]:
        """Seeds, and says what the generators would draw next: always the same, where the check seeds them at all."""
        self.reseed(offset)
        if offset not in self._fresh or not self.case.settings.reseed:
            self._fresh[offset] = self.states()
            self.reseed(offset)
        return self._fresh[offset]

    def states(self) -> tuple[object, ...]:
        """What the generators would draw next: equal before and after code that drew nothing. Draws it, where every call seeds them anew."""
        return next_draws(self.on_cuda) if self.case.settings.reseed else random_states(self.on_cuda)

    def seldom_seeded(self, measure: Callable[[], Measured]) -> Measured:
        """What is measured, seeded once: if anything was drawn meanwhile, it is measured again with a seed before every call.

        Three generators that nobody draws from cost as much to seed as a small forward takes.
        """
        before, self._quiet = self.fresh_states(), True
        try:
            found = measure()
        finally:
            self._quiet = False
        return found if self.states() == before else measure()

    def seeded_elsewhere(self, measure: Callable[[], Measured], number: int = 0) -> Measured:
        """What is measured where the generators start elsewhere than for every other call, for each `number` at another place."""
        if self.case.settings.reseed:
            seed_all(self.case.settings.seed + ELSEWHERE + number, self.on_cuda)
        self._quiet = True
        try:
            return measure()
        finally:
            self._quiet = False
