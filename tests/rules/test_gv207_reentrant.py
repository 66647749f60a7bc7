from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from rules.functions import X, square
from rules.tricky import Used


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
    assert (result.verdict, codes(result) - {"GV227"}) == ("fail", {"GV207"})      # read once: no second backward either
    assert "a forward and backward with other inputs changes the gradient of an earlier call" in message(result, "GV207")


def test_gradcheck_accepts_state_on_the_class_that_is_read_once():
    class LastMask(Function):
        mask = None

        @staticmethod
        def forward(ctx, x):
            LastMask.mask = x > 0
            return x * LastMask.mask

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * LastMask.mask

    assert torch.autograd.gradcheck(LastMask.apply, X.clone().requires_grad_())
    assert codes(check(LastMask, X)) == {"GV207"}


def test_an_output_buffer_that_is_used_again_is_found():
    class Reuses(Function):
        buffer = torch.zeros(2, 3, dtype=torch.float64)

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.mul(x, x, out=Reuses.buffer).detach()

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            return 2 * grad_output * x

    assert "y0, returned by an earlier call, is overwritten by a later one" in message(check(Reuses, X, select=("GV207",)), "GV207")


def test_a_gradient_buffer_that_no_object_of_the_call_holds_is_found():
    buffer = torch.zeros(2, 3, dtype=torch.float64)
    result = check(square(lambda x, g: torch.mul(g, 2 * x.detach(), out=buffer)), X)
    assert codes(result) == {"GV207"}
    assert "the gradient of x, returned by an earlier call, is overwritten by a later one" in message(result, "GV207")


def test_scratch_that_adds_up_is_found_at_the_second_backward():
    class AddsUp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.sum = torch.zeros_like(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            x, = ctx.saved_tensors
            ctx.sum.add_(2 * x.detach() * grad_output)
            return ctx.sum.clone()

    assert "backward of one graph gives another gradient when it is called again" in message(check(AddsUp, X, select=("GV207",)), "GV207")


def test_values_that_depend_on_an_earlier_call_are_found():
    seen = []

    def function(x):
        if not seen or not torch.equal(seen[0], x):
            seen.append(x.detach().clone())
        return x * len(seen)

    assert "forward gives other values after a call with other inputs" in message(check(function, X, select=("GV207",)), "GV207")


def test_a_module_that_remembers_is_found():
    class Remembers(nn.Module):
        def forward(self, x):
            self.last = x.detach().clone()
            return Reads.apply(x, self)

    class Reads(Function):
        @staticmethod
        def forward(ctx, x, module):
            ctx.module = module
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.module.last, None

    assert codes(check(Remembers(), X)) == {"GV207"}


def test_a_function_that_is_not_defined_elsewhere_is_left_alone():
    def picky(x):
        if not torch.allclose(x, X, atol=0.3):
            raise ValueError("not here")
        return x * x

    assert codes(check(picky, X)) == set()


def test_random_functions_are_told_by_their_seed_and_others_are_not_judged():
    assert "GV207" not in codes(check(torch.nn.functional.dropout, randn(20)))
    run, = (run for run in check(lambda x: x * torch.rand(3, generator=OWN, dtype=torch.float64), randn(3)).rules if run.code == "GV207")
    assert run.reason == "the forward is not deterministic"


OWN = torch.Generator().manual_seed(0)


def test_where_a_second_backward_is_refused_each_graph_gets_one():
    assert codes(check(Used, X)) == {"GV227"}      # a warning


def test_it_costs_two_forwards_and_three_backwards_beside_the_repeats_that_others_asked_for():
    run, = (run for run in check(torch.sin, X).rules if run.code == "GV207")
    assert (run.calls.forward, run.calls.backward) == (2, 3)


# ---- a forward in between that breaks backward
def shared_work(own):
    """a · cumsum(x), whose sums lie in memory that all calls share; or, where `own`, in that of the call."""

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
    assert all(map(torch.equal, found, torch.autograd.grad((x.cumsum(1) * a).sum(), (x, a))))     # one forward, one backward: right
    result = check(shared_work(own=False), X, randn(3, seed=1))
    assert (result.verdict, codes(result)) == ("fail", {"GV207"})
    assert "a forward and backward with other inputs" in message(result, "GV207") and "an earlier call" in message(result, "GV207")
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
    assert "breaks the backward of an earlier call, which works without them: backward raised RuntimeError" in message(result, "GV207")


# ---- an update in place
def transposing(key, stale="backward"):
    """x @ w, with the transpose of w remembered under a key; forward too multiplies by it where that is `stale`."""
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
            x, = ctx.saved_tensors
            return g @ ctx.transposed.mH.t(), x.mH @ g

    return Cached


WEIGHT = randn(3, 2, seed=1)
BY_ADDRESS = {
    "data_ptr": torch.Tensor.data_ptr, "id": id, "storage": lambda w: w.untyped_storage().data_ptr(),
    "address and shape": lambda w: (w.data_ptr(), w.shape)}


def is_told(found, stale=""):
    """After an update in place; or, where torch gives an address out again to new tensors, after a call with other inputs, which is as true."""
    return ("after the inputs were updated in place, as an optimizer does, " in found and stale in found) or "after a call with other inputs" in found


@pytest.mark.parametrize("stale", ["forward", "backward"])
@pytest.mark.parametrize("key", BY_ADDRESS)
def test_what_is_remembered_by_a_tensors_address_is_old_after_an_update_in_place(key, stale):
    result = check(transposing(BY_ADDRESS[key], stale), X, WEIGHT, select=("GV207",))
    found = message(result, "GV207")
    assert is_told(found, f": {stale} goes on with what was kept of the old ones")
    assert "`_version`" in result.findings[0].hint or "after a call with other inputs" in found


def test_the_numbers_that_are_printed_are_those_of_the_old_weight_and_of_the_new():
    function = transposing(torch.Tensor.data_ptr)
    x, w = X.clone().requires_grad_(), (WEIGHT * 2).requires_grad_()
    for factor in (2, 1):       # what a training step does
        gradient, = torch.autograd.grad(function.apply(x, w), x, torch.ones(2, 2, dtype=x.dtype))
        assert torch.allclose(gradient, (2 * WEIGHT.sum(1)).expand(2, 3)), factor
        with torch.no_grad():
            w.div_(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.bfloat16], ids=str)
def test_in_every_dtype(dtype):
    name = str(dtype).removeprefix("torch.")
    values = [randn(2, 3).to(dtype), randn(3, 2, seed=1).to(dtype)]
    assert is_told(message(check(transposing(torch.Tensor.data_ptr), *values, select=("GV207",), dtype=name), "GV207"))
    assert codes(check(transposing(lambda w: (w.data_ptr(), w._version)), *values, select=("GV207",), dtype=name)) == set()


def test_a_module_that_packs_its_weight_once_is_found():
    class Packed(nn.Linear):
        def forward(self, x):
            if not hasattr(self, "packed"):
                self.packed = {}
            if self.weight.data_ptr() not in self.packed:
                self.packed[self.weight.data_ptr()] = self.weight.detach().clone()
            return Packs.apply(x, self.weight, self.packed[self.weight.data_ptr()]) + self.bias

    class Packs(Function):
        @staticmethod
        def forward(ctx, x, weight, packed):
            ctx.save_for_backward(x, packed)
            return x @ packed.t()

        @staticmethod
        def backward(ctx, g):
            x, packed = ctx.saved_tensors
            return g @ packed, g.t() @ x, None

    assert is_told(message(check(Packed(3, 2).double(), X, select=("GV207",)), "GV207"))
    assert codes(check(nn.Linear(3, 2).double(), X)) == set()


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


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


RIGHT = {
    "by version": lambda: (transposing(lambda w: (w.data_ptr(), w._version)), X, WEIGHT), "by reference": lambda: (by_reference(), X, WEIGHT),
    "by shape": lambda: (by_shape(), X), "a view": lambda: (Viewed, X), "written in place": lambda: (InPlace, X),
    "one tensor twice": lambda: (torch.mul, X, X), "not contiguous": lambda: (torch.mm, X, randn(2, 3, seed=1).t()),
    "a number": lambda: (torch.mul, X, randn(seed=1)), "complex": lambda: (torch.mul, *[randn(3, dtype=torch.complex128)] * 2),
    "a batch norm": lambda: (nn.BatchNorm1d(3).double(), randn(4, 3)), "random": lambda: (torch.nn.functional.dropout, randn(20))}


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
