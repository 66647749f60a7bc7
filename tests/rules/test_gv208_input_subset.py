from __future__ import annotations

import warnings

import pytest
import torch
from live import check, codes, message, randn
from torch.autograd import Function

from gradverify.rules.variants import subsets
from rules.functions import RightProduct, X, Y, product
from rules.tricky import TRICKY, AsksForEach


def test_a_gradient_that_another_input_decides_on_is_found():
    result = check(product(lambda ctx, x, y, g: (g * y, g * x) if ctx.needs_input_grad[0] else (None, None)), X, Y)
    assert codes(result) == {"GV208"}
    assert message(result, "GV208") == "the gradient of y depends on which inputs need one: at y[1,2] it is " \
        f"{result_value(X, Y):.6g} when all do, and there is none when only y requires a gradient"


def result_value(x, y):
    """The gradient to y at its largest element, for the cotangents of the base call."""
    from live import evidence
    gradient = evidence(RightProduct, x, y).worked.gradients[1]
    assert int(gradient.abs().argmax()) == 5
    return float(gradient[1, 2])


def test_gradcheck_accepts_it():
    faulty = product(lambda ctx, x, y, g: (g * y, g * x) if ctx.needs_input_grad[0] else (None, None))
    assert torch.autograd.gradcheck(faulty.apply, (X.clone().requires_grad_(), Y.clone().requires_grad_()))


def test_a_wrong_number_is_found_as_well_as_a_missing_one():
    def backward(ctx, x, y, g):
        return g * y * (1 if ctx.needs_input_grad[1] else 2), g * x

    result = check(product(backward), X, Y)
    assert [(found.code, found.input) for found in result.findings] == [("GV208", "x")]
    assert "when only x requires a gradient" in message(result, "GV208")


def test_a_backward_that_raises_for_a_subset_is_found():
    def backward(ctx, x, y, g):
        if not all(ctx.needs_input_grad):
            raise KeyError("grad_x")
        return g * y, g * x

    found = [(found.code, found.input) for found in check(product(backward), X, Y).findings]
    assert found == [("GV208", "x"), ("GV208", "y")]
    assert "backward raised KeyError: 'grad_x' when only x requires a gradient" in check(product(backward), X, Y).findings[0].message


def test_a_forward_that_refuses_a_subset_is_left_alone():
    class Refuses(RightProduct):
        @staticmethod
        def forward(ctx, x, y):
            if not all(ctx.needs_input_grad):
                raise ValueError("train both")
            return RightProduct.forward(ctx, x, y)

    assert codes(check(Refuses, X, Y)) == set()


@pytest.mark.parametrize(("always", "severity"), [(False, "warning"), (True, "error")])
def test_a_forward_that_warns_of_having_no_gradient_is_a_warning(always, severity):
    """Not where it warns of the same with all inputs: that is of something else."""
    def frozen(x, y):
        if always or not x.requires_grad:
            warnings.warn("give x a gradient, or y gets none", stacklevel=2)
        return RightProduct.apply(x, y if x.requires_grad else y.detach())

    found = check(frozen, X, Y).findings
    assert [(each.code, each.severity, each.input) for each in found] == [("GV208", severity, "y")]


def test_right_functions_are_spared_in_every_subset():
    assert codes(check(RightProduct, X, Y)) == set()
    assert codes(check(*flat(TRICKY["only what is needed"]))) == set()


def flat(pair):
    return pair[0], *pair[1]


def test_inside_a_callable_as_well():
    faulty = product(lambda ctx, x, y, g: (g * y, g * x) if ctx.needs_input_grad[0] else (None, None))
    assert [(found.code, found.input) for found in check(lambda x, y: faulty.apply(x.sin(), y).sum(0), X, Y).findings] == [("GV208", "y")]


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (2, 2), (3, 6), (4, 14), (5, 20), (7, 35), (8, 44), (9, 18)])
def test_all_subsets_of_four_and_the_ends_and_frozen_pairs_of_more(count, expected):
    found = subsets(count)
    assert len(found) == len(set(found)) == expected
    assert all(0 < len(subset) < count for subset in found)
    assert {(place,) for place in range(count)} <= set(found) or count == 1


def test_more_than_four_inputs_are_taken_alone_and_all_but_each():
    class Sum(Function):
        """Its last gradient needs at least three others to be asked for: only `alone` shows it."""

        @staticmethod
        def forward(ctx, *tensors):
            return sum(tensors)

        @staticmethod
        def backward(ctx, grad_output):
            return (*(grad_output.clone() for _ in range(4)), grad_output.clone() if sum(ctx.needs_input_grad) > 3 else None)

    tensors = [randn(2, seed=n) for n in range(5)]
    assert [(found.code, found.input) for found in check(Sum, *tensors).findings] == [("GV208", "4")]


class Frozen(Function):
    """A product of all, whose backward is right but where exactly these two need no gradient."""

    pair: tuple[int, int] | None = None

    @classmethod
    def forward(cls, ctx, *tensors):
        ctx.save_for_backward(*tensors)
        return torch.stack(tensors).prod(0)

    @classmethod
    def backward(cls, ctx, g):
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad
        frozen = tuple(place for place, needed in enumerate(needs) if not needed)
        off = 0.5 if frozen == cls.pair else 1.0
        return tuple(off * g * torch.stack(tensors[:i] + tensors[i + 1:]).prod(0) if needed else None for i, needed in enumerate(needs))


@pytest.mark.parametrize("pair", [(0, 1), (1, 4), (3, 4), None])
def test_of_five_inputs_every_two_are_frozen_together(pair):
    faulty = type("Faulty", (Frozen,), {"pair": pair})
    result = check(faulty, *(randn(2, seed=n) for n in range(5)))
    assert codes(result) == ({"GV208"} if pair else set())


@pytest.mark.parametrize("count", [6, 7, 8])
def test_up_to_eight_inputs_each_two_are_frozen_together_somewhere(count):
    frozen = [set(range(count)) - set(subset) for subset in subsets(count)]
    assert all({i, j} in frozen for i in range(count) for j in range(i))


def test_one_input_has_no_subset_and_a_plain_callable_no_branch():
    reasons = {name: next(run.reason for run in check(function, *values).rules if run.code == "GV208")
               for name, function, values in (("one", torch.sin, (X,)), ("plain", torch.mul, (X, Y)))}
    assert reasons == {"one": "there is one differentiable input", "plain": "no custom Function is in the graph"}


def test_the_weight_of_a_product_can_be_frozen():
    assert codes(check(AsksForEach, X, randn(3, 4), None)) == set()


def test_other_values_when_one_input_needs_no_gradient_are_found():
    def approximate(x, y):
        return RightProduct.apply(x, y) * (1 if x.requires_grad else 1.001)

    result = check(approximate, X, Y, ignore=("GV218",))
    assert codes(result) == {"GV208"}
    assert "forward depends on which inputs need a gradient: y0[" in message(result, "GV208")
    assert message(result, "GV208").endswith(", when only y requires a gradient")
