from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gallery.twins import load
from live import check, codes, fixed, message, randn
from torch import Tensor
from torch.autograd import Function

from rules.functions import Right, X, square
from rules.tricky import InPlace

# ---- GV110 vmap
LEFT, W = randn(4, 3), randn(2, 3, seed=1)
FLIPPED = torch.tensor([0, 2, 1])


class Linear(Function):
    """x @ w.T; what subclasses change is the vmap rule."""

    @staticmethod
    def forward(x, w):
        return x @ w.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return (grad_output @ w.conj()).sum_to_size(x.shape), (
            grad_output.mT @ x.conj()
        ).sum_to_size(w.shape)


def first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def ruled(rule: Callable[..., Any]) -> type[Function]:
    """Linear with `rule(apply, info, in_dims, x, w)`."""

    class Ruled(Linear):
        @staticmethod
        def vmap(info, in_dims, x, w):
            return rule(Ruled.apply, info, in_dims, x, w)

    return Ruled


def right(apply, info, in_dims, x, w):
    return apply(first(x, in_dims[0], info.batch_size), first(w, in_dims[1], info.batch_size)), 0


WRONG = {
    "every argument along 0": lambda apply, info, in_dims, x, w: (apply(x, w), 0),
    "examples in another order": lambda apply, info, in_dims, x, w: (
        right(apply, info, in_dims, x, w)[0][FLIPPED],
        0,
    ),
    "only the first example": lambda apply, info, in_dims, x, w: (
        right(apply, info, in_dims, x, w)[0][:1].expand(info.batch_size, 4, 2),
        0,
    ),
    "out_dims": lambda apply, info, in_dims, x, w: (right(apply, info, in_dims, x, w)[0], 1),
    "a factor": lambda apply, info, in_dims, x, w: (2 * right(apply, info, in_dims, x, w)[0], 0),
    "no graph": lambda apply, info, in_dims, x, w: (
        right(apply, info, in_dims, x, w)[0].detach(),
        0,
    ),
    "no graph to the weight": lambda apply, info, in_dims, x, w: (
        right(apply, info, in_dims, x, w.detach())[0],
        0,
    ),
}
RAISES = ruled(lambda apply, info, in_dims, x, w: (apply(x, w).item(), 0))


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_a_wrong_vmap_rule_is_found(rule):
    result = check(ruled(rule), LEFT, W)
    assert (result.verdict, codes(result)) == ("fail", {"GV110"})
    assert message(result, "GV110").startswith("with in_dims (")


def test_a_gradient_is_compared_too():
    said = message(check(ruled(WRONG["no graph to the weight"]), LEFT, W), "GV110")
    assert re.search(r"grad_w\[\d,\d\] of example \d is 0, but ", said)


class Masks(Function):
    """relu² by a boolean index, whose generated rule raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        y, kept = torch.zeros_like(x), x > 0
        y[kept] = x[kept] ** 2
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0].clamp_min(0) * grad_output


class Branches(Linear):
    """A branch on a value: control flow that vmap cannot follow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x @ w.mT if x.sum() > -1e9 else x.new_zeros(4, 2)


LOUD = {
    "by hand": (RAISES, (LEFT, W)),
    "a boolean mask": (Masks, (LEFT,)),
    "a branch": (Branches, (LEFT, W)),
    "a number": (load("vmap_rule_reads_a_number").Faulty, (LEFT, fixed(W))),
}


@pytest.mark.parametrize("function, inputs", LOUD.values(), ids=LOUD)
def test_a_rule_that_raises_is_a_warning_as_the_caller_is_told(function, inputs):
    result = check(function, *inputs)
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == (
        "pass",
        [("GV110", "warning")],
    )
    assert "the vmapped call raised" in message(result, "GV110")
    must = check(function, *inputs, vmap=True)
    assert (must.verdict, codes(must)) == ("fail", {"GV110"})


def test_wrong_numbers_are_an_error_though_another_choice_of_in_dims_raises():
    def rule(apply, info, in_dims, x, w):
        if in_dims[1] is not None:
            raise NotImplementedError("a batched weight")
        return 2 * right(apply, info, in_dims, x, w)[0], 0

    (found,) = check(ruled(rule), LEFT, W).findings
    assert (found.severity, found.message.startswith("with in_dims (-1, None) y0[")) == (
        "error",
        True,
    )


def test_a_function_that_declares_a_rule_and_has_no_setup_context_is_found():
    class Old(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * ctx.saved_tensors[0] * grad_output

    assert "setup_context" in message(check(Old, LEFT), "GV110")


class Generated(Linear):
    generate_vmap_rule = True


class Gather(Function):
    """Rows by an integer index, in all combinations of what is batched."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table, index):
        return table.index_select(0, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])
        ctx.rows = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        return grad_output.new_zeros(ctx.rows).index_add(0, index, grad_output), None


class Normalised(Function):
    """Its gradient is rounding throughout where it is summed, and its value too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x - x.mean(-1, keepdim=True)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        whole = grad_output[..., None].expand(ctx.shape)
        return whole - whole.mean(-1, keepdim=True)


class Logarithm(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        if (
            not torch.compiler.is_compiling()
            and not torch._C._functorch.is_batchedtensor(x)
            and bool((x > 2).any())
        ):
            raise ValueError("x must be at most 2")
        return x.log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / ctx.saved_tensors[0]


class Both(Function):
    """Two outputs, one of them not differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x, x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output, _):
        return 2 * ctx.saved_tensors[0] * grad_output


RIGHT = {
    "a rule": (ruled(right), (LEFT, W)),
    "a rule in float32": (ruled(right), (LEFT.float(), W.float())),
    "a generated rule": (Generated, (LEFT, W)),
    "complex": (
        Generated,
        (randn(4, 3, dtype=torch.complex128), randn(2, 3, seed=1, dtype=torch.complex128)),
    ),
    "one input fixed": (Generated, (LEFT, fixed(W))),
    "integers": (Gather, (LEFT, torch.tensor([3, 0, 3]))),
    "rounding throughout": (Normalised, (LEFT,)),
    "another output": (Both, (LEFT,)),
    "0-dim": (Both, (torch.tensor(1.5, dtype=torch.float64),)),
    "defined near x only": (Logarithm, (torch.tensor([1.9, 1.5], dtype=torch.float64),)),
}


@pytest.mark.parametrize("function, inputs", RIGHT.values(), ids=RIGHT)
def test_a_right_rule_is_spared(function, inputs):
    result = check(
        function,
        *inputs,
        dtype=str(inputs[0].dtype).removeprefix("torch."),
        select=("GV110",),
        ignore=("GV0",),
    )
    assert (codes(result), ran(result).status) == (set(), "ran")
    assert ran(result).calls.batched > 0


def ran(result: Any) -> Any:
    (run,) = (run for run in result.rules if run.code == "GV110")
    return run


def test_without_a_rule_it_says_so_and_vmap_true_makes_that_a_finding():
    assert ran(check(Linear, LEFT, W)).reason == "Linear declares no vmap rule"
    assert (
        message(check(Linear, LEFT, W, vmap=True), "GV110")
        == "the spec says `vmap: true`, but Linear declares no vmap rule"
    )
    assert (
        ran(check(ruled(WRONG["a factor"]), LEFT, W, vmap=False)).reason
        == "the spec says `vmap: false`"
    )


def test_torchs_own_operators_are_left_to_torch_unless_the_spec_says_otherwise():
    assert ran(check(torch.sin, LEFT)).reason.startswith("no custom Function is in the graph")
    assert ran(check(torch.sin, LEFT, vmap=True)).status == "ran"
    assert "the vmapped call raised" in message(
        check(
            lambda x: x * float(x.detach().sum()) / float(x.detach().sum()),
            LEFT,
            vmap=True,
            select=("GV110",),
            ignore=("GV0",),
        ),
        "GV110",
    )


class Drops(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        mask = torch.rand_like(x) > 0.5
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        return grad_output * ctx.saved_tensors[0]


class InPlaceVmapped(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.mul_(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(output)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


@pytest.mark.parametrize(
    "function, reason",
    [
        (Drops, "the function draws random numbers"),
        (InPlaceVmapped, "the function writes into its inputs"),
    ],
)
def test_what_vmap_cannot_be_compared_on_is_said(function, reason):
    result = check(function, LEFT)
    assert (codes(result), ran(result).reason) == (set(), reason)


@pytest.mark.parametrize("apart", [False, True])
def test_a_generated_rule_counts_an_output_that_examples_share_for_each_of_them(apart):
    """Torch's own mistake, against a loop: gradients of exp(x), beside an output that y reaches,
    where y alone is batched."""

    class Both(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return x * y.sin(), x.exp() + (y if apart else 0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, a, b):
            x, y = ctx.saved_tensors
            return a * y.sin() + b * x.exp(), a * x * y.cos() + (b if apart else 0)

    result = check(Both, randn(3), randn(3, seed=1))
    assert codes(result) == (set() if apart else {"GV110"})
    assert all("torch's generated rule counts" in finding.hint for finding in result.findings)


# ---- GV228 unbatchable
# Backwards that ask a batch of cotangents for a number, write it into a tensor without one, or give
# others; what torch cannot batch is none.
def vectorized(function, x):
    """torch's own batched Jacobian."""
    return torch.autograd.functional.jacobian(function.apply, x, vectorize=True)


def written(x, g):
    gradient = torch.zeros_like(x)
    gradient += 2 * x * g
    return gradient


def indexed(x, g):
    return torch.zeros_like(x).index_add_(0, torch.arange(len(x)), 2 * x * g)


def sliced(x, g):
    gradient = torch.empty_like(x)
    gradient[:, :2] = (2 * x * g)[:, :2]
    gradient[:, 2:] = (2 * x * g)[:, 2:]
    return gradient


ASKS = {
    ".item()": lambda x, g: 2 * x * g * (1 if g.abs().max().item() >= 0 else 0),
    "float()": lambda x, g: 2 * x * g * (1 if float(g.abs().max()) >= 0 else 0),
    "if": lambda x, g: 2 * x * g if g.abs().sum() >= 0 else x,
    "any": lambda x, g: 2 * x * g if g.any() else torch.zeros_like(x),
    "equal": lambda x, g: torch.zeros_like(x) if torch.equal(g, torch.zeros_like(g)) else 2 * x * g,
}
FINE = {
    "out of place": lambda x, g: 2 * x * g,
    "into zeros like grad_output": lambda x, g: torch.zeros_like(g).add_(2 * x * g),
    "a copy of grad_output in place": lambda x, g: g.clone().mul_(2 * x),
    "a question to its shape": lambda x, g: (
        2 * x * g if g.shape == x.shape and g.numel() > 0 else x
    ),
    "rows one by one": lambda x, g: torch.stack([2 * x[i] * g[i] for i in range(len(g))]),
    "views": lambda x, g: (2 * x.reshape(-1) * g.reshape(-1)).reshape(x.shape),
    "a mask of x": lambda x, g: torch.where(x > 0, 2 * x * g, 2 * x * g),
    "a question to x": lambda x, g: 2 * x * g if float(x.abs().max()) > 0 else g,
}
CANNOT = {
    "einsum": lambda x, g: 2 * torch.einsum("ij,ij->ij", x, g),
    "numpy": lambda x, g: torch.from_numpy(2 * x.detach().numpy() * g.detach().numpy()),
    "the memory itself": lambda x, g: 2 * x * g if g.data_ptr() else x,
    "rows added in their places": indexed,
    "a slice in its place": sliced,
    "random numbers": lambda x, g: 2 * x * g + 0 * torch.rand(2, 3, dtype=g.dtype),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_number_out_of_grad_output_is_a_warning(name):
    function = square(ASKS[name])
    with pytest.raises(RuntimeError, match="aten::"):
        vectorized(function, X)
    result = check(function, X, second_order=False)
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == (
        "pass",
        [("GV228", "warning")],
    )
    assert "(is_grads_batched): it asks grad_output for a number" in message(result, "GV228")


def test_a_batch_written_into_one_tensor_is_a_warning():
    with pytest.raises(RuntimeError, match="vmap"):
        vectorized(square(written), X)
    result = check(square(written), X)
    assert codes(result) == {"GV228"}
    assert "(is_grads_batched): it writes them in place (" in message(result, "GV228")


@pytest.mark.parametrize("name", FINE)
def test_what_can_be_batched_is_left_alone(name):
    function = square(FINE[name])
    assert torch.equal(
        vectorized(function, X), torch.autograd.functional.jacobian(function.apply, X)
    )
    assert codes(check(function, X, second_order=False)) == set()


@pytest.mark.parametrize("name", CANNOT)
def test_what_torch_has_no_batching_rule_for_is_no_finding_and_said(name):
    function = square(CANNOT[name])
    with pytest.raises(RuntimeError):
        vectorized(function, X)
    result = check(function, X, second_order=False)
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV228")
    assert run.status == "not_applicable" and run.reason.startswith(
        "a batched backward raised RuntimeError: "
    )


def test_wrong_numbers_for_a_batch_are_a_warning():
    """A backward that takes every tensor with a dimension more for a batch of its own."""

    class Mixes(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            batched = (
                torch._C._functorch.is_batchedtensor(g)
                if hasattr(torch._C, "_functorch")
                else False
            )
            return 2 * x * g * (3 if batched or "Batched" in str(torch._C._dispatch_keys(g)) else 1)

    assert not torch.equal(vectorized(Mixes, X), vectorized(Right, X))
    result = check(Mixes, X)
    assert codes(result) == {"GV228"}
    assert "of batched cotangents (is_grads_batched) the gradient at x[" in message(result, "GV228")


def test_where_it_cannot_say_anything_it_says_why():
    reasons = {
        name: next(run for run in check(function, *inputs).rules if run.code == "GV228").reason
        for name, function, inputs in (
            ("torch's own", torch.sin, (X,)),
            ("in place", InPlace, (X,)),
            ("random", lambda x: Right.apply(torch.nn.functional.dropout(x)), (X,)),
            ("wrong", square(lambda x, g: x * g), (X,)),
        )
    }
    assert reasons == {
        "torch's own": "no custom Function is in the graph",
        "in place": "the function writes into its inputs",
        "random": "the function draws random numbers",
        "wrong": "GV101 has to be repaired first",
    }


@pytest.mark.parametrize("way", ["while", "break", "break below"])
def test_a_solver_that_asks_whether_to_go_on_is_left_alone(way):
    """The inverse of 2 by Richardson's iteration: conjugate gradients in the backward of an
    implicit function do the same."""

    def solved(g, rest):
        if way == "while":
            while rest.abs().max() > 1e-14 * g.abs().max():
                g, rest = g + rest, rest / 2
            return g
        for _ in range(200):
            if way == "break":
                if rest.abs().max() <= 1e-14 * g.abs().max():
                    break
            elif rest.abs().max() <= 1e-14 * g.abs().max():
                break
            g, rest = g + rest, rest / 2
        return g

    result = check(
        square(lambda x, g: x * solved(g, g / 2)), X, second_order=False, select=("GV101", "GV228")
    )
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV228")
    assert run.reason == (
        "backward iterates until grad_output has converged, which each cotangent does in its "
        "own time"
    )
