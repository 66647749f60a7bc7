"""Each kind of damage is named for what it is; two at once are named both, or not at all."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from live import randn

from causes.damaged import (
    COMPLEX,
    ELEMENTWISE,
    MIXING,
    TWO,
    after,
    before,
    causes,
    checked,
    first,
    function,
    gradients,
)
from causes.faults import FAULTS
from causes.faults import checked as damaged

ALL = {**dict(list(ELEMENTWISE.items())[:5]), **dict(list(MIXING.items())[:5])}


def masked(keep):
    return first(lambda g, x: g * keep(x))


def flat(change):
    """A damage of the numbers in memory order."""
    return lambda g, x: change(g.reshape(-1).clone()).reshape(g.shape)


def zero_tail(g):
    g[16:] = 0
    return g


# damage of the gradient of one input → (the name of the cause, a part of its evidence, the
# functions)
DAMAGES = {
    "sign": (first(lambda g, x: -g), "sign flipped", "−1 × numeric on all", ALL),
    "twice": (first(lambda g, x: 2 * g), "scaled", "2.0000 × numeric on all", ALL),
    "mean instead of sum": (
        first(lambda g, x: g / 24),
        "scaled",
        "24 is the number of elements of x",
        ALL,
    ),
    "rounded constant": (
        first(lambda g, x: g * (3.1416 / torch.pi)),
        "constant slightly off",
        "(1 + 2.34e-06)",
        ALL,
    ),
    "one part in 10,000": (
        first(lambda g, x: g * (1 + 1e-4)),
        "constant slightly off",
        "(1 + 0.0001) × numeric",
        ALL,
    ),
    "nothing": (first(lambda g, x: 0 * g), "zero gradient", "analytic = 0 on all", ALL),
    "transposed": (
        first(lambda g, x: g.T.reshape(g.shape)),
        "transposed",
        "the gradient transposed",
        ALL,
    ),
    "last tile": (
        first(flat(zero_tail)),
        "zero block",
        "16 is a multiple of 16: the tail of a tile",
        ALL,
    ),
    "a row": (
        first(lambda g, x: torch.cat([g[:2], 0 * g[2:3], g[3:]])),
        "zero block",
        "in row 2 of x",
        ALL,
    ),
    "below 0": (
        masked(lambda x: torch.where(x < 0, 0.0, 1.0)),
        "wrong only where x < 0",
        "is 0 where x < 0",
        ALL,
    ),
    "far out": (
        masked(lambda x: torch.where(x.abs() > 1, 0.0, 1.0)),
        "wrong only where |x| > 1",
        "is 0 where |x| > 1",
        ALL,
    ),
}
CASES = [(kind, name) for kind, (*_, samples) in DAMAGES.items() for name in samples]
FAMILIES = {
    "scale": ("sign", "twice", "mean instead of sum", "rounded constant", "one part in 10,000"),
    "zero": ("nothing",),
    "move": ("transposed",),
    "region": ("last tile", "a row", "below 0", "far out"),
}
FAMILY = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
BOTH = {  # what two faults amount to where they amount to one
    frozenset(["scale"]): {"scaled", "constant slightly off"},
    frozenset(["move"]): set(),
    frozenset(["region"]): set(),
}
NET = {frozenset(["last tile", "a row"]): {"zero block"}}  # which lie side by side


@pytest.mark.population(by="kind")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_one_fault_is_named(kind, name):
    damage, wanted, evidence, samples = DAMAGES[kind]
    cause = causes(checked(after(samples[name].f, damage), *samples[name].inputs))["x"]
    assert cause is not None and (cause.name, evidence in cause.detail) == (wanted, True)


@pytest.mark.parametrize("name", TWO)
def test_swapped_gradients_are_named_for_both_inputs(name):
    op = after(TWO[name], lambda grads, inputs, y: grads[::-1])
    found = causes(checked(op, randn(3, 4), randn(3, 4, seed=1)))
    assert {x: cause and cause.name for x, cause in found.items()} == {
        "x": "swapped inputs",
        "y": "swapped inputs",
    }
    assert "numeric of y on all 12" in found["x"].detail


@pytest.mark.parametrize("name", TWO)
def test_one_slice_instead_of_the_sum_over_a_broadcast_dimension_is_named(name):
    op = before(TWO[name], lambda g: torch.cat([g[:1], 0 * g[1:]]))
    cause = causes(checked(op, randn(4, 5), randn(5, seed=1)))["y"]
    assert cause.name == "missing reduction"
    assert "only y0[0, :] reaches the gradient of y" in cause.detail


@pytest.mark.parametrize("name", COMPLEX)
def test_a_forgotten_conjugate_is_named(name):
    f = COMPLEX[name]
    op = function(f, lambda inputs, g: [gradients(f, inputs, g.conj())[0].conj()])
    cause = causes(checked(op, randn(4, 6, dtype=torch.complex128), dtype="complex128"))["x"]
    assert cause.name == "missing conjugate"


@pytest.mark.population(most=12)
@pytest.mark.parametrize(("one", "other"), list(combinations(DAMAGES, 2)))
def test_two_faults_at_once_are_named_both_or_not_at_all(one, other):
    sample = ALL["product of sines" if FAMILY[one] == "move" else "sigmoid"]

    def damage(grads, inputs, y):
        return DAMAGES[other][0](DAMAGES[one][0](grads, inputs, y), inputs, y)

    cause = causes(checked(after(sample.f, damage), *sample.inputs))["x"]
    families = frozenset([FAMILY[one], FAMILY[other]])
    named = (
        {"zero gradient"}
        if "zero" in families
        else NET.get(frozenset([one, other]), BOTH.get(families, set()))
    )
    assert (cause.name if cause else None) in {None, *named}


UNNAMED = {
    "another function's gradient": first(lambda g, x: g * x.cos() / x.cosh()),
    "noise": first(lambda g, x: g * (1 + 0.1 * randn(4, 6, seed=3))),
    "a sum of two terms": first(lambda g, x: g + 0.3 * g.roll(1, 0) * x),
    "single elements": first(lambda g, x: g * (randn(4, 6, seed=5) > -0.5)),
}


@pytest.mark.population(by="kind")
@pytest.mark.parametrize("kind", UNNAMED)
@pytest.mark.parametrize("name", ALL)
def test_what_no_known_mistake_explains_gets_no_cause(kind, name):
    cause = causes(checked(after(ALL[name].f, UNNAMED[kind]), *ALL[name].inputs))["x"]
    assert cause is None


def test_a_right_gradient_has_no_finding_and_so_no_cause():
    assert checked(after(torch.sin, lambda grads, inputs, y: grads), randn(4, 6)).findings == ()


@pytest.mark.parametrize("mode", ["rows", "blocks"])
def test_a_screen_follows_a_few_lines_only_and_names_no_cause(mode):
    assert causes(checked(after(torch.sin, first(lambda g, x: 2 * g)), randn(4, 6), mode=mode)) == {
        "x": None
    }


def test_a_missing_sum_over_positions_that_some_rows_do_not_show_is_no_tile_that_was_not_written():
    """Of some weights the whole gradient is in the part that was left out."""
    op = function(
        lambda x, w: torch.where(x > 0, x, w[:, None] * x),
        lambda inputs, g: [
            torch.where(inputs[0] > 0, g, inputs[1][:, None] * g),
            (g * inputs[0].clamp_max(0)).sum(0)[:, 0],
        ],
    )
    x = randn(4, 6, 2)
    x[:, 0, 0] = x[:, 0, 0].abs() + 0.1
    cause = causes(checked(op, x, randn(6, seed=1)))["y"]
    assert cause.name == "unread block" and "is 0 in index 1 of axis 2 of y0" in cause.detail


@pytest.mark.parametrize(
    ("off", "name"), [(0.0, "sign flipped"), (1.2e-6, "sign flipped"), (0.1, "scaled")]
)
def test_a_sign_in_float32_is_one_though_all_elements_round_alike(off, name):
    op = function(torch.sin, lambda inputs, g: [-g * inputs[0].cos() * (1 + off)])
    cause = causes(checked(op, randn(6, 4, dtype=torch.float32), dtype="float32"))["x"]
    assert cause.name == name
    assert name != "sign flipped" or "analytic = −1 × numeric" in cause.detail


# ---- outputs


# ---- operators as they are written by hand
@pytest.mark.population(most=20)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_damaged_operator_gets_a_true_cause(fault):
    named = {
        finding.input: finding.cause for finding in damaged(fault.operator, fault.backward).findings
    }
    assert fault.input in named, "the damage was not found"
    cause = named[fault.input]
    assert (cause is None and not fault.accepted) or (
        cause is not None and cause.name in fault.accepted
    )
    assert fault.kind == "swapped inputs" or set(named) == {fault.input}
