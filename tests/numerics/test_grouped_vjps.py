"""Many VJPs in one batched backward are those of plain ones; whatever cannot be batched, or not
rightly, is pulled back one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from live import subject
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from gradverify.model.result import Calls
from gradverify.numerics.grouped_vjps import gradients
from gradverify.oracles.finite_difference import Filled
from gradverify.subject.damage import Damaged
from gradverify.subject.differentiable import Differentiable
from numerics.differentiable import DOUBLE, normal
from numerics.differentiable import Differentiable as Plain
from numerics.windows import point_of

ROWS, WIDTH = 3, 4
X, W = normal(1, ROWS, WIDTH), normal(2, WIDTH, 5)


def live(function, *inputs, checked=(0,), damage=None):
    """The subject, and the point around it."""
    made = subject(function, *inputs)
    return made, point_of(
        Filled(Differentiable(made, checked) if damage is None else Damaged(made, checked, damage))
    )


def each(m):
    """A one-hot cotangent for each of m outputs, then one of two outputs together."""
    return [(np.array([j]), np.ones(1)) for j in range(m)] + [
        (np.array([1, m - 1]), np.array([0.9, -1.3]))
    ]


def rows(jacobian):
    """What `each` pulls back through a Jacobian [m, n]."""
    return np.vstack([jacobian, 0.9 * jacobian[1] - 1.3 * jacobian[-1]])


# ---- torch's own operators
def jacobian(function, *inputs):
    """By forward mode, [outputs, inputs]."""
    parts = torch.func.jacfwd(function, tuple(range(len(inputs))))(*inputs)
    return torch.cat(
        [part.reshape(-1, x.numel()) for part, x in zip(parts, inputs, strict=True)], 1
    ).numpy()


OPERATORS = {
    "softmax": (lambda x: torch.softmax(x, -1), [X]),
    "several": (lambda x, w: F.layer_norm(torch.softmax(x, -1) @ w, (5,)), [X, W]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_of_torchs_own_operators_are_those_of_the_closed_form_and_are_counted_as_batched(name):
    function, inputs = OPERATORS[name]
    made, point = live(function, *inputs)
    m = len(point.f0)
    found = gradients(point, 0, each(m))
    np.testing.assert_allclose(found, rows(jacobian(function, *inputs)), rtol=0, atol=1e-13)
    assert point.batched is True
    # The point is of the graph; one plain backward to check the first
    assert made.calls == Calls(forward=1, backward=1 + m + 1, batched=m + 1)
    assert point.backward == 1 + m + 1


# ---- custom Functions
def seen_by(function):
    """A Function like `function`, and the cotangents that its backward sees."""
    seen = []

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(grad_output)
            return grad_output * ctx.saved_tensors[0].cos()

    return Sine.apply, seen


PLACES = {
    "alone": lambda f, x: f(x),
    "before torch's own": lambda f, x: 2 * f(x) + 0,
    "after torch's own": lambda f, x: f(x * 1) * 2 - f(x),
    "recomputed": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "deep inside": lambda f, x: (f(x.T.contiguous() * 1).T * 1).reshape(ROWS, WIDTH),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_backward_of_a_function_anywhere_in_the_graph_sees_plain_tensors_of_the_plain_shape_only(
    name,
):
    sine, seen = seen_by(torch.sin)
    made, point = live(lambda x: PLACES[name](sine, x), X)
    found = gradients(point, 0, each(X.numel()))
    factor = 2.0 if name == "before torch's own" else 1.0
    np.testing.assert_allclose(found, rows(np.diag(factor * X.cos().flatten().numpy())), atol=1e-15)
    assert (point.batched, made.calls.batched) == (False, 0)
    assert made.calls.backward == X.numel() + 1
    assert seen and all(tuple(g.shape) in {(ROWS, WIDTH), (WIDTH, ROWS)} for g in seen)
    assert not any(
        torch._C._functorch.is_batchedtensor(g)
        or torch._C._functorch.is_functorch_wrapped_tensor(g)
        for g in seen
    )


# ---- what cannot be batched
class Offers(Plain):
    """Torch's own gradient one by one, and `many` made of those where many are requested; `batches`:
    how many at a time."""

    def __init__(self, forward, *inputs, many):
        super().__init__(forward, *inputs)
        self.many, self.batches, self.wanted = many, [], []

    def vjps(self, output, cotangents, wanted):
        self.batches.append(len(cotangents))
        self.wanted.append(list(wanted))
        found = [
            Plain(self.forward, *self.inputs).vjp(
                [v if k == output else None for k in range(self.outputs)]
            )
            for v in cotangents
        ]
        many = self.many([torch.stack(own) for own in zip(*found, strict=True)])
        return None if many is None else [many[i] for i in wanted]

    @property
    def outputs(self):
        return len(self._outputs(self.inputs))


def another_row(grads):
    return [g.roll(1, 0) for g in grads]


WRONG = {
    "none": lambda grads: None,
    "all zero": lambda grads: [g * 0 for g in grads],
    "wrong by a millionth": lambda grads: [g * (1 + 1e-6) for g in grads],
    "another cotangent's": another_row,
    "not a number": lambda grads: [g * float("nan") for g in grads],
    "the last input's only": lambda grads: [g * (n == len(grads) - 1) for n, g in enumerate(grads)],
}


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_are_missing_or_are_not_those_of_a_plain_backward_are_thrown_away(name):
    function = Offers(torch.matmul, X, W, many=WRONG[name])
    point = point_of(function)
    found = gradients(point, 0, each(15))
    np.testing.assert_allclose(found, rows(jacobian(torch.matmul, X, W)), rtol=1e-15)
    one_by_one = [
        torch.cat(
            [g.flatten() for g in Plain(torch.matmul, X, W).vjp([v.reshape(ROWS, 5)])]
        ).numpy()
        for v in torch.eye(15, dtype=DOUBLE)
    ]
    assert np.array_equal(found[:15], one_by_one)
    assert (point.batched, function.batches) == (False, [16])
    gradients(point, 0, each(15))
    assert function.batches == [16]  # nobody calls again
    # The one that they were held against
    assert function.backwards == 2 * 16 + (name != "none")


def twice_from_the_second_on(grads):
    return [torch.cat([g[:1], 2 * g[1:]]) for g in grads]


def test_a_batch_that_is_right_for_its_first_cotangent_only_is_thrown_away():
    point = point_of(Offers(torch.matmul, X, W, many=twice_from_the_second_on))
    found = gradients(point, 0, each(15))
    np.testing.assert_allclose(found, rows(jacobian(torch.matmul, X, W)), rtol=1e-15)
    assert point.batched is False


def test_a_batch_is_checked_for_every_output():
    class Second(Offers):
        def vjps(self, output, cotangents, wanted):
            return [(1 + output) * g for g in super().vjps(output, cotangents, wanted)]

    point = point_of(Second(lambda x: (x.sin(), x.exp()), X, many=lambda grads: grads))
    gradients(point, 0, each(12))
    assert point.batched is True
    np.testing.assert_allclose(
        gradients(point, 1, each(12)), rows(np.diag(X.exp().flatten().numpy())), rtol=1e-15
    )
    assert point.batched is False


def test_a_batch_is_checked_for_every_input():
    point = point_of(Offers(torch.matmul, X, W, many=lambda grads: [grads[0], 2 * grads[1]]))
    gradients(point, 0, each(15), [0])
    assert point.batched is True
    own = slice(point.starts[1], point.starts[2])
    np.testing.assert_allclose(
        gradients(point, 0, each(15), [1])[:, own],
        rows(jacobian(torch.matmul, X, W))[:, own],
        rtol=1e-15,
    )
    assert point.batched is False


def test_an_infinite_gradient_hides_no_wrong_one_beside_it():
    x = torch.cat([torch.zeros(1, dtype=DOUBLE), normal(1, 11).abs()])
    point = point_of(
        Offers(
            torch.sqrt,
            x,
            many=lambda grads: [torch.where(g.isinf() | g.isnan(), g, 2 * g) for g in grads],
        )
    )
    found = gradients(point, 0, each(12))
    np.testing.assert_allclose(found[5, 5], 0.5 / x[5].sqrt(), rtol=1e-15)
    assert np.isinf(found[0, 0]) and point.batched is False


def test_a_hook_that_looks_into_the_gradient_gets_plain_ones():
    """At most a half gets through it."""
    x, seen = normal(3, 12), []

    def half(grad):
        seen.append(grad.abs().max().item())
        return grad.clamp(max=0.5) if seen[-1] > 0.5 else grad

    def forward(x):
        y = x.sin()
        if y.requires_grad:
            y.register_hook(half)
        return 2 * y

    made, point = live(forward, x)
    found = gradients(point, 0, [*each(12)[:12], (np.array([3]), np.array([0.2]))])
    wanted = torch.cat([torch.diag(0.5 * x.cos()), 0.4 * torch.diag(x.cos())[3:4]])
    assert np.array_equal(found, wanted.numpy())
    assert (point.batched, made.calls.batched) == (False, 0)
    assert seen == [2.0] * 12 + [0.4]


@pytest.mark.parametrize(
    ("forward", "x", "wanted"),
    [
        (torch.sin, X.float(), lambda: np.diag(X.float().cos().double().flatten().numpy())),
        (
            lambda x: torch.complex(x, 3 * x),
            X,
            lambda: np.repeat(np.eye(12), 2, 0) * np.tile([1.0, 3.0], 12)[:, None],
        ),
    ],
    ids=["float32 input", "complex output"],
)
def test_other_types_than_float64_are_pulled_back_one_by_one(forward, x, wanted):
    made, point = live(forward, x)
    found = gradients(point, 0, each(len(point.f0))[:-1])
    np.testing.assert_allclose(found, wanted(), rtol=0, atol=2e-7)
    assert (point.batched, made.calls.batched, made.calls.backward) == (None, 0, len(point.f0))
