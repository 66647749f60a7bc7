"""What became of damage done to analytic gradients: plain data without tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fate = Literal["killed", "survived", "no_difference"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One damage to the gradient of one input (None: of all together). `by`: the code that found it; `why`: what would, where none did."""

    damage: str
    input: str | None
    fate: Fate
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MutatedCheck:
    """One check under all damage that can be done to it; `left_out` says why it was not damaged at all."""

    id: str
    mutants: tuple[Mutant, ...] = ()
    left_out: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MutationReport:
    """All checks of a run."""

    checks: tuple[MutatedCheck, ...]

    def count(self, fate: Fate, damage: str | None = None) -> int:
        return sum(mutant.fate == fate and damage in (None, mutant.damage) for check in self.checks for mutant in check.mutants)

    @property
    def counted(self) -> int:
        """Damage that makes a difference."""
        return self.count("killed") + self.count("survived")

    @property
    def share(self) -> float | None:
        """Killed, in percent of what makes a difference; None where nothing does."""
        return 100.0 * self.count("killed") / self.counted if self.counted else None

    @property
    def damages(self) -> tuple[str, ...]:
        """Kinds of damage in the order in which they were done first."""
        return tuple(dict.fromkeys(mutant.damage for check in self.checks for mutant in check.mutants))
