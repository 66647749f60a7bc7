"""References on modules: parameters by name, a module as the reference, outputs by name; and blame
where it belongs."""

import pytest
import torch
from live import Oracles, check, codes, message, randn
from torch import nn

HERE = "oracles.test_implementation"


class Affine(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(1, 2, width))
        self.inner = nn.Linear(width, width, bias=False)

    def forward(self, x, shift=0.0):
        return self.inner(x) * self.scale + shift


class Twin(Affine):
    def forward(self, x, shift=0.0):
        return (x @ self.inner.weight.mT).mul(self.scale) + shift


class Biased(Affine):
    def __init__(self, width=3):
        super().__init__(width)
        self.bias = nn.Parameter(torch.zeros(width))


def by_name(x, *, inner_weight, scale):
    return x @ inner_weight.mT * scale


def in_any_order(inner_weight, x, scale):
    return by_name(x, inner_weight=inner_weight, scale=scale)


def after_the_inputs(x, first, second):
    return by_name(x, inner_weight=second, scale=first)


def everything(x, **parameters):
    return by_name(x, **parameters)


def wrong(x, inner_weight, scale):
    return by_name(x, inner_weight=inner_weight, scale=scale.detach())


def without_scale(x, inner_weight):
    return x @ inner_weight.mT


def checked(**oracles):
    return check(
        Affine,
        randn(2, 3),
        init={"width": 3},
        oracles=Oracles(**{key: f"{HERE}:{name}" for key, name in oracles.items()}),
    )


@pytest.mark.parametrize("name", ["in_any_order", "after_the_inputs", "everything", "Twin"])
def test_parameters_reach_the_reference_under_their_names(name):
    result = checked(reference=name)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert {each.input for each in result.comparisons if each.rule == "GV106"} == {
        "input",
        "scale",
        "inner.weight",
    } - {"input"} | {"x"}


def test_a_wrong_reference_is_blamed_as_the_reference_where_finite_differences_side_with_backward():
    result = checked(reference="wrong")
    assert codes(result) == {"GV106"}
    (found,) = result.findings
    assert (
        found.message.startswith(f"reference {HERE}:wrong is wrong, not backward")
        and found.input == "scale"
    )
    assert found.source == "def wrong(x, inner_weight, scale):"


@pytest.mark.parametrize(
    ("name", "said"),
    [("without_scale", "takes no 'scale'"), ("Biased", "has the parameter 'bias'")],
)
def test_a_reference_with_other_parameters_is_refused_by_name(name, said):
    result = checked(reference=name)
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert f"reference {HERE}:{name}" in message(result, "GV002") and said in message(
        result, "GV002"
    )


def test_a_module_may_be_the_reference_of_a_function_that_takes_its_parameters():
    linear = torch.nn.functional.linear
    seen = check(
        lambda x, weight: linear(x, weight),
        randn(2, 3),
        randn(3, 3, seed=1),
        oracles=Oracles(reference=f"{HERE}:SQUARE"),
    )
    assert (seen.verdict, codes(seen)) == ("pass", set())


SQUARE = nn.Linear(3, 3, bias=False)


def test_outputs_of_one_name_are_compared_whatever_their_order():
    result = check(
        lambda x: {"a": x * 2, "b": x.sum()},
        randn(3),
        oracles=Oracles(reference=f"{HERE}:other_way_round"),
    )
    assert (result.verdict, codes(result)) == ("pass", set())


def other_way_round(x):
    return {"b": x.sum(), "a": x + x}
