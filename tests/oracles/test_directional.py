"""One random direction: right gradients agree, a wrong one differs, and what has no derivative is
left open."""

import pytest
import torch
import torch.nn.functional as F
from corpus.functions import SAMPLES
from live import evidence, randn
from rules.functions import X, square

from gradverify.oracles.along import Screen, screened
from gradverify.oracles.finite_difference import Constraints
from gradverify.subject.draw import generator


def screen(function, *inputs, rtol=1e-6, seed=0, symmetric=False, domain=None, **settings):
    seen = evidence(function, *inputs, **settings)
    constraints = Constraints((domain,) * len(seen.inputs), (symmetric,) * len(seen.inputs))
    result = screened(seen.function, constraints, generator(seed, "live", "direction"), rtol)
    return result, seen


@pytest.mark.population(most=10)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_right_gradients_agree(sample):
    assert screen(sample.call, *sample.make())[0] is Screen.AGREES


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("error", [-2.0, 0.01, 1e-4])
def test_one_wrong_element_is_seen(error, seed):
    def backward(x, g):
        gradient = 2 * x * g
        gradient[0, 1] *= 1 + error
        return gradient

    assert screen(square(backward), X, seed=seed)[0] is Screen.DIFFERS


def test_a_complex_gradient_without_its_conjugate_is_seen():
    z = randn(2, 3, dtype=torch.complex128)
    assert screen(square(lambda z, g: 2 * z.conj() * g), z)[0] is Screen.AGREES
    assert screen(square(lambda z, g: 2 * z * g), z)[0] is Screen.DIFFERS


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1).sum(-1),
        lambda x: F.layer_norm(x, (5,)).sum(-1),
        lambda x: (x + 1e10) - 1e10,
        lambda x: x.sin() ** 2 + x.cos() ** 2,
    ],
)
def test_gradients_that_are_rounding_throughout_do_not_differ(function):
    assert screen(function, randn(3, 5))[0] is not Screen.DIFFERS


def test_outputs_without_a_derivative_are_left_out_and_the_rest_is_judged():
    kink = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)

    def with_step(square_of):
        return lambda x: torch.cat([square_of(x), (x.detach() + 1e-13 * x.detach().sign()).sign()])

    right, wrong = square(lambda x, g: 2 * x * g), square(lambda x, g: 3 * x * g)
    assert screen(with_step(right.apply), X.reshape(-1))[0] is Screen.AGREES
    assert screen(with_step(wrong.apply), X.reshape(-1))[0] is Screen.DIFFERS
    # The 0 is not moved: it may belong to the structure
    assert screen(torch.abs, kink + 0.0)[0] is Screen.AGREES


def test_zeros_of_a_structured_input_stay_and_a_tensor_of_zeros_moves():
    seen = []

    def watched(x):
        seen.append(x.detach().clone())
        return x.sin()

    screen(watched, torch.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=torch.float64))
    assert all(x[0, 1] == 0 for x in seen) and len({float(x[0, 0]) for x in seen}) == 3
    seen.clear()
    screen(watched, torch.zeros(2, dtype=torch.float64))
    assert any(x.any() for x in seen)
