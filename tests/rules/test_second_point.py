from __future__ import annotations

import pytest
import torch
from live import Oracles, check, codes, fixed, message, randn
from torch.autograd import Function

from rules.functions import Right, X, square


# ---- GV113 second-point
# Faults that show at other inputs, or with other plain numbers, only: state that was kept from the
# first call, numbers written into backward.
#
# Right functions may refuse other numbers, converge with few only, or have no derivative there.
def caching(keep, gradient):
    """x² whose first call computes `keep(x)` once and for all; backward is `gradient(kept, x,
    g)`."""
    first = []

    class Caching(Function):
        @staticmethod
        def forward(ctx, x):
            if not first:
                first.append(keep(x.detach().clone()))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return gradient(first[0], x, g)

    return Caching


def stale_mask():
    return caching(lambda x: x > 0, lambda mask, x, g: 2 * g * torch.where(mask, x.abs(), -x.abs()))


def stale_input():
    return caching(lambda x: x, lambda kept, x, g: 2 * g * kept)


def run(result):
    return next(run for run in result.rules if run.code == "GV113")


@pytest.mark.parametrize("make", [stale_mask, stale_input])
def test_what_was_kept_from_the_first_call_is_found_where_the_inputs_are_given(make):
    result = check(make(), X)
    assert codes(result) == {"GV113"}
    assert (
        "differ from the finite difference at another point of the same kind; worst at y0["
        in message(result, "GV113")
    )
    assert [comparison.rule for comparison in result.comparisons if comparison.mismatched] == [
        "GV113"
    ]


def test_it_is_looked_at_where_a_rule_has_found_a_fault_that_is_not_the_gradients():
    kept = []

    class Caching(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            kept.append(inputs[0].detach().clone())
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * g * kept[0] + 0 * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, tangent):
            return 3 * tangent * ctx.saved_tensors[0]

    assert {"GV108", "GV113"} <= codes(check(Caching, X))


def test_what_is_right_at_both_points_passes_in_eight_forwards_and_one_backward():
    result = check(Right, X)
    assert codes(result) == set()
    assert (run(result).status, run(result).calls.forward, run(result).calls.backward) == (
        "ran",
        3,
        1,
    )


def test_a_gradient_that_is_wrong_at_the_first_point_is_not_said_twice():
    result = check(square(lambda x, g: g * x), X)
    assert codes(result) == {"GV101"}
    assert run(result).reason == "GV101 was found already"
    assert codes(check(square(lambda x, g: g * x), X, ignore=("GV101",))) == {"GV008"}


def test_a_backward_that_works_at_the_first_point_only_is_found():
    def gradient(kept, x, g):
        if not torch.equal(kept, x):
            raise RuntimeError("not what I know")
        return 2 * g * x

    result = check(caching(lambda x: x, gradient), X, select=("GV113",), ignore=("GV0",))
    assert (
        "at another point of the same kind backward raised RuntimeError: not what I know"
        in message(result, "GV113")
    )


def test_positive_numbers_stay_positive_and_a_domain_is_kept():
    for function, x in ((torch.log, X.abs()), (torch.acos, X / 4)):
        result = check(function, x)
        assert codes(result) == set()
        assert run(result).status == "ran"


def test_where_the_first_other_point_is_refused_a_nearer_one_is_tried():
    def only_near(x):
        if (x - X).abs().max() > 0.1:
            raise ValueError("too far")
        return x.sin()

    result = check(only_near, X, select=("GV113",), ignore=("GV0",))
    # Base call, two refusals, direction
    assert (run(result).status, run(result).calls.forward) == ("ran", 1 + 2 + 3)


def test_where_there_is_no_other_point_that_is_said():
    nothing = run(check(lambda x: x.exp(), torch.zeros(3, dtype=torch.float64)))
    assert nothing.reason == "there is no other point: every input is zero"

    def nowhere_else(x):
        if not torch.allclose(x, X, rtol=1e-3):
            raise ValueError("nowhere else")
        return x.sin()

    assert (
        run(check(nowhere_else, X)).reason
        == "at another point of the same kind forward raised ValueError: nowhere else"
    )


def test_a_kink_or_a_noisy_output_is_left_out_and_the_rest_is_compared():
    def steps(x):
        return torch.cat([x.reshape(-1), (x.sum() * 1e3).round().reshape(1)])

    assert codes(check(steps, X, select=("GV113",), ignore=("GV0",))) == set()
    wrong = stale_mask()
    assert codes(
        check(
            lambda x: torch.cat(
                [wrong.apply(x).reshape(-1), (x.detach().sum() * 1e3).round().reshape(1)]
            ),
            X,
        )
    ) == {"GV113"}


class Stepped(Function):
    """A step whose backward is tanh's: by design for the surrogate."""

    first: tuple[torch.Tensor, ...] = ()

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - x.tanh() ** 2)


class SteppedOnce(Stepped):
    """The same, with the slopes of the first call."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        SteppedOnce.first = SteppedOnce.first or (1 - x.detach().tanh() ** 2,)
        return g * SteppedOnce.first[0]


@pytest.mark.parametrize(("function", "found"), [(Stepped, set()), (SteppedOnce, {"GV113"})])
def test_a_surrogate_is_what_is_differentiated_at_the_other_point_too(function, found):
    SteppedOnce.first = ()
    result = check(function, X, oracles=Oracles(surrogate="torch:tanh"), second_order=False)
    assert (codes(result), run(result).status) == (found, "ran")
    if found:
        assert (
            "from the finite difference of surrogate torch:tanh at another point of the same kind"
            in message(result, "GV113")
        )


# ---- state that is kept by shape
def keyed_by_shape(values, keep, gradient):
    """A Function whose backward needs `keep(x)`, which is computed once for each shape."""

    kept = {}

    class Cached(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = kept.setdefault(x.shape, keep(x.detach().clone()))
            return values(x)

        @staticmethod
        def backward(ctx, g):
            return gradient(ctx.kept, g)

    return Cached


def scattered(index, g):
    return torch.zeros(*g.shape[:-1], 3, dtype=g.dtype).scatter(-1, index, g)


CACHES = {
    "the mask of relu": (lambda x: x.clamp_min(0), lambda x: x > 0, lambda mask, g: g * mask),
    "the sign of abs": (torch.abs, torch.sign, lambda sign, g: g * sign),
    "the arg-max of max": (
        lambda x: x.amax(-1, keepdim=True),
        lambda x: x.argmax(-1, keepdim=True),
        scattered,
    ),
    "the order of sort": (lambda x: x.sort(-1).values, lambda x: x.argsort(-1), scattered),
    "the order of top-2": (
        lambda x: x.topk(2, -1).values,
        lambda x: x.topk(2, -1).indices,
        scattered,
    ),
}
GIVEN = {
    "both signs": randn(2, 3),
    "positive": randn(2, 3).abs() + 0.1,
    "square": randn(3, 3),
    "square, positive": randn(3, 3).abs() + 0.1,
    "three numbers": torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64),
    "one row": randn(1, 3, seed=3),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("numbers", GIVEN)
@pytest.mark.parametrize("cache", CACHES)
def test_what_is_kept_by_shape_is_found_whatever_numbers_are_given(cache, numbers):
    x = GIVEN[numbers]
    needs_signs = cache in ("the mask of relu", "the sign of abs")
    mixed = bool((x > 0).any() and (x < 0).any())
    found = codes(check(keyed_by_shape(*CACHES[cache]), x.clone(), select=("GV101", "GV113")))
    # Numbers of one sign have one mask
    assert found == ({"GV113"} if mixed or not needs_signs else set())


# ---- plain numbers
def scaled(slope, takes=lambda k: True):
    """x² k, of which backward takes k to be `slope(k)`; forward refuses k where `takes` says so."""

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, k):
            if not takes(k):
                raise ValueError(f"no {k}")
            ctx.save_for_backward(x)
            ctx.k = slope(k)
            return k * x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.k * ctx.saved_tensors[0], None

    return Scaled


def test_a_number_that_is_written_into_backward_is_found_and_named():
    result = check(scaled(lambda k: 0.5), X, 0.5)
    assert codes(result) == {"GV113"}
    assert "at another point of the same kind, with k = 0.685 instead of 0.5; worst at" in message(
        result, "GV113"
    )
    assert check(scaled(lambda k: k), X, 0.5).findings == ()


@pytest.mark.parametrize("k", [0.0, 0, -1, float("inf")])
def test_zero_negative_whole_numbers_and_infinity_stay(k):
    given = []
    check(scaled(lambda k: k, lambda k: given.append(k) or True), X, k, select=("GV113",))
    assert set(given) == {k}


def test_a_probability_stays_one():
    given = []
    check(scaled(lambda k: k, lambda k: given.append(k) or True), X, 0.9, select=("GV113",))
    assert len(set(given)) == 2 and all(0 < k < 1 for k in given)


def test_where_forward_refuses_other_numbers_the_old_ones_are_taken():
    kept = stale_input()
    refuses = scaled(lambda k: k, lambda k: k == 0.5)
    result = check(lambda x, k: refuses.apply(kept.apply(x), k), X, 0.5)
    assert codes(result) == {"GV113"}
    assert "at another point of the same kind; worst" in message(result, "GV113")
    assert run(check(refuses, X, 0.5)).status == "ran"
    assert run(check(lambda x, k: x * (k if k == 0.5 else float("nan")), X, 0.5)).status == "ran"


def test_a_solver_that_converges_with_few_step_sizes_only_is_left_alone():
    """x = y² by Newton's damped steps: nine of them reach the root for a step of 1, and 3 % beside
    it, not for 1.37."""

    class Root(Function):
        @staticmethod
        def forward(ctx, y, step):
            x = torch.ones_like(y)
            for _ in range(9):
                x = x - step * (x * x - y) / (2 * x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g / (2 * ctx.saved_tensors[0]), None

    result = check(Root, X.abs() + 0.5, 1.0)
    assert codes(result) == set()
    assert (
        "with step = 1.37 instead of 1.0 a direction differed, but no number by itself makes a "
        "formula wrong"
    ) in run(result).reason


def power(slope):
    """|x| to the k, of which backward takes k to be `slope(k)`."""

    class Power(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = slope(k)
            return x**k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k * ctx.saved_tensors[0] ** (ctx.k - 1), None

    return Power


def test_a_whole_number_in_whose_place_forward_takes_a_real_one_is_varied():
    result = check(power(lambda k: 2), X, 2)
    assert codes(result) == {"GV113"}
    assert "with k = 3.0 instead of 2; worst at" in message(result, "GV113")
    assert check(power(lambda k: k), X, 2).findings == ()


class Whole(Function):
    """The sum of squares in rows of n numbers: n is a size, and no other number fits."""

    given: tuple[object, ...] = ()

    @staticmethod
    def forward(ctx, x, n, dim):
        Whole.given += (n, dim)
        ctx.save_for_backward(x)
        return (x * x).view(-1, n).sum(dim)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g.repeat_interleave(3).view(x.shape), None, None


def test_sizes_and_dimensions_are_refused_by_torch_and_stay():
    Whole.given = ()
    result = check(Whole, X, 3, 1)
    assert (codes(result), run(result).status) == (set(), "ran")
    assert {type(number) for number in Whole.given[:-4]} >= {int}
    assert codes(check(lambda x, k: x.topk(k).values, X, 2)) == set()
    assert codes(check(lambda x, n: x.roll(n, 1) * n, X, 1)) == set()


@pytest.mark.parametrize("name", ["tol", "eps"])
@pytest.mark.parametrize("size", [1e-6, 1e-8, 1e-12])
def test_a_solvers_tolerance_is_no_eps_whatever_it_is_called(name, size):
    """The root by Newton's steps until they are small: whatever is left, backward takes it for the
    root."""

    class Root(Function):
        @staticmethod
        def forward(ctx, y, limit):
            x, step = torch.ones_like(y), torch.ones_like(y)
            for _ in range(200):  # float32 does not get there
                if step.abs().max() <= limit:
                    break
                step = (x * x - y) / (2 * x) * 0.5
                x = x - step
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g / (2 * ctx.saved_tensors[0]), None

    class Named(Root):
        @staticmethod
        def forward(ctx, y, tol):
            return Root.forward(ctx, y, tol)

    result = check(Named if name == "tol" else Root, X.abs() + 0.5, size, rtol=1e-4)
    assert codes(result) <= {"GV114"}


def test_sizes_counts_and_indices_are_not_varied():
    seen = []

    class Rows(Function):
        @staticmethod
        def forward(ctx, x, count, index, block_size):
            seen.append((count, index, block_size))
            ctx.shape, ctx.count = x.shape, count
            return x[:count] * 2

        @staticmethod
        def backward(ctx, grad_output):
            found = grad_output.new_zeros(ctx.shape)
            found[: ctx.count] = 2 * grad_output
            return found, None, None, None

    assert codes(check(Rows, randn(3, 4), fixed(2), fixed(1), fixed(4))) == set()
    assert {
        (int(c), int(i), int(b)) for c, i, b in seen if all(type(n) is int for n in (c, i, b))
    } == {(2, 1, 4)}


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_that_backward_does_not_follow_is_found_in_float32_too(dtype, hard):
    """3 % of the power are less of the sum along one direction than float32's tolerance; no element
    hides them."""

    class Focal(Function):
        @staticmethod
        def forward(ctx, x, gamma):
            ctx.save_for_backward(x)
            ctx.gamma = gamma
            return torch.sigmoid(-x) ** gamma * torch.nn.functional.softplus(-x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            power, p = 2.0 if hard else ctx.gamma, torch.sigmoid(-x)
            return -g * p**power * (power * (1 - p) * torch.nn.functional.softplus(-x) + p), None

    result = check(Focal, randn(8, 25, dtype=dtype), 2.0, dtype=str(dtype).removeprefix("torch."))
    assert codes(result) == ({"GV113"} if hard else set())
