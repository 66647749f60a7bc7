"""What holds at one point only, or fits for the shape of one operator, is no cause; a simpler
explanation goes first.

The classes: a fault whose size depends on the point; a wrong sign of one term, which some shift or
permutation of a rotation equals too.
"""

from __future__ import annotations

import pytest
import torch
from live import Argument, Oracles, check, fixed, randn, subject

from causes.damaged import after, causes, checked, first, function, gradients
from causes.operators import rope, rope_of_neighbours
from gradverify.verify import verify

SHAPES = [(1, 2, 5, 4), (1, 1, 3, 8)]


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
    # Where the first x is, whatever x is now
    op = after(torch.sin, first(lambda g, here: torch.where(x < 0, 0.0, g)))
    assert causes(checked(op, x)) == {"x": None}


def test_where_there_is_no_other_point_no_cause_is_named(monkeypatch):
    op = after(torch.sin, first(lambda g, x: 2 * g))
    assert causes(checked(op, randn(4)))["x"].name == "scaled"
    monkeypatch.setattr("gradverify.causes.attach.other_points", lambda subject: iter(()))
    assert causes(checked(op, randn(4))) == {"x": None}


# ---- other oracles
OF_NUMBERS = {
    "sign": lambda g: -g,
    "mean": lambda g: g / 24,
    "zeros": lambda g: torch.where(torch.arange(6) < 3, g, 0.0),
}


@pytest.mark.parametrize("damage", OF_NUMBERS.values(), ids=OF_NUMBERS)
def test_a_gradient_that_differs_from_the_specs_numbers_is_explained_by_finite_differences_elsewhere(
    damage,
):
    x = randn(4, 6)
    op = after(lambda x: x.square(), first(lambda g, here: damage(g)))
    result = check(op, x, select=("GV107",), oracles=Oracles(expected={"0": (2 * x).tolist()}))
    assert [
        (finding.code, finding.cause and finding.cause.name) for finding in result.findings
    ] == [("GV107", causes(checked(op, x))["x"].name)]


def test_where_the_specs_numbers_are_wrong_no_cause_is_named():
    x = randn(4, 6)
    result = check(
        after(lambda x: x.square(), lambda grads, inputs, y: grads),
        x,
        select=("GV107",),
        oracles=Oracles(expected={"0": x.tolist()}),
    )
    assert [(finding.code, finding.cause) for finding in result.findings] == [("GV107", None)]


# ---- hints
HINTS = {  # a damage → words of the hint, and those that it must not have
    "reversed": (
        after(torch.sin, first(lambda g, x: -g)),
        "one too many; if the sign is turned on purpose (gradient reversal)",
        "factor",
    ),
    "one sign": (
        function(rope, lambda inputs, g: gradients(lambda x: rope(x, -1.0), inputs, g)),
        "minus sign",
        "surrogate",
    ),
    "transposed": (
        after(torch.exp, first(lambda g, x: g.mT.reshape(g.shape))),
        "transpose",
        "surrogate",
    ),
    "twice": (after(torch.exp, first(lambda g, x: 2 * g)), "factor", "surrogate"),
    "nothing": (after(torch.exp, first(lambda g, x: 0 * g)), "detach", "surrogate"),
}


@pytest.mark.parametrize("kind", HINTS)
def test_the_hint_agrees_with_the_cause(kind):
    op, said, unsaid = HINTS[kind]
    (found,) = checked(op, randn(4, 6)).findings
    assert (said in found.hint, unsaid in found.hint) == (True, False)


def test_a_missing_conjugate_is_no_reversal():
    op = function(lambda x: x * x, lambda inputs, g: [2 * inputs[0] * g])
    (found,) = checked(op, randn(4, 6, dtype=torch.complex128), dtype="complex128").findings
    assert found.cause.name == "missing conjugate"
    assert ".conj()" in found.hint


def overwritten(table, index):
    return table[index]


@pytest.mark.parametrize(
    "index",
    [torch.tensor([3, 0, 3, 1, 1]), torch.tensor([0, 2, 2, 2, 3])],
    ids=["two twice", "one thrice"],
)
def test_a_repeated_index_is_named_with_its_values_and_not_the_border(index):
    op = function(
        overwritten,
        lambda inputs, g: [torch.zeros_like(inputs[0]).index_copy(0, inputs[1], g), None],
    )
    (found,) = check(op, randn(5, 3), fixed(index), select=("GV101", "GV223")).findings
    assert (found.code, found.also, found.cause.name) == (
        "GV223",
        ("GV101",),
        "repeated index overwritten",
    )
    assert f"{int(index[index.bincount().argmax() == index][0])} at [" in found.cause.detail
    assert "index_add" in found.hint


# ---- a narrow type is its last bits
@pytest.mark.parametrize("index", [torch.tensor([-1, 0, 1, -1, 2])], ids=["counted from the end"])
def test_a_negative_index_repeats_too(index):
    op = function(
        overwritten,
        lambda inputs, g: [torch.zeros_like(inputs[0]).index_put((inputs[1],), g), None],
    )
    (found,) = check(op, randn(5, 3), fixed(index), select=("GV101", "GV223")).findings
    assert (found.code, "holds -1 at [0] and [3]" in found.cause.detail) == ("GV223", True)


def test_repeated_indices_some_of_which_are_added_up_are_not_told_as_overwritten():
    def half_added(inputs, g):
        table, index = inputs
        return [
            torch.zeros_like(table).index_add(0, index, g).index_copy(0, index[-1:], g[-1:]),
            None,
        ]

    op = function(overwritten, half_added)
    (found,) = check(
        op, randn(5, 3), fixed(torch.tensor([1, 3, 1, 3])), select=("GV101", "GV223")
    ).findings
    assert (
        found.code,
        found.cause is None or found.cause.name != "repeated index overwritten",
    ) == ("GV101", True)


def test_a_softmax_within_segments_without_its_cross_terms_overwrote_nothing():
    """Each place is right for its own element of the input, and wrong for others with its number:
    no write there came last."""

    def softmax(x, index):
        e = x.exp()
        return e / torch.zeros(2, dtype=x.dtype).index_add(0, index, e)[index]

    op = function(softmax, lambda inputs, g: [(lambda y: g * y * (1 - y))(softmax(*inputs)), None])
    (found,) = check(
        op, randn(5), fixed(torch.tensor([0, 1, 1, 0, 0])), select=("GV101", "GV223")
    ).findings
    assert (found.code, found.cause, "index_add" in (found.hint or "")) == ("GV101", None, False)


# ---- what looks like a term, and what like a place
def test_a_factor_beyond_a_threshold_is_a_place_and_no_term():
    def halved(g, x):
        return torch.where(x > 0.7, g / 2, g)

    cause = causes(checked(after(torch.sin, first(halved)), randn(6, 6)))["x"]
    assert cause is None or cause.name.startswith("wrong only where x > 0.")
    cause = causes(checked(after(lambda x: x.cumsum(-1), first(halved)), randn(6, 6)))["x"]
    assert cause is None or cause.name.startswith("wrong only where x > 0.")


def test_of_one_wrong_element_there_is_no_place_to_tell():
    def one(g, x):
        return torch.where(torch.arange(24).reshape(4, 6) == 9, 1.3 * g, g)

    assert causes(checked(after(torch.sin, first(one)), randn(4, 6))) == {"x": None}


@pytest.mark.parametrize(
    ("n", "c", "words"),
    [
        (
            3,
            1 / 3,
            "0.3333 (1/3) × numeric on all 9 non-zero elements of d y0 / d x; 3 is the size of "
            "axis 0 of x: a mean instead of a sum?",
        ),
        (14, 1 / 14, "14 is the size of axis 1 of x: a mean instead of a sum?"),
        (5, 1.30123, "1.30123 × numeric on all 15 non-zero elements of d y0 / d x"),
    ],
)
def test_float32_tells_a_size_from_the_digits_of_its_inverse(n, c, words):
    cause = causes(
        checked(
            after(torch.sin, first(lambda g, x: c * g)),
            randn(3, n, dtype=torch.float32),
            dtype="float32",
        )
    )["x"]
    assert (cause.name, cause.detail.endswith(words)) == ("scaled", True)


def spread(x):
    return torch.linalg.inv(x) @ x.new_tensor([1.0, -2.0, 0.5, 3.0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda g, x: -(g + g.mT) / 2,
        lambda g, x: (g + g.mT) / 2 * (1 + x.abs()),
        lambda g, x: (g.roll(1, 0) + g.roll(1, 0).mT) / 2,
        lambda g, x: g.tril(),
        lambda g, x: g.tril() * 2 - g,
    ],
)
def test_of_a_symmetric_input_no_cause_is_named(damage):
    x = Argument("x", positive_definite(4), True, symmetric=True)
    result = verify(subject(after(spread, first(damage)), x, select=("GV101",)))
    assert [finding.cause for finding in result.findings] == [None]


def test_a_cause_names_an_output_as_its_finding_does():
    op = after(torch.sin, first(lambda g, x: 3 * g))
    (finding,) = check(lambda x: {"loss": [op.apply(x)]}, randn(4), select=("GV101",)).findings
    assert "of d y.loss[0] / d x" in finding.message
    assert "on all 4 non-zero elements of d y.loss[0] / d x" in finding.cause.detail
