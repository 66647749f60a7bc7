"""What a fit may decide of elements that noise leaves open. Faults stood for: a right gradient left open though many points tell it, a wrong one
passed or left open, a verdict where f is not smooth beside x, and calls beyond the budget or where nothing is open."""

import pytest
import torch

from gradverify import evidence as measured
from tests import live
from tests.oracles.test_witnessed import by_bits, function

X = live.randn(4, seed=3)
NOISE = 1e-9


def noisy(clean, factor=1.0, relative=NOISE, also=None):
    return function(lambda x: by_bits(clean(x), relative), clean, factor, also)


def judged(checked, *inputs, **changes):
    return live.check(checked, *(inputs or (X,)), select=("GV101", "GV007"), **changes)


def without(monkeypatch, checked, *inputs):
    with monkeypatch.context() as patch:
        patch.setattr(measured, "beside_fits", lambda found, *_: found)
        return judged(checked, *inputs)


def fitted(result):
    return sum(comparison.fitted for comparison in result.comparisons)


@pytest.mark.parametrize("clean", [lambda x: (3 * x).softmax(0), lambda x: x / x.norm()],
                         ids=["softmax", "normalised"])
def test_a_right_gradient_of_a_noisy_forward_passes_by_a_fit(clean, monkeypatch):
    before, result = without(monkeypatch, noisy(clean)), judged(noisy(clean))
    assert before.verdict == "undecided" and result.verdict == "pass"
    [seen] = [each for each in result.comparisons if each.fitted]
    assert seen.fitted >= before.comparisons[0].undecided - 1 and seen.fit_points >= 256 and seen.fit_points % 128 == 0
    assert result.calls.forward - before.calls.forward <= 4 * 5 * 128 + 1


def _weak(x):
    """A sum in which the last input hardly counts: its slope is a hundredth of the others."""
    return (x.sin() * torch.tensor([1.0, 0.7, 1.3, 1e-2], dtype=x.dtype)).sum()[None]


def test_a_wrong_element_that_noise_hides_becomes_a_mismatch(monkeypatch):
    also = lambda gradient: gradient * torch.tensor([1, 1, 1, 1 + 3e-5], dtype=gradient.dtype)  # noqa: E731
    assert without(monkeypatch, noisy(_weak, also=also)).verdict != "fail"
    result = judged(noisy(_weak, also=also))
    assert result.verdict == "fail" and fitted(result) and result.comparisons[0].mismatched == 1
    assert "polynomial fitted to forward over" in result.findings[0].message
    assert judged(noisy(_weak)).verdict == "pass"


@pytest.mark.parametrize("factor", [1 + 1e-5, 1.01, -1.0, 0.0])
def test_no_wrong_gradient_passes_by_a_fit(factor):
    assert judged(noisy(lambda x: (3 * x).softmax(0), factor)).verdict == "fail"


SATURATED = {"erf": (torch.erf, 4.2), "erfc": (torch.erfc, -4.4)}


@pytest.mark.parametrize("name", SATURATED)
def test_a_right_gradient_of_a_saturated_function_passes_by_fits_narrower_than_x(name, monkeypatch):
    clean, place = SATURATED[name]
    x = place * (1 + 0.03 * live.randn(6))
    x = torch.cat([x, x[:1] / 8, 2.2 * x[:4]])
    checked = function(clean, clean)
    before, result = without(monkeypatch, checked, x), judged(checked, x)
    assert before.verdict == "undecided" and result.verdict == "pass" and fitted(result) >= 2
    for factor in (1 + 1e-4, 1.01, 0.0):
        wrong = function(clean, clean, also=lambda gradient, factor=factor: gradient * torch.where(x.abs() > abs(place) / 2, factor, 1.0))
        assert judged(wrong, x).verdict != "pass"


@pytest.mark.parametrize("rough", [lambda x: 1e-3 * (x - X - 1e-3).abs(), lambda x: 1e-4 * torch.floor(3 * x / X + 0.4).detach()],
                         ids=["a kink beside x", "jumps within the interval"])
def test_a_fit_says_nothing_where_f_is_not_smooth_beside_x(rough, monkeypatch):
    clean = lambda x: (3 * x).softmax(0) + rough(x)  # noqa: E731
    before, result = without(monkeypatch, noisy(clean)), judged(noisy(clean))
    assert result.verdict == before.verdict == "undecided" and result.comparisons[0].undecided >= 2
