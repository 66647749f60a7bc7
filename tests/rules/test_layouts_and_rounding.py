"""Functions that lose digits may give other numbers in another layout, as far as rounding makes them; what the layout makes is found beside that."""

from __future__ import annotations

import pytest
import torch
from live import check, codes, evidence, message, randn

from gradverify.rules.differ import Difference, rounded_anew
from rules.rounding import as_contiguous, attention, biased, branch, centred, distances, function, loss, variance

ASKED = ("GV205", "GV206", "GV207", "GV208", "GV209", "GV210", "GV211", "GV213", "GV215", "GV218", "GV220", "GV228")
PARTS = {"centred": (centred, [(40, 3)]), "biased": (biased, [(4, 5), (6, 5), (6,)]), "attention": (attention, [(4, 5), (4, 5), (6, 5), (6, 5)]),
         "branch": (branch, [(4, 5), (5, 5)]), "loss": (loss, [(6, 40)])}
CANCELS = {"distances": (distances, [(4, 6), (5, 6)]), "variance": (variance, [(4, 16)])}
OFFSETS = {torch.float64: 5e5, torch.float32: 100.0}
DTYPES = [torch.float64, torch.float32]


def drawn(shapes, seed, dtype=torch.float64, offset=0.0):
    return [(randn(*shape, seed=10 * seed + place) + offset).to(dtype) for place, shape in enumerate(shapes)]


def found(made, inputs, **changes):
    return codes(check(made, *inputs, select=ASKED, second_order=False, dtype=str(inputs[0].dtype).removeprefix("torch."), **changes)) & set(ASKED)


@pytest.mark.population(most=10)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", PARTS.values(), ids=PARTS)
def test_a_part_in_float32_is_left_alone(made, shapes, dtype, seed):
    assert found(made(), drawn(shapes, seed, dtype), seed=seed) == set()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", CANCELS.values(), ids=CANCELS)
def test_numbers_that_cancel_are_left_alone(made, shapes, dtype, seed):
    assert found(made(), drawn(shapes, seed, dtype, OFFSETS[dtype]), seed=seed) == set()


@pytest.mark.population(most=6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", (PARTS | CANCELS).values(), ids=PARTS | CANCELS)
def test_an_input_taken_for_contiguous_is_found_among_them(made, shapes, dtype):
    inputs = drawn(shapes, 1, dtype, OFFSETS[dtype] if made in (distances, variance) else 0.0)
    assert "GV211" in found(made(read=lambda x: as_contiguous(x.detach()).clone()), inputs)


@pytest.mark.population(most=6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", [(made, shapes) for made, shapes in (PARTS | CANCELS).values() if made is not loss])
def test_a_grad_output_taken_for_contiguous_is_found_among_them(made, shapes, dtype):
    inputs = drawn(shapes, 1, dtype, OFFSETS[dtype] if made in (distances, variance) else 0.0)
    assert "GV210" in found(made(read_g=as_contiguous), inputs)


def test_a_layout_that_is_computed_in_float32_is_found_beside_float64():
    """What float32 makes of the other layout is no rounding of the one in float64."""
    def narrow(x):
        return x if x.is_contiguous() else x.float().to(x.dtype)

    inputs = drawn([(4, 5), (6, 5)], 0)
    product = function(lambda x, w: x @ w.T, lambda g, x, w: (g @ w, g.T @ x))
    assert found(product(), inputs) == set()
    assert found(product(read=narrow), inputs) == {"GV211"}
    assert found(product(read_g=narrow), inputs) == {"GV210"}
    assert found(branch(read=lambda x: x if x.is_contiguous() else x * (1 + 1e-4)), drawn([(4, 5), (5, 5)], 0)) >= {"GV211"}


def test_two_numbers_are_told_apart():
    slightly = function(torch.sin, lambda g, x: g * x.cos())(read=lambda x: x if x.is_contiguous() else x + 1e-8)
    told = message(check(slightly, randn(4, 5), select=("GV211",)), "GV211")
    seen, wanted = told.split(" is ")[1].split(" as with")[0].split(", and not ")
    assert float(seen) != float(wanted) and abs(float(seen) - float(wanted)) < 2e-8
    assert Difference("x", None, "x[0]", 1.5, 2.0).text == "the gradient at x[0] is 2, and not 1.5"


def test_one_that_is_wrong_every_other_time_does_not_excuse_itself():
    calls = []

    def alternates(x):
        calls.append(x)
        return variance_of(x) + len(calls) % 2

    def variance_of(x):
        return (x * x).mean() - x.mean() ** 2

    x = randn(8) + 1e4
    steady = rounded_anew(evidence(variance_of, x), lambda inputs: variance_of(*inputs).view(1))
    assert 1e8 * 2.0**-53 / 8 < float(steady) < 1e8 * 2.0**-48
    assert float(rounded_anew(evidence(alternates, x), lambda inputs: alternates(*inputs).view(1))) == 0


def test_agreeing_checks_call_nothing_more(monkeypatch):
    asked = []
    monkeypatch.setattr("gradverify.rules.differ.rounded_anew", lambda *given: asked.append(given) or torch.zeros(()))
    assert found(function(torch.sin, lambda g, x: g * x.cos())(), drawn([(4, 5)], 0)) == set()
    assert asked == []
