"""Faults that show in numbers: each is exactly the one that its file names, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError

from gallery.twins import INPUTS, call, draw, gradients, load, values

WRONG_JACOBIAN = ["drops_factor", "flips_sign", "transposes_gradient", "sums_instead_of_mean", "keeps_one_broadcast_slice", "swaps_gradients",
                  "shifts_by_one", "wrong_at_the_border", "misses_conjugate", "averages_weight_gradient", "forgets_second_gradient"]


def both(name: str, place: int = 0) -> tuple[Tensor, Tensor]:
    """The faulty and the right gradient of one input."""
    module = load(name)
    faulty, right = gradients(module.Faulty, INPUTS[name]())[place], gradients(module.Right, INPUTS[name]())[place]
    assert faulty is not None and right is not None
    assert faulty.shape == right.shape
    return faulty, right


@pytest.mark.parametrize("name", [name for name in WRONG_JACOBIAN if name != "averages_weight_gradient"])
def test_gradcheck_rejects_the_faulty_twin(name):
    with pytest.raises(GradcheckError, match="mismatch"):
        gradcheck(call(load(name).Faulty), INPUTS[name]())


@pytest.mark.parametrize("name, place, damage", [
    ("drops_factor", 0, lambda right: right / 2),
    ("flips_sign", 1, lambda right: -right),
    ("transposes_gradient", 1, lambda right: right.T),
    ("sums_instead_of_mean", 0, lambda right: right * 3),
    ("shifts_by_one", 0, lambda right: right.roll(1)),
])
def test_the_fault_is_the_one_that_is_named(name, place, damage: Callable[[Tensor], Tensor]):
    faulty, right = both(name, place)
    torch.testing.assert_close(faulty, damage(right), rtol=1e-15, atol=1e-15)
    assert not torch.allclose(faulty, right)


@pytest.mark.parametrize("name", ["flips_sign", "transposes_gradient", "keeps_one_broadcast_slice"])
def test_the_first_gradient_is_right_and_hides_the_second(name):
    faulty, right = both(name, 0)
    assert torch.equal(faulty, right)


def test_swapped_gradients_are_each_others():
    (first, right_first), (second, right_second) = both("swaps_gradients", 0), both("swaps_gradients", 1)
    assert torch.equal(first, right_second)
    assert torch.equal(second, right_first)
    assert not torch.allclose(first, second)


def test_the_kept_slice_is_the_first_of_the_sum():
    grad_output = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    module, inputs = load("keeps_one_broadcast_slice"), INPUTS["keeps_one_broadcast_slice"]()
    assert gradients(module.Faulty, inputs, grad_output)[1].tolist() == [1.0, 2.0]
    assert gradients(module.Right, inputs, grad_output)[1].tolist() == [9.0, 12.0]


def test_only_the_border_columns_are_wrong():
    faulty, right = both("wrong_at_the_border")
    assert torch.equal(faulty[:, 1:-1], right[:, 1:-1])
    assert (faulty[:, [0, -1]] != right[:, [0, -1]]).all()


def test_a_missing_conjugate_shows_in_complex_numbers_only():
    module = load("misses_conjugate")
    faulty, right = both("misses_conjugate")
    grad_output = torch.linspace(-1.0, 2.0, 3, dtype=torch.float64).to(torch.complex128)
    torch.testing.assert_close(faulty / grad_output, (right / grad_output).conj())
    assert not torch.allclose(faulty, right)
    assert gradcheck(module.Faulty.apply, (draw(3), draw(3, seed=1)))


def test_the_gain_gets_no_gradient_although_the_output_moves_with_it():
    module, inputs = load("forgets_second_gradient"), INPUTS["forgets_second_gradient"]()
    assert gradients(module.Faulty, inputs)[1] is None
    assert (module.Faulty.apply(inputs[0], inputs[1] + 1) != module.Faulty.apply(*inputs)).all()


def test_sinc_is_smooth_at_0_and_its_careless_gradient_is_nan_there_only():
    module, inputs = load("sinc_divides_by_zero"), INPUTS["sinc_divides_by_zero"]()
    ones = torch.ones(4, dtype=torch.float64)
    (faulty,), (right,) = gradients(module.Faulty, inputs, ones), gradients(module.Right, inputs, ones)
    assert module.Faulty.apply(torch.tensor([-1e-9, 0.0, 1e-9], dtype=torch.float64)).isfinite().all()
    assert faulty.isnan().tolist() == [False, True, False, False]
    assert right[1] == 0
    torch.testing.assert_close(faulty[[0, 2, 3]], right[[0, 2, 3]], rtol=1e-9, atol=0)


def test_the_series_and_the_quotient_meet():
    module = load("sinc_divides_by_zero")
    at = torch.tensor([module.SERIES_BELOW], dtype=torch.float64)
    torch.testing.assert_close(module.series(at), module.quotient(at), rtol=1e-12, atol=0)


def test_the_offset_shows_against_the_reference_and_nowhere_else():
    module, inputs = load("forgets_the_offset"), INPUTS["forgets_the_offset"]()
    assert gradcheck(module.Faulty.apply, inputs)
    reference = module.reference(*inputs)
    torch.testing.assert_close(module.Faulty.apply(*inputs) - reference, torch.full_like(reference, np.log(2)))
    torch.testing.assert_close(module.Right.apply(*inputs), reference)
    torch.testing.assert_close(gradients(module.Faulty, inputs)[0], gradients(module.Right, inputs)[0])


def test_the_adapters_scale_shows_in_the_references_gradient_and_nowhere_else():
    module, inputs = load("forgets_the_scale"), INPUTS["forgets_the_scale"]()
    reference = module.reference(*inputs)
    assert gradcheck(module.Faulty.apply, inputs)
    torch.testing.assert_close(module.Faulty.apply(*inputs), reference)
    grad_output = draw(5, 4, seed=3).detach()
    by_reference = torch.autograd.grad(reference, inputs, grad_output)
    torch.testing.assert_close(gradients(module.Right, inputs, grad_output), by_reference)
    torch.testing.assert_close(gradients(module.Faulty, inputs, grad_output)[2] * 8, by_reference[2])  # 16 / rank 2


def test_the_squared_error_differs_from_the_formula_by_the_number_of_features():
    module, inputs = load("averages_over_features"), INPUTS["averages_over_features"]()
    assert gradcheck(module.Faulty.apply, inputs)
    grad_output = torch.tensor(-1.5, dtype=torch.float64)
    by_hand = module.gradient(*(value.detach().numpy() for value in inputs), grad_output.numpy())
    faulty_ones, right_ones = gradients(module.Faulty, inputs, grad_output), gradients(module.Right, inputs, grad_output)
    for faulty, right, wanted in zip(faulty_ones, right_ones, by_hand, strict=True):
        np.testing.assert_allclose(right.numpy(), wanted, rtol=1e-15)
        np.testing.assert_allclose(faulty.numpy() * 3, wanted, rtol=1e-15)


def test_only_the_modules_weight_gets_a_wrong_gradient():
    module, inputs = load("averages_weight_gradient"), INPUTS["averages_weight_gradient"]()
    faulty, right = call(module.Faulty), call(module.Right)
    assert gradcheck(faulty, inputs)
    for twin in (faulty, right):
        twin(*inputs).square().sum().backward()
    torch.testing.assert_close(faulty.weight.grad * 4, right.weight.grad)
    torch.testing.assert_close(right.weight.grad, 2 * inputs[0].detach().square().sum(0))


def test_a_leaky_relu_that_counts_both_branches_has_a_slope_of_neither_at_0():
    faulty, right = (gradients(twin, (values(-1.0, 0.0, 2.0),), torch.ones(3, dtype=torch.float64))[0]
                     for twin in (load("counts_both_branches").Faulty, load("counts_both_branches").Right))
    assert faulty.tolist() == [0.1, 1.1, 1.0]
    assert right.tolist() == [0.1, 1.0, 1.0]


def test_a_rounded_constant_is_off_by_less_than_gradcheck_sees():
    x = draw(2, 3)
    faulty, right = (gradients(twin, (x,))[0] for twin in (load("rounds_a_constant").Faulty, load("rounds_a_constant").Right))
    truth = torch.autograd.grad(torch.nn.functional.gelu(x, approximate="tanh"), x, torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3))[0]
    assert torch.allclose(right, truth, rtol=1e-13, atol=1e-15)
    off = ((faulty - truth) / truth).abs().max()
    assert 1e-9 < off < 1e-6


def test_a_mask_from_a_generator_of_its_own_does_not_follow_torchs_seed():
    x = torch.ones(200, dtype=torch.float64)
    for twin, follows in ((load("draws_from_its_own_generator").Faulty, False), (load("draws_from_its_own_generator").Right, True)):
        seen = []
        for _ in range(2):
            torch.manual_seed(0)
            seen.append(twin.apply(x))
        assert torch.equal(*seen) is follows


def test_an_exponential_by_way_of_float32_has_float32_numbers():
    x = draw(2, 3).detach()
    faulty, right = load("computes_in_float32").Faulty.apply(x), load("computes_in_float32").Right.apply(x)
    assert torch.equal(faulty, faulty.float().double())
    assert not torch.equal(right, right.float().double())
    assert torch.equal(right, x.exp())
