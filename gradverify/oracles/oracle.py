"""What is checked, as an oracle sees it: whatever knows the derivative of the function without its
backward, and so can be held against it."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.subject.base_call import BaseCall
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import Value
from gradverify.subject.spending import Spending


class Checked(BaseCall):
    """What is checked, as an oracle sees it: its base call, and what `evidence.Evidence` measures
    once, when it is asked for."""

    spending: Spending
    """What is left of the check's budget."""

    @property
    def wishes(self) -> Wishes:
        """What the spec says of the differentiable inputs."""
        raise NotImplementedError

    @property
    def unit(self) -> float:
        """The roundoff of the coarsest differentiable input's dtype."""
        raise NotImplementedError

    @property
    def leftover(self) -> float:
        """The most that may be left of an iteration, as a share of a row."""
        raise NotImplementedError

    @property
    def jacobian(self) -> Jacobian:
        """Backward against finite differences."""
        raise NotImplementedError

    @property
    def measured(self) -> Gives:
        """What finite differences are taken of: of a function in float32 its values in float64,
        where it has those."""
        raise NotImplementedError

    def tighter(self, measure: Callable[[Differentiable], Value]) -> Value:
        """What is measured where the function iterates to a tighter tolerance."""
        raise NotImplementedError
