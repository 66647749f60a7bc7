from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rules.functions import Right, X, Y, product, square
from rules.tricky import Expands, Packed, Scratch, Sum


# ---- GV212 gradient-metadata
@pytest.mark.parametrize(
    ("backward", "said"),
    [
        (lambda ctx, x, y, g: g * y, "returns 1 gradient, but forward has 2 arguments"),
        (
            lambda ctx, x, y, g: (g * y, g * x, g),
            "returns 3 gradients, but forward has 2 arguments",
        ),
        (
            lambda ctx, x, y, g: (g * y, (g * x).float()),
            "a float32 gradient for y, which is float64",
        ),
        (
            lambda ctx, x, y, g: ((g * y).t(), g * x),
            "a gradient of shape [3, 2] for x, which has [2, 3]",
        ),
        (
            lambda ctx, x, y, g: (g * y, (g * x).sum()),
            "a gradient of shape [] for y, which has [2, 3]",
        ),
        (lambda ctx, x, y, g: (g * y, 3.0), "returns 3.0 for y, which is no tensor"),
        (
            lambda ctx, x, y, g: ((g * y).to("meta"), g * x),
            "a gradient on meta for x, which is on cpu",
        ),
    ],
)
def test_a_wrong_number_dtype_shape_type_or_device_is_an_error(backward, said):
    result = check(product(backward), X, Y)
    assert (result.verdict, codes(result)) == ("fail", {"GV212"})
    assert said in message(result, "GV212")


def test_a_gradient_that_autograd_sums_down_is_a_warning():
    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bias):
            return x + bias

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output

    result = check(Adds, randn(3, 2), randn(2))
    assert [(found.code, found.severity, found.input) for found in result.findings] == [
        ("GV212", "warning", "bias")
    ]
    assert "autograd sums it down" in message(result, "GV212")
    assert result.verdict == "pass"
    assert check(Adds, randn(3, 2), randn(2), strict=True).verdict == "fail"


@pytest.mark.parametrize(
    "backward",
    [
        lambda ctx, x, y, g: (g * y, g * x),
        lambda ctx, x, y, g: (g * y, g * x, None),  # trailing Nones are allowed
        lambda ctx, x, y, g: ((g * y).t().contiguous().t(), g * x),
    ],
)
def test_what_autograd_takes_as_it_is_is_fine(backward):
    assert codes(check(product(backward), X, Y)) == set()


def test_a_function_inside_a_callable_is_seen_and_named():
    bad = square(lambda x, g: (2 * x * g).float())
    result = check(lambda x: bad.apply(x.sin()).sum(0), X)
    assert "GV212" in codes(result)
    assert "backward of Unary returns a float32 gradient for argument 0" in message(result, "GV212")


def test_an_argument_after_one_without_a_gradient_is_told_rightly():
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, factor, index, x):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return None, None, (grad_output * ctx.factor).float()

    assert "a float32 gradient for x, which is float64" in message(
        check(Scales, 2.0, torch.tensor([1]), X), "GV212"
    )


@pytest.mark.parametrize(
    "function",
    [square(lambda x, g: [2 * x * g]), product(lambda ctx, x, y, g: [g * y, g * x])],
    ids=["one", "two"],
)
def test_a_list_of_gradients_is_no_tuple_of_them(function):
    result = check(function, *(X, Y)[: 1 + (function.__name__ == "Product")])
    assert (result.verdict, codes(result)) == ("fail", {"GV212"})
    assert (
        "returns a list of" in message(result, "GV212")
        and "return a tuple" in result.findings[0].hint
    )


# ---- GV213 gradient-alias
BUFFER = torch.zeros(2, 3, dtype=torch.float64)


def doubles(gradient):
    """2x with a `gradient(ctx, grad_output)` that works without autograd."""

    class Doubles(Function):
        buffer = BUFFER.clone()

        @staticmethod
        def forward(ctx, x):
            ctx.own = torch.zeros_like(x)
            ctx.several = {"first": torch.zeros_like(x)}
            ctx.save_for_backward(torch.full_like(x, 2.0))
            return 2 * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            return gradient(ctx, grad_output)

    return Doubles


@pytest.mark.parametrize(
    ("gradient", "owner"),
    [
        (lambda ctx, g: torch.mul(g, 2, out=ctx.own), "ctx.own"),
        (lambda ctx, g: torch.mul(g, 2, out=ctx.several["first"]), "ctx.several"),
        (
            lambda ctx, g: torch.mul(g, 2, out=type(ctx)._forward_cls.buffer).view(-1).view(2, 3),
            "Doubles.buffer",
        ),
    ],
)
def test_a_buffer_of_the_functions_own_is_found_wherever_it_is_kept(gradient, owner):
    (found,) = (
        found for found in check(doubles(gradient), X).findings if found.severity == "error"
    )
    assert (found.code, found.severity, found.input) == ("GV213", "error", "x")
    assert (
        found.message
        == f"the gradient that backward of Doubles returns for x shares memory with {owner}"
    )


def test_a_shortcut_for_ones_is_found_by_ones():
    faulty = doubles(
        lambda ctx, g: ctx.saved_tensors[0] if (g == 1).all() else g * ctx.saved_tensors[0]
    )
    result = check(faulty, X)
    assert codes(result) == {"GV213"}
    assert "shares memory with saved tensor 0 for a grad_output of ones" in message(result, "GV213")
    assert torch.autograd.gradcheck(faulty.apply, X.clone().requires_grad_())


def test_an_argument_that_is_returned_is_named():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x * y).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return (
                (y.view_as(y), x.view_as(x))
                if grad_output == 1
                else (grad_output * y, grad_output * x)
            )

    assert [
        (found.code, found.input, "shares memory with" in found.message)
        for found in check(Weighted, X, Y).findings
    ] == [("GV213", "x", True), ("GV213", "y", True)]


def test_two_gradients_in_one_memory_are_a_warning():
    class Pair(Sum):
        @staticmethod
        def backward(ctx, grad_output):
            gradient = grad_output.clone()
            return gradient, gradient

    (found,) = check(Pair, X, Y).findings
    assert (found.code, found.severity) == ("GV213", "warning")
    assert "shares memory with the gradient for y" in found.message


@pytest.mark.parametrize("function", [Sum, Packed])
def test_grad_output_itself_and_chunks_of_one_buffer_may_be_returned(function):
    assert codes(check(function, X, Y)) == set()


def test_a_fresh_result_computed_with_scratch_is_fine():
    assert codes(check(Scratch, X)) == codes(check(Expands, X)) == set()


def test_where_one_backward_is_all_there_is_ones_get_a_graph_of_their_own():
    def once(ctx, g):
        if hasattr(ctx, "used"):
            raise RuntimeError("used")
        ctx.used = True
        return ctx.saved_tensors[0] if (g == 1).all() else g * ctx.saved_tensors[0]

    assert codes(check(doubles(once), X)) == {"GV213", "GV227"}


def test_what_ignores_grad_output_is_told_so_and_no_more():
    (run,) = (
        run
        for run in check(doubles(lambda ctx, g: ctx.saved_tensors[0]), X).rules
        if run.code == "GV213"
    )
    assert run.reason == "backward is not linear"


def test_sparse_gradients_have_no_such_memory():
    index = torch.tensor([0, 2])
    assert "GV213" not in codes(
        check(lambda w: torch.nn.functional.embedding(index, w, sparse=True), randn(4, 2))
    )


# ---- GV216 unused-backward
def bypass(shortcut):
    class Fast(Right):
        @classmethod
        def apply(cls, x):
            return shortcut(x)

    return Fast


@pytest.mark.parametrize(
    ("shortcut", "said"),
    [
        (torch.square, "PowBackward0"),
        (lambda x: x, "an input is returned as it is"),
        (Right.apply, "UnaryBackward"),
    ],
)
def test_another_way_around_backward_is_found(shortcut, said):
    result = check(bypass(shortcut), X)
    assert codes(result) == {"GV216"}
    assert said in message(result, "GV216")


def test_a_function_in_its_own_graph_is_fine_however_deep():
    class Deep(Right):
        @classmethod
        def apply(cls, x):
            return super().apply(x).sin().sum(0)

    assert codes(check(Deep, X)) == set()


def test_a_callable_promises_no_class():
    (run,) = (run for run in check(torch.square, X).rules if run.code == "GV216")
    assert run.status == "not_applicable"


# ---- GV217 integer-gradient
def scales(of_index, of_factor):
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor, of_index, of_factor

    return Scales


@pytest.mark.parametrize(
    ("of_index", "of_factor", "verdict", "said"),
    [
        (torch.zeros(2), None, "pass", "a gradient for index, which is a int64 tensor"),
        (None, torch.zeros(()), "fail", "a gradient for factor, which is a float"),
    ],
)
def test_a_gradient_for_what_has_none_is_found(of_index, of_factor, verdict, said):
    """Autograd drops that of a tensor, which is a warning, and raises for a plain value, which is
    an error."""
    result = check(scales(of_index, of_factor), randn(2), torch.tensor([0, 0]), 3.0)
    assert (result.verdict, codes(result)) == (verdict, {"GV217"})
    assert said in message(result, "GV217")


def test_after_a_gradient_for_an_integer_the_jacobian_is_judged():
    class Doubles(scales(torch.zeros(2), None)):
        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.factor, torch.zeros(2), None

    result = check(Doubles, randn(2), torch.tensor([0, 0]), 3.0)
    assert (result.verdict, codes(result)) == ("fail", {"GV217", "GV101"})


def test_none_is_right():
    assert codes(check(scales(None, None), randn(2), torch.tensor([0, 0]), 3.0)) == set()


def test_a_floating_tensor_that_needs_no_gradient_may_be_given_one():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    assert codes(check(Product, randn(2), fixed(randn(2, seed=1)))) == set()


# ---- GV221 empty
def test_a_backward_that_raises_on_nothing_is_found():
    result = check(square(lambda x, g: torch.stack([2 * row for row in x * g])), randn(0, 3))
    assert (result.verdict, codes(result)) == ("fail", {"GV221"})
    assert "x [0, 3]" in message(result, "GV221")


def test_a_gradient_that_is_not_zero_for_an_empty_output_is_found():
    class TakesNone(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index):
            ctx.shape = x.shape
            return x[index]

        @staticmethod
        def backward(ctx, grad_output):
            return torch.full(ctx.shape, 7.0, dtype=grad_output.dtype), None

    result = check(TakesNone, randn(3), torch.zeros(0, dtype=torch.int64))
    assert codes(result) == {"GV221"}
    assert "must be zero, but it holds 7" in message(result, "GV221")


@pytest.mark.parametrize(
    "function", [Right, torch.sin, lambda x: x.sum(), lambda x: (x * 2).sum(0)]
)
def test_right_functions_of_nothing_pass(function):
    result = check(function, randn(0, 3))
    assert (result.verdict, codes(result)) == ("pass", set())


def test_one_empty_input_of_two_is_checked_like_any_other():
    assert codes(check(lambda x, y: x.sum() + y, randn(0), randn(2))) == set()
    assert (
        codes(check(product(lambda ctx, x, y, g: (g * y, g * x)), randn(0, 3), randn(0, 3)))
        == set()
    )


def test_without_a_zero_size_it_does_not_apply():
    (run,) = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV221")
    assert (run.status, run.reason) == ("not_applicable", "the spec gives no zero size")


# ---- GV229 inert-input
# Inputs that forward forgot, and get zeros; inputs that are still where the check looks only (dead
# regions, bounds, a zero beside) are right.
def ignoring(gradient):
    """sin(x) of x and w, with `gradient(w)` for w."""

    class Ignores(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * x.cos(), gradient(w)

    return Ignores


def reading(forward):
    """`forward` of x and w, differentiated by torch inside a Function: all zeros are handed out as
    zeros."""

    class Reads(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            with torch.enable_grad():
                x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
                y = forward(x, w)
            found = torch.autograd.grad(y, (x, w), g, allow_unused=True)
            return tuple(
                torch.zeros_like(t) if gradient is None else gradient
                for t, gradient in zip((x, w), found, strict=True)
            )

    return Reads


W = torch.tensor([0.5, 1.5, 1.0], dtype=torch.float64)


def test_an_input_that_moves_nothing_and_gets_zeros_is_a_warning():
    result = check(ignoring(torch.zeros_like), X, W)
    assert (
        result.verdict,
        [(found.code, found.severity, found.input) for found in result.findings],
    ) == ("pass", [("GV229", "warning", "w")])
    assert (
        message(result, "GV229")
        == "w moves no output at any point looked at, and backward returns zeros for it"
    )


def test_a_parameter_too():
    ignores = ignoring(torch.zeros_like)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return ignores.apply(x, self.gain)

    assert [(found.code, found.input) for found in check(Layer, X, init={}).findings] == [
        ("GV229", "gain")
    ]


def test_none_says_honestly_that_there_is_no_gradient():
    assert codes(check(ignoring(lambda w: None), X, W)) == set()


STILL = {
    "a dead relu": (lambda x, w: x.sin() + w.clamp_min(0), -W),
    "a dead relu of one number": (
        lambda x, w: x.sin() + w.clamp_min(0),
        torch.tensor([-0.3], dtype=torch.float64),
    ),
    "an upper bound that clamps nothing": (lambda x, w: torch.minimum(x, w), 50 * W),
    "a lower bound that clamps nothing": (lambda x, w: torch.maximum(x, w), -50 * W),
    "a threshold far away": (lambda x, w: torch.where(w > -100, x.sin(), x.cos()), W),
    "rounded": (lambda x, w: x.sin() + w.round(), W),
    "its sign only": (lambda x, w: x * w.sign(), W),
}


@pytest.mark.parametrize("name", STILL)
def test_an_input_that_is_still_here_only_is_left_alone(name):
    forward, w = STILL[name]
    assert "GV229" not in codes(check(reading(forward), X, w, second_order=False))


def test_the_first_factor_of_a_product_whose_second_starts_at_zero_moves_elsewhere():
    """An adapter (x A) B with B = 0, as they all start."""
    adapter = reading(lambda a, b: randn(5, 4) @ a @ b)
    result = check(adapter, randn(4, 2), torch.zeros(2, 3, dtype=torch.float64), second_order=False)
    assert "GV229" not in codes(result)


def test_where_every_gradient_is_zero_that_is_said_once():
    dead = reading(lambda x, w: x.clamp_min(0) * 1.0 + w.detach().clamp_min(0))
    assert codes(check(dead, -X.abs(), -W, second_order=False)) == {"GV009"}


def test_empty_tensors_indices_and_torchs_own_operators_are_not_for_this_rule():
    run = {
        name: next(run for run in check(*call).rules if run.code == "GV229")
        for name, call in (
            ("own", (lambda x, w: x.sin() + 0 * w, X, W)),
            ("empty", (reading(lambda x, w: x[:, :0] * w[:0]), X, W[:0])),
        )
    }
    assert run["own"].reason == "no custom Function is in the graph"
    assert run["empty"].reason == "the spec asks for an empty tensor"
    assert "GV229" not in codes(
        check(
            lambda x, i: ignoring(torch.zeros_like).apply(x, W)[i], X, fixed(torch.tensor([0, 1]))
        )
    )


def widened(forward, grads):
    class Op(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return grads(x, w, g)

    return Op


def softmax_gradients(x, w, g):
    y = x.softmax(-1)
    u = g * w
    return y * (u - (u * y).sum(-1, keepdim=True)), (g * y).reshape(-1, len(w)).sum(0)


@pytest.mark.parametrize("shape", [(1,), (7, 1), (2, 1, 1)])
def test_a_softmax_over_one_element_is_still_because_of_its_size(shape):
    assert (
        check(
            widened(lambda x, w: x.softmax(-1) * w, softmax_gradients),
            randn(*shape),
            randn(1, seed=1),
        ).findings
        == ()
    )


@pytest.mark.parametrize("shape", [(1,), (3, 1), (1, 4)])
def test_an_input_of_one_element_that_is_forgotten_is_a_warning_all_the_same(shape):
    forgets = widened(
        lambda x, w: w.tanh() + 0 * x.detach().sum(),
        lambda x, w, g: (torch.zeros_like(x), g * (1 - w.tanh() ** 2)),
    )
    assert codes(check(forgets, randn(*shape), randn(5, seed=1))) == {"GV229"}
