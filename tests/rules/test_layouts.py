from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from live import check, codes, evidence, fixed, message, randn
from torch.autograd import Function

from gradverify.rules.differ import Difference, rounded_anew
from rules.functions import X, Y, square, unary
from rules.rounding import (
    as_contiguous,
    attention,
    biased,
    branch,
    centred,
    distances,
    function,
    loss,
    variance,
)


# ---- GV210 cotangent-layout
def by_pointer(g):
    """What a kernel reads that was given a pointer and a count."""
    number = ctypes.c_double if g.dtype == torch.float64 else ctypes.c_float
    return torch.from_numpy(
        np.ctypeslib.as_array(
            ctypes.cast(g.data_ptr(), ctypes.POINTER(number)), tuple(g.shape)
        ).copy()
    )


def by_strides(g):
    return g.as_strided(g.shape, (g.shape[1], 1))


READS = {
    "a pointer": by_pointer,
    "as_strided": by_strides,
    "as_strided without the offset": lambda g: g.as_strided(g.shape, g.stride(), 0),
    "its storage": lambda g: (
        torch.empty(0, dtype=g.dtype).set_(g.untyped_storage())[: g.numel()].view(g.shape)
    ),
    "the first row only when strides are 0": lambda g: g if g.stride() != (0, 0) else g * 0,
    "transposed when permuted": lambda g: g if g.stride() != (1, 2) else g.flip(0),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_grad_output_that_is_taken_for_contiguous_is_found(read):
    result = check(square(lambda x, g: 2 * x * read(g)), X)
    assert codes(result) == {"GV210"}
    assert "and not" in message(
        result, "GV210"
    ) and "as with the same numbers contiguous" in message(result, "GV210")


# Of the storage, which may begin before a contiguous tensor
FROM_THE_START = {"as_strided without the offset", "its storage"}


@pytest.mark.parametrize("name", [name for name in READS if name not in FROM_THE_START])
def test_behind_contiguous_every_other_way_of_reading_is_right(name):
    assert (
        codes(
            check(square(lambda x, g: 2 * x * READS[name](g.contiguous())), X, second_order=False)
        )
        == set()
    )


@pytest.mark.parametrize("name", sorted(FROM_THE_START))
def test_behind_contiguous_what_reads_from_the_start_of_the_storage_is_found(name):
    function = square(lambda x, g: 2 * x * READS[name](g.contiguous()))
    x = X.clone().requires_grad_()
    torch.cat([torch.ones_like(X), function.apply(x)]).backward(
        torch.cat([X, 3 * torch.ones_like(X)])
    )
    # It is wrong: it takes the gradient of the other part
    assert not torch.equal(x.grad, 6 * X)
    result = check(function, X, second_order=False)
    assert codes(result) == {"GV210"}
    assert "contiguous behind other numbers" in message(result, "GV210")


def test_a_wrong_shortcut_for_ones_is_no_fault_of_the_layout():
    """The constant is compared with a multiple of the gradients for ones, and where these differ
    with itself, contiguous."""

    def shortcut(x, g):
        return 3 * x if bool((g == 1).all()) else 2 * x * g

    assert "GV210" not in codes(check(square(shortcut), X))
    assert codes(
        check(square(lambda x, g: 2 * x * READS["the first row only when strides are 0"](g)), X)
    ) == {"GV210"}
    # One of them for ones, which GV213 reads
    rules = check(square(lambda x, g: 2 * x * g), X).rules
    assert sum(run.calls.backward for run in rules if run.code in ("GV210", "GV213")) == 4


def test_a_view_that_raises_is_found():
    result = check(square(lambda x, g: 2 * x * g.view(-1).view(x.shape)), X)
    assert codes(result) == {"GV210"}
    assert (
        "sliced (every second column of wider rows), backward raised RuntimeError: view size"
        in message(result, "GV210")
    )
    assert codes(check(square(lambda x, g: 2 * x * g.reshape(-1).view(x.shape)), X)) == set()


def test_a_conjugate_bit_that_is_lost_is_found():
    def lost(z, g):
        return (
            2
            * z.conj()
            * torch.view_as_complex(
                torch.view_as_real(g.resolve_conj() if not g.is_conj() else g.conj()).clone()
            )
        )

    z = randn(2, 3, dtype=torch.complex128)
    result = check(square(lost), z)
    assert codes(result) == {"GV210"}
    assert "with the conjugate bit set" in message(result, "GV210")
    assert codes(check(square(lambda z, g: 2 * z.conj() * g), z)) == set()


def test_a_gradient_that_is_zero_for_a_constant_is_compared_with_a_dense_one():
    """Softmax under a constant cotangent gives nothing but rounding, which every summation order
    has its own of."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            if g.stride()[-1] == 0:
                # Summed in another order
                return y * (g - (g * y).flip(-1).cumsum(-1)[..., -1:])
            return y * (g - (g * y).sum(-1, keepdim=True))

    for dtype in ("float64", "float32"):
        assert (
            codes(
                check(
                    Softmax,
                    randn(4, 33).to(getattr(torch, dtype)),
                    dtype=dtype,
                    select=("GV2",),
                    ignore=("GV0",),
                )
            )
            == set()
        )


SHORTCUTS = {
    "all ones": lambda x, g: 2 * x * (g if not bool((g == 1).all()) else 1.001 * g),
    "all negative": lambda x, g: 2 * x * (g if not bool((g < 0).all()) else 0.5 * g),
}


@pytest.mark.parametrize("gradient", SHORTCUTS.values(), ids=SHORTCUTS)
def test_a_shortcut_for_a_constant_grad_output_is_not_linear(gradient):
    result = check(square(gradient), X, ignore=("GV228",))
    assert codes(result) == {"GV201"}
    assert "for a grad_output of ones, but" in message(result, "GV201")
    assert "of -2 throughout" in message(result, "GV201")
    assert codes(check(square(gradient), X, ignore=("GV201", "GV228"))) == set()


def test_a_right_shortcut_and_a_solver_that_stops_early_are_left_alone():
    def stops(x, g):
        found = torch.zeros_like(g)
        while (g - found).abs().max() > 1e-9:  # halves what is left: an absolute residual
            found = found + (g - found) / 2
        return 2 * x * found

    assert (
        codes(
            check(
                square(lambda x, g: 2 * x if bool((g == 1).all()) else 2 * x * g),
                X,
                ignore=("GV228", "GV109"),
            )
        )
        == set()
    )
    result = check(square(stops), X, ignore=("GV228", "GV109"))
    assert [finding.severity for finding in result.findings if finding.code == "GV201"] in (
        [],
        ["warning"],
    )
    assert codes(check(square(lambda x, g: 2 * x), X)) == {"GV201"}
    assert len(check(square(lambda x, g: 2 * x), X).findings) == 1


# ---- GV211 input-layout
def sine(read, weight=False):
    """sin(x), with `read` between x and what is computed."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            x = read(x.detach()).clone()
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos()

    return Sine


# No input is expanded
@pytest.mark.parametrize(
    "read", [read for name, read in READS.items() if "strides are 0" not in name]
)
def test_an_input_that_is_taken_for_contiguous_is_found(read):
    result = check(sine(read), X)
    assert codes(result) == {"GV211"}
    assert "with x " in message(
        result, "GV211"
    ) and "as with the same numbers contiguous" in message(result, "GV211")


@pytest.mark.parametrize("name", [name for name in READS if name not in FROM_THE_START])
def test_behind_contiguous_every_other_way_of_reading_an_input_is_right(name):
    function = sine(lambda x: READS[name](x.contiguous()))
    assert codes(check(function, X, second_order=False)) == set()


@pytest.mark.parametrize("name", sorted(FROM_THE_START))
def test_an_input_that_is_read_from_the_start_of_its_storage_is_found(name):
    function = sine(lambda x: READS[name](x.contiguous()))
    slice_of_x = torch.cat([torch.ones_like(X), X])[len(X) :]
    assert not torch.equal(function.apply(slice_of_x), X.sin())  # it is wrong
    result = check(function, X, second_order=False)
    assert codes(result) == {"GV211"}
    assert "contiguous behind other numbers" in message(result, "GV211")


@pytest.mark.parametrize("name", sorted(FROM_THE_START))
def test_a_backward_that_reads_what_was_saved_from_the_start_of_its_storage_is_found(name):
    function = unary(torch.sin, lambda x, g: g * READS[name](x.contiguous()).cos())
    result = check(function, X)
    assert codes(result) == {"GV211"}
    assert "with x contiguous behind other numbers" in message(result, "GV211")
    assert ", the gradient at x[" in message(result, "GV211")


def test_a_first_call_that_differs_is_no_matter_of_the_layout():
    """The first call of a check gets slices of larger tensors."""
    calls = list[int]()

    class Late(Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(1)
            return x.sin() if len(calls) > 1 else 2 * x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * X.cos()

    found = codes(check(Late, X, select=("GV205", "GV211", "GV231")))
    assert found == {"GV205"}


def test_a_backward_that_reads_what_was_saved_as_contiguous_is_found():
    result = check(unary(torch.sin, lambda x, g: g * by_strides(x).cos()), X)
    assert codes(result) == {"GV211"}
    assert "with x sliced (every second column of wider rows), the gradient at x[" in message(
        result, "GV211"
    )


def test_a_backward_that_raises_is_found():
    result = check(unary(torch.sin, lambda x, g: g * x.view(-1).cos().view(x.shape)), X)
    assert codes(result) == {"GV211"}
    assert "backward raised RuntimeError: view size" in message(result, "GV211")


class Product(Function):
    """x · w, which reads w as contiguous."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * by_strides(w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * by_strides(w), g * x


@pytest.mark.parametrize("w", [Y, fixed(Y)], ids=["differentiable", "not"])
def test_the_argument_at_fault_is_named_also_where_it_is_not_differentiated(w):
    assert {(found.code, found.input) for found in check(Product, X, w).findings} == {
        ("GV211", "w")
    }


def test_indices_are_laid_out_too_and_stay_in_range():
    def read(table, index):
        return table[index.as_strided(index.shape, (1,))]

    assert codes(check(read, randn(4, 2), fixed(torch.tensor([3, 0, 3])))) == {"GV211"}
    assert (
        codes(check(lambda table, index: table[index], randn(4, 2), fixed(torch.tensor([3, 0, 3]))))
        == set()
    )


def test_a_forward_that_refuses_is_not_at_fault_and_says_what_it_refused():
    def refuses(x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return x

    result = check(sine(refuses), X, second_order=False)
    run = next(run for run in result.rules if run.code == "GV211")
    assert codes(result) == set()
    assert (run.status, "forward raised ValueError: x must be contiguous" in run.reason) == (
        "not_applicable",
        True,
    )


def test_ties_may_be_broken_differently():
    x = torch.tensor([[1.0, 1.0, 0.5], [2.0, 2.0, 2.0]], dtype=torch.float64)

    class Max(Function):
        @staticmethod
        def forward(ctx, x):
            place = x.argmax(1) if x.is_contiguous() else x.shape[1] - 1 - x.flip(1).argmax(1)
            ctx.save_for_backward(place)
            ctx.shape = x.shape
            return x.gather(1, place[:, None])

        @staticmethod
        def backward(ctx, g):
            (place,) = ctx.saved_tensors
            return g.new_zeros(ctx.shape).scatter(1, place[:, None], g)

    assert "GV211" not in codes(check(Max, x))


def test_float32_sums_in_another_order_are_equal_within_rounding():
    x = randn(7, 33).float()
    assert (
        codes(
            check(
                lambda x: x.logsumexp(0) + x.std(0),
                x,
                dtype="float32",
                select=("GV211",),
                ignore=("GV0",),
            )
        )
        == set()
    )


# In the order of memory
NOISY = unary(torch.sin, lambda x, g: g * x.cos() + torch.randn_like(g) + torch.randn_like(x))


@pytest.mark.parametrize("code", ["GV210", "GV211"])
def test_noise_that_backward_draws_is_not_compared_between_layouts(code):
    run = next(run for run in check(NOISY, X, select=(code,)).rules if run.code == code)
    assert (run.status, run.reason) == (
        "not_applicable",
        "backward draws random numbers, which fall on other elements in another layout",
    )


@pytest.mark.parametrize("code", ["GV210", "GV211"])
def test_a_backward_that_draws_and_raises_for_a_layout_is_found(code):
    views = unary(
        torch.sin,
        lambda x, g: (
            x.view(-1).cos().view(x.shape) * g.view(-1).view(x.shape) + torch.randn_like(g)
        ),
    )
    assert codes(check(views, X, select=(code,))) == {code}


# ---- beside a wrong Jacobian
def gathered(shift, contiguous=False):
    """img[:, r, c], whose gradient is put together by flat places, `shift` too far, in memory that
    a view is taken of."""

    class Gather(Function):
        @staticmethod
        def forward(ctx, img, r, c):
            ctx.save_for_backward(img, r, c)
            return img[:, r, c]

        @staticmethod
        def backward(ctx, g):
            img, r, c = ctx.saved_tensors
            gradient = torch.zeros_like(
                img, memory_format=torch.contiguous_format if contiguous else torch.preserve_format
            )
            gradient.view(len(img), -1).index_add_(1, r * img.shape[2] + c + shift, g)
            return gradient, None, None

    return Gather


PLACES = randn(2, 3, 4), fixed(torch.tensor([0, 1, 2])), fixed(torch.tensor([2, 0, 1]))


@pytest.mark.parametrize(
    ("shift", "contiguous", "wanted"),
    [
        (0, True, []),
        (1, True, [("GV101", ())]),
        (0, False, [("GV211", ())]),
        (1, False, [("GV211", ("GV101",))]),
    ],
)
def test_a_wrong_jacobian_is_named_by_a_layout_that_is_refused(shift, contiguous, wanted):
    img = PLACES[0].clone().requires_grad_()
    (right,) = torch.autograd.grad(img[:, PLACES[1].value, PLACES[2].value].sum(), img)
    (own,) = torch.autograd.grad(
        gathered(shift, contiguous).apply(img, PLACES[1].value, PLACES[2].value).sum(), img
    )
    assert torch.equal(own, right) == (shift == 0)
    result = check(gathered(shift, contiguous), *PLACES)
    assert [(finding.code, finding.also) for finding in result.findings] == wanted


def test_of_a_function_inside_a_callable_the_layout_explains_the_jacobian():
    """Which gives it a transposed tensor where its own is contiguous."""
    inner = unary(torch.sin, lambda x, g: g * by_strides(x).cos())
    (found,) = check(lambda x: inner.apply(x.t()), X).findings
    assert (found.code, found.also) == ("GV211", ("GV101",))


# ---- layouts and rounding
# Functions that lose digits may give other numbers in another layout, as far as rounding makes
# them; what the layout makes is found beside that.
ASKED = (
    "GV205",
    "GV206",
    "GV207",
    "GV208",
    "GV209",
    "GV210",
    "GV211",
    "GV213",
    "GV215",
    "GV218",
    "GV220",
    "GV228",
)
PARTS = {
    "centred": (centred, [(40, 3)]),
    "biased": (biased, [(4, 5), (6, 5), (6,)]),
    "attention": (attention, [(4, 5), (4, 5), (6, 5), (6, 5)]),
    "branch": (branch, [(4, 5), (5, 5)]),
    "loss": (loss, [(6, 40)]),
}
CANCELS = {"distances": (distances, [(4, 6), (5, 6)]), "variance": (variance, [(4, 16)])}
OFFSETS = {torch.float64: 5e5, torch.float32: 100.0}
DTYPES = [torch.float64, torch.float32]


def drawn(shapes, seed, dtype=torch.float64, offset=0.0):
    return [
        (randn(*shape, seed=10 * seed + place) + offset).to(dtype)
        for place, shape in enumerate(shapes)
    ]


def found(made, inputs, **changes):
    return codes(
        check(
            made,
            *inputs,
            select=ASKED,
            second_order=False,
            dtype=str(inputs[0].dtype).removeprefix("torch."),
            **changes,
        )
    ) & set(ASKED)


@pytest.mark.population(most=6)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", PARTS.values(), ids=PARTS)
def test_a_part_in_float32_is_left_alone(made, shapes, dtype, seed):
    assert found(made(), drawn(shapes, seed, dtype), seed=seed) == set()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", CANCELS.values(), ids=CANCELS)
def test_numbers_that_cancel_are_left_alone(made, shapes, dtype):
    assert found(made(), drawn(shapes, 0, dtype, OFFSETS[dtype])) == set()


@pytest.mark.population(most=4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("made, shapes", (PARTS | CANCELS).values(), ids=PARTS | CANCELS)
def test_an_input_taken_for_contiguous_is_found_among_them(made, shapes, dtype):
    inputs = drawn(shapes, 1, dtype, OFFSETS[dtype] if made in (distances, variance) else 0.0)
    assert "GV211" in found(made(read=lambda x: as_contiguous(x.detach()).clone()), inputs)


@pytest.mark.population(most=4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "made, shapes",
    [(made, shapes) for made, shapes in (PARTS | CANCELS).values() if made is not loss],
)
def test_a_grad_output_taken_for_contiguous_is_found_among_them(made, shapes, dtype):
    inputs = drawn(shapes, 1, dtype, OFFSETS[dtype] if made in (distances, variance) else 0.0)
    assert "GV210" in found(made(read_g=as_contiguous), inputs)


def test_a_layout_that_is_computed_in_float32_is_found_beside_float64():
    """What float32 makes of the other layout is no rounding of the one in float64."""

    def narrow(x):
        return x if x.is_contiguous() else x.float().to(x.dtype)

    inputs = drawn([(4, 5), (6, 5)], 0)
    product = function(lambda x, w: x @ w.T, lambda g, x, w: (g @ w, g.T @ x))
    assert found(product(), inputs) == set()
    assert found(product(read=narrow), inputs) == {"GV211"}
    assert found(product(read_g=narrow), inputs) == {"GV210"}
    assert found(
        branch(read=lambda x: x if x.is_contiguous() else x * (1 + 1e-4)),
        drawn([(4, 5), (5, 5)], 0),
    ) >= {"GV211"}


def test_two_numbers_are_told_apart():
    slightly = function(torch.sin, lambda g, x: g * x.cos())(
        read=lambda x: x if x.is_contiguous() else x + 1e-8
    )
    told = message(check(slightly, randn(4, 5), select=("GV211",)), "GV211")
    seen, wanted = told.split(" is ")[1].split(" as with")[0].split(", and not ")
    assert float(seen) != float(wanted) and abs(float(seen) - float(wanted)) < 2e-8
    assert Difference("x", None, "x[0]", 1.5, 2.0).text == "the gradient at x[0] is 2, and not 1.5"


def test_one_that_is_wrong_every_other_time_does_not_excuse_itself():
    calls = []

    def alternates(x):
        calls.append(x)
        return variance_of(x) + len(calls) % 2

    def variance_of(x):
        return (x * x).mean() - x.mean() ** 2

    x = randn(8) + 1e4
    steady = rounded_anew(evidence(variance_of, x), lambda inputs: variance_of(*inputs).view(1))
    assert 1e8 * 2.0**-53 / 8 < float(steady) < 1e8 * 2.0**-48
    assert (
        float(rounded_anew(evidence(alternates, x), lambda inputs: alternates(*inputs).view(1)))
        == 0
    )


def test_agreeing_checks_call_nothing_more(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "gradverify.rules.differ.rounded_anew",
        lambda *given: asked.append(given) or torch.zeros(()),
    )
    assert found(function(torch.sin, lambda g, x: g * x.cos())(), drawn([(4, 5)], 0)) == set()
    assert asked == []
