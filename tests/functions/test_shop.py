import pytest
import torch

from gradverify.functions.shop import Shop


def prices(*numbers):
    return tuple(None if number is None else torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in numbers)


@pytest.mark.parametrize("arguments, bill, gradients", [
    ((100.0, 2.0, None, None, 1.1), 220.0, (2.2, 110.0, None, None, 200.0)),
    ((100.0, 2.0, 150.0, 3.0, 1.1), 715.0, (2.2, 110.0, 3.3, 165.0, 650.0)),
])
def test_the_textbooks_numbers(arguments, bill, gradients):
    values = prices(*arguments)
    output = Shop.apply(*values)
    output.backward()
    assert output.item() == pytest.approx(bill, rel=1e-15)
    found = [value.grad.item() for value in values if value is not None]
    assert found == pytest.approx([gradient for gradient in gradients if gradient is not None], rel=1e-15)


@pytest.mark.parametrize("arguments", [(1.0, 1.0, 1.0, None, 1.0), (1.0, 1.0, None, 1.0, 1.0)])
def test_tangerines_without_their_number_are_refused(arguments):
    with pytest.raises(ValueError, match="shop: tangerine and n2 go together"):
        Shop.apply(*prices(*arguments))
