import pytest
import torch
from live import Oracles, check, codes, message, randn
from torch.autograd import Function

HERE = "oracles.test_surrogate"
SMOOTH = torch.tensor([-1.0, 0.0, 0.3], dtype=torch.float64)


class Through(Function):
    """Straight-through: rounds, and passes the gradient on."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class Reverse(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return -0.5 * grad_output


class Spike(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        s = torch.sigmoid(ctx.saved_tensors[0])
        return grad_output * s * (1 - s)


class ForgetsTheGate(Function):
    """relu whose backward lets everything through: no estimator, a plain mistake."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


def identity(x):
    return x * 1


def turned(x):
    return -0.5 * x


def doubled(x):
    return 2 * x


def of_another_shape(x):
    return x.sum()


def detaches(x):
    return x + (x.sign() - x).detach()


def raises(x):
    raise ValueError("no surrogate")


def wanted(name):
    return Oracles(surrogate=f"{HERE}:{name}" if ":" not in name else name)


RIGHT = [
    (Through, "identity", randn(2, 3)),
    (Reverse, "turned", randn(2, 3)),
    (Spike, "torch:sigmoid", SMOOTH),
]


@pytest.mark.parametrize(("function", "name", "x"), RIGHT)
def test_a_gradient_that_is_meant_to_differ_passes_with_its_surrogate(function, name, x):
    result = check(function, x, oracles=wanted(name))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert (
        sum(each.elements for each in result.comparisons if each.rule == "GV101") == x.numel() ** 2
    )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Through, "the forward does not move here"),
        (Reverse, "gradient reversal"),
        (Spike, "the forward does not move here"),
    ],
)
def test_without_it_fails_plainly_and_the_hint_names_the_key(function, said):
    result = check(function, randn(2, 3))
    assert (result.verdict, codes(result)) == ("fail", {"GV101"})
    assert said in result.findings[0].hint and "`surrogate`" in result.findings[0].hint


def test_a_plain_mistake_gets_no_such_hint():
    result = check(ForgetsTheGate, torch.tensor([-1.0, -2.0, 1.0, 2.0], dtype=torch.float64))
    assert codes(result) == {"GV101"} and "surrogate" not in (result.findings[0].hint or "")


def test_a_wrong_surrogate_is_named_in_sentence_and_hint():
    result = check(Through, randn(2, 3), oracles=wanted("doubled"))
    assert codes(result) == {"GV101"}
    assert f"the finite difference of surrogate {HERE}:doubled" in message(result, "GV101")
    assert f"either backward or surrogate {HERE}:doubled" in result.findings[0].hint


@pytest.mark.parametrize(("function", "blamed"), [(Through, True), (Reverse, False)])
def test_a_surrogate_that_detaches_is_at_fault_where_backward_is_what_torch_makes_of_it(
    function, blamed
):
    (found,) = check(function, randn(4), oracles=wanted("detaches")).findings
    assert (found.code, "which detaches on the way" in found.hint) == ("GV101", blamed)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "ValueError: no surrogate"),
        ("of_another_shape", "returned shape []"),
        ("oracles.handmade:reference_without_outputs", "returned 0 outputs"),
    ],
)
def test_a_surrogate_that_does_not_fit_is_blamed_as_the_surrogate(name, said):
    result = check(Through, randn(2, 3), oracles=wanted(name))
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert message(result, "GV002").startswith("surrogate ") and said in message(result, "GV002")
