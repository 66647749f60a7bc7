from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gallery.twins import twins
from live import check, codes, fixed, message, randn
from torch import Tensor
from torch.autograd import Function

Faulty, Right = twins("jvp_forgets_a_tangent")
X, Y = randn(2, 3), randn(2, 3, seed=1)


def product(jvp: Callable[..., Any], *, materialize: bool = True) -> type[Function]:
    """x · y whose jvp is `jvp(x, y, x_t, y_t)`."""

    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return (
                (None, None)
                if grad_output is None
                else (grad_output * y.conj(), grad_output * x.conj())
            )

        @staticmethod
        def jvp(ctx, x_t, y_t):
            return jvp(*ctx.saved_tensors, x_t, y_t)

    return Product


def with_none(x: Tensor, y: Tensor, x_t: Tensor | None, y_t: Tensor | None) -> Tensor:
    terms = [*([] if x_t is None else [x_t * y]), *([] if y_t is None else [x * y_t])]
    return sum(terms[1:], terms[0])


def one_element_off(x: Tensor, y: Tensor, x_t: Tensor, y_t: Tensor) -> Tensor:
    right = x_t * y + x * y_t
    right[1, 2] *= 1 + 1e-6
    return right


WRONG = {
    "a term is missing": lambda x, y, x_t, y_t: x_t * y,
    "its sign": lambda x, y, x_t, y_t: x_t * y - x * y_t,
    "a factor": lambda x, y, x_t, y_t: 2 * (x_t * y + x * y_t),
    "factors swapped": lambda x, y, x_t, y_t: x_t * x + y * y_t,
    "ignores the tangents": lambda x, y, x_t, y_t: x + y,
    "their size": lambda x, y, x_t, y_t: x_t.abs() * y + x * y_t.abs(),
    "clipped": lambda x, y, x_t, y_t: x_t.clamp(-1, 1) * y + x * y_t.clamp(-1, 1),
    "a product of tangents too much": lambda x, y, x_t, y_t: x_t * y + x * y_t + x_t * y_t,
    "float32 inside": lambda x, y, x_t, y_t: (
        x_t.float() * y.float() + x.float() * y_t.float()
    ).double(),
    "one element by one in a million": one_element_off,
    "not a number": lambda x, y, x_t, y_t: (x_t * y + x * y_t) * torch.nan,
}


@pytest.mark.parametrize("jvp", WRONG.values(), ids=WRONG)
def test_a_wrong_jvp_is_found(jvp):
    result = check(product(jvp), X, Y, select=("GV101", "GV108"))
    assert (result.verdict, codes(result)) == ("fail", {"GV108"})


def test_a_small_output_beside_large_ones_is_weighed_like_them():
    scales = torch.tensor([1e8, 1e-8, 1.0], dtype=torch.float64)

    class Scaled(Function):
        wrong = 1.0

        @staticmethod
        def forward(ctx, x):
            return x * scales.to(x.dtype)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * scales.to(grad_output.dtype)

        @classmethod
        def jvp(cls, ctx, x_t):
            return x_t * scales * torch.tensor([1.0, cls.wrong, 1.0], dtype=torch.float64)

    class Wrong(Scaled):
        wrong = 1.001

    assert codes(check(Scaled, randn(3))) == set()
    assert "d y0[1] / d x[1] is 1.001e-08 by jvp, but 1e-08 by backward" in message(
        check(Wrong, randn(3)), "GV108"
    )


def test_a_jvp_that_cannot_do_without_a_tangent_is_found_by_each_input_alone():
    blunt = product(lambda x, y, x_t, y_t: x_t * y + x * y_t, materialize=False)
    said = message(check(blunt, X, Y), "GV108")
    assert said.startswith("with a tangent for x alone, in forward mode forward raised TypeError")
    silent = product(
        lambda x, y, x_t, y_t: x * 0 if x_t is None or y_t is None else x_t * y + x * y_t,
        materialize=False,
    )
    assert [found.input for found in check(silent, X, Y).findings] == ["x", "y"]


def test_writing_into_a_tangent_is_found():
    written = product(lambda x, y, x_t, y_t: x_t.mul_(y) + x * y_t)
    assert message(check(written, X, Y), "GV108") == "jvp writes into the tangent of x"


def test_a_declared_jvp_that_raises_is_found_and_shown():
    def raising(x, y, x_t, y_t):
        raise ValueError("no tangents today")

    (found,) = check(product(raising), X, Y).findings
    assert found.code == "GV108"
    assert (
        "jvp is declared, but in forward mode forward raised ValueError: no tangents today"
        in found.message
    )
    assert [frame.function for frame in found.frames] == ["jvp", "raising"]


class Shifted(Function):
    """x + 1 in place, whose jvp must work in place too."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output

    @staticmethod
    def jvp(ctx, x_t):
        return x_t.mul_(1)


class Largest(Function):
    """The largest of each row and where it is, with setup_context and an output that is not
    differentiable."""

    @staticmethod
    def forward(x):
        return x.max(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (place,) = ctx.saved_tensors
        return grad_output.new_zeros(ctx.shape).scatter(
            -1, place[..., None], grad_output[..., None]
        )

    @staticmethod
    def jvp(ctx, x_t):
        (place,) = ctx.saved_tensors
        return x_t.gather(-1, place[..., None])[..., 0], None


class Ramp(Function):
    """max(x, 0), whose jvp takes the other slope at 0 than backward: both are right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (ctx.saved_tensors[0] > 0)

    @staticmethod
    def jvp(ctx, x_t):
        return x_t * (ctx.saved_tensors[0] >= 0)


class Dropped(Function):
    """Dropout of one half, with a mask of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = (torch.rand_like(x) > 0.5) * 2
        return x * ctx.mask

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.mask

    @staticmethod
    def jvp(ctx, x_t):
        return x_t * ctx.mask


RIGHT = {
    "product rule": (product(lambda x, y, x_t, y_t: x_t * y + x * y_t), (X, Y)),
    "tangents that may be None": (product(with_none, materialize=False), (X, Y)),
    "one input fixed": (Right, (X, fixed(Y))),
    "complex": (
        product(with_none, materialize=False),
        (randn(3, dtype=torch.complex128), randn(3, dtype=torch.complex128, seed=1)),
    ),
    "in place": (Shifted, (X,)),
    "another output is an index": (Largest, (X,)),
    "a kink": (Ramp, (torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64),)),
    "random": (Dropped, (X,)),
    "gradients that are rounding": (lambda x: (Right.apply(x, Y).softmax(-1)).sum(-1), (X,)),
}


@pytest.mark.parametrize("function, inputs", RIGHT.values(), ids=RIGHT)
def test_a_right_jvp_is_spared(function, inputs):
    result = check(function, *inputs, dtype=str(inputs[0].dtype).removeprefix("torch."))
    (run,) = (run for run in result.rules if run.code == "GV108")
    assert (codes(result) - {"GV009"}, run.status) == (set(), "ran")


def test_a_ramp_with_a_slope_outside_its_two_is_found():
    class Steep(Ramp):
        @staticmethod
        def jvp(ctx, x_t):
            return (
                x_t * (ctx.saved_tensors[0] >= 0) * torch.where(ctx.saved_tensors[0] == 0, 1.5, 1.0)
            )

    assert "d y0[1] / d x[1] is 1.5 by jvp" in message(
        check(Steep, torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)), "GV108"
    )


def ran(result: Any) -> Any:
    (run,) = (run for run in result.rules if run.code == "GV108")
    return run


def test_without_a_jvp_it_says_so_and_forward_ad_true_makes_that_a_finding():
    class Bare(Function):
        forward, backward = Right.forward, Right.backward

    assert ran(check(Bare, X, Y)).reason == "Bare declares no jvp"
    assert (
        message(check(Bare, X, Y, forward_ad=True), "GV108")
        == "the spec says `forward_ad: true`, but Bare declares no jvp"
    )
    assert ran(check(Faulty, X, Y, forward_ad=False)).reason == "the spec says `forward_ad: false`"


def test_an_operator_of_torch_without_forward_mode_is_not_applicable_unless_it_must():
    def index_reduce(x, source):
        return x.index_reduce(0, torch.tensor([0, 1]), source, "mean")

    assert "Trying to use forward AD with index_reduce" in ran(check(index_reduce, X, Y)).reason
    assert "the spec says `forward_ad: true`" in message(
        check(index_reduce, X, Y, forward_ad=True), "GV108"
    )


# ---- a route that rounds larger numbers than its derivative: right, but to fewer digits than the
# other
def log_cosh(
    slope: Callable[[Tensor], Tensor], tangent: Callable[[Tensor], Tensor]
) -> type[Function]:
    """Backward by one formula of tanh, jvp by another."""

    class LogCosh(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - math.log(2)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * slope(*ctx.saved_tensors)

        @staticmethod
        def jvp(ctx, x_t):
            return x_t * tangent(*ctx.saved_tensors)

    return LogCosh


def cancelling(x: Tensor) -> Tensor:
    """tanh, in steps of the rounding of 1."""
    return 1 - 2 / (1 + torch.exp(2 * x))


SMALL = [
    torch.tensor([1e-9]),
    torch.tensor([3e-9, -4e-8, 7e-7]),
    10 ** -(6 + 4 * torch.rand(3, 5, generator=torch.Generator().manual_seed(3))),
]


@pytest.mark.parametrize("x", [x.double() for x in SMALL], ids=["one", "three", "fifteen"])
@pytest.mark.parametrize(
    "routes",
    [(torch.tanh, cancelling), (cancelling, torch.tanh)],
    ids=["jvp cancels", "backward cancels"],
)
def test_what_one_of_two_right_routes_rounds_away_is_no_disagreement(routes, x):
    assert "GV108" not in codes(check(log_cosh(*routes), x, select=("GV108",)))


@pytest.mark.parametrize("factor", [1 + 1e-6, 0.0, -1.0])
def test_a_jvp_that_is_off_by_more_than_that_is_found(factor):
    for slope in (torch.tanh, cancelling):
        assert "GV108" in codes(
            check(log_cosh(slope, lambda x: factor * torch.tanh(x)), randn(3, 2), select=("GV108",))
        )
