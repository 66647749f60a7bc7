"""The interface of a checked function to oracles, which know the derivative of the function without
its backward, and so can be compared with it."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.oracles.finite_difference import Constraints, Jacobian, WithBackward
from gradverify.subject.base_call import BaseCall
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import Value
from gradverify.subject.spending import Spending


class Checked(BaseCall):
    """A checked function: its base call, and measurements that `evidence.Evidence` makes once, when
    they are first read."""

    spending: Spending
    """The rest of the check's budget."""

    @property
    def constraints(self) -> Constraints:
        """The spec's constraints on the differentiable inputs."""
        raise NotImplementedError

    @property
    def unit(self) -> float:
        """The roundoff of the coarsest differentiable input's dtype."""
        raise NotImplementedError

    @property
    def leftover(self) -> float:
        """The largest error that an iteration may leave, as a share of a row."""
        raise NotImplementedError

    @property
    def jacobian(self) -> Jacobian:
        """Backward against finite differences."""
        raise NotImplementedError

    @property
    def measured(self) -> WithBackward:
        """The function that finite differences are taken of; for a function in float32 its values
        in float64, if it has these."""
        raise NotImplementedError

    def tighter(self, measure: Callable[[Differentiable], Value]) -> Value:
        """Return the result of `measure` for the function with tighter tolerances of its
        iterations."""
        raise NotImplementedError
