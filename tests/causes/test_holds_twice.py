"""What holds at one point only, or fits for the shape of one operator, is no cause; a simpler explanation goes first.

The classes: a fault whose size depends on the point; a wrong sign of one term, which some shift or permutation of a rotation equals too; a gradient
that is not added to its transpose, which a threshold of the output may separate; a wrong coefficient of a term u·wᵀ, which is not a missing one.
"""

from __future__ import annotations

import pytest
import torch
from live import Argument, Oracles, check, fixed, randn, subject
from torch.autograd import Function

from causes.damaged import after, causes, checked, first, function, gradients
from causes.operators import rope, rope_of_neighbours
from gradverify.verify import verify

SHAPES = [(1, 2, 5, 4), (2, 2, 4, 4), (1, 1, 3, 8), (2, 3, 7, 4), (1, 4, 6, 2)]


def positive_definite(n):
    a = randn(n, n)
    return a @ a.mT + n * torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("turned", [rope, rope_of_neighbours])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rotation_the_wrong_way_round_is_a_sign_and_no_shift(turned, shape):
    op = function(turned, lambda inputs, g: gradients(lambda x: turned(x, -1.0), inputs, g))
    cause = causes(checked(op, randn(*shape)))["x"]
    assert (cause.name, "one term has the wrong sign" in cause.detail) == ("sign flipped", True)


def test_a_factor_of_one_point_is_no_cause():
    x = randn(4, 6)
    op = after(torch.sin, first(lambda g, here: (2 if torch.equal(here, x) else 3) * g))
    assert causes(checked(op, x)) == {"x": None}
    assert causes(checked(after(torch.sin, first(lambda g, here: 2 * g)), x))["x"].name == "scaled"


def test_a_region_of_one_point_is_no_cause():
    x = randn(8, 6)
    op = after(torch.sin, first(lambda g, here: torch.where(x < 0, 0.0, g)))       # where the first x is, whatever x is now
    assert causes(checked(op, x)) == {"x": None}


def test_where_there_is_no_other_point_no_cause_is_named(monkeypatch):
    op = after(torch.sin, first(lambda g, x: 2 * g))
    assert causes(checked(op, randn(4)))["x"].name == "scaled"
    monkeypatch.setattr("gradverify.causes.elsewhere.other_points", lambda subject: iter(()))
    assert causes(checked(op, randn(4))) == {"x": None}


@pytest.mark.parametrize(("n", "c", "words"), [
    (8, 8**0.5, "√8, and 8 is the size of axis 1 of x: a scale of 1/√8 left out?"), (8, 8**-0.5, "a scale of 1/√8 applied twice?"),
    (6, (6 / 5) ** 0.5, "a variance over 6 instead of 5, or the reverse?"), (4, 2.0, "")])
def test_a_root_of_a_size_is_told(n, c, words):
    cause = causes(checked(after(torch.sin, first(lambda g, x: c * g)), randn(3, n)))["x"]
    assert (cause.name, cause.detail.endswith(words), "√" in cause.detail and not words) == ("scaled", True, False)


SYMMETRIC = {"inverse": torch.linalg.inv, "cholesky": torch.linalg.cholesky, "exponential": lambda x: torch.matrix_exp(x / 10),
             "logdet": torch.logdet, "eigenvalues": torch.linalg.eigvalsh}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_a_gradient_that_is_not_added_to_its_transpose_is_named_or_nothing_is(name):
    def f(x):
        return SYMMETRIC[name]((x + x.mT) / 2)

    def lower_twice(inputs, g):
        gradient, = gradients(f, inputs, g)
        return [gradient.tril() + gradient.tril(-1)]        # its symmetric part is right

    assert causes(checked(function(f, lower_twice), positive_definite(4)))["x"].name == "missing symmetrisation"
    assert causes(checked(function(f, lambda inputs, g: [2 * gradients(f, inputs, g)[0].tril()]), positive_definite(4))) == {"x": None}


def radial(x):
    r = x.norm(dim=-1, keepdim=True)
    return x * (r.sin() / r)


def with_radial_term(coefficient):
    """f = x·s(r) has the gradient s·g + (s'/r)·x (x·g)."""
    def backward(inputs, g):
        x, = inputs
        r = x.norm(dim=-1, keepdim=True)
        return [g * (r.sin() / r) + coefficient(r) * x * (x * g).sum(-1, keepdim=True)]
    return function(radial, backward)


def slope(r):
    return r.cos() / r**2 - r.sin() / r**3


def test_a_wrong_coefficient_of_a_rank_one_term_is_not_a_missing_one():
    assert causes(checked(with_radial_term(lambda r: 0 * r), randn(5, 6)))["x"].name == "missing rank-one term"
    scaled = causes(checked(with_radial_term(lambda r: 0.7 * slope(r)), randn(5, 6)))["x"]
    assert (scaled.name, "0.7000 (7/10) × what it must be" in scaled.detail) == ("scaled rank-one term", True)
    assert causes(checked(with_radial_term(lambda r: 0 * r - 1 / 3), randn(5, 6))) == {"x": None}       # the first coefficient of its series
    assert checked(with_radial_term(slope), randn(5, 6)).findings == ()


# ---- other oracles
OF_NUMBERS = {"sign": lambda g: -g, "mean": lambda g: g / 24, "zeros": lambda g: torch.where(torch.arange(6) < 3, g, 0.0)}


@pytest.mark.parametrize("damage", OF_NUMBERS.values(), ids=OF_NUMBERS)
def test_a_gradient_that_differs_from_the_specs_numbers_is_explained_by_finite_differences_elsewhere(damage):
    x = randn(4, 6)
    op = after(lambda x: x.square(), first(lambda g, here: damage(g)))
    result = check(op, x, select=("GV107",), oracles=Oracles(expected={"0": (2 * x).tolist()}))
    assert [(finding.code, finding.cause and finding.cause.name) for finding in result.findings] == [
        ("GV107", causes(checked(op, x))["x"].name)]


def test_where_the_specs_numbers_are_wrong_no_cause_is_named():
    x = randn(4, 6)
    result = check(after(lambda x: x.square(), lambda grads, inputs, y: grads), x, select=("GV107",), oracles=Oracles(expected={"0": x.tolist()}))
    assert [(finding.code, finding.cause) for finding in result.findings] == [("GV107", None)]


# ---- hints
HINTS = {   # a damage → words of the hint, and those that it must not have
    "reversed": (after(torch.sin, first(lambda g, x: -g)), "one too many; if the sign is turned on purpose (gradient reversal)", "factor"),
    "one sign": (function(rope, lambda inputs, g: gradients(lambda x: rope(x, -1.0), inputs, g)), "minus sign", "surrogate"),
    "transposed": (after(torch.exp, first(lambda g, x: g.mT.reshape(g.shape))), "transpose", "surrogate"),
    "twice": (after(torch.exp, first(lambda g, x: 2 * g)), "factor", "surrogate"),
    "nothing": (after(torch.exp, first(lambda g, x: 0 * g)), "detach", "surrogate"),
}


@pytest.mark.parametrize("kind", HINTS)
def test_the_hint_agrees_with_the_cause(kind):
    op, said, unsaid = HINTS[kind]
    found, = checked(op, randn(4, 6)).findings
    assert (said in found.hint, unsaid in found.hint) == (True, False)


def test_a_missing_conjugate_is_no_reversal():
    op = function(lambda x: x * x, lambda inputs, g: [2 * inputs[0] * g])
    found, = checked(op, randn(4, 6, dtype=torch.complex128), dtype="complex128").findings
    assert found.cause.name == "missing conjugate"
    assert ".conj()" in found.hint


def overwritten(table, index):
    return table[index]


@pytest.mark.parametrize("index", [torch.tensor([3, 0, 3, 1, 1]), torch.tensor([0, 2, 2, 2, 3])], ids=["two twice", "one thrice"])
def test_a_repeated_index_is_named_with_its_values_and_not_the_border(index):
    op = function(overwritten, lambda inputs, g: [torch.zeros_like(inputs[0]).index_copy(0, inputs[1], g), None])
    found, = check(op, randn(5, 3), fixed(index), select=("GV101", "GV223")).findings
    assert (found.code, found.also, found.cause.name) == ("GV223", ("GV101",), "repeated index overwritten")
    assert f"{int(index[index.bincount().argmax() == index][0])} at [" in found.cause.detail
    assert "index_add" in found.hint


# ---- a narrow type is its last bits
def linearity(change):
    op = after(torch.sin, first(lambda g, x: change(g)))
    found, = checked(op, randn(4, 6), select=("GV201", "GV101")).findings
    return found.code, found.cause and found.cause.name


def test_numbers_that_end_in_the_last_bit_of_a_narrow_type_are_of_it():
    assert linearity(lambda g: g.half().double()) == ("GV201", "computed in float16")
    assert linearity(lambda g: g.bfloat16().double()) == ("GV201", "computed in bfloat16")


def test_numbers_on_a_coarse_grid_are_of_no_narrow_type():
    assert linearity(lambda g: (g * 32).round() / 32) == ("GV201", None)
    assert linearity(lambda g: torch.arange(24, dtype=torch.float64).reshape(4, 6)) == ("GV201", "ignores grad_output")


@pytest.mark.parametrize("index", [torch.tensor([-1, 0, 1, -1, 2])], ids=["counted from the end"])
def test_a_negative_index_repeats_too(index):
    op = function(overwritten, lambda inputs, g: [torch.zeros_like(inputs[0]).index_put((inputs[1],), g), None])
    found, = check(op, randn(5, 3), fixed(index), select=("GV101", "GV223")).findings
    assert (found.code, "holds -1 at [0] and [3]" in found.cause.detail) == ("GV223", True)


def test_repeated_indices_some_of_which_are_added_up_are_not_told_as_overwritten():
    def half_added(inputs, g):
        table, index = inputs
        return [torch.zeros_like(table).index_add(0, index, g).index_copy(0, index[-1:], g[-1:]), None]

    op = function(overwritten, half_added)
    found, = check(op, randn(5, 3), fixed(torch.tensor([1, 3, 1, 3])), select=("GV101", "GV223")).findings
    assert (found.code, found.cause is None or found.cause.name != "repeated index overwritten") == ("GV101", True)


def test_a_softmax_within_segments_without_its_cross_terms_overwrote_nothing():
    """Each place is right for its own element of the input, and wrong for others with its number: no write there came last."""
    def softmax(x, index):
        e = x.exp()
        return e / torch.zeros(2, dtype=x.dtype).index_add(0, index, e)[index]

    op = function(softmax, lambda inputs, g: [(lambda y: g * y * (1 - y))(softmax(*inputs)), None])
    found, = check(op, randn(5), fixed(torch.tensor([0, 1, 1, 0, 0])), select=("GV101", "GV223")).findings
    assert (found.code, found.cause, "index_add" in (found.hint or "")) == ("GV101", None, False)


# ---- what looks like a term, and what like a place
def test_a_factor_beyond_a_threshold_is_a_place_and_no_term():
    def halved(g, x):
        return torch.where(x > 0.7, g / 2, g)

    cause = causes(checked(after(torch.sin, first(halved)), randn(6, 6)))["x"]
    assert cause is None or cause.name.startswith("wrong only where x > 0.")
    cause = causes(checked(after(lambda x: x.cumsum(-1), first(halved)), randn(6, 6)))["x"]
    assert cause is None or cause.name.startswith("wrong only where x > 0.")


def test_a_product_that_is_subtracted_where_there_is_none_is_not_one_with_a_wrong_factor():
    index = torch.tensor([0, 2, 1, 2, 3])
    op = function(overwritten, lambda inputs, g: [(lambda whole: whole - whole.mean())(torch.zeros_like(inputs[0]).index_add(0, inputs[1], g)), None])
    found, = check(op, randn(4, 3), fixed(index), select=("GV101",)).findings
    assert found.cause is None


def test_of_one_wrong_element_there_is_no_place_to_tell():
    def one(g, x):
        return torch.where(torch.arange(24).reshape(4, 6) == 9, 1.3 * g, g)

    assert causes(checked(after(torch.sin, first(one)), randn(4, 6))) == {"x": None}


@pytest.mark.parametrize(("n", "c", "words"), [
    (3, 1 / 3, "0.3333 (1/3) × numeric on all 9 non-zero elements of d y0 / d x; 3 is the size of axis 0 of x: a mean instead of a sum?"),
    (14, 1 / 14, "14 is the size of axis 1 of x: a mean instead of a sum?"), (7, 7**-0.5, "a scale of 1/√7 applied twice?"),
    (5, 1.30123, "1.30123 × numeric on all 15 non-zero elements of d y0 / d x")])
def test_float32_tells_a_size_from_the_digits_of_its_inverse(n, c, words):
    cause = causes(checked(after(torch.sin, first(lambda g, x: c * g)), randn(3, n, dtype=torch.float32), dtype="float32"))["x"]
    assert (cause.name, cause.detail.endswith(words)) == ("scaled", True)


def spread(x):
    return torch.linalg.inv(x) @ x.new_tensor([1.0, -2.0, 0.5, 3.0])


@pytest.mark.parametrize(("c", "name"), [(-1, "sign flipped"), (2, "scaled"), (0, "zero gradient")])
def test_a_factor_is_named_of_a_symmetric_input_too(c, name):
    x = Argument("x", positive_definite(4), True, symmetric=True)
    op = after(spread, first(lambda g, x: c * (g + g.mT) / 2))
    finding, = verify(subject(op, x, select=("GV101",))).findings
    assert (finding.cause.name, finding.cause.detail.endswith("40 mismatched elements of d y0 / d x")) == (name, True)


@pytest.mark.parametrize("damage", [
    lambda g, x: (g + g.mT) / 2 * (1 + x.abs()), lambda g, x: (g.roll(1, 0) + g.roll(1, 0).mT) / 2, lambda g, x: g.tril(),
    lambda g, x: g.tril() * 2 - g])
def test_other_faults_of_a_symmetric_input_are_not_called_a_factor(damage):
    x = Argument("x", positive_definite(4), True, symmetric=True)
    result = verify(subject(after(spread, first(damage)), x, select=("GV101",)))
    assert [finding.cause for finding in result.findings] == [None]


def bags(gradient):
    """Rows of a table, weighted and summed by threes; `gradient(ctx, gradient of each row that was read [k, d])`."""

    class Bags(Function):
        @staticmethod
        def forward(ctx, table, index):
            ctx.save_for_backward(index)
            ctx.shape = table.shape
            return (table[index] * WEIGHTS).unflatten(0, (-1, 3)).sum(1)

        @staticmethod
        def backward(ctx, g):
            index, = ctx.saved_tensors
            return gradient(torch.zeros(ctx.shape, dtype=g.dtype), index, g.repeat_interleave(3, 0) * WEIGHTS), None

    return Bags


WEIGHTS = torch.tensor([0.5, -1.25, 3.0, 0.75, 2.0, -0.25, 1.5, 0.6, -1.1], dtype=torch.float64)[:, None]
READ = torch.tensor([0, 2, 2, 5, 1, 0, 3, 4, 6])
WAYS = {"overwritten": (lambda zero, index, g: zero.index_put((index,), g), "wrong where an index repeats"),
        "a row of zeros": (lambda zero, index, g: zero.index_add(0, index, g).index_fill(0, torch.tensor([2]), 0.0), "zero block"),
        "other rows": (lambda zero, index, g: zero.index_add(0, index, g) * torch.tensor([1, 1, 1.5, 1.5, 1, 1, 2])[:, None], None)}


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_an_index_repeats_within_a_sum_are_named(way):
    gradient, name = WAYS[way]
    result = verify(subject(bags(gradient), Argument("table", randn(7, 3), True), Argument("index", READ), select=("GV101",)))
    cause, = (finding.cause for finding in result.findings)
    assert (cause and cause.name) != "wrong where an index repeats" if name is None else cause.name == name
    if way == "overwritten":
        assert cause.detail.startswith("analytic is wrong in rows 0, 2 of table, which index names more than once, ")


def test_a_cause_names_an_output_as_its_finding_does():
    op = after(torch.sin, first(lambda g, x: 3 * g))
    finding, = check(lambda x: {"loss": [op.apply(x)]}, randn(4), select=("GV101",)).findings
    assert "of d y.loss[0] / d x" in finding.message
    assert "on all 4 non-zero elements of d y.loss[0] / d x" in finding.cause.detail
