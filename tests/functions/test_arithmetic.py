import torch

from gradverify.functions.arithmetic import AbsMul, Add, Mul, MulAddSum, SquareOfSum


def tensor(*numbers, grad=True):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=grad)


def test_values_are_those_of_the_formulas():
    x, y = tensor(1.0, -2.0), tensor(3.0, 4.0)
    assert torch.equal(Add.apply(x, y), tensor(4.0, 2.0, grad=False))
    assert torch.equal(Mul.apply(x, y), tensor(3.0, -8.0, grad=False))
    assert torch.equal(AbsMul.apply(x, y), tensor(3.0, 8.0, grad=False))
    assert torch.equal(SquareOfSum.apply(x, y), tensor(16.0, 4.0, grad=False))
    assert MulAddSum.apply(x, y, tensor(0.5, 0.25)).item() == -4.25


def test_a_row_added_to_every_row_gets_the_sum_over_the_rows():
    x, row = torch.zeros(32, 10, dtype=torch.float64, requires_grad=True), torch.zeros(10, dtype=torch.float64, requires_grad=True)
    Add.apply(x, row).sum().backward()
    assert torch.equal(row.grad, torch.full((10,), 32.0, dtype=torch.float64))
    assert torch.equal(x.grad, torch.ones(32, 10, dtype=torch.float64))


def test_abs_mul_at_its_kink_gives_a_subgradient():
    """|u·v| at u = 0 has the subgradients [-|v|, |v|] for u, and does not move with v."""
    u, v = tensor(0.0, 0.0), tensor(2.0, -3.0)
    grad_u, grad_v = torch.autograd.grad(AbsMul.apply(u, v).sum(), (u, v))
    assert (grad_u.abs() <= v.abs()).all()
    assert torch.equal(grad_v, tensor(0.0, 0.0, grad=False))


def test_abs_mul_keeps_its_gradient_where_the_product_underflows():
    u, v = tensor(-1e-200), tensor(1e-200)
    grad_u, grad_v = torch.autograd.grad(AbsMul.apply(u, v), (u, v))
    assert (grad_u.item(), grad_v.item()) == (-1e-200, 1e-200)


def test_complex_products_conjugate_the_other_factor():
    x = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    y = torch.tensor(3 - 1j, dtype=torch.complex128, requires_grad=True)
    grad_x, grad_y = torch.autograd.grad(Mul.apply(x, y), (x, y), torch.tensor(1 + 0j, dtype=torch.complex128))
    assert (grad_x.item(), grad_y.item()) == (3 + 1j, 1 - 2j)
