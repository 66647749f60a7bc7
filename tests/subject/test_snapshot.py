from __future__ import annotations

import pytest
import torch

from gradverify.subject.snapshot import Snapshot, same


@pytest.mark.parametrize("write", [lambda x: x.add_(1), lambda x: x.data.mul_(2), lambda x: x.numpy().fill(9.0), lambda x: x[1:].zero_(),
                                   lambda x: x.resize_(1)])
def test_a_write_is_seen_however_it_was_made(write):
    untouched, written = torch.ones(2), torch.tensor([1.0, 2.0])
    before = Snapshot([untouched, written])
    assert before.changed() == ()
    write(written)
    assert before.changed() == (1,)
    assert before.value(1).tolist() == [1.0, 2.0]


def test_nan_equals_nan_but_no_number():
    assert same(torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0]))
    assert not same(torch.tensor([torch.nan]), torch.tensor([1.0]))
    assert not same(torch.ones(1), torch.ones(2))
    assert same(torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))


def test_the_first_changed_element_is_told_with_both_values():
    x = torch.tensor([[torch.nan, 1.0], [2.0, 3.0]])
    before = Snapshot([x])
    assert before.difference(0) is None
    x[1, 0] = -5
    assert before.difference(0) == (2, 2.0, -5.0)


def test_a_complex_change_is_seen_without_a_single_number():
    z = torch.tensor([1 + 1j])
    before = Snapshot([z])
    z.add_(1j)
    assert before.changed() == (0,)
    assert before.difference(0) is None


def test_memory_that_was_given_back_holds_no_other_numbers():
    x = torch.ones(3)
    before = Snapshot([x])
    x.untyped_storage().resize_(0)
    assert before.changed() == ()
