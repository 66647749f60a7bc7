"""The three screens on the same functions: right ones pass clean, planted faults are flagged in their own lines."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradverify.numerics.probing.seed_matrices import SCREEN, SCREEN_LOW, SurveyedPoint
from gradverify.numerics.sparsity.pattern import dense
from numerics.differentiable import DOUBLE, Differentiable, normal, with_backward
from numerics.windows import CHECKS, along_last, axes, band, elementwise, flagged, prepared, product, screen, table, windows

MODES = list(CHECKS)
R, C = 8, 12
INDEX = [1, 4, 4, 0]


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attends(heads, n, width):
    """Queries move their own row; keys and values all rows of their head, values only their own column."""
    head, row, column = axes(heads, n, width)
    zero = np.zeros_like(head)
    query = windows((heads, n, width), [head, row, zero], [head, row, zero + width - 1])
    key = windows((heads, n, width), [head, zero, zero], [head, zero + n - 1, zero + width - 1])
    value = windows((heads, n, width), [head, zero, column], [head, zero + n - 1, column])
    return [[query], [key], [value]]


def pooled(n, width):
    batch, position = axes(n, width // 2)
    return windows((n, width), [batch, 2 * position], [batch, 2 * position + 1])


def shared_rows(rows, width):
    """A weight or bias [width] for every row."""
    column = axes(rows, width)[1]
    return windows((width,), [column], [column])


def norm(x, weight, bias):
    return F.layer_norm(x, (C,), weight, bias)


RIGHT = {
    "gelu": (F.gelu, [normal(1, R, C)], [[elementwise(R, C)]]),
    "relu": (F.relu, [normal(2, R, C)], [[elementwise(R, C)]]),
    "softmax": (lambda x: x.softmax(-1), [normal(3, R, C)], [[along_last(R, C)]]),
    "cumsum": (lambda x: x.cumsum(-1), [normal(4, R, C)], [[along_last(R, C, causal=True)]]),
    "sort": (lambda x: x.sort(-1)[0], [normal(5, R, C)], [[along_last(R, C)]]),
    "layer_norm": (norm, [normal(6, R, C), normal(7, C), normal(8, C)], [[along_last(R, C)], [shared_rows(R, C)], [shared_rows(R, C)]]),
    "matmul": (torch.matmul, [normal(9, 5, 7), normal(10, 7, 3)], product(5, 7, 3)),
    "conv1d": (lambda x: F.conv1d(x, normal(11, 3, 2, 3)), [normal(12, 2, 2, 16)], [[band(2, 2, 3, 16, 3)]]),
    "attention": (attention, [normal(n, 2, 5, 4) for n in (13, 14, 15)], attends(2, 5, 4)),
    "embedding": (lambda w: F.embedding(torch.tensor(INDEX), w), [normal(16, 6, 3)], [[table(INDEX, 6, 3)]]),
    "max_pool": (lambda x: F.max_pool1d(x, 2), [normal(17, R, C)], [[pooled(R, C)]]),
    "two outputs": (lambda x: (1e6 * x.sin(), x.exp().sum(-1)), [normal(18, R, C)],
                    [[elementwise(R, C), windows((R, C), [np.arange(R), np.zeros(R)], [np.arange(R), np.full(R, C - 1)])]]),
    "scalar input": (lambda x, y: x * y, [torch.tensor(0.7, dtype=DOUBLE), normal(20, 4)], [[dense((), 4)], [elementwise(4)]]),
    "dense": (lambda x: torch.tanh(normal(21, 9, 6) @ x), [normal(22, 6)], [[dense((6,), 9)]]),
}


@pytest.mark.population("name")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_are_not_flagged(mode, name):
    forward, inputs, patterns = RIGHT[name]
    for seed in (1, 2, 3):
        assert screen(mode, forward, inputs, patterns, seed=seed).clean


@pytest.mark.population("name")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [1e5, 1e-5])
@pytest.mark.parametrize("name", ["gelu", "relu", "cumsum", "layer_norm", "matmul", "conv1d", "embedding", "max_pool"])
def test_scales_of_the_inputs_do_not_matter(mode, name, scale):
    forward, inputs, patterns = RIGHT[name]
    assert screen(mode, forward, [x * scale for x in inputs], patterns).clean


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["relu", "layer_norm", "matmul", "conv1d", "embedding", "max_pool"])
def test_float32_is_screened_as_finely_as_it_allows(mode, name):
    forward, inputs, patterns = RIGHT[name]
    single = [x.float() for x in inputs]
    result = screen(mode, lambda *x: forward(*(t.double() for t in x)).float(), single, patterns, seed=2)
    assert result.clean
    assert all(pair.relative >= SCREEN_LOW for pair in result.pairs)
    off = screen(mode, lambda *x: forward(*(t.double() for t in x)).float(), single, patterns, damage=lambda grads: [g * 1.1 for g in grads])
    assert all(len(pair.flagged) for pair in off.pairs)


@pytest.mark.parametrize("mode", MODES)
def test_complex_numbers_have_two_lines_each(mode):
    z = normal(1, 4, 3, dtype=torch.complex128)
    pattern = windows((4, 3, 2), [*axes(4, 3, 2)[:2], np.zeros(24)], [*axes(4, 3, 2)[:2], np.ones(24)])
    assert screen(mode, lambda z: z.exp() * z.conj(), z, pattern).clean
    assert screen(mode, lambda z: z.exp() * z.conj(), z, pattern, damage=lambda grads: [grads[0].conj()]).pairs[0].flagged.size >= 12


@pytest.mark.parametrize("mode", MODES)
def test_symmetric_inputs_move_in_pairs(mode):
    b = normal(1, 3, 4, 4)
    a = b @ b.mT + torch.eye(4, dtype=DOUBLE)
    at = axes(3, 4, 4)
    pattern = windows((3, 4, 4), [at[0], *[np.zeros(48)] * 2], [at[0], *[np.full(48, 3)] * 2])

    def inverse(x):
        return torch.linalg.inv(torch.tril(x) + torch.tril(x, -1).mT)

    assert screen(mode, inverse, a, pattern, symmetric=[True]).clean
    assert screen(mode, inverse, a, pattern, symmetric=[True], damage=lambda grads: [grads[0] * (1 + 1e-4)]).pairs[0].flagged.size


@pytest.mark.parametrize("mode", MODES)
def test_steps_stay_inside_the_domain_however_near_it_ends(mode):
    x = torch.tensor([1e-4, 0.5, 1 - 1e-3, 0.9], dtype=DOUBLE)
    seen = []

    def forward(x):
        seen.append((float(x.detach().min()), float(x.detach().max())))
        return torch.logit(x)

    point, known = prepared(Differentiable(forward, x), [(0.0, 1.0)])
    seen.clear()
    assert all(pair.clean for pair in CHECKS[mode](SurveyedPoint(point, known), [[elementwise(4)]]))
    assert min(low for low, _ in seen) > 0
    assert max(high for _, high in seen) < 1


@pytest.mark.parametrize("mode", MODES)
def test_inputs_that_no_probe_can_move_are_left_out_by_number(mode):
    x = normal(1, 5)
    x[3] = torch.inf
    result = screen(mode, torch.sigmoid, x, elementwise(5))
    assert result.pairs[0].left_out.tolist() == [3]
    assert result.clean


@pytest.mark.parametrize("mode", MODES)
def test_outputs_that_are_one_infinity_are_no_fault_and_nan_is_flagged(mode):
    mask = torch.tensor([0.0, 0.0, -torch.inf, 0.0], dtype=DOUBLE)
    assert screen(mode, lambda x: x.sin() + mask, normal(1, 4), elementwise(4)).clean
    assert flagged(screen(mode, lambda x: x.sin() + mask * 0, normal(1, 4), elementwise(4))) == [2]


@pytest.mark.parametrize("mode", MODES)
def test_a_noisy_forward_is_compared_within_its_noise(mode):
    noise = torch.Generator().manual_seed(7)

    def forward(x):
        y = x.softmax(-1)
        return y * (1 + 1e-12 * torch.randn(y.shape, generator=noise, dtype=DOUBLE))

    right = screen(mode, forward, normal(1, R, C), along_last(R, C)).pairs[0]
    assert not len(right.flagged) and right.stray_count == 0
    faulty = screen(mode, forward, normal(1, R, C), along_last(R, C), damage=element(5, 1.01)).pairs[0]
    assert set(faulty.flagged) & set(range(C) if mode == "rows" else [0])


class NumPy:
    """A function whose forward torch does not see."""

    def __init__(self, factor=1.0):
        self.inputs, self.factor = [normal(1, 6, 5)], factor

    def values(self, inputs):
        return [torch.from_numpy(np.tanh(inputs[0].numpy()))]

    def vjp(self, cotangents, inputs=None):
        return [cotangents[0] * torch.from_numpy(self.factor / np.cosh(self.inputs[0].numpy()) ** 2)]


@pytest.mark.parametrize("mode", MODES)
def test_a_numpy_forward_is_a_function_like_any_other(mode):
    assert screen(mode, NumPy(), [], elementwise(6, 5)).clean
    assert len(flagged(screen(mode, NumPy(1.001), [], elementwise(6, 5)))) == 30


# ---- planted faults
def element(place, factor):
    def damage(grads):
        g = grads[0].clone()
        g.view(-1)[place] *= factor
        return [g]

    return damage


def softmax_with(change):
    """softmax over the last axis; `change(gradient, y, cotangent)` in its backward."""
    def backward(x, g):
        y = x.softmax(-1)
        return change((y * (g - (g * y).sum(-1, keepdim=True))).clone(), y, g)

    return with_backward(lambda x: x.softmax(-1), backward)


def stray(*entries):
    """Adds amount × cotangent of an output to the gradient of an input, flat places."""
    def change(d, y, g):
        for output, column, amount in entries:
            d.view(-1)[column] += amount * g.reshape(-1)[output]
        return d

    return change


X = normal(3, R, C)


@pytest.mark.parametrize(("mode", "lines"), [("rows", [29]), ("blocks", [29])])
def test_one_gradient_element_off_by_a_percent_is_flagged_alone(mode, lines):
    assert flagged(screen(mode, F.gelu, X, elementwise(R, C), damage=element(29, 1.01))) == lines


@pytest.mark.parametrize(("mode", "lines"), [("rows", [*range(24, 36)]), ("blocks", [2])])
def test_a_gradient_element_of_a_row_touches_its_outputs_and_its_block(mode, lines):
    assert flagged(screen(mode, lambda x: x.softmax(-1), X, along_last(R, C), damage=element(29, 1.01))) == lines


@pytest.mark.parametrize(("mode", "lines"), [("rows", [31]), ("blocks", [2])])
def test_one_entry_off_by_a_percent_is_flagged_in_its_row_and_in_its_block(mode, lines):
    def change(d, y, g):
        d[2, 5] += 0.01 * -y[2, 5] * y[2, 7] * g[2, 7]
        return d

    assert flagged(screen(mode, softmax_with(change), X, along_last(R, C))) == lines


def test_rows_see_an_entry_that_a_block_of_a_million_entries_cannot():
    n, small = 1000, 1e-7
    w = normal(30, n, n)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return w @ x + small * x[3] * torch.eye(n, dtype=DOUBLE)[7]

        @staticmethod
        def backward(ctx, g):
            d = w.T @ g
            d[3] += 1.1 * small * w.std() * 30 * g[7]
            return d

    x = normal(31, n)
    assert flagged(screen("rows", Product.apply, x, dense((n,), n))) == [7]
    assert flagged(screen("blocks", Product.apply, x, dense((n,), n))) == []


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", MODES)
def test_two_stray_entries_that_cancel_under_plus_and_minus_one_are_seen(mode, seed):
    in_a_column = softmax_with(stray((24, 29, 1e-3), (25, 29, -1e-3)))
    in_a_row = softmax_with(stray((24, 29, 1e-3), (24, 30, -1e-3)))
    for forward in (in_a_column, in_a_row):
        assert screen(mode, forward, X, along_last(R, C), seed=seed).pairs[0].flagged.size


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_permuted_within_its_row_is_flagged_where_it_moved(mode):
    def swapped(grads):
        g = grads[0].clone()
        g[4, [2, 3]] = g[4, [3, 2]]
        return [g]

    assert flagged(screen(mode, F.gelu, X, elementwise(R, C), damage=swapped)) == [50, 51]
    assert screen(mode, F.gelu, X.expand(R, C), elementwise(R, C)).clean


@pytest.mark.parametrize(("mode", "lines"), [("rows", [26]), ("blocks", [2])])
def test_a_leak_between_rows_in_the_backward_alone_is_seen(mode, lines):
    leak = softmax_with(stray((7 * C + 2, 29, 1e-3)))
    assert flagged(screen(mode, leak, X, along_last(R, C))) == lines


@pytest.mark.parametrize(("mode", "lines"), [("rows", [29]), ("blocks", [2])])
def test_a_leak_between_rows_in_the_forward_alone_is_seen(mode, lines):
    def forward(x):
        return x.softmax(-1) + 0.1 * x[7, 2].detach().sin() * torch.eye(R * C, dtype=DOUBLE)[29].view(R, C)

    assert flagged(screen(mode, forward, X, along_last(R, C))) == lines


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_a_mean_term_left_out_sums_to_zero_and_is_seen_everywhere(mode, name):
    ops = {"softmax": lambda x: x.softmax(-1), "layer_norm": lambda x: F.layer_norm(x, (C,))}

    def backward(x, g):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            d = torch.autograd.grad(ops[name](x), x, g)[0]
        return d + 1e-3 * (g - g.mean(-1, keepdim=True))

    result = screen(mode, with_backward(ops[name], backward), X, along_last(R, C)).pairs[0]
    assert len(result.flagged) == result.lines


# ---- off the pattern all is zero
GATE = np.array([0, 2, 5])


def gated(x):
    """Outputs 0, 2 and 5 depend on nothing."""
    keep = torch.ones(8, dtype=DOUBLE)
    keep[GATE] = 0
    return x * keep


def nothing_at(places, n):
    nothing = np.isin(np.arange(n), places)
    at = np.arange(n)
    return windows((n,), [np.where(nothing, 1, at)], [np.where(nothing, 0, at)], nothing)


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_gate_pulls_back_from_outputs_that_depend_on_nothing(mode):
    x, pattern = normal(1, 8), nothing_at(GATE, 8)
    assert screen(mode, gated, x, pattern).clean
    result = screen(mode, with_backward(gated, lambda x, g: g), x, pattern).pairs[0]
    named = {"rows": result.strays[:, 1], "blocks": result.flagged}[mode]
    assert named.tolist() == GATE.tolist()


@pytest.mark.parametrize(("extra", "seen"), [(1e-9, {7}), (1e-30, set())])  # the second is far below the rounding of any output
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_on_an_unused_embedding_row_is_seen_unless_it_is_dust(mode, extra, seen):
    def unused(grads):
        g = grads[0].clone()
        g[2, 1] += extra
        return [g]

    result = screen(mode, *RIGHT["embedding"], damage=unused).pairs[0]
    named = result.strays[:, 1] if mode == "rows" else result.flagged
    assert set(named.tolist()) == seen


def test_a_row_off_the_structure_whose_sum_is_zero_is_a_stray_of_rows_and_blocks():
    def backward(x, g):
        d = gated(g).clone()
        d[[1, 3, 4]] += torch.tensor([1e-3, 2e-3, -3e-3], dtype=DOUBLE) * g[5]
        return d

    forward, x, pattern = with_backward(gated, backward), normal(1, 8), nothing_at(GATE, 8)
    assert screen("rows", forward, x, pattern).pairs[0].strays[:, 1].tolist() == [1, 3, 4]
    blocks = screen("blocks", forward, x, pattern).pairs[0]
    assert blocks.strays.tolist() == [[0, 1], [0, 3], [0, 4]]
    assert blocks.flagged.tolist() == [1, 3, 4]


@pytest.mark.parametrize("mode", MODES)
def test_an_output_said_to_depend_on_nothing_that_moves_is_found(mode):
    result = screen(mode, torch.exp, normal(1, 8), nothing_at([4], 8)).pairs[0]
    if mode == "rows":
        assert result.flagged.tolist() == [4]
        assert result.strays[:, 1].tolist() == [4]
    else:
        assert 4 in result.strays[:, 1]
        assert result.flagged.tolist() == [4]


# ---- what a screen cannot say
@pytest.mark.parametrize("mode", MODES)
def test_a_zero_gradient_proves_nothing_where_only_wider_steps_move_f(mode):
    x = torch.full((4,), 1e-30, dtype=DOUBLE)
    assert len(flagged(screen(mode, with_backward(torch.exp, lambda x, g: 0 * g), x, elementwise(4)))) == 4


@pytest.mark.parametrize("mode", MODES)
def test_a_term_that_rounding_hides_is_no_false_alarm(mode):
    assert screen(mode, lambda x: 1e10 * x[:1] + 1e-5 * x[1:], normal(1, 2), dense((2,), 1)).clean


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_not_finite_is_flagged(mode):
    assert flagged(screen(mode, torch.sin, X, elementwise(R, C), damage=element(7, torch.nan))) == [7]


@pytest.mark.parametrize("mode", MODES)
def test_the_resolution_is_the_tolerance_where_nothing_is_hard(mode):
    pair = screen(mode, torch.sin, X, elementwise(R, C)).pairs[0]
    assert SCREEN <= pair.relative < 1.2 * 2 * SCREEN
    just_seen = screen(mode, torch.sin, X, elementwise(R, C), damage=lambda grads: [grads[0] * (1 + 20 * pair.relative)])
    assert len(just_seen.pairs[0].flagged) > 0.9 * R * C


@pytest.mark.parametrize(("mode", "forward", "backward"), [("rows", 12 - 2, C), ("blocks", 18 - 2, 3)])
def test_calls_are_those_of_the_table_less_the_two_that_the_survey_took(mode, forward, backward):
    result = screen(mode, lambda x: x.softmax(-1), X, along_last(R, C))
    assert (result.forward, result.backward) == (forward, backward)


@pytest.mark.parametrize("mode", MODES)
def test_the_point_is_left_as_it_was(mode):
    point, known = prepared(Differentiable(F.gelu, X))
    CHECKS[mode](SurveyedPoint(point, known), [[elementwise(R, C)]])
    assert np.array_equal(point.values(), point.f0)
