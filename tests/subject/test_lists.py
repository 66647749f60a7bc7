"""Lists of tensors: drawn, named, called, compared element by element."""

from __future__ import annotations

import pytest
import torch
from live import case, codes, plain, tensor
from torch.autograd import Function

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import prepare
from gradverify.verify import verify


def listed(*shapes, name="tensors", **recipe):
    return InputRecipe(name, tensors=tuple(TensorRecipe(shape=shape, **recipe) for shape in shapes))


def weighted(tensors, weight):
    return sum(weight * (place + 1) * x for place, x in enumerate(tensors))


def test_elements_are_arguments_of_their_own_and_reach_the_function_as_a_list():
    subject = prepare(
        case("subject.test_lists:weighted", [listed((2,), (2,)), plain(3.0, "weight")])
    )
    assert [argument.name for argument in subject.arguments] == [
        "tensors[0]",
        "tensors[1]",
        "weight",
    ]
    a, b = subject.inputs
    assert torch.equal(
        subject.called(subject.inputs).outputs[0], 3 * a + 6 * b
    ) and not torch.equal(a, b)


def test_their_names_come_from_the_signature_and_their_order_from_it_too():
    subject = prepare(case("subject.test_lists:weighted", [listed((2,), name=None), tensor(2)]))
    assert [argument.name for argument in subject.arguments] == ["tensors[0]", "weight"]
    turned = prepare(case("subject.test_lists:weighted", [plain(2.0, "weight"), listed((2,))]))
    assert [argument.name for argument in turned.arguments] == ["tensors[0]", "weight"]
    with pytest.raises(UserCodeError, match="no parameter 'tensor'"):
        prepare(
            case("subject.test_lists:weighted", [listed((2,), name="tensor"), plain(1.0, "weight")])
        )


class WrongInOne(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, 2 * grad_output


def add_all(tensors):
    return WrongInOne.apply(*tensors)


def test_a_wrong_element_is_named():
    result = verify(prepare(case("subject.test_lists:add_all", [listed((2,), (2,))])))
    assert codes(result) == {"GV101"} and result.findings[0].input == "tensors[1]"


class TakesList(Function):
    @staticmethod
    def forward(ctx, tensors, y):
        return tensors[0] * y

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output


def test_a_function_class_that_takes_a_list_is_told_why_its_gradients_are_lost():
    result = verify(
        prepare(
            case(
                "subject.test_lists:TakesList",
                [listed((2,), draw="fill", arguments=1.0), tensor(2, name="y")],
            )
        )
    )
    assert codes(result) == {"GV102"}
    assert "autograd does not look into lists" in result.findings[0].hint
