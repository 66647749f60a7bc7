"""The shape and dtype of an argument, for a backward that does not save the argument itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Form:
    """Shape and dtype of one argument, kept on ctx instead of the tensor."""

    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, argument: Tensor) -> Form:
        return cls(argument.shape, argument.dtype)

    def fit(self, gradient: Tensor) -> Tensor:
        """Return the gradient in this form: summed over the dimensions that were broadcast, and its
        real part where the argument is real.

        `gradient` has the shape of the broadcast result. A real argument that meets a complex one
        moves along the real axis only, so the real part of the gradient is its whole gradient.
        """
        summed = gradient.sum_to_size(self.shape)
        if summed.is_complex() and not self.dtype.is_complex:
            summed = summed.real
        return summed.to(self.dtype)
