from __future__ import annotations

import pytest
import torch
from live import check, codes, message

from rules.functions import X, square


def broken(x, grad_output):
    raise ValueError("no gradient today")


def test_a_backward_that_raises_is_an_error_with_the_users_frames():
    result = check(square(broken), X)
    assert (result.verdict, codes(result)) == ("error", {"GV003"})
    assert "backward raised ValueError: no gradient today" in message(result, "GV003")
    assert result.findings[0].frames[-1].function == "broken"


def test_it_is_said_once_although_every_way_is_tried():
    tried = []
    result = check(square(lambda x, g: tried.append(1) or broken(x, g)), X)
    assert len(tried) >= 3
    assert len(result.findings) == 1


@pytest.mark.parametrize("backward", [lambda x, g: (g, g), lambda x, g: g[:1]])
def test_a_wrong_number_or_shape_is_another_rules_finding(backward):
    assert codes(check(square(backward), X)) == {"GV212"}


def test_a_backward_that_works_only_in_leaf_mode_is_fine():
    def needs_leaf(x, grad_output):
        if torch._C._current_graph_task_id() < 0 or not leaf_mode():
            raise RuntimeError("use .backward()")
        return 2 * x * grad_output

    def leaf_mode():
        return torch.autograd._is_checkpoint_valid()

    assert codes(check(square(needs_leaf), X)) == set()
