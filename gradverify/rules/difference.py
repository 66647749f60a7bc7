"""Where two calls of one function differ, in words."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.rules.shown import apart


@dataclass(frozen=True, slots=True)
class Difference:
    """The element where two calls differ most: of an input's gradient (`input` its name), or of an output (`output` its place among all)."""

    input: str | None
    output: int | None
    where: str
    expected: float
    seen: float

    @property
    def text(self) -> str:
        """the gradient at x[0,1] is 1.5, and not 2"""
        what = f"the gradient at {self.where}" if self.input is not None else self.where
        seen, expected = self.numbers
        return f"{what} is {seen}, and not {expected}"

    @property
    def numbers(self) -> tuple[str, str]:
        """The one that was seen and the one that was expected, with as many digits as tell them apart."""
        return apart(self.seen, self.expected)
