"""GV110 on operators made with torch.library.custom_op: the vmap rule is registered beside the
class that torch generates, which declares none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from live import check, codes, message, randn
from torch import Tensor

LIBRARY = "gradverify_vmap"
X, W = randn(4, 3), randn(3, 2, seed=1)


def product(name: str, rule: Callable[..., Any] | None) -> Any:
    """x @ w by NumPy, `rule(operator, info, in_dims, x, w)` its vmap rule."""

    @torch.library.custom_op(f"{LIBRARY}::{name}", mutates_args=())
    def operator(x: Tensor, w: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() @ w.detach().numpy())

    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g

    operator.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    if rule is not None:
        operator.register_vmap(lambda info, in_dims, x, w: rule(operator, info, in_dims, x, w))
    return operator


def each(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def right(
    operator: Any, info: Any, in_dims: tuple[int | None, int | None], x: Tensor, w: Tensor
) -> tuple[Tensor, int]:
    pairs = zip(
        each(x, in_dims[0], info.batch_size), each(w, in_dims[1], info.batch_size), strict=True
    )
    return torch.stack([operator(a, b) for a, b in pairs]), 0


def first_weight_only(
    operator: Any, info: Any, in_dims: tuple[int | None, int | None], x: Tensor, w: Tensor
) -> tuple[Tensor, int]:
    weight = each(w, in_dims[1], info.batch_size)[0]
    return torch.stack([operator(a, weight) for a in each(x, in_dims[0], info.batch_size)]), 0


def detached(
    operator: Any, info: Any, in_dims: tuple[int | None, int | None], x: Tensor, w: Tensor
) -> tuple[Tensor, int]:
    return right(operator, info, in_dims, x, w.detach())


@pytest.mark.parametrize("vmap", ["auto", True])
def test_a_right_registered_rule_passes(vmap):
    result = check(product(f"right_{vmap}", right), X, W, vmap=vmap)
    assert (result.verdict, result.findings) == ("pass", ())
    assert next(run for run in result.rules if run.code == "GV110").status == "ran"


@pytest.mark.parametrize("rule", [first_weight_only, detached])
def test_a_wrong_registered_rule_is_found(rule):
    result = check(product(rule.__name__, rule), X, W)
    assert (result.verdict, codes(result)) == ("fail", {"GV110"})
    assert "from a loop" in message(result, "GV110")


def test_an_operator_without_a_rule_is_named_as_its_library_does():
    operator = product("plain", None)
    assert (
        next(run for run in check(operator, X, W).rules if run.code == "GV110").reason
        == f"{LIBRARY}::plain declares no vmap rule"
    )
    assert (
        message(check(operator, X, W, vmap=True), "GV110")
        == f"the spec says `vmap: true`, but {LIBRARY}::plain declares no vmap rule"
    )
