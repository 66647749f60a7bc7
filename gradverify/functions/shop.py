"""The bill of a shop, the textbook graph of the chain rule."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function

from gradverify.functions.form import Form


class Shop(Function):
    """`(apple * n1 + tangerine * n2) * tax`, with broadcasting; tangerine and n2 may both be None.

    Prices and tax are tensors, and so are the numbers of fruit: how the bill moves with them is the
    point. Raises ValueError where only one of tangerine and n2 is given.
    """

    @staticmethod
    def forward(
        ctx: Any,
        apple: Tensor,
        n1: Tensor,
        tangerine: Tensor | None,
        n2: Tensor | None,
        tax: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(apple, n1, tangerine, n2, tax)
        return subtotal(apple, n1, tangerine, n2) * tax

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        apple, n1, tangerine, n2, tax = arguments = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grad_subtotal = grad_output * tax.conj() if any(needs[:4]) else None
        other_factor = {0: n1, 1: apple, 2: n2, 3: tangerine}
        gradients = [
            Form.of(arguments[i]).fit(grad_subtotal * other.conj()) if needs[i] else None
            for i, other in other_factor.items()
        ]
        grad_tax = (
            Form.of(tax).fit(grad_output * subtotal(apple, n1, tangerine, n2).conj())
            if needs[4]
            else None
        )
        return (*gradients, grad_tax)


def subtotal(apple: Tensor, n1: Tensor, tangerine: Tensor | None, n2: Tensor | None) -> Tensor:
    """The bill before tax."""
    if tangerine is None and n2 is None:
        return apple * n1
    if tangerine is None or n2 is None:
        raise ValueError("shop: tangerine and n2 go together: give both, or null for both")
    return apple * n1 + tangerine * n2
