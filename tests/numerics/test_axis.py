"""An axis asks its probe, once or several times a question."""

import numpy as np

from gradverify.numerics.sparsity import codes
from gradverify.numerics.sparsity.detect import Axis


class Turns:
    """Three outputs of three slices; each moves by turns only. Keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def moved(self, axis, slices):
        self.asked.append((axis, slices))
        return slices & (len(self.asked) % 2 == 0)


def axis(repeats=1):
    return Axis(Turns(), 1, 3, 4, ((2,), (1,)), (slice(0, 2), slice(2, 3)), repeats)


def test_a_question_is_one_call_about_its_own_axis():
    one = axis()
    assert one.moved(np.array([True, False, True])).tolist() == [False] * 3
    assert one.moved(np.array([True, False, True])).tolist() == [True, False, True]
    assert [asked[0] for asked in one.probe.asked] == [1, 1]


def test_what_moved_in_any_repeat_moved():
    assert axis(repeats=2).moved(np.array([False, True, False])).tolist() == [False, True, False]


def test_all_calls_of_a_code_are_heard_in_their_order():
    one = axis()
    heard = one.responses(codes.one_at_a_time(3), [2, 0, 1])
    assert [asked[1].tolist() for asked in one.probe.asked] == [[False, False, True], [True, False, False], [False, True, False]]
    assert [moved.tolist() for moved in heard] == [[False] * 3, [True, False, False], [False] * 3]


def test_outputs_are_those_of_all_tensors():
    assert axis().outputs == 3
    assert Axis(Turns(), 0, 3, 1, (), ()).outputs == 0
