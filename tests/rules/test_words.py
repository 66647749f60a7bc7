"""A hint holds for every mechanism that triggers its rule, and the line is that of the method at fault.

Each row is a mechanism as bug reports have it. What a hint must not say is the repair of another one. Expected words come from what the mechanism
is, not from what gradverify printed.
"""

from __future__ import annotations

import pytest
import torch
from live import check, fixed, randn
from torch import Tensor, nn
from torch.autograd import Function


def function(name: str, **methods):
    """A Function made of these methods; x² with a right backward where one is not given."""
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward), **{
        key: staticmethod(each) if callable(each) else each for key, each in methods.items()}})


def forward(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def backward(ctx, g):
    return 2 * ctx.saved_tensors[0] * g


# ---- GV102: no gradient
def returns_none(ctx, g):
    return None


def detaches(x):
    return x.detach() * 2 + 0 * x


# ---- GV103
def log_of_zero(ctx, x):
    ctx.save_for_backward(x)
    return torch.where(x > 0, x * x.clamp_min(1e-30).log(), torch.zeros_like(x))


def log_backward(ctx, g):
    x, = ctx.saved_tensors
    return g * torch.where(x > 0, x.log() + 1, 0 * x.log())


def overflows(ctx, g):
    x, = ctx.saved_tensors
    return g * 2 * x * ((800 * x.abs().clamp_min(1)).exp() / (800 * x.abs().clamp_min(1)).exp())


def over_norm(ctx, g):
    x, = ctx.saved_tensors
    return g * 2 * x * (x / x)


# ---- GV104
def relu(ctx, x):
    ctx.save_for_backward(x)
    return x.clamp_min(0)


def both(ctx, g):
    x, = ctx.saved_tensors
    return g * ((x >= 0).to(g) + (x == 0).to(g))


def beyond(ctx, g):
    x, = ctx.saved_tensors
    return g * torch.where(x == 0, -0.5, (x > 0).to(g))


def tripled(ctx, g):
    x, = ctx.saved_tensors
    return g * torch.where(x == 0, 3.0, (x > 0).to(g))


# ---- GV108
def jvp_raises(ctx, t):
    raise ValueError("not written yet")


def with_tangent(ctx, x):
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)
    return x * x


def jvp_halved(ctx, t):
    return ctx.saved_tensors[0] * t


def jvp_writes(ctx, t):
    return t.mul_(2).mul_(ctx.saved_tensors[0])


# ---- GV110
def apart(x):
    return x * x


def saves(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def vmap_scaled(info, in_dims, x):
    return Vmapped.apply(x) * 2, in_dims[0]


def vmap_raises(info, in_dims, x):
    raise NotImplementedError("not batched")


def vmap_moves(info, in_dims, x):
    return Vmapped.apply(x), 0


Vmapped = function("Vmapped", forward=apart, setup_context=saves, vmap=vmap_scaled)
VmapRaises = function("VmapRaises", forward=apart, setup_context=saves, vmap=vmap_raises)
VmapMoves = function("VmapMoves", forward=apart, setup_context=saves, vmap=vmap_moves)


def on_values(x):
    return x * x * float(x.sum().item() > -1e9)


Generated = function("Generated", forward=on_values, setup_context=saves, generate_vmap_rule=True)


# ---- GV113
def clamped(ctx, x):
    ctx.save_for_backward(x)
    return x.clamp(-1, 1) * 2


def no_mask(ctx, g):
    return 2 * g


def first_mask(ctx, x):
    ctx.save_for_backward(x)
    if "mask" not in KEPT or KEPT["mask"].shape != x.shape:
        KEPT["mask"] = (x > 0).to(x)
    return x.clamp_min(0)


def kept_mask(ctx, g):
    return g * KEPT["mask"]


def slope(ctx, x, alpha):
    ctx.save_for_backward(x)
    return torch.where(x > 0, x, alpha * x)


def half_slope(ctx, g):
    x, = ctx.saved_tensors
    return torch.where(x > 0, g, 0.5 * g), None


KEPT: dict[str, Tensor] = {}
Clamped = function("Clamped", forward=clamped, backward=no_mask)
Squared = function("Squared")
Kept = function("Kept", forward=first_mask, backward=kept_mask)


class Clamping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3, bias=False)
        nn.init.constant_(self.inner.weight, 0.1)

    def forward(self, x):
        return Clamped.apply(self.inner(x) + 1e-3 * Squared.apply(x))


# ---- GV201
def ignores(ctx, g):
    return 2 * ctx.saved_tensors[0]


def signs(ctx, g):
    return 2 * ctx.saved_tensors[0] * g.sign()


def clips(ctx, g):
    return 2 * ctx.saved_tensors[0] * g.clamp(-3, 3)


def regularises(ctx, g):
    return 2 * ctx.saved_tensors[0] * g + 0.01 * ctx.saved_tensors[0]


# ---- GV207
def with_buffer(ctx, x):
    ctx.save_for_backward(x)
    ctx.buffer = torch.zeros_like(x)
    return x * x


def adds_up(ctx, g):
    ctx.buffer += 2 * ctx.saved_tensors[0] * g
    return ctx.buffer


def adds_up_and_copies(ctx, g):
    ctx.buffer.add_(2 * ctx.saved_tensors[0] * g)
    return ctx.buffer.clone()


def counts(ctx, g):
    ctx.calls = getattr(ctx, "calls", 0) + 1
    return 2 * ctx.calls * ctx.saved_tensors[0] * g


def on_the_class(ctx, x):
    KEPT["x"] = x
    return x * x


def from_the_class(ctx, g):
    return 2 * KEPT["x"] * g


def one_buffer(ctx, g):
    if "out" not in KEPT or KEPT["out"].shape != g.shape:
        KEPT["out"] = torch.empty_like(g)
    return torch.mul(2 * ctx.saved_tensors[0], g, out=KEPT["out"])


# ---- GV212, GV217: registered operators, lists
@torch.library.custom_op("gradverify_words::scale", mutates_args=())
def scale(x: Tensor, w: Tensor) -> Tensor:
    return x * w


@torch.library.custom_op("gradverify_words::scale3", mutates_args=())
def scale3(x: Tensor, w: Tensor) -> Tensor:
    return x * w


@torch.library.custom_op("gradverify_words::total", mutates_args=())
def total(xs: list[Tensor], w: Tensor) -> Tensor:
    return sum(xs) * w


def one_of_two(ctx, g):
    return g * ctx.saved_tensors[1]


def three_of_two(ctx, g):
    return g * ctx.saved_tensors[1], g * ctx.saved_tensors[0], g


def in_single(ctx, g):
    return (g * ctx.saved_tensors[1]).float(), g * ctx.saved_tensors[0]


scale.register_autograd(one_of_two, setup_context=saves)
scale3.register_autograd(three_of_two, setup_context=saves)


def sum_of_list(ctx, xs, w):
    ctx.save_for_backward(*xs, w)
    return sum(x * w for x in xs)


def list_in_place(ctx, g):
    *xs, w = ctx.saved_tensors
    return [g * w for _ in xs], sum(g * x for x in xs)


def list_alone(ctx, g):
    *xs, w = ctx.saved_tensors
    return [g * w, g * xs[0]]


def product(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w


def gather(ctx, x, index):
    ctx.save_for_backward(index)
    ctx.rows = len(x)
    return x[index]


def index_too(ctx, g):
    index, = ctx.saved_tensors
    return torch.zeros(ctx.rows, *g.shape[1:], dtype=g.dtype).index_add(0, index, g), torch.zeros_like(index)


# ---- GV214, GV224: what is saved
def keeps(ctx, x):
    ctx.y = x.exp()
    return ctx.y


def kept_output(ctx, g):
    return g * ctx.y


def saves_unused(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.x = inputs[0].clone()


def reads_attribute(ctx, g):
    return 2 * ctx.x * g


# ---- GV222
def in_float32(x):
    return x.float().sin().double()


def in_bfloat16(x):
    return x.bfloat16().sin().double()



# ---- GV203, GV206, GV208, GV215, GV227
def writes(x):
    x.detach().add_(1)
    return x * x


def both_by_the_first(ctx, g):
    x, w = ctx.saved_tensors
    return (g * w, g * x) if ctx.needs_input_grad[0] else (None, None)


def saved_if_needed(ctx, x, w):
    ctx.save_for_backward(*([x, w] if x.requires_grad else [x]))
    return x * w


def unpacks_both(ctx, g):
    x, w = ctx.saved_tensors
    return g * w, g * x


def every_fifth(ctx, g):
    KEPT["calls"] = KEPT.get("calls", torch.zeros(())) + 1
    return 2 * ctx.saved_tensors[0] * g * (0.5 if KEPT["calls"] % 5 == 0 else 1.0)


def on_ctx(ctx, x):
    ctx.x = x
    return x * x


def from_ctx(ctx, g):
    return 2 * ctx.x * g


def set_on_ctx(ctx, inputs, output):
    ctx.x, = inputs


def deletes(ctx, g):
    gradient = 2 * ctx.x * g
    del ctx.x
    return gradient


def pushed(ctx, x):
    ctx.stack = [x.clone()]
    return x * x


def pops(ctx, g):
    return 2 * ctx.stack.pop() * g


ROWS = {   # (function, inputs, code, words of the hint, words that message and hint must not have, source of the line)
    "backward returns None": (
        function("A", backward=returns_none), [randn(3)],
        "GV102", ["requires_grad"], [], "return None"),
    "0 · log 0": (
        function("B", forward=log_of_zero, backward=log_backward), [torch.tensor([0.5, 0.0])],
        "GV103", ["0 · ∞"], ["work out the limit"], "return g * "),
    "an overflow": (
        function("C", backward=overflows), [randn(3)],
        "GV103", ["overflow"], ["work out the limit"], "return g * "),
    "x / x at 0": (
        function("D", backward=over_norm), [torch.tensor([0.5, 0.0])],
        "GV103", ["0/0"], ["work out the limit"], "return g * "),
    "both branches": (
        function("E", forward=relu, backward=both), [torch.tensor([0.5, 0.0])],
        "GV104", ["between"], ["exactly one branch"], "return g * "),
    "a number below": (
        function("F", forward=relu, backward=beyond), [torch.tensor([0.5, 0.0])],
        "GV104", ["between"], ["exactly one branch"], "return g"),
    "a number above": (
        function("F3", forward=relu, backward=tripled), [torch.tensor([0.5, 0.0])],
        "GV104", ["between"], ["one branch"], "return g"),
    "jvp raises": (
        function("G", forward=with_tangent, jvp=jvp_raises), [randn(3)],
        "GV108", [], ["tangent that is None"], "def jvp_raises"),
    "jvp is halved": (
        function("H", forward=with_tangent, jvp=jvp_halved), [randn(3)],
        "GV108", ["the sum over all inputs"], [], "def jvp_halved"),
    "jvp writes": (
        function("I", forward=with_tangent, jvp=jvp_writes), [randn(3)],
        "GV108", ["copy"], [], "def jvp_writes"),
    "vmap scales": (
        Vmapped, [randn(3)],
        "GV110", ["out_dims"], ["generated"], "def vmap_scaled"),
    "vmap raises": (
        VmapRaises, [randn(3)],
        "GV110", [], ["in_dims holds", "generated"], "def vmap_raises"),
    "vmap says another dimension": (
        VmapMoves, [randn(3)],
        "GV110", ["out_dims"], ["generated"], "def vmap_moves"),
    "a mask is missing": (
        Clamped, [torch.linspace(0.9, 0.99, 8)],
        "GV113", [], ["branch", "kept", "ctx"], "return 2 * g"),
    "a mask of the first call": (
        Kept, [randn(3)],
        "GV113", [], ["branch"], "return g * "),
    "a slope written into backward": (
        function("J", forward=slope, backward=half_slope), [randn(4), 0.5],
        "GV113", [], ["kept", "branch"], "return torch.where"),
    "grad_output ignored": (
        function("K", backward=ignores), [randn(3)],
        "GV201", ["contain grad_output exactly once"], [], "return 2 * "),
    "its sign": (
        function("L", backward=signs), [randn(3)],
        "GV201", ["contain grad_output exactly once"], ["ignores"], "return 2 * "),
    "clipped": (
        function("M", backward=clips), [randn(3)],
        "GV201", [], ["ignores"], "return 2 * "),
    "regularised": (
        function("N", backward=regularises), [randn(3)],
        "GV201", ["contain grad_output exactly once"], ["ignores"], "return 2 * "),
    "a buffer that adds up": (
        function("O", forward=with_buffer, backward=adds_up), [randn(3)],
        "GV207", ["as it is"], ["ignores", "belongs on ctx"], "def adds_up"),
    "a copy of it": (
        function("P", forward=with_buffer, backward=adds_up_and_copies), [randn(3)],
        "GV207", ["as it is"], ["ignores"], "def adds_up_and"),
    "a counter on ctx": (
        function("Q", backward=counts), [randn(3)],
        "GV207", ["as it is"], ["ignores"], "def counts"),
    "a tensor on the class": (
        function("R", forward=on_the_class, backward=from_the_class), [randn(3)],
        "GV207", ["on the class"], [], "def from_the"),
    "one buffer for all": (
        function("S", backward=one_buffer), [randn(3)],
        "GV207", ["fresh"], ["ignores"], "def one_buffer"),
    "an operator returns one of two": (
        scale, [randn(3), randn(3, seed=1)],
        "GV212", [], ["3 arguments", "GeneratedBackward"], "def one_of_two"),
    "an operator returns three of two": (
        scale3, [randn(3), randn(3, seed=1)],
        "GV212", [], ["GeneratedBackward", "position"], "def three_of_two"),
    "a list in a list's place": (
        function("T", forward=sum_of_list, backward=list_in_place), [[randn(3), randn(3, seed=1)], randn(3, seed=2)],
        "GV217", ["does not look into lists"], ["return None"], "def list_in_place"),
    "a list in place of a tuple": (
        function("U", forward=product, backward=list_alone), [randn(3), randn(3, seed=1)],
        "GV212", ["tuple"], [], "def list_alone"),
    "a gradient of an index": (
        function("V", forward=gather, backward=index_too), [randn(4, 2), fixed(torch.tensor([0, 2, 1]))],
        "GV217", ["return None"], [], "return torch.zeros"),
    "an output on ctx": (
        function("W", forward=keeps, backward=kept_output), [randn(3)],
        "GV214", ["circle"], [], "def keeps"),
    "saved by setup_context": (
        function("X", forward=apart, setup_context=saves_unused, backward=reads_attribute), [randn(3)],
        "GV224", [], [], "def saves_unused"),
    "float32 inside": (
        in_float32, [randn(20)],
        "GV222", ["unless forward is meant to round"], [], "def in_float32"),
    "bfloat16 inside": (
        in_bfloat16, [randn(20)],
        "GV222", ["unless forward is meant to round"], [], "def in_bfloat16"),
    "a callable writes into its input": (
        writes, [randn(3)],
        "GV203", ["copy"], ["mark_dirty"], "def writes"),
    "one flag for both gradients": (
        function("Y", forward=product, backward=both_by_the_first), [randn(3), randn(3, seed=1)],
        "GV208", ["whichever others"], [], "def both_by"),
    "saved for one of them only": (
        function("Z", forward=saved_if_needed, backward=unpacks_both), [randn(3), randn(3, seed=1)],
        "GV208", ["whichever others"], [], "def unpacks_both"),
    "every fifth call is halved": (
        function("AA", backward=every_fifth), [randn(3)],
        "GV206", ["kept from call to call"], ["leave no memory"], "def every_fifth"),
    "the input on ctx, by forward": (
        function("AB", forward=on_ctx, backward=from_ctx), [randn(3)],
        "GV215", ["version"], [], "def on_ctx"),
    "the input on ctx, by setup_context": (
        function("AC", forward=apart, setup_context=set_on_ctx, backward=from_ctx), [randn(3)],
        "GV215", ["version"], [], "def set_on_ctx"),
    "an attribute is deleted": (
        function("AD", forward=on_ctx, backward=deletes), [randn(3)],
        "GV227", ["find on ctx"], ["delete nothing"], "def deletes"),
    "a list is popped": (
        function("AE", forward=pushed, backward=pops), [randn(3)],
        "GV227", ["find on ctx"], ["delete nothing"], "def pops"),
}


@pytest.mark.parametrize("row", ROWS)
def test_words_and_line_fit_the_mechanism(row):
    KEPT.clear()
    op, inputs, code, said, unsaid, source = ROWS[row]
    values = [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs]
    found = next((each for each in check(op, *values).findings if each.code == code), None)
    assert found is not None
    text = f"{found.message} {found.cause.name if found.cause else ''} {found.hint or ''}"
    assert all(words in (found.hint or "") for words in said) and not any(words in text for words in unsaid), text
    assert (found.source or "").startswith(source), found.source


def test_a_quantiser_is_not_taken_for_a_narrow_dtype():
    codes = {finding.code for finding in check(lambda x: torch.round(x * 128) / 128, randn(20)).findings}
    assert "GV222" not in codes and "GV101" not in codes


def test_of_several_functions_in_a_module_the_wrong_one_is_shown():
    found = [each for each in check(Clamping, 3.1 + randn(4, 3).abs() / 20).findings if each.code == "GV113"]
    assert found and {each.source for each in found} == {"def no_mask(ctx, g):"}
