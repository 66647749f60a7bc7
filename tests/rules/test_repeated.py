from __future__ import annotations

import random
import re
from functools import lru_cache

import numpy as np
import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakTensorKeyDictionary

from rules.functions import Right, RightProduct, X, Y, square
from rules.tricky import InPlace


# ---- GV205 forward-deterministic
def counting(step):
    calls = [0]

    def function(x):
        calls[0] += 1
        return x * (1 + step * calls[0])

    return function


def test_a_counter_is_named_as_that_and_not_as_a_wrong_gradient():
    result = check(counting(1.0), randn(3))
    assert (result.verdict, codes(result)) == ("fail", {"GV205"})
    assert "when called again with the same input" in message(result, "GV205")
    assert not result.comparisons
    assert [run.reason for run in result.rules if run.code == "GV101"] == [
        "the forward is not deterministic"
    ]


def test_a_generator_of_its_own_is_caught():
    own = torch.Generator().manual_seed(0)
    assert codes(
        check(lambda x: x * torch.rand(3, generator=own, dtype=torch.float64), randn(3))
    ) == {"GV205"}


def test_random_numbers_of_the_global_generators_are_the_same_in_every_forward():
    for draw in (
        lambda x: torch.rand_like(x),
        lambda x: torch.nn.functional.dropout(torch.ones_like(x)),
        lambda x: torch.from_numpy(np.random.rand(*x.shape)),
        lambda x: torch.full_like(x, random.random()),
    ):
        assert codes(check(lambda x, draw=draw: (x + 3) * draw(x), randn(5))) == set()


def test_without_reseeding_a_random_function_is_told_how_to_be_checked():
    result = check(torch.nn.functional.dropout, randn(20), reseed=False)
    assert codes(result) == {"GV205"}
    assert "leave out `reseed: false`" in result.findings[0].hint


def test_small_differences_can_be_accepted():
    assert codes(check(counting(1e-13), randn(3))) == {"GV205"}
    assert "GV205" not in codes(check(counting(1e-13), randn(3), nondeterminism=1e-9))


def test_nan_at_the_same_places_is_no_difference():
    result = check(lambda x: torch.stack([x.sum(), (x * torch.nan).sum()]), randn(3))
    assert codes(result) == {"GV006"}


def halves(like):
    """A mask of dropout, drawn where the state of the generator is put back."""
    with torch.random.fork_rng(devices=[]):
        return (torch.rand_like(like) < 0.5).to(like.dtype) * 2


def turned(g):
    """There and back by a random rotation that nobody hears of."""
    with torch.random.fork_rng(devices=[]):
        q, _ = torch.linalg.qr(torch.randn(g.numel(), g.numel(), dtype=g.dtype))
    return (q.mT @ (q @ g.reshape(-1))).reshape(g.shape)


def dropout(mask_of):
    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = halves(x)
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, g):
            return mask_of(ctx.saved_tensors[0], g)

    return Dropout


def test_a_mask_that_backward_draws_again_is_another_one_even_where_all_draws_are_hidden():
    result = check(dropout(lambda mask, g: g * halves(g)), randn(12))
    assert result.verdict == "fail"
    assert "GV101" in codes(result)
    assert "GV205" not in codes(result)


@pytest.mark.parametrize("shape", [(12,), (6, 5)])
@pytest.mark.parametrize("mask_of", [lambda mask, g: g * mask, lambda mask, g: turned(g * mask)])
def test_a_mask_that_is_drawn_in_hiding_and_kept_is_right(mask_of, shape):
    assert codes(check(dropout(mask_of), randn(*shape))) == set()


@pytest.mark.parametrize("period", [2, 3])
def test_what_is_different_now_and_then_is_no_random_number_in_hiding(period):
    calls = [0]

    def function(x):
        calls[0] += 1
        return x * (2 if calls[0] % period == 0 else 1)

    assert codes(check(function, randn(3))) == {"GV205"}


# ---- GV206 backward-deterministic
def notes(result, code="GV206"):
    return next(run for run in result.rules if run.code == code)


def wrong_in_calls(wrong):
    """x², twice too large in the calls whose number (from 1 on) is `wrong`."""
    calls = [0]

    def backward(x, g):
        calls[0] += 1
        return (4 if wrong(calls[0]) else 2) * x * g

    return square(backward)


@pytest.mark.parametrize("start", range(0, 20, 3))
def test_a_backward_that_is_wrong_on_every_twentieth_call_is_found_wherever_the_count_stands(start):
    result = check(wrong_in_calls(lambda n: (n + start) % 20 == 0), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV206"})
    assert re.match(
        "backward is not deterministic: of 2[1-3] calls with the same grad_output",
        message(result, "GV206"),
    )


def test_calls_of_other_rules_count_where_these_run_and_nothing_else_was_found():
    """Twenty calls, of which the other rules make and compare most."""

    def own(**settings):
        result = check(square(lambda x, g: 2 * x * g), X, **settings)
        assert codes(result) == set()
        return notes(result).calls.backward

    assert own() < own(select=("GV206",)) == own(deterministic=True) == 20


def test_what_another_rule_finds_in_a_backward_that_changes_is_not_reported_as_its_own():
    """The fault falls on a call with another layout, which GV210 makes: GV206 runs first then."""
    result = check(wrong_in_calls(lambda n: n > 10), X)
    assert codes(result) == {"GV206"}
    assert notes(result, "GV210").status == "not_applicable"
    assert codes(check(square(lambda x, g: 2 * x * g.view(-1).view(x.shape)), X)) == {"GV210"}


def test_the_first_call_of_all_is_among_those_compared():
    result = check(wrong_in_calls(lambda n: n == 1), X)
    assert codes(result) == {"GV206"}
    assert "the first call of all differs from the second" in message(result, "GV206")


@pytest.mark.parametrize(
    ("size", "severity"), [(2.0**-51, None), (2.0**-46, "warning"), (2.0**-40, "error")]
)
def test_rounding_is_right_what_atomics_do_is_a_warning_and_more_is_an_error(size, severity):
    calls = [0]

    def backward(x, g):
        calls[0] += 1
        return 2 * x * g * (1 + size * (calls[0] % 2))

    found = [finding.severity for finding in check(square(backward), X, select=("GV206",)).findings]
    assert found == ([severity] if severity else [])


def test_a_graph_that_a_backward_spoils_for_the_next_is_not_called_undeterministic():
    """It multiplies its scratch on ctx; on a fresh graph the gradient is the same each time."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.double = 2 * x.detach()
            return x * x

        @staticmethod
        def backward(ctx, g):
            result = ctx.double * g
            ctx.double.mul_(2)
            return result

    result = check(Square, X, select=("GV206",))
    assert codes(result) == set()
    assert "fresh graphs agree" in notes(result).reason


def test_a_function_that_refuses_a_second_backward_is_called_on_fresh_graphs():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = x.clone()
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, ctx.held = ctx.held, None
            return 2 * x * g

    result = check(Once, X, second_order=False)
    assert codes(result) == {"GV227"}  # a warning
    assert notes(result).reason.startswith("4 identical calls")


def test_gradients_that_are_rounding_throughout_are_deterministic_too():
    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y.sum(-1)

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            g = g[:, None].expand_as(y)
            return y * (g - (g * y).sum(-1, keepdim=True))

    assert "GV206" not in codes(check(Summed, randn(3, 5)))


def by_graph(factor):
    """x², the slope of which is `factor(number of this forward, is x a leaf)` times x."""

    class ByGraph(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            ByGraph.calls += 1
            ctx.factor = factor(ByGraph.calls, x.is_leaf)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return ctx.factor * g * ctx.saved_tensors[0]

    return ByGraph


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("often", [2, 4, 5, 9, 10])
def test_a_backward_that_is_wrong_for_every_nth_forward_is_found_as_that(often, seed):
    result = check(
        by_graph(lambda n, leaf: 1 if n % often == 0 else 2), randn(4, seed=seed), seed=seed
    )
    assert result.verdict == "fail" and codes(result) <= {"GV206", "GV215"}
    assert any(found.code == "GV206" and found.severity == "error" for found in result.findings)


def test_a_backward_that_is_wrong_where_the_input_is_a_result_is_found():
    result = check(by_graph(lambda n, leaf: 2 if leaf else 1), randn(3, 4), ignore=("GV215",))
    assert result.verdict == "fail"
    assert message(result, "GV206").startswith(
        "backward of another graph, whose inputs are results (x * 1), gives another gradient: "
    )
    assert codes(check(by_graph(lambda n, leaf: 2), randn(3, 4))) == set()
    assert "GV206" not in codes(
        check(by_graph(lambda n, leaf: 2 if leaf else 1), randn(3, 4), ignore=("GV206",))
    )


DROPS = {
    "torch": lambda d: d * (torch.rand_like(d) > 0.05),
    "NumPy": lambda d: d * float(np.random.random() > 0.2),
    "Python": lambda d: d * (random.random() > 0.2),
}


@pytest.mark.parametrize("generator", DROPS)
def test_a_backward_that_drops_a_few_gradients_at_random_is_found_though_every_call_is_seeded_alike(
    generator,
):
    result = check(square(lambda x, g: DROPS[generator](2 * x * g)), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV206"})
    assert "backward draws random numbers, and its gradient depends on them" in message(
        result, "GV206"
    )


def test_what_a_random_factor_does_is_not_taken_for_a_rounded_constant():
    """At one seed it is one factor, at every point."""
    result = check(square(lambda x, g: 2 * x * g * (1 + 1e-3 * torch.rand(()).item())), X)
    assert codes(result) == {"GV206"}
    assert all(finding.cause is None for finding in result.findings)


def dropout_with(backward):
    class Dropout(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.state = torch.get_rng_state()
            mask = torch.rand_like(x) > 0.4
            ctx.save_for_backward(x, mask)
            return x * x * mask

        @staticmethod
        def backward(ctx, g):
            return 2 * g * backward(ctx, *ctx.saved_tensors)

    return Dropout


def again(ctx, x, mask):
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(ctx.state)
        return x * (torch.rand_like(x) > 0.4)


def within_rounding(ctx, x, mask):
    return x * mask * (1 + 2.0**-52 * torch.rand_like(x))


@pytest.mark.parametrize(
    "backward",
    [
        again,
        within_rounding,
        lambda ctx, x, mask: x * mask + 0 * torch.rand_like(x),
        lambda ctx, x, mask: x * mask + 0 * random.random(),
    ],
    ids=[
        "recomputes the mask",
        "draws a rounding",
        "draws for nothing",
        "draws from Python for nothing",
    ],
)
def test_a_right_backward_may_draw(backward):
    result = check(dropout_with(backward), X)
    assert (result.verdict, codes(result)) == ("pass", set())


def test_what_a_random_start_leaves_of_an_iteration_is_a_warning():
    result = check(
        square(lambda x, g: 2 * x * g * (1 + 1e-9 * torch.rand_like(x))), X, select=("GV206",)
    )
    assert [finding.severity for finding in result.findings] == ["warning"]


# ---- GV207 reentrant
def on_the_class(once=False):
    """x² that keeps x on the class; `once`: a graph serves one backward."""

    class OnTheClass(Function):
        x = None

        @staticmethod
        def forward(ctx, x):
            OnTheClass.x = x.detach().clone()
            ctx.used = False
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            if once and ctx.used:
                raise RuntimeError("used")
            ctx.used = True
            return grad_output * 2 * OnTheClass.x

    return OnTheClass


@pytest.mark.parametrize("once", [False, True])
def test_state_on_the_class_is_named_as_that_and_not_as_a_wrong_gradient(once):
    result = check(on_the_class(once), X)
    # Read once: no second backward either
    assert (result.verdict, codes(result) - {"GV227"}) == ("fail", {"GV207"})
    assert (
        "a forward and backward with other inputs changes the gradient of an earlier call"
        in message(result, "GV207")
    )


def test_an_output_buffer_that_is_used_again_is_found():
    class Reuses(Function):
        buffer = torch.zeros(2, 3, dtype=torch.float64)

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.mul(x, x, out=Reuses.buffer).detach()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * grad_output * x

    assert "y0, returned by an earlier call, is overwritten by a later one" in message(
        check(Reuses, X, select=("GV207",)), "GV207"
    )


def test_a_gradient_buffer_that_no_object_of_the_call_holds_is_found():
    buffer = torch.zeros(2, 3, dtype=torch.float64)
    result = check(square(lambda x, g: torch.mul(g, 2 * x.detach(), out=buffer)), X)
    assert codes(result) == {"GV207"}
    assert (
        "the gradient of x, returned by an earlier call, is overwritten by a later one"
        in message(result, "GV207")
    )


def test_scratch_that_adds_up_is_found_at_the_second_backward():
    class AddsUp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.sum = torch.zeros_like(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            ctx.sum.add_(2 * x.detach() * grad_output)
            return ctx.sum.clone()

    assert "backward of one graph gives another gradient when it is called again" in message(
        check(AddsUp, X, select=("GV207",)), "GV207"
    )


def test_values_that_depend_on_an_earlier_call_are_found():
    seen = []

    def function(x):
        if not seen or not torch.equal(seen[0], x):
            seen.append(x.detach().clone())
        return x * len(seen)

    assert "after a call with other inputs y0[1,2] is 9, and not 3" in message(
        check(function, X, select=("GV207",)), "GV207"
    )


def test_a_function_that_is_not_defined_elsewhere_is_left_alone():
    def picky(x):
        if not torch.allclose(x, X, atol=0.3):
            raise ValueError("not here")
        return x * x

    assert codes(check(picky, X)) == set()


# ---- a forward in between that breaks backward
def shared_work(own):
    """a · cumsum(x), whose sums lie in memory that all calls share; or, where `own`, in that of the
    call."""

    class Cumsum(Function):
        work = None

        @staticmethod
        def forward(ctx, x, a):
            if Cumsum.work is None or Cumsum.work.dtype != x.dtype or own:
                Cumsum.work = torch.empty_like(x)
            torch.cumsum(x, 1, out=Cumsum.work)
            ctx.save_for_backward(Cumsum.work, a)
            return Cumsum.work * a

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            work, a = ctx.saved_tensors
            return (g * a).flip(1).cumsum(1).flip(1), (g * work).sum(0)

    return Cumsum


def test_a_workspace_that_all_calls_share_is_found_overwritten():
    x, a = X.clone().requires_grad_(), randn(3, seed=1).requires_grad_()
    found = torch.autograd.grad(shared_work(own=False).apply(x, a).sum(), (x, a))
    # One forward, one backward: right
    assert all(map(torch.equal, found, torch.autograd.grad((x.cumsum(1) * a).sum(), (x, a))))
    result = check(shared_work(own=False), X, randn(3, seed=1))
    assert (result.verdict, codes(result)) == ("fail", {"GV207"})
    assert "a forward and backward with other inputs" in message(
        result, "GV207"
    ) and "an earlier call" in message(result, "GV207")
    assert result.comparisons
    assert codes(check(shared_work(own=True), X, randn(3, seed=1))) == set()


class SeesItself(Function):
    """x², whose workspace is that of the last forward; it refuses to go on with another one."""

    last = 0

    @staticmethod
    def forward(ctx, x):
        SeesItself.last = ctx.number = SeesItself.last + 1
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        if ctx.number != SeesItself.last:
            raise RuntimeError("the workspace is another call's")
        return 2 * ctx.saved_tensors[0] * g


def test_a_backward_that_refuses_after_another_forward_is_named_as_that():
    result = check(SeesItself, X)
    assert (result.verdict, codes(result)) == ("fail", {"GV207"})
    assert (
        "breaks the backward of an earlier call, which works without them: backward raised "
        "RuntimeError"
    ) in message(result, "GV207")


# ---- an update in place
def transposing(key, stale="backward"):
    """x @ w, with the transpose of w remembered under a key; forward too multiplies by it where
    that is `stale`."""
    cache = {}

    class Cached(Function):
        @staticmethod
        def forward(ctx, x, w):
            if key(w) not in cache:
                cache[key(w)] = w.detach().t().clone()
            ctx.transposed = cache[key(w)]
            ctx.save_for_backward(x)
            return x @ (ctx.transposed.t() if stale == "forward" else w)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g @ ctx.transposed.mH.t(), x.mH @ g

    return Cached


WEIGHT = randn(3, 2, seed=1)
BY_ADDRESS = {
    "data_ptr": torch.Tensor.data_ptr,
    "id": id,
    "storage": lambda w: w.untyped_storage().data_ptr(),
    "address and shape": lambda w: (w.data_ptr(), w.shape),
}


def is_told(found, stale=""):
    """After an update in place; or, where torch gives an address out again to new tensors, after a
    call with other inputs, which is as true."""
    return (
        "after the inputs were updated in place, as an optimizer does, " in found and stale in found
    ) or "after a call with other inputs" in found


@pytest.mark.parametrize("stale", ["forward", "backward"])
@pytest.mark.parametrize("key", BY_ADDRESS)
def test_what_is_remembered_by_a_tensors_address_is_old_after_an_update_in_place(key, stale):
    result = check(transposing(BY_ADDRESS[key], stale), X, WEIGHT, select=("GV207",))
    found = message(result, "GV207")
    assert is_told(found, f": {stale} goes on with what was kept of the old ones")
    assert "`_version`" in result.findings[0].hint or "after a call with other inputs" in found


def by_reference():
    """x @ w, remembered with the tensor itself and its version, as a careful cache does."""
    kept = WeakTensorKeyDictionary()

    def key(w):
        known = kept.setdefault(w, (object(), w._version))
        if known[1] != w._version:
            kept[w] = known = (object(), w._version)
        return known[0]

    return transposing(key)


@lru_cache
def table(size):
    return torch.arange(1.0, size + 1, dtype=torch.float64)


def by_shape():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.table = table(x.shape[-1])
            return x * ctx.table

        @staticmethod
        def backward(ctx, g):
            return g * ctx.table

    return Scaled


class Viewed(Function):
    """Returns its input as a view, which an update of the input changes by right."""

    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(2, 3)


class WrittenInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


RIGHT = {
    "by version": lambda: (transposing(lambda w: (w.data_ptr(), w._version)), X, WEIGHT),
    "by reference": lambda: (by_reference(), X, WEIGHT),
    "by shape": lambda: (by_shape(), X),
    "a view": lambda: (Viewed, X),
    "written in place": lambda: (WrittenInPlace, X),
    "one tensor twice": lambda: (torch.mul, X, X),
    "not contiguous": lambda: (torch.mm, X, randn(2, 3, seed=1).t()),
    "a number": lambda: (torch.mul, X, randn(seed=1)),
    "complex": lambda: (torch.mul, *[randn(3, dtype=torch.complex128)] * 2),
    "a batch norm": lambda: (nn.BatchNorm1d(3).double(), randn(4, 3)),
    "random": lambda: (torch.nn.functional.dropout, randn(20)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_caches_that_notice_an_update_and_functions_without_one_are_left_alone(name):
    function, *values = RIGHT[name]()
    result = check(function, *values)
    assert "GV207" not in codes(result)
    assert [run.status for run in result.rules if run.code == "GV207"] == ["ran"]


@pytest.mark.parametrize("odds", range(2, 12))
def test_a_gradient_that_is_wrong_now_and_then_is_not_called_old(odds):
    class Now(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            Now.calls += 1
            return g * (2 if Now.calls % odds else 3)

    found = check(Now, X, select=("GV2",)).findings
    assert found
    assert not any("updated in place" in finding.message for finding in found)


# ---- GV220 accumulation
def total(gradients, refuses=False):
    """x + y with `gradients(grad_output)`."""

    class Total(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.used = False
            return x + y

        @staticmethod
        def backward(ctx, grad_output):
            if ctx.used and refuses:
                raise RuntimeError("used")
            ctx.used = True
            return gradients(grad_output)

    return Total


def two_views(g):
    return g.view_as(g), g.view_as(g)


@pytest.mark.parametrize("refuses", [False, True])
def test_two_views_of_grad_output_become_one_grad(refuses):
    result = check(total(two_views, refuses), X, Y)
    assert {(found.code, found.severity) for found in result.findings} - {("GV227", "warning")} == {
        ("GV220", "error")
    }
    assert "after two backwards is 3 at" in result.findings[0].message
    assert "not twice the first: 2" in result.findings[0].message


@pytest.mark.parametrize(
    "gradients",
    [
        lambda g: (g, g),
        lambda g: (g.clone(), g.clone()),
        lambda g: (g.view_as(g), g.clone()),
        lambda g: (g * 1, g),
    ],
)
def test_one_tensor_twice_and_copies_are_fine(gradients):
    assert codes(check(total(gradients), X, Y)) == set()


def test_an_argument_that_is_added_to_is_named():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x * y).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return (
                (y.detach(), grad_output * x)
                if grad_output == 1
                else (grad_output * y, grad_output * x)
            )

    assert "adding to .grad writes into y" in message(
        check(Weighted, X, Y, select=("GV220",)), "GV220"
    )
    # Of x the alias; of y, which is written to, the write
    assert codes(check(Weighted, X, Y)) == {"GV213", "GV220"}


def test_a_backward_that_raises_for_ones_is_this_rules_finding():
    def particular(g):
        if g.eq(1).all():
            raise ValueError("ones")
        return g, g

    result = check(total(particular), X, Y)
    assert (result.verdict, codes(result)) == ("fail", {"GV220"})
    assert message(result, "GV220") == "`.backward(ones)` twice: backward raised ValueError: ones"


def test_zeros_without_memory_are_right_though_autograd_cannot_add_to_them():
    """What torch.sgn gives for a gradient; a second `.backward()` of torch.sgn itself raises."""

    class Signed(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x)
            return x.sgn() * y

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch._efficientzerotensor(g.shape, dtype=g.dtype), g * x.sgn()

    result = check(Signed, X, Y)
    assert (result.verdict, codes(result)) == ("pass", set())
    reason = next(run.reason for run in result.rules if run.code == "GV220")
    assert (
        reason == "a gradient is torch's zeros without memory, to which autograd itself cannot add"
    )


def test_only_inputs_that_go_straight_into_a_function_are_judged():
    """Behind a view of torch's own it is torch that hands out views."""

    def reason(function, *values):
        return next(run.reason for run in check(function, *values).rules if run.code == "GV220")

    assert codes(check(lambda x, y: total(two_views).apply(x.view(-1), y.view(-1)), X, Y)) == set()
    assert (
        reason(lambda x: Right.apply(x * 2), X)
        == reason(InPlace, X)
        == "no input goes straight into a custom Function"
    )
    assert codes(check(lambda x, y: total(two_views).apply(x, y) * 1, X, Y)) == {"GV220"}


# ---- GV227 single-backward
# What a second backward needs is dropped by the first: an attribute deleted, a list emptied, a
# storage freed, a flag raised on purpose.
#
# Scratch that is written on ctx, saved tensors, and a second backward that works another way are
# right.
def squaring(backward):
    """x² whose context holds x as `ctx.x`, in the list `ctx.xs`, and saved."""

    class Squares(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.x, ctx.xs, ctx.used = x.clone(), [x.clone()], False
            return x * x

        @staticmethod
        def backward(ctx, g):
            return backward(ctx, g)

    return Squares


def deletes(ctx, g):
    gradient = 2 * g * ctx.x
    del ctx.x
    return gradient


def sets_to_none(ctx, g):
    gradient, ctx.x = 2 * g * ctx.x, None
    return gradient


def pops(ctx, g):
    return 2 * g * ctx.xs.pop()


def frees(ctx, g):
    if not ctx.x.untyped_storage().nbytes():
        raise RuntimeError("the storage was freed")
    gradient = 2 * g * ctx.x
    ctx.x.untyped_storage().resize_(0)
    return gradient


def refuses(ctx, g):
    if ctx.used:
        raise RuntimeError("used already")
    ctx.used = True
    return 2 * g * ctx.saved_tensors[0]


def scratch(ctx, g):
    ctx.g, ctx.used = g, True
    return 2 * g * ctx.saved_tensors[0]


def rebuilds(ctx, g):
    x = ctx.saved_tensors[0] if ctx.x is None else ctx.x
    ctx.x = None
    return 2 * g * x


@pytest.mark.parametrize("backward", [deletes, sets_to_none, pops, frees, refuses])
def test_a_second_backward_that_raises_is_a_warning(backward):
    result = check(squaring(backward), X, second_order=False, ignore=("GV224",))
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == (
        "pass",
        [("GV227", "warning")],
    )
    assert message(result, "GV227").startswith(
        "a second backward of one graph is refused, though it was retained: backward raised "
    )


@pytest.mark.parametrize("backward", [scratch, rebuilds])
def test_scratch_and_a_second_way_are_left_alone(backward):
    assert "GV227" not in codes(check(squaring(backward), X))


@pytest.mark.parametrize(
    "function", [Right, lambda x: Right.apply(Right.apply(x)), lambda x: RightProduct.apply(x, x)]
)
def test_right_functions_are_left_alone_at_no_cost(function):
    result = check(function, X)
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV227")
    assert (run.status, run.calls.forward) == ("ran", 0)


def test_torchs_own_operators_and_what_refuses_autograd_grad_are_not_for_this_rule():
    runs = {
        name: next(run for run in check(function, X).rules if run.code == "GV227").reason
        for name, function in (
            ("own", torch.sin),
            ("checkpoint", lambda x: checkpoint(Right.apply, x, use_reentrant=True)),
        )
    }
    assert runs == {
        "own": "no custom Function is in the graph",
        "checkpoint": "torch.autograd.grad is refused, as a re-entrant checkpoint does",
    }
    assert codes(check(lambda x: checkpoint(Right.apply, x, use_reentrant=False), X)) == set()


def test_a_backward_that_overwrites_what_it_needs_is_told_by_another_rule():
    assert codes(check(square(lambda x, g: x.mul_(2).mul_(g)), X, select=("GV2",))) & {
        "GV203",
        "GV204",
    }
    assert "GV227" not in codes(check(square(lambda x, g: x.mul_(2).mul_(g)), X))
