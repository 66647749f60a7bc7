"""Samples of the quick rungs, by lone columns and by groups, some of whose columns move the other way."""

from __future__ import annotations

import numpy as np
import torch

from gradverify.numerics.judging.bundle import Cells, Grouping, cells_where, lone_columns, summed_by_output
from gradverify.numerics.judging.quick_samples import linear_derivatives, plain_derivatives, quick_samples
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.rungs import QUICK
from gradverify.numerics.seed_vectors import signed_weights_float32 as signed
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, column_groups
from gradverify.numerics.survey import survey
from numerics.differentiable import Differentiable, normal
from numerics.windows import along_last, elementwise, point_of

R, C = 5, 4


def run_of(forward, x, domain=None):
    point = point_of(Differentiable(forward, x), [domain])
    return Run(point, survey(point), 0.0, None, Reach(point))


def grouped(run, pattern, seed=2):
    weights = signed(len(run.point.columns), np.random.default_rng(seed))
    grouping = Grouping(0, 0, column_groups([pattern]), weights)
    return grouping.bundle(run.point, 0, grouping.groups.count), weights


def every(bundle):
    local, out = np.nonzero(bundle.in_pattern)
    return local, out


def softmax(x):
    return x.softmax(-1)


def jacobian(forward, x):
    return torch.autograd.functional.jacobian(forward, x).reshape(x.numel(), x.numel()).numpy()


def test_groups_and_lone_columns_tell_the_jacobian():
    x = normal(1, R, C)
    true, run = jacobian(softmax, x), run_of(softmax, x)
    for bundle in (grouped(run, along_last(R, C))[0], lone_columns(run.point, np.arange(R * C))):
        local, out = every(bundle)
        d, hard = plain_derivatives(quick_samples(run.point, bundle), run, Cells(bundle, local, out))
        sure = np.setdiff1d(np.arange(len(out)), hard)
        assert len(sure) >= R * C * C
        assert (np.abs(d.value - true[out, bundle.column_of[local, out]]) <= d.bar)[sure].all()


def test_some_elements_tell_what_all_of_them_tell():
    run = run_of(softmax, normal(1, R, C))
    bundle, _ = grouped(run, along_last(R, C))
    samples, (local, out) = quick_samples(run.point, bundle), every(bundle)
    whole, some = plain_derivatives(samples, run, Cells(bundle, local, out))[0], np.array([0, 7, 33])
    part = plain_derivatives(samples, run, Cells(bundle, local[some], out[some]))[0]
    assert part.value.tolist() == whole.value[some].tolist()
    assert part.bar.tolist() == whole.bar[some].tolist()


def test_a_block_tells_what_its_elements_tell():
    run = run_of(softmax, normal(1, R, C))
    bundle, _ = grouped(run, along_last(R, C))
    samples, outs = quick_samples(run.point, bundle), slice(3, 11)
    block, cells = (cells_where(bundle, mask, outs) for mask in (np.ones((C, 8), bool), np.eye(C, 8) == 0))
    one_by_one = Cells(bundle, block.line, block.out)
    assert (block.lines, cells.lines, len(cells)) == (C, 0, C * 8 - C)
    assert block.column.tolist() == one_by_one.column.tolist() == bundle.column_of[:, outs].ravel().tolist()
    sums = [summed_by_output(cells.out, samples.up[0, :, outs].ravel(), R * C, cells.lines).tolist() for cells in (block, one_by_one)]
    assert sums[0] == sums[1]
    assert plain_derivatives(samples, run, block)[0].value.tolist() == plain_derivatives(samples, run, one_by_one)[0].value.tolist()


def test_elements_have_their_own_column_s_way_up():
    x = normal(3, R, C)
    run = run_of(torch.exp, x)
    bundle, weights = grouped(run, elementwise(R, C))
    assert (weights < 0).any() and (weights > 0).any()
    samples, everything = quick_samples(run.point, bundle), np.arange(R * C)
    for n in range(len(QUICK)):
        up, down, step_up, step_down = samples.at(n, np.zeros(R * C, np.intp), everything)
        assert (step_up > 0).all() and (step_down > 0).all()
        assert np.allclose(up, np.exp(run.point.x + step_up), rtol=1e-14, atol=0)
        assert np.allclose(down, np.exp(run.point.x - step_down), rtol=1e-14, atol=0)


def test_a_straight_line_is_told_by_one_rung():
    x = normal(4, R, C)
    run = run_of(lambda x: 3 * x, x)
    bundle, _ = grouped(run, elementwise(R, C))
    d = linear_derivatives(quick_samples(run.point, bundle, (0,)), run, Cells(bundle, *every(bundle)))
    assert (np.abs(d.value - 3) <= d.bar).all()
    assert (d.bar < 1e-12).all()


def test_columns_that_their_domain_holds_have_no_value_and_the_others_have():
    x = normal(5, R, C).abs() + 0.5
    x[0, 0], x[2, 1] = 0.5, 0.5
    run = run_of(torch.log, x, (0.5, np.inf))
    bundle, _ = grouped(run, elementwise(R, C))
    samples = quick_samples(run.point, bundle)
    held = [0, 2 * C + 1]
    one_side = np.isfinite(samples.up).all(0) != np.isfinite(samples.down).all(0)
    assert np.flatnonzero(one_side[0]).tolist() == held
    assert np.flatnonzero(samples.at_border).tolist() == held
    assert plain_derivatives(samples, run, Cells(bundle, *every(bundle)))[1].tolist() == held


def test_an_output_off_the_pattern_that_moves_is_a_stray():
    run = run_of(lambda x: torch.cat([x.sin(), x[:1, :1].expand(1, C)]), normal(6, R, C))
    known, no_entry = elementwise(R, C), np.full(C, NO_ENTRY)
    low, high = (tuple(np.append(axis, end) for axis in axes) for axes, end in ((known.low, no_entry + 1), (known.high, no_entry)))
    pattern = Pattern(known.shape, low, high, np.append(known.nothing, np.ones(C, bool)))
    bundle, _ = grouped(run, pattern)
    strays = quick_samples(run.point, bundle).strays(slice(None), run.survey.sigma)
    assert np.flatnonzero(strays[0]).tolist() == list(range(R * C, R * C + C))
