import pytest
import torch

from gradverify.functions.form import Form


@pytest.mark.parametrize("shape", [(), (4,), (1, 4), (3, 1), (3, 4), (1, 1)])
def test_fit_sums_over_exactly_the_broadcast_dimensions(shape):
    argument = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    gradient = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    (wanted,) = torch.autograd.grad(argument.expand(3, 4), argument, gradient)
    assert torch.equal(Form.of(argument).fit(gradient), wanted)


def test_fit_gives_a_real_argument_the_real_part():
    fitted = Form.of(torch.zeros(2, dtype=torch.float64)).fit(torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128))
    assert torch.equal(fitted, torch.tensor([1.0, 3.0], dtype=torch.float64))


def test_fit_gives_the_gradient_the_dtype_of_the_argument():
    assert Form.of(torch.zeros(2, dtype=torch.float32)).fit(torch.ones(2, dtype=torch.float64)).dtype == torch.float32


def test_fit_can_be_differentiated():
    form = Form.of(torch.zeros(4, dtype=torch.float64))
    assert torch.autograd.gradcheck(form.fit, torch.ones(3, 4, dtype=torch.float64, requires_grad=True))
