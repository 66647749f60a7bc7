"""The budget bounds a check in which something is wrong as well: a wrong twin takes about three
times the calls of the right one at most.

The class of faults: what finds the element behind a flagged line, and what might excuse it (noise
of backward, numbers that cancel, ties), costs more than the comparison did, and is measured however
little is left. Both ways: the wrong twin fails, and no right function does because less was
measured.
"""

import pytest
import torch
import torch.nn.functional as F
from live import randn, subject
from test_budget import World, checked
from torch.autograd import Function

from gradverify.model.case import Budget
from gradverify.model.result import LEFT_OUT, left_out
from gradverify.verify import verify

MODES = ("auto", "entries", "rows", "blocks")
FUNCTIONS = {
    "elementwise": (torch.sin, [randn(400)]),
    "softmax": (lambda x: x.softmax(-1), [randn(20, 12)]),
    "two outputs": (lambda x, w: (x * w, (x + w).exp()), [randn(30), randn(30, seed=1)]),
    "one number": (lambda x: ((x**2).sum() / 300).tanh(), [randn(300)]),
    "wide": (lambda x: torch.stack([((k + 1) * x).sin().sum() for k in range(20)]), [randn(300)]),
    "pool": (lambda x: F.max_pool1d(x[None], 3)[0], [randn(4, 30)]),
}


def off_everywhere(gradients, factor):
    return [g * factor for g in gradients]


def off_in_one_element(gradients, factor):
    first = gradients[0].clone()
    first.view(-1)[-1] *= factor
    return [first, *gradients[1:]]


def forgotten(gradients, factor):
    return [torch.zeros_like(gradients[0]), *gradients[1:]]


def twin(call, damage):
    """A Function with the call's own gradients, damaged where the factor is not 1; each call takes
    a call's time."""

    def make(world, factor):
        class Twin(Function):
            @staticmethod
            def forward(ctx, *inputs):
                world.tick()
                ctx.save_for_backward(*inputs)
                return call(*inputs)

            @staticmethod
            def backward(ctx, *grad_outputs):
                world.tick()
                with torch.enable_grad():
                    inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                    gradients = torch.autograd.grad(call(*inputs), inputs, grad_outputs)
                return (
                    tuple(damage(gradients, factor))
                    if factor != 1
                    else tuple(g.clone() for g in gradients)
                )

        return Twin

    return make


def halvings(function, inputs):
    """The backwards that tell which output each wrong number comes from: two for each bit of the
    outputs' numbers, for each pair of tensors, and two for each further output."""
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return len(inputs) * sum(2 * (y.numel() - 1).bit_length() for y in outputs) + 2 * (
        len(outputs) - 1
    )


@pytest.mark.parametrize(
    ("name", "damage", "call"),
    [
        ("elementwise", off_everywhere, 0.6),
        ("softmax", off_in_one_element, 0.15),
        ("two outputs", forgotten, 0.6),
        ("one number", off_in_one_element, 0.6),
        ("wide", off_everywhere, 0.15),
        ("pool", off_in_one_element, 0.6),
    ],
)
def test_a_wrong_twin_fails_within_three_times_the_time_of_the_right_one(name, damage, call):
    function, inputs = FUNCTIONS[name]
    right, quiet = checked(call, inputs=inputs, function=twin(function, damage))
    assert right.verdict == "pass"
    for factor in (0.9, 1.001):
        wrong, world = checked(call, factor, inputs=inputs, function=twin(function, damage))
        assert wrong.verdict == "fail" and {
            f.code for f in wrong.findings if f.severity == "error"
        } <= {"GV101", "GV102"}
        # where it looks for an element it takes all steps, of which a right one needs one
        assert world.now <= 3 * max(quiet.now, 10.0) + (16 + halvings(function, inputs)) * call


def test_what_the_budget_left_of_the_search_is_said():
    result, _ = checked(0.6, 0.9)
    reason = next(rule.reason for rule in result.rules if rule.code == "GV101")
    assert reason == f"the cause {LEFT_OUT}the budget of 10 s was spent"
    assert "GV101" in left_out(result.rules)[1]


def test_flagged_lines_that_nobody_followed_are_said():
    function, inputs = FUNCTIONS["softmax"]
    result, _ = checked(0.6, 0.9, inputs=inputs, function=twin(function, off_everywhere))
    reason = next(rule.reason for rule in result.rules if rule.code == "GV101")
    assert f"flagged blocks {LEFT_OUT}the budget of 10 s was spent" in reason


# ---- nothing else is taken for wrong because less is measured
def no_gradient_through(world, factor):
    """relu whose backward forgets its mask: the true derivative is 0, which only the whole ladder
    and no noise can say."""

    class Straight(Function):
        @staticmethod
        def forward(ctx, x):
            world.tick()
            return x.relu()

        @staticmethod
        def backward(ctx, grad):
            world.tick()
            return grad

    return Straight


def test_a_gradient_where_f_does_not_move_at_all_fails():
    result, world = checked(0.6, inputs=[randn(50)], function=no_gradient_through)
    assert result.verdict == "fail" and world.now <= 3.1 * 28.2


def softened(x):
    """|x| + log1p(exp(−2|x|)) − log 2: x²/2 near 0, in steps of the rounding of log 2."""
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - 0.6931471805599453


class Softened(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softened(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].tanh()


RIGHT = {
    "cancels at 1e-9": (Softened.apply, [1e-9 * randn(6)]),
    "1 - cos at 1e-7": (lambda x: 1 - torch.cos(x), [1e-7 * randn(6)]),
    "kinks at x": (torch.relu, [torch.zeros(6, dtype=torch.float64)]),
    "ties": (lambda x: x.amax(-1), [torch.ones(3, 4, dtype=torch.float64)]),
    "symmetric": (lambda a: torch.linalg.cholesky(a), [torch.eye(3, dtype=torch.float64) * 4 + 1]),
    "float32": (lambda x: x.softmax(-1).log().sum(-1), [randn(5, 7, dtype=torch.float32)]),
    "float32 that cancels": (
        lambda x: (x.log_softmax(-1) * x.softmax(-1)).sum(-1),
        [1e-3 * randn(5, 7, dtype=torch.float32)],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_no_right_function_is_accused_where_nothing_is_left(name):
    function, inputs = RIGHT[name]
    mode = MODES[list(RIGHT).index(name) % len(MODES)]
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    result = verify(subject(function, *inputs, mode=mode, budget=Budget(calls=1), dtype=dtype))
    assert result.verdict in ("pass", "undecided")
    assert not any(comparison.mismatched for comparison in result.comparisons)


@pytest.mark.parametrize("mode", MODES)
def test_each_comparison_finds_a_wrong_gradient_where_nothing_is_left(mode):
    for name, (function, inputs) in FUNCTIONS.items():
        made = twin(function, off_in_one_element)(World(0.0), 0.9)
        result = verify(subject(made, *inputs, mode=mode, budget=Budget(calls=1)))
        assert result.verdict == "fail", name
