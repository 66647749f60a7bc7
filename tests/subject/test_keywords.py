"""Tensors by keyword: made by the keys of `inputs`, differentiated, named by their keyword, and
part of every rule.

The class: an argument that reaches the function by name must be judged as one that reaches it by
position is.
"""

from __future__ import annotations

import pytest
import torch
from live import Oracles, case, codes, tensor
from torch.autograd import Function

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

HERE = "subject.test_keywords"


class Times(Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, Times.factor * grad_output * x


def masked(x, *, mask, scale=1.0):
    return scale * Times.apply(x, mask)


def either(x, a=1.0, b=2.0):
    return x * a + b


def anything(x, **options):
    return x * options["mask"]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, *, mask):
        return Times.apply(self.weight * x, mask)


def grad_masked(x, grad_output, *, mask, scale=1.0):
    return grad_output * mask, grad_output * x


X, MASK = tensor(3, name="x"), InputRecipe("mask", TensorRecipe(shape=(3,)))


def prepared(function="masked", inputs=(X,), keywords=(MASK,), **settings):
    return prepare(case(f"{HERE}:{function}", list(inputs), keywords=tuple(keywords), **settings))


def keyword(name="mask", *shape, **recipe):
    return InputRecipe(name, TensorRecipe(shape=shape or (3,), **recipe))


@pytest.mark.parametrize("function", ["masked", "anything", "Layer"])
def test_a_tensor_by_keyword_is_an_input(function):
    subject = prepared(function)
    assert [argument.name for argument in subject.differentiable][:2] == ["x", "mask"]
    result = verify(subject)
    assert result.verdict == "pass" and {("mask", 9)} <= {
        (each.input, each.elements) for each in result.comparisons if each.rule == "GV101"
    }
    assert "mask" in [each.name for each in result.inputs]


@pytest.mark.parametrize("function", ["masked", "Layer"])
def test_a_wrong_gradient_of_it_is_found(function, monkeypatch):
    monkeypatch.setattr(Times, "factor", 1.01)
    found = verify(prepared(function))
    assert codes(found) == {"GV101"} and found.findings[0].input == "mask"


@pytest.mark.parametrize(
    ("function", "rules"),
    [("masked", ("GV208", "GV211", "GV213", "GV113", "GV109")), ("anything", ("GV108", "GV110"))],
)
def test_every_rule_that_looks_at_inputs_looks_at_it(function, rules):
    runs = {
        run.code: run.status
        for run in verify(prepared(function, vmap=True if "GV110" in rules else "auto")).rules
    }
    assert {code: runs[code] for code in rules} == dict.fromkeys(rules, "ran")


# ---- oracles
def test_a_reference_is_called_with_the_same_keyword():
    result = verify(prepared(kwargs={"scale": 2.0}, oracles=Oracles(reference=f"{HERE}:masked")))
    assert result.verdict == "pass" and {
        each.input for each in result.comparisons if each.rule == "GV106"
    } == {"x", "mask"}


def test_a_hand_written_gradient_gets_it_by_keyword():
    result = verify(prepared(oracles=Oracles(gradient=f"{HERE}:grad_masked")))
    assert result.verdict == "pass" and {
        each.input for each in result.comparisons if each.rule == "GV107"
    } == {"x", "mask"}


# ---- names and signatures
@pytest.mark.parametrize(
    ("function", "keywords", "said", "hint"),
    [
        (
            "masked",
            [keyword("msk")],
            "kwargs.msk: there is no parameter 'msk'",
            "did you mean 'mask'?",
        ),
        ("either", [keyword("x")], "kwargs.x: 'x' is an input already", None),
        (
            "Layer",
            [keyword("weight")],
            "kwargs.weight: 'weight' is a parameter of the module",
            "write it under `inputs`",
        ),
        (
            "Times",
            [keyword("y")],
            "positional arguments only",
            "list them under `inputs`, in the order of forward",
        ),
    ],
)
def test_a_name_that_does_not_fit_is_refused(function, keywords, said, hint):
    with pytest.raises(UserCodeError) as caught:
        prepared(function, inputs=[tensor(3)], keywords=keywords)
    assert said in caught.value.message and caught.value.hint == hint


def test_it_may_name_a_parameter_that_could_be_passed_by_position():
    subject = prepared("either", inputs=[tensor(3, name="x")], keywords=[keyword("b")])
    assert verify(subject).verdict == "pass"
    x, b = subject.inputs
    assert torch.equal(subject.called([x, b]).outputs[0], x + b)
    mixed = prepared(
        "either", inputs=[tensor(3, name="x"), tensor(3, name="b")], keywords=[keyword("a")]
    )
    assert (
        sorted(argument.name for argument in mixed.arguments) == ["a", "b", "x"]
        and verify(mixed).verdict == "pass"
    )
