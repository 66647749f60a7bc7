"""The last word on an element: its lone column and the one-hot row of its output."""

import numpy as np
import torch

from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import prepared

N = 40


def run(damage=None):
    point, known = prepared(Differentiable(torch.sin, normal(1, N), damage=damage))
    return Run(point, known, 0.0, None, Reach(point))


@np.errstate(all="ignore")
def test_the_lone_column_and_the_one_hot_row_have_the_last_word():
    def off(grads):
        return [grads[0] + 0.01 * torch.eye(N, dtype=DOUBLE)[3]]

    found = measured_alone(run(off), np.array([3, 4, 3]), np.array([3, 4, 9]))
    told = {(int(c), int(o)): v for c, o, v in zip(found.column, found.out, found.verdict, strict=True)}
    assert told == {(3, 3): Verdict.MISMATCH, (4, 4): Verdict.PASS, (3, 9): Verdict.MISMATCH}


@np.errstate(all="ignore")
def test_answers_come_in_the_order_in_which_they_were_asked():
    column, out = np.array([9, 3, 7, 3, 9]), np.array([9, 5, 7, 3, 1])
    found = measured_alone(run(), column, out)
    slope = np.where(column == out, np.cos(normal(1, N).numpy()[column]), 0.0)
    assert (found.column.tolist(), found.out.tolist()) == (column.tolist(), out.tolist())
    np.testing.assert_allclose(found.analytic, slope, rtol=1e-12)
    np.testing.assert_allclose(found.derivative.value, slope, rtol=1e-9)
    assert (found.verdict == Verdict.PASS).all()


@np.errstate(all="ignore")
def test_one_backward_an_output_and_every_rung_of_a_column():
    at = run()
    before = at.point.forward
    measured_alone(at, np.array([3, 3, 4]), np.array([3, 4, 4]))
    assert at.point.backward == 2
    assert at.point.forward - before <= 2 * 48
