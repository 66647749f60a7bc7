"""The promises of the verdict, case by case: no false alarm, no pass for a wrong gradient."""

import math

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import (
    DOUBLE,
    check,
    leaf,
    normal,
    spd,
    times,
    verdict,
    with_backward,
    zeros,
)

ZERO = leaf(0.0, 0.0, 1.0)


def in_float32(f):
    return with_backward(
        lambda x: f(x.float()).double(), lambda x, g: g * torch.func.vmap(torch.func.grad(f))(x)
    )


def lookup(x):
    table = torch.linspace(0, 3, 3001, dtype=DOUBLE) ** 2
    place = (x * 1000).floor().long().clamp(0, 2999)
    return table[place] + (x * 1000 - place) * (table[place + 1] - table[place])


def bisected_root(c):
    low, high = torch.zeros_like(c), torch.full_like(c, 10.0)
    for _ in range(26):
        middle = (low + high) / 2
        low = torch.where(middle * middle < c, middle, low)
        high = torch.where(middle * middle < c, high, middle)
    return (low + high) / 2


PASS = {
    "relu at 0": (torch.relu, ZERO),
    "max with ties": (lambda x: x.amax(), leaf(1.0, 2.0, 2.0)),
    "clamp at its bound": (lambda x: x.clamp(-1, 1), leaf(1.0, -1.0, 0.3)),
    "x⁴ at 0": (lambda x: x**4, leaf(0.0, 0.0)),
    "smooth_l1 at equality": (lambda x: F.smooth_l1_loss(x, normal(1, 5)), normal(1, 5)),
    "batch_norm in training": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        normal(3, 6, 3),
        normal(4, 3),
        normal(5, 3),
    ),
    "cumsum of 1e5": (lambda x: (x.view(-1, 5).cumsum(0))[-1], normal(4, 60, k=1e5)),
    "masked -inf": (
        lambda x: x.masked_fill(torch.tensor([True, False, True, False]), -math.inf),
        normal(5, 4),
    ),
    "float32 inside: exp": (in_float32(torch.exp), normal(7, 5)),
}


@pytest.mark.population(most=6)
@pytest.mark.parametrize("name", PASS)
def test_a_right_gradient_passes(name):
    forward, *inputs = PASS[name]
    entries = check(forward, *inputs)
    assert verdict(entries) == Verdict.PASS, entries.pairs


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_where_no_step_moves_x_a_gradient_of_zero_is_right_and_another_one_open(number):
    x = torch.cat([normal(5, 6), leaf(number).repeat(2)])
    known = lambda x: torch.where(x.isfinite(), x, x.detach().clamp(-2, 2).nan_to_num()).sin()  # noqa: E731
    # Right where x is finite
    shifted = with_backward(known, lambda x, g: g * x.nan_to_num(posinf=2, neginf=-2).cos())
    assert verdict(check(known, x)) == Verdict.PASS
    [pair] = check(shifted, x).pairs
    assert (pair.count(Outcome.NON_FINITE), pair.count(Outcome.PASS), pair.elements) == (2, 62, 64)


def test_undeclared_symmetric_inputs_are_undecided_and_told():
    entries = check(torch.linalg.cholesky, spd())
    assert verdict(entries) == Verdict.UNDECIDED
    assert Limit.SYMMETRY in {w.limit for w in entries.pairs[0].worst}


def test_a_hermitian_input_passes_where_it_is_declared():
    b = normal(8, 3, 3, dtype=torch.complex128)
    assert (
        verdict(check(torch.linalg.eigvalsh, b @ b.mH + torch.eye(3), symmetric=[True]))
        == Verdict.PASS
    )


NEVER_A_MISMATCH = {
    "round with decimals": (
        with_backward(lambda x: x.round(decimals=3), lambda x, g: g),
        normal(1, 6),
    ),
    "floor(100x), straight through": (
        with_backward(lambda x: (1e5 * x).floor() / 1e5, lambda x, g: g),
        normal(1, 6),
    ),
    "lookup table": (with_backward(lookup, lambda x, g: 2 * x * g), leaf(0.513, 1.234, 2.71)),
    "bisection": (
        with_backward(bisected_root, lambda x, g: g / (2 * x.sqrt())),
        leaf(2.0, 3.0, 5.5),
    ),
    "(x + 1e8) - 1e8": (lambda x: (x + 1e8) - 1e8, normal(2, 5)),
    "sort of values 1e-7 apart": (lambda x: x.sort()[0], leaf(1.0, 1.0 + 1e-7, 3.0)),
    "x·|x| at 0": (lambda x: x * x.abs(), leaf(0.0, 1.0)),
    "log cosh at 0": (lambda x: x.cosh().log(), leaf(0.0, 0.0)),
    "cholesky without `symmetric`": (torch.linalg.cholesky, spd()),
    "sin with a ripple of 1e-12": (lambda x: x.sin() + 1e-12 * (1e15 * x).sin(), normal(1, 6)),
}


@pytest.mark.parametrize("name", NEVER_A_MISMATCH)
def test_what_cannot_be_told_is_never_a_mismatch(name):
    forward, x = NEVER_A_MISMATCH[name]
    assert verdict(check(forward, x)) != Verdict.MISMATCH


NOT_ZERO = {
    "x + 1e10": (lambda x: x + 1e10, normal(1, 4)),
    "1e12 + sin x": (lambda x: 1e12 + x.sin(), normal(1, 4)),
    "sigmoid at 1e-12": (torch.sigmoid, leaf(1e-12, -2e-12)),
    "sigmoid at one 1e-12": (torch.sigmoid, leaf(1e-12)),
    "exp at 1e-30": (torch.exp, leaf(1e-30, 2e-30)),
    "Σx² of 10⁴": (lambda x: (x * x).sum(), normal(1, 10_000)),
    "Σx² + 1e9": (lambda x: (x * x).sum() + 1e9, normal(1, 5)),
}


@pytest.mark.parametrize("name", NOT_ZERO)
def test_a_zero_gradient_never_passes(name):
    forward, x = NOT_ZERO[name]
    assert verdict(check(forward, x, damage=zeros)) != Verdict.PASS


@pytest.mark.parametrize("name", ["Σx² + 1e9", "sigmoid at 1e-12", "exp at 1e-30"])
def test_a_zero_gradient_that_can_be_seen_is_a_mismatch(name):
    forward, x = NOT_ZERO[name]
    assert verdict(check(forward, x, damage=zeros)) == Verdict.MISMATCH


ROOT = math.sqrt(2 / math.pi)


def tanh_gelu(x, a=0.044715, b=ROOT):
    return 0.5 * x * (1 + torch.tanh(b * (x + a * x**3)))


def derivative_of(f):
    return lambda x, g: g * torch.func.vmap(torch.func.grad(f))(x.reshape(-1)).reshape(x.shape)


WRONG = {
    "0.0447 for 0.044715": with_backward(
        tanh_gelu, derivative_of(lambda x: tanh_gelu(x, a=0.0447))
    ),
    "float16 inside backward": with_backward(torch.sin, lambda x, g: g * x.cos().half().double()),
    "straight-through round": with_backward(torch.round, lambda x, g: g),
    "an infinity": with_backward(torch.sin, lambda x, g: g * x.cos() * math.inf),
    "not a subgradient": with_backward(
        lambda x: (x - x.detach().floor() * 0).relu(), lambda x, g: -0.5 * g
    ),
}


@pytest.mark.population(most=6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_a_mismatch(name, seed):
    assert verdict(check(WRONG[name], normal(seed, 12, k=2.0))) == Verdict.MISMATCH


def test_a_value_outside_the_slopes_of_a_kink_is_a_mismatch_and_inside_a_kink():
    outside = with_backward(torch.relu, lambda x, g: g * torch.where(x == 0, 1.5, (x > 0).double()))
    inside = with_backward(torch.relu, lambda x, g: g * torch.where(x == 0, 0.3, (x > 0).double()))
    assert verdict(check(outside, ZERO)) == Verdict.MISMATCH
    pair = check(inside, ZERO).pairs[0]
    assert (pair.verdict, pair.count(Outcome.KINK)) == (Verdict.PASS, 2)


@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-1.0, 1.0) * 12])
def test_every_sum_of_subgradients_of_a_sum_is_one(ends):
    """clamp(x).sum() at both bounds: torch gives 1 at each, and moved together they go by half of
    them at x, by all of them nearby."""
    assert verdict(check(lambda x: x.clamp(-1, 1).sum(), leaf(*ends, 0.3))) == Verdict.PASS


FAMILIES = {
    "sin": torch.sin,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "x·x": lambda x: x * x,
    "log": lambda x: x.abs().log(),
    "1/x": lambda x: 1 / x,
    "softmax": lambda x: x.softmax(0),
    "norm": lambda x: x.norm(),
    "layer_norm": lambda x: F.layer_norm(x, (6,), eps=0.0),
    "matmul": lambda x: x.view(2, 3) @ normal(9, 3, 2),
}


def scaled(name, scale):
    """The family in units of its input: f(x / scale)·scale' at x of that scale, as well conditioned
    as at 1."""
    return lambda x: FAMILIES[name](x / scale)


@pytest.mark.population(most=8)
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("name", FAMILIES)
def test_families_pass_at_all_scales_and_one_per_cent_is_found(name, scale):
    x = normal(11, 6, k=scale)
    entries = check(scaled(name, scale), x)
    assert verdict(entries) == Verdict.PASS
    assert verdict(check(scaled(name, scale), x, damage=times(1.01))) == Verdict.MISMATCH


def test_complex_functions_pass_and_the_conjugate_is_found():
    z = normal(1, 4, dtype=torch.complex128)

    def forward(z):
        return z * z, z.abs(), z.conj() * 2

    assert verdict(check(forward, z)) == Verdict.PASS
    assert (
        verdict(check(forward, z, damage=lambda grads: [g.conj().resolve_conj() for g in grads]))
        == Verdict.MISMATCH
    )


@pytest.mark.parametrize(
    ("turned", "expected"),
    [(1e-7, Verdict.PASS), (1e-5, Verdict.MISMATCH), (-1e-5, Verdict.MISMATCH)],
)
def test_the_error_of_a_complex_number_is_relative_to_its_modulus(turned, expected):
    """A turn of 1e-7 is 1e-4 of an imaginary part that is a thousandth of the real one."""
    z = torch.tensor([1.0 + 0.5e-3j, -0.7 + 1e-3j], dtype=torch.complex128)
    turn = complex(math.cos(turned), math.sin(turned))
    square = with_backward(lambda z: z * z, lambda z, g: g * (2 * z).conj() * turn)
    assert verdict(check(square, z)) == expected


def test_a_part_that_is_far_too_large_does_not_hide_an_error_of_the_other():
    def damaged(z, g):
        right = g * (2 * z).conj()
        return torch.complex(1e9 * right.real, 1.01 * right.imag)

    z = torch.tensor([1.0 + 0.5j, -0.7 + 0.3j], dtype=torch.complex128)
    (pair,) = check(with_backward(lambda z: z * z, damaged), z).pairs
    assert pair.count(Outcome.MISMATCH) == 8
