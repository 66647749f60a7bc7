"""What is checked, as an oracle sees it: whatever knows the derivative of the function without its
backward, and so can be held against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

from gradverify.model.case import Settings
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.subject.base_call import ForwardSeen
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.spending import Spending
from gradverify.subject.subject import Subject

Told = TypeVar("Told")


class Checked(Protocol):
    """What is checked, as an oracle sees it: `evidence.Evidence`, which measures each of these
    once, when it is asked for."""

    @property
    def subject(self) -> Subject: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def function(self) -> Differentiable:
        """The checked outputs as a function of the differentiable inputs, with the backward that is
        looked at."""

    @property
    def forward(self) -> ForwardSeen:
        """The first call, which says which outputs are checked."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The checked outputs at the point."""

    @property
    def wishes(self) -> Wishes: ...
    @property
    def unit(self) -> float:
        """The roundoff of the coarsest differentiable input's dtype."""

    @property
    def leftover(self) -> float:
        """The most that may be left of an iteration, as a share of a row."""

    @property
    def spending(self) -> Spending:
        """What is left of the check's budget."""

    @property
    def jacobian(self) -> Jacobian:
        """Backward against finite differences."""

    @property
    def measured(self) -> Gives:
        """What finite differences are taken of: of a function in float32 its values in float64,
        where it has those."""

    def tighter(self, subject: Subject, measure: Callable[[Differentiable], Told]) -> Told:
        """What is measured where the function iterates to a tighter tolerance."""

    def cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Dense random ones, one per checked output, always the same for a purpose."""
