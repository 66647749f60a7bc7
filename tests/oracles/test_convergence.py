"""What an iteration leaves is gone where its tolerance is tighter, which a mistake is not; reading
numbers, or a loop over tiles, is no iteration."""

import pytest
import torch
from live import Oracles, check, codes, evidence, message, randn
from torch.autograd import Function

X, START = randn(4), randn(4, seed=1)


def quartered(start, tolerance):
    """An iteration towards 0."""
    y = start
    while y.abs().max() > tolerance:
        y = y / 4
    return y


def reaching(share, *, given=False, factor=0.0, iterates=False):
    """x² + share · start, whose gradient for `start` is None (`given`: `factor` times what it
    should be); `iterates`: x² and what is left of an iteration from the start on, at most
    `share`."""

    class Reaching(Function):
        @staticmethod
        def forward(ctx, x, start):
            ctx.save_for_backward(x)
            return x * x + (quartered(start, share) if iterates else share * start)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g, factor * share * g if given else None

    return Reaching


@pytest.mark.parametrize("given", [False, True], ids=["None", "zeros"])
def test_an_input_that_moves_the_output_by_next_to_nothing_is_a_warning(given):
    result = check(reaching(7e-12, given=given), X, START)
    assert (result.verdict, codes(result)) == ("pass", {"GV114"})
    assert (
        "d y0 / d start is zero, where the output moves by what is small compared with its row"
        in message(result, "GV114")
    )


@pytest.mark.parametrize("iterates", [False, True], ids=["straight", "iterating"])
@pytest.mark.parametrize(
    ("given", "code"), [(False, "GV102"), (True, "GV101")], ids=["None", "zeros"]
)
def test_a_missing_gradient_that_matters_stays_an_error(given, code, iterates):
    result = check(reaching(1e-4, given=given, iterates=iterates), X, START)
    assert result.verdict == "fail" and code in codes(result)


@pytest.mark.parametrize("share", [1e-8])
def test_only_a_function_that_iterates_may_leave_as_much_as_rtol_of_its_row(share):
    assert check(reaching(share), X, START).verdict == "fail"
    assert check(reaching(share, iterates=True), X, START).verdict == "pass"


def test_a_small_element_that_is_wrong_but_not_zero_is_no_leftover():
    assert "GV101" in codes(check(reaching(1e-10, given=True, factor=1.5), X, START))
    assert check(reaching(1e-10, given=True, factor=1.0), X, START).verdict == "pass"


# ---- what is no iteration
def three_reads(x):
    return x.min().item(), x.max().item(), x.mean().item()


def masked_tiles(x):
    return sum(1 for tile in x.split(1) if (tile.abs() > 0).any())


def ranges(x):
    for row in x:
        if float(row.detach()) > 1e9 or row < -1e9:
            raise ValueError("out of range")


def iterating(x):
    return quartered(x.detach().abs() + 1, 1e-12)


HEADS = {"reads": three_reads, "tiles": masked_tiles, "ranges": ranges, "an iteration": iterating}
SMALL = {torch.float32: (100.0, 3.0, 0.005, -0.002), torch.float64: (10000.0, 3.0, 0.0005, -0.0002)}


def square(head, sign):
    """x², whose gradient is times `sign` where x is small; `head` is called before."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            head(x)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g * torch.where(x.abs() < 0.01, sign, 1.0).to(x.dtype)

    return Square


@pytest.mark.population(most=4)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize("head", HEADS)
def test_a_wrong_sign_of_small_elements_is_an_error_whatever_forward_reads(head, dtype):
    x = torch.tensor(SMALL[dtype], dtype=dtype)
    settings = {"dtype": str(dtype).removeprefix("torch.")}
    wrong, right = (check(square(HEADS[head], sign), x, **settings) for sign in (-1.0, 1.0))
    assert wrong.verdict == "fail" and "GV101" in codes(wrong)
    assert right.verdict == "pass"


@pytest.mark.parametrize("head", HEADS)
def test_only_a_loop_that_a_tolerance_ends_is_an_iteration(head):
    found = evidence(
        square(HEADS[head], 1.0), torch.tensor(SMALL[torch.float64], dtype=torch.float64)
    )
    assert bool(found.stopping_tests) == (head == "an iteration")


class Window(Function):
    """Squares, tile by tile; in float16 the gradient of the last tile overflows on the way."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.cat([tile * tile if (tile.abs() > 0).any() else tile for tile in x.split(4)])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        *most, last = zip(x.split(4), g.split(4), strict=True)
        return torch.cat([*(2 * tile * v for tile, v in most), last[0] * last[1] * 16384 / 8192])


def test_an_overflow_in_the_tail_of_a_loop_over_tiles_is_an_error():
    x = (8 + 3 * randn(16)).half()
    assert check(Window, x, dtype="float16").verdict == "fail"
    assert check(Window, x.double()).verdict == "pass"


# ---- beside another implementation
def lopsided(x):
    """Numbers from 1 to 1e-7, which a share of 2e-8 of the largest is much of."""
    return x.exp() * torch.logspace(0, -7, 4, dtype=x.dtype)


def stopped(iterates, error=2e-8, wrong=0.0):
    """`lopsided`, and what an iteration leaves; `wrong`: and an error of that size in forward and
    backward, which no iteration leaves."""

    def left(x):
        return (quartered(torch.ones_like(x), error) if iterates else error) + wrong

    class Stopped(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return lopsided(x) + left(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * lopsided(x) + left(x) * g.sum()

    return Stopped


CASES = [
    (True, 2e-8, 0.0, True),
    (False, 2e-8, 0.0, False),
    (True, 1e-4, 0.0, False),
    (True, 1e-8, 2e-8, False),
]
NAMES = ["iterating", "straight", "too much", "a mistake"]


@pytest.mark.parametrize(("iterates", "error", "wrong", "right"), CASES, ids=NAMES)
def test_values_are_held_against_a_reference_beside_the_largest(iterates, error, wrong, right):
    result = check(
        stopped(iterates, error, wrong), X, oracles=REFERENCE, select=("GV105",), ignore=("GV0",)
    )
    assert codes(result) == (set() if right else {"GV105"})


@pytest.mark.population(most=2)
@pytest.mark.parametrize(("iterates", "error", "wrong", "right"), CASES, ids=NAMES)
def test_so_are_gradients(iterates, error, wrong, right):
    result = check(
        stopped(iterates, error, wrong), X, oracles=REFERENCE, select=("GV106",), ignore=("GV0",)
    )
    assert codes(result) == (set() if right else {"GV106"})


REFERENCE = Oracles(reference="oracles.test_convergence:lopsided")
