import pytest
import torch
from live import Oracles, check, codes, evidence, fixed, message, randn

from gradverify.numerics.pairs.pair import Outcome
from oracles import handmade

HERE = "oracles.handmade"


def checked(name, function=handmade.standard_score, *values):
    return check(function, *(values or (randn(5),)), oracles=Oracles(gradient=f"{HERE}:{name}"))


@pytest.mark.parametrize("name", ["numpy_gradient", "torch_gradient", "writes_into_its_arguments"])
def test_a_right_gradient_agrees_in_numpy_and_in_torch(name):
    """x.std() means the population's deviation on an array and the sample's on a tensor: each must
    get its own type."""
    result = checked(name)
    assert (result.verdict, codes(result)) == ("pass", set())
    (compared,) = (each for each in result.comparisons if each.rule == "GV107")
    assert (compared.elements, compared.mismatched, compared.output) == (5, 0, None)


def test_the_trap_of_std_is_a_trap():
    """Guards the test above: with the other library's deviation the numbers differ."""
    assert codes(checked("methods_only")) == {"GV107"}


def test_a_wrong_gradient_is_told_by_name():
    result = checked("wrong_gradient")
    assert codes(result) == {"GV107"}
    assert f"gradient {HERE}:wrong_gradient" in message(result, "GV107")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised ValueError: no such case"),
        ("too_many", "returned 2 gradients for 1 input, 1 of them differentiable"),
        ("wrong_shape", "shape [1] for an input of shape [5]"),
        ("text", "returned a str"),
        ("mapping", "returned a dict"),
        ("complex_gradient", "complex gradient for a real input"),
    ],
)
def test_an_oracle_that_does_not_fit_is_blamed_as_the_oracle(name, said):
    result = checked(name)
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert f"gradient {HERE}:{name}" in message(result, "GV002")
    assert said in message(result, "GV002")
    frames = result.findings[0].frames
    assert [frame.function for frame in frames] == (["raises"] if name == "raises" else [])


@pytest.mark.parametrize(
    "name",
    ["product_gradients", "product_gradients_of_differentiable_inputs", "product_gradient_of_one"],
)
def test_gradients_come_one_per_argument_or_one_per_differentiable_input(name):
    index = fixed(torch.tensor([0, 2, 2]))
    seen = evidence(
        handmade.product,
        randn(4),
        torch.tensor(3.0, dtype=torch.float64),
        index,
        oracles=Oracles(gradient=f"{HERE}:{name}"),
    )
    found = seen.given[0].pairs
    assert {place: tally.elements for place, tally in found.items()} == (
        {0: 4} if "one" in name else {0: 4, 1: 1}
    )
    assert all(tally.counts[0] == tally.elements for tally in found.values())


def polar(x, y):
    return torch.hypot(x, y), torch.atan2(y, x)


def polar_gradient(x, y, grad_radius, grad_angle):
    r = torch.hypot(x, y)
    return grad_radius * x / r - grad_angle * y / r**2, grad_radius * y / r + grad_angle * x / r**2


def radius_only(x, y, grad_radius, grad_angle):
    return polar_gradient(x, y, grad_radius, grad_angle * 0)


@pytest.mark.parametrize(("name", "found"), [("polar_gradient", set()), ("radius_only", {"GV107"})])
def test_a_gradient_of_several_outputs_gets_a_cotangent_for_each(name, found):
    result = check(
        polar, randn(3), randn(3, seed=1), oracles=Oracles(gradient=f"oracles.test_gradient:{name}")
    )
    assert codes(result) == found


def cat_gradient(tensors, dim, grad_output):
    return list(grad_output.split([x.shape[dim] for x in tensors], dim)), None


def test_a_list_of_tensors_has_a_list_of_gradients():
    seen = evidence(
        torch.cat,
        [randn(2, 1), randn(2, 3)],
        1,
        oracles=Oracles(gradient="oracles.test_gradient:cat_gradient"),
    )
    found = {
        place: (pair.elements, pair.count(Outcome.PASS))
        for place, pair in seen.given[0].pairs.items()
    }
    assert found == {0: (2, 2), 1: (6, 6)}
