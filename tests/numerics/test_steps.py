"""The interface of finite differences. (How far `eps: auto` gets is another file's business.)"""

from __future__ import annotations

import pytest
import torch

from gradverify.numerics.derivative import Outcome
from gradverify.numerics.flat import flat_all
from gradverify.numerics.steps import Buffers, FixedStep, TwoSteps
from numerics.plain import Plain, randn


def columns(function, method, index=0, run=None):
    base = flat_all(function.values(function.inputs))
    x = function.inputs[index]
    run = range(x.numel() * (2 if x.is_complex() else 1)) if run is None else run
    return method.columns(Buffers(function, base.numel()), x, index, run, base)


@pytest.mark.parametrize("method", [FixedStep(1e-6), TwoSteps()], ids=["fixed", "auto"])
def test_a_linear_maps_columns_are_its_matrix(method):
    matrix = randn(3, 4)
    found = columns(Plain(lambda x: matrix @ x, randn(4, seed=1)), method)
    torch.testing.assert_close(found.value, matrix, rtol=1e-6, atol=1e-8)
    assert (found.outcome == Outcome.PASS).all()
    assert found.value.dtype == found.bar.dtype == torch.float64


@pytest.mark.parametrize("method", [FixedStep(1e-6), TwoSteps()], ids=["fixed", "auto"])
def test_a_run_of_columns_is_that_part_of_all_columns(method):
    function = Plain(torch.sin, randn(5))
    assert torch.equal(columns(function, method, run=range(2, 4)).value, columns(function, method).value[:, 2:4])


def test_a_fixed_step_is_gradchecks_quotient_bit_for_bit():
    x = randn(3)
    found = columns(Plain(torch.exp, x), FixedStep(1e-6)).value
    for i in range(3):
        up, down = x.clone(), x.clone()
        up[i], down[i] = x[i] + 1e-6, x[i] - 1e-6
        assert torch.equal(found[:, i], (up.exp() - down.exp()) / 2e-6)


@pytest.mark.parametrize("method", [FixedStep(1e-6), TwoSteps()], ids=["fixed", "auto"])
def test_complex_inputs_move_along_both_parts(method):
    z, w = randn(2, dtype=torch.complex128), randn(2, seed=1, dtype=torch.complex128)
    found = columns(Plain(lambda x: x * w, z), method).value
    for i in range(2):
        block = torch.tensor([[w[i].real, -w[i].imag], [w[i].imag, w[i].real]])      # multiplication by w as a real map
        torch.testing.assert_close(found[2 * i:2 * i + 2, 2 * i:2 * i + 2], block, rtol=1e-6, atol=1e-8)


def test_the_inputs_are_put_back_and_never_written():
    function = Plain(torch.sin, randn(4))
    before = function.inputs[0].clone()
    buffers = Buffers(function, 4)
    buffers.sample(0, range(4), [1e-3] * 4)
    assert torch.equal(function.inputs[0], before)
    assert torch.equal(buffers.values(), before.sin())


@pytest.mark.parametrize("method", [FixedStep(1e-20), FixedStep(1e-6)])
def test_a_step_that_does_not_move_the_input_leaves_the_column_open(method):
    found = columns(Plain(torch.sin, torch.tensor([1e12, 1.0], dtype=torch.float64)), method)
    moved = method.eps > 1e-10
    assert (found.outcome[:, 0] == Outcome.UNDECIDED).all()
    assert (found.outcome[:, 1] == (Outcome.PASS if moved else Outcome.UNDECIDED)).all()


@pytest.mark.parametrize("method", [FixedStep(1e-2), TwoSteps()], ids=["fixed", "auto"])
def test_where_the_forward_raises_beside_the_point_the_column_is_not_finite(method):
    def border(x):
        if (x > 1).any():
            raise ValueError("outside")
        return x * 2

    found = columns(Plain(border, torch.tensor([1.0, 0.5], dtype=torch.float64)), method)
    assert (found.outcome[:, 0] == Outcome.NON_FINITE).all()
    assert (found.outcome[:, 1] == Outcome.PASS).all()


def test_where_the_forward_changes_its_size_the_column_is_not_finite():
    found = columns(Plain(lambda x: x[x > 0], torch.tensor([0.05, 1.0], dtype=torch.float64)), FixedStep(0.1))
    assert (found.outcome[:, 0] == Outcome.NON_FINITE).all()
    assert (found.outcome[:, 1] == Outcome.PASS).all()


@pytest.mark.parametrize("method", [FixedStep(1e-6), TwoSteps()], ids=["fixed", "auto"])
def test_an_infinity_that_stays_is_masked_and_one_that_moves_is_not_finite(method):
    mask = torch.tensor([0.0, -torch.inf], dtype=torch.float64)
    found = columns(Plain(lambda x: x + mask, randn(2)), method)
    assert (found.outcome[1] == Outcome.MASKED).all()
    assert (found.outcome[0] == Outcome.PASS).all()
    found = columns(Plain(lambda x: x.log(), torch.tensor([0.0, 1.0], dtype=torch.float64)), method)
    assert found.outcome[0, 0] == Outcome.NON_FINITE


def test_an_output_that_no_step_moves_is_known_to_be_unchanged():
    found = columns(Plain(lambda x: torch.stack([x[0], x[1] * 0 + 3]), randn(2)), TwoSteps())
    assert found.unchanged.tolist() == [[False, True], [True, True]]


def test_the_forward_sees_inputs_that_require_grad_as_at_the_point():
    function = Plain(lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0], randn(2))
    buffers = Buffers(function, 2)
    torch.testing.assert_close(buffers.values(), 3 * function.inputs[0] ** 2)
