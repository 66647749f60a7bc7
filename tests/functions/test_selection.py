import numpy as np
import pytest
import torch

from gradverify.functions.selection import KillHead


def test_the_first_columns_are_cleared_in_value_and_gradient():
    x = torch.ones(2, 3, requires_grad=True)
    output = KillHead.apply(x, 2)
    assert output.tolist() == [[0.0, 0.0, 1.0]] * 2
    assert torch.autograd.grad(output, x, torch.full((2, 3), -2.0))[0].tolist() == [[0.0, 0.0, -2.0]] * 2


def test_the_result_is_a_copy():
    x = torch.ones(2, 3)
    output = KillHead.apply(x, 0)
    output.zero_()
    assert torch.equal(x, torch.ones(2, 3))


def test_an_expanded_input_is_not_written_through():
    assert KillHead.apply(torch.ones(3).expand(2, 3), 1).tolist() == [[0.0, 1.0, 1.0]] * 2


@pytest.mark.parametrize("n", [1.5, 2.0, "2", None, True, np.int64(1), torch.tensor(1)])
def test_n_must_be_a_plain_integer(n):
    with pytest.raises(ValueError, match="kill_head: n must be a plain integer"):
        KillHead.apply(torch.ones(2, 3), n)


@pytest.mark.parametrize("n", [-1, 4])
def test_n_must_be_a_number_of_columns_that_there_are(n):
    with pytest.raises(ValueError, match=f"kill_head: n must be between 0 and 3, the columns of input, not {n}"):
        KillHead.apply(torch.ones(2, 3), n)


def test_a_0_dim_input_has_no_columns():
    with pytest.raises(ValueError, match="a 0-dim tensor has none"):
        KillHead.apply(torch.tensor(1.0), 0)
