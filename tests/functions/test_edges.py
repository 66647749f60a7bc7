"""Built-ins where a formula is easily careless: kinks, infinities, underflow, tails, large numbers,
optional arguments, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.functions.activations import ReLU, Sigmoid, Softmax
from gradverify.functions.arithmetic import AbsMul
from gradverify.functions.linear import Linear, LinearFunction, MatMul, affine
from gradverify.functions.losses import CrossEntropy
from gradverify.functions.selection import KillHead
from gradverify.functions.shop import Shop

TARGET, ONE = torch.tensor([4, 0, 2, 2]), torch.ones(())


def given(*numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def gradients(output, *inputs, of=None):
    return [
        None if g is None else g.tolist()
        for g in torch.autograd.grad(
            output.sum() if of is None else output, inputs, of, allow_unused=True
        )
    ]


def test_relu_at_0_has_a_subgradient_and_keeps_an_infinite_cotangent_out():
    x = given(-1.0, 2.0, 0.0)
    output = ReLU.apply(x)
    assert output.tolist() == [0.0, 2.0, 0.0]
    ((closed, open_, kink),) = gradients(output, x, of=given(math.inf, 7.0, 1.0))
    assert (closed, open_) == (0, 7) and 0 <= kink <= 1


def test_abs_mul_at_its_kink_has_a_subgradient_and_keeps_it_where_the_product_underflows():
    u, v = given(0.0, 0.0, -1e-200), given(2.0, -3.0, 1e-200)
    by_u, by_v = gradients(AbsMul.apply(u, v), u, v)
    assert abs(by_u[0]) <= 2 and abs(by_u[1]) <= 3 and by_v[:2] == [0, 0]
    assert (by_u[2], by_v[2]) == (-1e-200, 1e-200)


def test_the_slope_of_sigmoid_keeps_its_digits_in_the_tail():
    """At 40 the slope is exp(−40) to 17 digits, where y(1 − y) in float64 is exactly 0."""
    x = given(40.0, -40.0)
    assert gradients(Sigmoid.apply(x), x) == [pytest.approx([math.exp(-40)] * 2, rel=1e-14)]


def test_softmax_of_large_and_of_masked_inputs_is_finite_and_right():
    x, p = given(1000.0, 999.0, -math.inf), 1 / (1 + math.exp(-1))
    output = Softmax.apply(x, 0)
    assert output.tolist() == pytest.approx([p, 1 - p, 0.0])
    assert gradients(output[0], x) == [pytest.approx([p * (1 - p), -p * (1 - p), 0.0])]
    assert Softmax.apply(torch.zeros(2, 0), 1).shape == (2, 0)


def test_cross_entropy_is_torchs_also_of_large_inputs_of_none_and_where_it_is_sure():
    x = torch.linspace(-2, 2, 20, dtype=torch.float64).sin().reshape(4, 5).requires_grad_()
    ours, theirs = CrossEntropy.apply(x, TARGET), F.cross_entropy(x, TARGET)
    torch.testing.assert_close(
        (ours, *torch.autograd.grad(ours, x)), (theirs, *torch.autograd.grad(theirs, x))
    )
    assert torch.autograd.gradcheck(
        CrossEntropy.apply, (x, TARGET)
    ) and torch.autograd.gradgradcheck(CrossEntropy.apply, (x, TARGET))
    large = given([1000.0, -1000.0], [-1000.0, 1000.0])
    assert gradients(CrossEntropy.apply(large, torch.tensor([1, 1])), large) == [
        [[0.5, -0.5], [0.0, 0.0]]
    ]
    # Logits of 1000 must not cost the loss more digits than logits of 0
    for top in (0.0, 1000.0):
        loss = CrossEntropy.apply(
            torch.tensor([[top, top - 30]], dtype=torch.float64), torch.tensor([0])
        )
        assert loss.item() == pytest.approx(math.log1p(math.exp(-30)), rel=0, abs=2**-52)
    assert CrossEntropy.apply(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).isnan()


def test_linear_does_without_a_bias_and_gives_no_gradient_where_none_is_needed():
    x, w = given([2.0, 1.5, 2.5], [1.0, 2.0, 3.0]), given([3.0, 2.0, 3.5], [1.0, 2.0, 3.0])
    for output in (LinearFunction.apply(x, w, None), LinearFunction.apply(x, w)):
        assert gradients(output, x, w) == [[[4.0, 4.0, 6.5]] * 2, [[3.0, 3.5, 5.5]] * 2]
    LinearFunction.apply(x.detach(), w, None).sum().backward()
    assert x.grad is None and w.grad is not None


def test_affine_runs_the_backwards_of_mm_and_add():
    x, w, b = given([2.0, 1.5, 2.5]), given([1.0], [2.0], [-1.0]), given(0.5)
    torch.testing.assert_close(MatMul.apply(x, w), x @ w)
    output = affine(x, w, b)
    assert (output.grad_fn.name(), output.grad_fn.next_functions[0][0].name()) == (
        "AddBackward",
        "MatMulBackward",
    )


@pytest.mark.parametrize("bias", [True, False])
def test_the_module_is_torchs_linear_with_the_same_parameters(bias):
    ours, torchs = Linear(100, 50, bias=bias), torch.nn.Linear(100, 50, bias=bias)
    assert all(
        parameter.abs().max() <= 0.1 and parameter.std() > 0.03 for parameter in ours.parameters()
    )
    torchs.load_state_dict(ours.state_dict())
    x = torch.linspace(-1, 1, 300).reshape(3, 100)
    assert ours(x).grad_fn.name() == "LinearFunctionBackward"
    for module in (ours, torchs):
        module(x).square().sum().backward()
    torch.testing.assert_close(
        [p.grad for p in ours.parameters()], [p.grad for p in torchs.parameters()]
    )
    assert Linear(0, 2)(torch.zeros(3, 0)).shape == (3, 2)


def test_kill_head_copies_also_an_expanded_input():
    x = torch.ones(3)
    output = KillHead.apply(x.expand(2, 3), 1)
    assert output.tolist() == [[0.0, 1.0, 1.0]] * 2
    KillHead.apply(x[None], 0).zero_()
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "arguments, bill, expected",
    [
        ((100.0, 2.0, None, None, 1.1), 220.0, (2.2, 110.0, 200.0)),
        ((100.0, 2.0, 150.0, 3.0, 1.1), 715.0, (2.2, 110.0, 3.3, 165.0, 650.0)),
    ],
)
def test_the_textbooks_shop(arguments, bill, expected):
    values = [
        None if number is None else torch.tensor(number, dtype=torch.float64, requires_grad=True)
        for number in arguments
    ]
    output = Shop.apply(*values)
    assert output.item() == pytest.approx(bill, rel=1e-15)
    assert gradients(output, *(value for value in values if value is not None)) == pytest.approx(
        list(expected), rel=1e-15
    )


@pytest.mark.parametrize(
    "call, said",
    [
        *(
            (
                lambda n=n: KillHead.apply(torch.ones(2, 3), n),
                "kill_head: n must be a plain integer",
            )
            for n in (2.0, "2", None, True, np.int64(1))
        ),
        *(
            (
                lambda n=n: KillHead.apply(torch.ones(2, 3), n),
                f"kill_head: n must be between 0 and 3, the columns of input, not {n}",
            )
            for n in (-1, 4)
        ),
        (lambda: KillHead.apply(torch.tensor(1.0), 0), "a 0-dim tensor has none"),
        *(
            (
                lambda bias=bias: LinearFunction.apply(given([1.0]), given([1.0], [1.0]), bias),
                r"linear: bias must be torch.float64 of shape \[2\]",
            )
            for bias in (
                torch.zeros(1, dtype=torch.float64),
                torch.zeros(2, 2, dtype=torch.float64),
                torch.zeros(2),
            )
        ),
        *(
            (
                lambda x=x, target=target: CrossEntropy.apply(x, target),
                r"cross_entropy: input must be \(N, C\) and target int64 of shape \(N\)",
            )
            for x, target in (
                (torch.zeros(3), TARGET[:3]),
                (torch.zeros(2, 3), TARGET[:3]),
                (torch.zeros(2, 3), torch.zeros(2)),
            )
        ),
        *(
            (lambda x=x: Shop.apply(*x), "shop: tangerine and n2 go together")
            for x in ((ONE, ONE, ONE, None, ONE), (ONE, ONE, None, ONE, ONE))
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
