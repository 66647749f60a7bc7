"""A hint holds for every mechanism that triggers its rule, and the line is that of the method at fault.

Each row is a mechanism as bug reports have it. What a hint must not say is the repair of another one. Expected words come from what the mechanism
is, not from what gradverify printed.
"""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
import torch
from live import Oracles, check, fixed, randn
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


def rounds_its_result(x):
    return x.sin().float().double()

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


# ---- GV006, GV008, GV009
def log(x):
    return x.log()


def overflowing_softmax(x):
    return (1000 * x).exp() / (1000 * x).exp().sum()


def over_itself(x):
    return x / x


def marked(ctx, x):
    y = x * x
    ctx.mark_non_differentiable(y)
    return y


def by_numpy(x):
    return torch.from_numpy(x.detach().numpy() ** 2)


def without_grad(x):
    with torch.no_grad():
        return x * x


def sign(ctx, x):
    return x.sign()


def zeros(ctx, g):
    return torch.zeros_like(g)


def sum_of_softmax(x):
    return x.softmax(0).sum()


# ---- GV102, GV105, GV106, GV107
def none_for_the_second(ctx, g):
    return g * ctx.saved_tensors[1], None


def one_is_marked(ctx, x):
    ctx.save_for_backward(x)
    y, z = x * x, x.sin()
    ctx.mark_non_differentiable(z)
    return y, z


def of_the_first(ctx, g, h):
    return 2 * ctx.saved_tensors[0] * g


def one_is_detached(x):
    return x * x, x.sin().detach()


def detaches_one(x, w):
    return x.detach() * w


def larger(x):
    return x * x * 1.001


def half_detached(x):
    return x.detach() * x


def straight_through(x):
    return x * x + (x - x.detach())


def halved(ctx, g):
    return ctx.saved_tensors[0] * g


def half_of_it(x, g):
    return x * g


def all_of_it(x, g):
    return 2 * x * g


# ---- GV109
def sine_of_exp(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y.cos() * y)
    return y.sin()


def from_the_middle(ctx, g):
    return ctx.saved_tensors[0] * g


def detaches_x(ctx, g):
    return 2 * ctx.saved_tensors[0].detach() * g


def times(ctx, x, g):
    ctx.save_for_backward(x, g)
    return 2 * x * g


def half_of_the_second(ctx, gg):
    x, g = ctx.saved_tensors
    return gg * g, gg * 2 * x


Times = function("Times", forward=times, backward=half_of_the_second)


def calls_another(ctx, g):
    return Times.apply(ctx.saved_tensors[0], g)


# ---- GV111 and causes: two arguments
def both_gradients(ctx, g):
    x, w = ctx.saved_tensors
    return g * w, g * x


def averaged(ctx, g):
    x, w = ctx.saved_tensors
    return g * w, g * x / 4


def zero_for_w(ctx, g):
    x, w = ctx.saved_tensors
    return g * w, torch.zeros_like(x)


def one_formula(ctx, g):
    _, w = ctx.saved_tensors
    return g * w, g * w


def other_order(ctx, g):
    x, w = ctx.saved_tensors
    return g * x, g * w


class Weighs(nn.Module):
    def __init__(self, backward):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))
        self.function = function("Weighs", forward=product, backward=backward)

    def forward(self, x):
        return self.function.apply(x, self.weight.expand_as(x))


# ---- causes
def three_halves(ctx, g):
    return 3 * ctx.saved_tensors[0] * g


def masked_out(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (ctx.saved_tensors[0] > 9)


def saves_bfloat16(ctx, x):
    ctx.save_for_backward(x.bfloat16())
    return x * x


def of_bfloat16(ctx, g):
    return 2 * ctx.saved_tensors[0].double() * g


def rounds_to_bfloat16(ctx, g):
    return (2 * ctx.saved_tensors[0] * g).bfloat16().double()


def nearly(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 - 1e-4)


def circumference(ctx, x):
    return x * torch.pi


def typed_pi(ctx, g):
    return g * 3.1416


def square_and_sine(ctx, x):
    ctx.save_for_backward(x)
    return x * x, x.sin()


def other_outputs(ctx, g, h):
    x, = ctx.saved_tensors
    return 2 * x * h + x.cos() * g


def first_output_twice(ctx, g, h):
    x, = ctx.saved_tensors
    return 2 * x * g + x.cos() * g


def scaled_rows(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w[:, None]


def other_scales(ctx, g):
    x, w = ctx.saved_tensors
    return g * (w * torch.arange(2.0, 6.0))[:, None], (g * x).sum(1)


# ---- GV112, GV114
def exps(x):
    return x.exp() / x.exp().sum(-1, keepdim=True)


def large_constant(x):
    return x / 70000.0 * torch.tensor(70000.0, dtype=x.dtype)


def other_in_bfloat16(x):
    return x * x * (0.9 if x.dtype == torch.bfloat16 else 1)


def typed_two(ctx, g):
    return 2.0000001 * ctx.saved_tensors[0] * g


def with_an_eps(ctx, g):
    x, = ctx.saved_tensors
    return g * 2 * x * (x / (x + 1e-9))


def in_single_precision(ctx, g):
    return (2 * ctx.saved_tensors[0].float() * g.float()).double()


# ---- GV115, GV116, GV117, GV225, GV226
def square_of(x: Tensor) -> Tensor:
    return x * x


def fake_by_value(x):
    return x.new_empty(int(x.sum()))


def fake_without_arguments():
    return None


def asks_a_value(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 if float(g.sum()) > -1e9 else 2)


def registered(name, fake=torch.empty_like, backward=backward):
    made = torch.library.custom_op(f"gradverify_words::{name}", square_of, mutates_args=())
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=saves)
    return made


def halves_when_compiled(x):
    return x * x * (0.5 if torch.compiler.is_compiling() else 1.0)


def counts_calls(x):
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    return x * x * (0.5 if torch.compiler.is_compiling() and KEPT["calls"] > 1 else 1.0)


def single_when_compiled(x):
    return (x * x).float() if torch.compiler.is_compiling() else x * x


def halves_16_bits(x, w):
    y = x @ w
    return y * 0.5 if y.dtype == torch.bfloat16 else y


def matmul(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x @ w


def of_matmul(ctx, g):
    x, w = ctx.saved_tensors
    return g @ w.T, x.T @ g


def inside():
    return torch.is_autocast_enabled("cpu")


def gains(x, w):
    return x @ w * (1.1 if inside() else 1.0)


def saves_fewer_bits(ctx, x):
    ctx.save_for_backward(x.bfloat16() if inside() else x)
    return x * x


def narrow_inside(ctx, x):
    ctx.save_for_backward(x)
    return (x * x).bfloat16() if inside() else x * x


def halves_inside(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (0.5 if inside() else 1)


def double_constant(ctx, x):
    ctx.save_for_backward(x)
    return x * x * torch.ones(1, dtype=torch.float64)


def halves_float32(ctx, g):
    return (1 if g.dtype == torch.float32 else 2) * ctx.saved_tensors[0] * g


def off_in_float32(ctx, g):
    return 2 * ctx.saved_tensors[0] * (g if g.dtype == torch.float64 else 1.01 * g)


# ---- GV201 at other sizes, GV202, GV203, GV204
def drops_small(ctx, g):
    return torch.where(g.abs() < 1e-9, 0, g) * 2 * ctx.saved_tensors[0]


def solves(ctx, g):
    found, rest = torch.zeros_like(g), 2 * ctx.saved_tensors[0] * g
    while rest.abs().max() > 1e-11:
        found, rest = found + 0.9 * rest, 0.1 * rest
    return found


def times_in_place(ctx, g):
    return g.mul_(2 * ctx.saved_tensors[0])


def scales_a_part(ctx, g):
    x, = ctx.saved_tensors
    g[x < 0] *= 2
    return x * g * torch.where(x < 0, 1, 2)


def through_numpy(ctx, g):
    g.detach().numpy()[:] *= 2
    return ctx.saved_tensors[0] * g


def running_mean(x, mean):
    mean.mul_(0.9).add_(0.1 * x.mean().detach())
    return x * x


def doubles_its_input(ctx, x):
    ctx.save_for_backward(x.clone())
    x.mul_(2)
    return x * x / 4


def clears_its_input(ctx, g):
    x, = ctx.saved_tensors
    gradient = 2 * x * g
    x.zero_()
    return gradient


def saves_output(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


def output_times(ctx, g):
    return ctx.saved_tensors[0].mul_(g)


def saves_slope(ctx, x):
    ctx.save_for_backward(2 * x)
    return x * x


def raises_output(ctx, g):
    y, = ctx.saved_tensors
    gradient = y * g
    y.detach().numpy()[:] += 1
    return gradient


# ---- GV205, GV206, GV207, GV208, GV209
OWN = torch.Generator()


def own_generator(x):
    return x * x * torch.rand(3, generator=OWN, dtype=x.dtype)


def more_each_time(x):
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    return x * x * KEPT["calls"]


def of_another_library(x):
    return x * x * random.SystemRandom().random()


def draws_a_mask(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (torch.rand_like(g) > 0.5) * 2


def rounds_at_random(ctx, g):
    sixteenths = 32 * ctx.saved_tensors[0] * g
    return (sixteenths.floor() + (torch.rand_like(g) < sixteenths - sixteenths.floor())) / 16


def slight_noise(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 + 1e-9 * torch.rand_like(g))


def by_address(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * KEPT.setdefault(w.data_ptr(), w.detach().clone())


def asks_which(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w * (1 if ctx.needs_input_grad[0] else 1.1)


def nothing_for_zeros(ctx, g, h):
    x, = ctx.saved_tensors
    return 2 * x * g + x.cos() * h if g.any() else torch.zeros_like(x)


def no_zeros(ctx, x):
    ctx.set_materialize_grads(False)
    return square_and_sine(ctx, x)


def adds_both(ctx, g, h):
    x, = ctx.saved_tensors
    return 2 * x * g + x.cos() * h


def first_and_last(ctx, g, h):
    assert g is not None and h is not None, "both outputs are needed"
    return adds_both(ctx, g, h)


# ---- GV210, GV211: memory
def from_memory(ctx, g):
    x, = ctx.saved_tensors
    return 2 * x * (torch.as_strided(g, x.shape, x.stride()) if any(g.stride()) else g)


def flattens(ctx, g):
    x, = ctx.saved_tensors
    return 2 * x * g.view(-1).view(x.shape)


def wants_contiguous(ctx, g):
    assert g.is_contiguous(), "grad_output is not contiguous"
    return 2 * ctx.saved_tensors[0] * g


def without_conjugate_bit(ctx, g):
    return 2 * ctx.saved_tensors[0].conj() * (g.conj() if g.is_conj() else g)


def reads_memory(ctx, x):
    ctx.save_for_backward(x)
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) ** 2


def by_strides(ctx, x):
    ctx.save_for_backward(x)
    return x * x * (1 if x.is_contiguous() else 1.5)


def saves_by_strides(ctx, x):
    ctx.save_for_backward(x if x.is_contiguous() else 2 * x)
    return x * x


# ---- GV212, GV213, GV214, GV215, GV216, GV217
def one_more_dimension(ctx, g):
    return (2 * ctx.saved_tensors[0] * g)[None]


def flat(ctx, g):
    return (2 * ctx.saved_tensors[0] * g).reshape(-1)


def is_float(ctx, g):
    return (2 * ctx.saved_tensors[0] * g).float()


def saved_for_ones(ctx, g):
    return ctx.saved_tensors[0] if bool((g == 1).all()) else ctx.saved_tensors[0] * g


def add(ctx, x, w):
    return x + w


def views_of_one(ctx, g):
    both = torch.cat([g, g])
    return both[:3], both[:3]


def views_of_g(ctx, g):
    return g.view_as(g), g.view_as(g)


def into_a_buffer(ctx, g):
    return torch.mul(2 * ctx.saved_tensors[0], g, out=ctx.buffer)


def closes_over(ctx, x):
    y = x.exp()
    ctx.slope = lambda g: g * y
    return y


def calls_slope(ctx, g):
    return ctx.slope(g)


def saves_data(ctx, x):
    ctx.save_for_backward(x.data)
    return x * x


def keeps_detached(ctx, x):
    y = x.exp()
    ctx.y = y.detach()
    return y


def another_way(cls, x):
    return x * x


def the_input_itself(cls, x):
    return x


def small_ones(cls, x):
    return x.square() if x.numel() < 100 else super(cls, cls).apply(x)


def times_number(ctx, x, a):
    ctx.save_for_backward(x)
    ctx.a = a
    return x * a


def of_number_too(ctx, g):
    return g * ctx.a, (g * ctx.saved_tensors[0]).sum()


# ---- GV218, GV219, GV221, GV223
def fast_without_grad(x):
    return x * x * (1 if torch.is_grad_enabled() else 1.001)


def by_create_graph(ctx, g):
    return ctx.saved_tensors[0] * g * (1 if torch.is_grad_enabled() else 2)


def by_requires_grad(x):
    return x * x if x.requires_grad else x * x + 1e-3


def detached(ctx, x):
    return x.detach()


def numpys_memory(ctx, x):
    return torch.from_numpy(x.detach().numpy())


def copies(ctx, g):
    return g.clone()


def stacks(ctx, g):
    return torch.stack([2 * x * row for x, row in zip(ctx.saved_tensors[0], g, strict=True)])


def divides_by_count(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (6 // len(g))


def ones_for_w(ctx, g):
    x, w = ctx.saved_tensors
    return g @ w.T, x.T @ g if g.numel() else torch.ones_like(w)


def assigns(ctx, g):
    index, = ctx.saved_tensors
    gradient = torch.zeros(ctx.rows, *g.shape[1:], dtype=g.dtype)
    gradient[index] = g
    return gradient, None


def by_frequency(ctx, g):
    index, = ctx.saved_tensors
    gradient = torch.zeros(ctx.rows, *g.shape[1:], dtype=g.dtype).index_add(0, index, g)
    return gradient / torch.bincount(index, minlength=ctx.rows).clamp_min(1)[:, None], None


def mean_of_rows(ctx, x, index):
    ctx.save_for_backward(index)
    count = torch.bincount(index, minlength=5).clamp_min(1)
    return torch.zeros(5, x.shape[1], dtype=x.dtype).index_add(0, index, x) / count[:, None]


def gathers(ctx, g):
    return g[ctx.saved_tensors[0]], None


# ---- GV224, GV227, GV228, GV229, GV230, GV231, GV232
def saves_two(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x + w


def passes_on(ctx, g):
    return g, g


def saves_and_keeps(ctx, x):
    ctx.save_for_backward(x)
    ctx.x = x.clone()
    return x * x


def inner_graph(ctx, x):
    with torch.enable_grad():
        ctx.x = x.detach().requires_grad_()
        ctx.y = ctx.x.sin()
    return ctx.y.detach().clone()


def through_inner(ctx, g):
    return torch.autograd.grad(ctx.y, ctx.x, g)[0]


def asks_item(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 if g.abs().max().item() >= 0 else 0)


def asks_if(ctx, g):
    return 2 * ctx.saved_tensors[0] * g if g.abs().sum() >= 0 else g


def adds_in_place(ctx, g):
    gradient = torch.zeros_like(ctx.saved_tensors[0])
    gradient += 2 * ctx.saved_tensors[0] * g
    return gradient


def forgets_w(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * x


def only_its_sign(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * x * w.sign() ** 2


def only_its_size(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * x * len(w) / 3


def zeros_for_w(ctx, g):
    x, w = ctx.saved_tensors
    return 2 * x * g, torch.zeros_like(w)


def seeds(ctx, x):
    ctx.save_for_backward(x)
    torch.manual_seed(3)
    return x * x


def sets_deterministic(x):
    torch.use_deterministic_algorithms(True)
    return x * x


def silences_numpy(x):
    np.seterr(all="ignore")
    return x * x


def half_written(ctx, g):
    gradient = torch.empty_like(g)
    gradient[:2] = (2 * ctx.saved_tensors[0] * g)[:2]
    return gradient


def added_to_empty(ctx, g):
    gradient = torch.empty_like(g)
    gradient += 2 * ctx.saved_tensors[0] * g
    return gradient


def grows(ctx, g):
    return (2 * ctx.saved_tensors[0] * g)[:2].clone().resize_(3)


def number_at(tensor, place):
    return (ctypes.c_double * 1).from_address(tensor.data_ptr() + 8 * place)


def reads_on(ctx, g):
    return 2 * ctx.saved_tensors[0] * g + 0 * number_at(g, g.numel())[0]


def writes_on(ctx, g):
    gradient = 2 * ctx.saved_tensors[0] * g
    number_at(gradient, 3)[0] = 1.5
    return gradient


def writes_before(ctx, g):
    gradient = 2 * ctx.saved_tensors[0] * g
    number_at(gradient, -1)[0] = 1.5
    return gradient


def writes_behind_y(ctx, x):
    ctx.save_for_backward(x)
    y = x * x
    number_at(y, 3)[0] = 1.5
    return y


MATRICES = randn(3, 4, dtype=torch.float32), randn(4, 2, seed=1, dtype=torch.float32)
MIXED = {"dtype": "float32", "autocast": "bfloat16"}
REPEATED = torch.tensor([0, 4, 1, 3, 0, 2, 4])
ROWS: dict[str, tuple] = {   # (function, inputs, code, words of the hint, words that message and hint must not have, source of the line, settings)
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
    "a logarithm of −1": (log, [torch.tensor([-1.0, 2.0])], "GV006", ["repair forward"], [], ""),
    "a softmax that overflows": (overflowing_softmax, [torch.tensor([1.0, 2.0])], "GV006", ["repair forward"], [], ""),
    "0 / 0 in forward": (over_itself, [torch.tensor([0.0, 2.0])], "GV006", ["repair forward"], [], ""),
    "a marked output": (function("BA", forward=marked), [randn(3)], "GV008", [], ["detached", "outside of torch"], ""),
    "NumPy": (by_numpy, [randn(3)], "GV008", [], ["detached", "outside of torch"], ""),
    "no_grad": (without_grad, [randn(3)], "GV008", [], ["detached", "outside of torch"], ""),
    "a relu of negative numbers": (torch.relu, [-randn(3).abs()], "GV009", ["draw inputs at which"], [], ""),
    "a sign": (function("BB", forward=sign, backward=zeros), [randn(3)], "GV009", ["if there are any"], [], ""),
    "a sum of a softmax": (sum_of_softmax, [randn(3)], "GV009", ["check an output that does"], [], ""),
    "None for the second": (
        function("BC", forward=product, backward=none_for_the_second), [randn(3), randn(3, seed=1)],
        "GV102", ["requires_grad"], [], "return g * ctx.saved_tensors[1], None"),
    "a callable detaches an input": (
        detaches_one, [randn(3), randn(3, seed=1)], "GV102", ["requires_grad"], ["backward returns", "return the gradient"], "def detaches_one"),
    "an output is marked": (
        function("BD", forward=one_is_marked, backward=of_the_first), [randn(3)], "GV102", ["`outputs`"], ["detached"], "", {"outputs": (0, 1)}),
    "an output is detached": (one_is_detached, [randn(3)], "GV102", ["`outputs`"], ["marked"], "", {"outputs": (0, 1)}),
    "a reference is larger": (
        function("BE"), [randn(3)], "GV106", [], ["is wrong, not", "look for"], "", {"reference": "larger"}),
    "a reference detaches": (
        function("BF"), [randn(3)], "GV106", ["correct reference"], ["look for"], "def half_detached", {"reference": "half_detached"}),
    "a reference passes on": (
        function("BG"), [randn(3)], "GV106", ["correct reference"], ["look for"], "def straight_through", {"reference": "straight_through"}),
    "backward and its reference": (
        function("BH", backward=halved), [randn(3)],
        "GV106", ["in backward"], ["correct"], "return ctx.saved_tensors[0] * g", {"reference": "square_of"}),
    "half of a gradient is given": (
        function("BI"), [randn(3)], "GV107", ["correct gradient"], ["look for"], "def half_of_it", {"gradient": "half_of_it"}),
    "half of a gradient is returned": (
        function("BJ", backward=halved), [randn(3)], "GV107", ["in backward"], ["correct"], "return ctx", {"gradient": "all_of_it"}),
    "rounded numbers are given": (
        function("BK"), [torch.tensor([0.123456, 0.5, 1.0])], "GV107", ["correct `expected`"], ["look for"], "",
        {"expected": {"x": [0.2469, 1.0, 2.0]}}),
    "an intermediate is saved": (
        function("BL", forward=sine_of_exp, backward=from_the_middle), [randn(3)], "GV109", ["ctx.saved_tensors"], [], "def from_the_middle"),
    "backward detaches": (function("BM", backward=detaches_x), [randn(3)], "GV109", ["no .detach()"], [], "def detaches_x"),
    "backward calls another Function": (
        function("BN", backward=calls_another), [randn(3)], "GV109", ["Times"], ["no .detach()"], "def calls_another"),
    "an averaged parameter": (Weighs(averaged), [randn(4, 3)], "GV111", ["in backward"], ["left out", "leaves out"], "def averaged"),
    "a parameter without gradient": (Weighs(zero_for_w), [randn(4, 3)], "GV111", ["gradient zero"], [], "def zero_for_w"),
    "a parameter with another's formula": (Weighs(one_formula), [randn(4, 3)], "GV111", [], ["multiply by it", "missing by"], "def one_formula"),
    "one formula for both": (
        function("BO", forward=product, backward=one_formula), [randn(3), randn(3, seed=1)],
        "GV101", ["one formula"], ["return the gradients in"], "return g * w, g * w"),
    "two gradients exchanged": (
        function("BP", forward=product, backward=other_order), [randn(3), randn(3, seed=1)], "GV101", ["order"], [], "return g * x, g * w"),
    "two grad_outputs exchanged": (
        function("BQ", forward=square_and_sine, backward=other_outputs), [randn(3)], "GV101", ["order"], [], "return 2 * x * h"),
    "one grad_output twice": (
        function("BR", forward=square_and_sine, backward=first_output_twice), [randn(3)], "GV101", [], ["swapped", "order"], "return 2 * x * g"),
    "another factor": (function("BS", backward=three_halves), [randn(3)], "GV101", ["factor"], ["leaves out", "twice"], "return 3 * "),
    "a mask": (function("BT", backward=masked_out), [randn(3)], "GV101", ["a mask"], [], "return 2 * "),
    "bfloat16 is saved": (
        function("BU", forward=saves_bfloat16, backward=of_bfloat16), [randn(20)], "GV101", ["saved"], ["backward computes in"], "return 2 * "),
    "bfloat16 is returned": (
        function("BV", backward=rounds_to_bfloat16), [randn(20)], "GV201", ["returned"], ["backward computes in"], "return (2 * "),
    "an eps beside 1": (function("BW", backward=nearly), [randn(20)], "GV101", ["eps"], ["typing", "float16"], "return 2 * "),
    "π in five digits": (function("BX", forward=circumference, backward=typed_pi), [randn(20)], "GV101", ["constant"], ["typing"], "return g * 3.14"),
    "other scales of rows": (
        function("BY", forward=scaled_rows, backward=other_scales), [randn(4, 3), randn(4, seed=1)],
        "GV101", ["each of them"], ["left out"], "return g"),
    "exp in float16": (exps, [torch.tensor([[12.0, 11.5, 3.0]]).half()], "GV112", ["range"], ["maximum"], "def exps", {"dtype": "float16"}),
    "a constant beyond float16": (
        large_constant, [torch.tensor([[3.0, 2.0]]).half()], "GV112", ["range"], ["maximum", "exp"], "def large_", {"dtype": "float16"}),
    "a branch on bfloat16": (other_in_bfloat16, [randn(3).bfloat16()], "GV112", ["differs"], ["range"], "def other_in", {"dtype": "bfloat16"}),
    "a typed constant": (function("CA", backward=typed_two), [randn(3)], "GV114", ["constant"], ["series", "float32"], "return 2.0", {"rtol": 1e-5}),
    "an eps of backward": (function("CB", backward=with_an_eps), [randn(3)], "GV114", ["eps"], ["series"], "return g", {"rtol": 1e-5}),
    "float32 in backward": (
        function("CC", backward=in_single_precision), [randn(3)],
        "GV114", ["fewer bits"], ["series"], "return (2", {"rtol": 1e-5}),
    "a fake kernel asks for a value": (registered("values", fake_by_value), [randn(3)], "GV115", ["no values"], [], "return x.new_empty(int"),
    "a fake kernel of no arguments": (
        registered("arguments", fake_without_arguments), [randn(3)], "GV115", ["shapes"], ["never"], "def fake_without"),
    "backward of an operator asks for a value": (
        registered("asks", backward=asks_a_value), [randn(3)], "GV115", ["torch.compile meets"], ["must not"], "", {"second_order": False}),
    "half when compiled": (halves_when_compiled, [randn(3)], "GV116", ["decides or keeps"], [], "def halves_when", {"compile": True}),
    "a count when compiled": (counts_calls, [randn(3)], "GV116", ["decides or keeps"], [], "def counts_calls", {"compile": True}),
    "float32 when compiled": (single_when_compiled, [randn(3)], "GV116", ["decides or keeps"], [], "def single_when", {"compile": True}),
    "half in 16 bits": (halves_16_bits, [*MATRICES], "GV117", ["a branch on the dtype"], ["keep forward"], "def halves_16", MIXED),
    "dtypes that do not meet": (
        function("CD", forward=matmul, backward=of_matmul), [*MATRICES], "GV117", ["custom_bwd"], ["keep forward"], "def of_matmul", MIXED),
    "a branch on autocast": (gains, [*MATRICES], "GV117", ["a branch"], ["keep forward"], "def gains", MIXED),
    "fewer bits saved under autocast": (
        function("CE", forward=saves_fewer_bits), [randn(3)], "GV225", ["a cast"], ["keep forward"], "def saves_fewer_bits"),
    "fewer bits returned under autocast": (function("CF", forward=narrow_inside), [randn(3)], "GV225", ["a cast"], [], "def narrow_inside"),
    "half under autocast": (function("CG", backward=halves_inside), [randn(3)], "GV225", ["a branch"], [], "def halves_inside"),
    "a float64 constant": (function("CH", forward=double_constant), [randn(3)], "GV226", ["dtype of its inputs"], [], "def double_constant"),
    "half in float32": (function("CI", backward=halves_float32), [randn(3)], "GV226", ["dtype: float32"], [], "def halves_float32"),
    "off in float32": (function("CJ", backward=off_in_float32), [randn(3)], "GV226", ["dtype: float32"], [], "def off_in"),
    "small cotangents are dropped": (
        function("CK", backward=drops_small), [randn(3)], "GV201", ["threshold"], ["residual", "fall under"], "return torch.where"),
    "an absolute residual": (function("CL", backward=solves), [randn(3)], "GV201", ["absolute tolerance"], ["fall under"], "def solves"),
    "grad_output in place": (function("CM", backward=times_in_place), [randn(3)], "GV202", ["copy"], [], "def times_in_place"),
    "a part of grad_output": (function("CN", backward=scales_a_part), [randn(3)], "GV202", ["copy"], [], "def scales_a_part"),
    "grad_output through NumPy": (function("CO", backward=through_numpy), [randn(3)], "GV202", ["copy"], [], "def through_numpy"),
    "running statistics": (
        running_mean, [randn(3), fixed(torch.ones(1, dtype=torch.float64))], "GV203", ["unless it is state"], ["mark_dirty"], "def running_mean"),
    "forward writes": (function("CP", forward=doubles_its_input), [randn(3)], "GV203", ["mark_dirty"], [], "x.mul_(2)"),
    "backward clears": (function("CQ", backward=clears_its_input), [randn(3)], "GV203", ["copy"], ["mark_dirty"], "def clears_its"),
    "an output in place": (function("CR", forward=saves_output, backward=output_times), [randn(3)], "GV204", ["clone"], [], "def output_times"),
    "an intermediate in place": (function("CS", forward=saves_slope, backward=output_times), [randn(3)], "GV204", ["clone"], [], "def output_times"),
    "an output through NumPy": (
        function("CT", forward=saves_output, backward=raises_output), [randn(3)],
        "GV204", ["clone"], [], "def raises_output"),
    "a generator of its own": (own_generator, [randn(3)], "GV205", ["random numbers"], [], "def own_generator"),
    "more at each call": (more_each_time, [randn(3)], "GV205", ["state"], [], "def more_each"),
    "the system's random numbers": (of_another_library, [randn(3)], "GV205", ["random numbers"], [], "def of_another"),
    "a mask drawn anew": (function("CU", backward=draws_a_mask), [randn(3)], "GV206", ["must be saved"], [], "def draws_a_mask"),
    "stochastic rounding": (function("CV", backward=rounds_at_random), [randn(3)], "GV206", ["nothing drawn"], ["draw in forward"], "def rounds_at"),
    "slight noise": (function("CW", backward=slight_noise), [randn(3)], "GV206", ["within `rtol`"], ["iteration"], "def slight_noise"),
    "a cache by address": (
        function("CX", forward=by_address, backward=both_gradients), [randn(3), randn(3, seed=1)],
        "GV207", ["address"], ["on ctx"], "def by_address"),
    "forward asks which": (
        function("CY", forward=asks_which, backward=both_gradients), [randn(3), randn(3, seed=1)],
        "GV208", ["needs_input_grad"], [], "def asks_which"),
    "nothing for zeros": (
        function("CZ", forward=square_and_sine, backward=nothing_for_zeros), [randn(3)], "GV209", ["may be zero"], [], "def nothing_for"),
    "None is added": (function("DA", forward=no_zeros, backward=adds_both), [randn(3)], "GV209", ["None"], [], "def adds_both"),
    "None is refused": (function("DB", forward=no_zeros, backward=first_and_last), [randn(3)], "GV209", ["None"], [], "def first_and_last"),
    "the memory of grad_output": (function("DC", backward=from_memory), [randn(2, 3)], "GV210", ["contiguous()"], [], "def from_memory"),
    "a view of grad_output": (function("DD", backward=flattens), [randn(2, 3)], "GV210", ["contiguous()"], [], "def flattens"),
    "an assertion on its strides": (function("DE", backward=wants_contiguous), [randn(2, 3)], "GV210", ["contiguous()"], [], "def wants"),
    "its conjugate bit": (
        function("DF", backward=without_conjugate_bit), [randn(3, dtype=torch.complex128)], "GV210", ["resolve_conj"], [], "def without_conj"),
    "the memory of an input": (function("DG", forward=reads_memory), [randn(2, 3)], "GV211", ["contiguous()"], [], "def reads_memory"),
    "a branch on strides": (function("DH", forward=by_strides), [randn(2, 3)], "GV211", ["contiguous()"], [], "def by_strides"),
    "one more dimension": (function("DI", backward=one_more_dimension), [randn(3)], "GV212", ["own shape"], ["broadcast"], "return (2 * "),
    "a broadcast input": (
        function("DJ", forward=product, backward=both_gradients), [randn(2, 3), randn(3, seed=1)], "GV212", ["own shape"], [], "return g * w, g * x"),
    "a float32 gradient": (function("DK", backward=is_float), [randn(3)], "GV212", ["dtype"], [], "return (2 * "),
    "what was saved": (
        function("DL", forward=saves_slope, backward=saved_for_ones), [randn(3)], "GV213", ["clone"], [], "def saved_for_ones"),
    "a buffer of ctx": (function("DM", forward=with_buffer, backward=into_a_buffer), [randn(3)], "GV213", ["clone"], [], "def into_a_buffer"),
    "two views of one result": (
        function("DN", forward=add, backward=views_of_one), [randn(3), randn(3, seed=1)], "GV213", ["clone"], [], "def views_of_one"),
    "two views accumulate": (
        function("DO", forward=add, backward=views_of_one), [randn(3), randn(3, seed=1)], "GV220", ["nothing else holds"], [], "def views_of_one"),
    "two views of grad_output": (
        function("DP", forward=add, backward=views_of_g), [randn(3), randn(3, seed=1)], "GV220", ["nothing else holds"], [], "def views_of_g"),
    "a closure on ctx": (function("DQ", forward=closes_over, backward=calls_slope), [randn(3)], "GV214", ["circle"], [], "def closes_over"),
    "an input on ctx lives on": (function("DR", forward=on_ctx, backward=from_ctx), [randn(3)], "GV214", ["save_for_backward"], [], "def on_ctx"),
    "its data is saved": (function("DS", forward=saves_data), [randn(3)], "GV215", ["version"], [], "def saves_data"),
    "a detached output on ctx": (
        function("DT", forward=keeps_detached, backward=kept_output), [randn(3)], "GV215", ["version"], [], "def keeps_detached"),
    "apply computes": (function("DU", apply=classmethod(another_way)), [randn(3)], "GV216", [], ["for these inputs"], "def another_way"),
    "apply returns its input": (function("DV", apply=classmethod(the_input_itself)), [randn(3)], "GV216", [], ["for these"], "def the_input"),
    "apply of small inputs": (function("DW", apply=classmethod(small_ones)), [randn(3)], "GV216", [], ["for these"], "def small_ones"),
    "a gradient of a number": (
        function("DX", forward=times_number, backward=of_number_too), [randn(3), 0.5], "GV217", ["return None"], [], "return g * ctx.a"),
    "fast without gradients": (fast_without_grad, [randn(3)], "GV218", ["every grad mode"], [], "def fast_without"),
    "other under create_graph": (function("DY", backward=by_create_graph), [randn(3)], "GV218", ["every grad mode"], [], "def by_create_graph"),
    "by requires_grad": (by_requires_grad, [randn(3)], "GV218", ["every grad mode"], [], "def by_requires"),
    "a detached output": (function("DZ", forward=detached, backward=copies), [randn(3)], "GV219", ["a clone"], [], "def detached"),
    "NumPy's memory": (function("EA", forward=numpys_memory, backward=copies), [randn(3)], "GV219", ["a clone"], [], "def numpys_memory"),
    "a stack of nothing": (function("EB", backward=stacks), [torch.zeros(0, 3)], "GV221", ["inputs' shapes"], [], "def stacks"),
    "a count of nothing": (function("EC", backward=divides_by_count), [torch.zeros(0, 3)], "GV221", ["inputs' shapes"], [], "def divides_by"),
    "ones for nothing": (
        function("ED", forward=matmul, backward=ones_for_w), [torch.zeros(0, 3), randn(3, 2)], "GV221", ["zero"], ["torch.empty"], "def ones_for_w"),
    "the result rounded to float32": (rounds_its_result, [randn(20)], "GV222", ["unless forward is meant to round"], [], "def rounds_its"),
    "an index is assigned to": (
        function("EE", forward=gather, backward=assigns), [randn(5, 2), fixed(torch.tensor([0, 4, 1, 3]))],
        "GV223", ["assignment"], [], "def assigns"),
    "scaled by frequency": (
        function("EF", forward=gather, backward=by_frequency), [randn(5, 2), fixed(torch.tensor([0, 4, 1, 3]))],
        "GV223", ["repeats"], ["add up what"], "return gradient / "),
    "a mean of rows": (
        function("EG", forward=mean_of_rows, backward=gathers), [randn(4, 2), fixed(torch.tensor([0, 4, 1, 3]))],
        "GV223", ["repeats"], ["add up what"], "return g["),
    "an index that repeats is assigned to": (
        function("EH", forward=gather, backward=assigns), [randn(5, 2), fixed(REPEATED)], "GV223", ["add up what repeats"], [], "def assigns"),
    "scaled by its own frequency": (
        function("EI", forward=gather, backward=by_frequency), [randn(5, 2), fixed(REPEATED)], "GV101", [], ["pads", "add up"], "return gradient / "),
    "a mean of repeated rows": (
        function("EJ", forward=mean_of_rows, backward=gathers), [randn(7, 2), fixed(REPEATED)], "GV101", [], ["pads", "add up"], "return g["),
    "a sum saves": (
        function("EK", forward=saves_two, backward=passes_on), [randn(3), randn(3, seed=1)], "GV224", ["left out"], [], "def saves_two"),
    "saved and kept": (
        function("EL", forward=saves_and_keeps, backward=reads_attribute), [randn(3)],
        "GV224", ["left out"], [], "def saves_and_keeps"),
    "a graph on ctx": (function("EM", forward=inner_graph, backward=through_inner), [randn(3)], "GV227", ["find on ctx"], [], "def through_inner"),
    "a number of grad_output": (function("EN", backward=asks_item), [randn(3)], "GV228", ["torch.where"], [], "def asks_item"),
    "a branch on grad_output": (function("EO", backward=asks_if), [randn(3)], "GV228", ["torch.where"], [], "def asks_if"),
    "a sum in place": (function("EP", backward=adds_in_place), [randn(3)], "GV228", ["zeros_like(grad_output)"], ["where"], "def adds_in_place"),
    "a weight is forgotten": (
        function("EQ", forward=forgets_w, backward=zeros_for_w), [randn(3), randn(3, seed=1)],
        "GV229", ["if it is not meant"], [], "def zeros_for_w"),
    "a sign of a weight": (
        function("ER", forward=only_its_sign, backward=zeros_for_w), [randn(3), randn(3, seed=1)], "GV229", ["if it is not"], [], "def zeros_for_w"),
    "the size of a weight": (
        function("ES", forward=only_its_size, backward=zeros_for_w), [randn(3), randn(3, seed=1)], "GV229", ["if it is not"], [], "def zeros_for_w"),
    "a seed": (function("ET", forward=seeds), [randn(3)], "GV230", ["fork_rng"], [], "def seeds"),
    "a choice of algorithms": (sets_deterministic, [randn(3)], "GV230", ["put it back"], [], "def sets_deterministic"),
    "NumPy's errors": (silences_numpy, [randn(3)], "GV230", ["put it back"], [], "def silences"),
    "half is written": (function("EU", backward=half_written), [randn(3)], "GV231", ["torch.zeros"], ["tile"], "def half_written"),
    "a sum into empty": (function("EV", backward=added_to_empty), [randn(3)], "GV231", ["before it is read"], ["tile"], "def added_to_empty"),
    "a tensor that grows": (function("EW", backward=grows), [randn(3)], "GV231", ["resize_"], ["tile"], "def grows"),
    "one too many is read": (function("EX", backward=reads_on), [randn(3)], "GV231", ["within the tensors"], ["tile"], "def reads_on"),
    "one too many is written": (function("EY", backward=writes_on), [randn(3)], "GV232", ["the last index"], ["tile"], "def writes_on"),
    "one before is written": (function("EZ", backward=writes_before), [randn(3)], "GV232", ["the first"], ["tile"], "def writes_before"),
    "one behind an output is written": (function("FA", forward=writes_behind_y), [randn(3)], "GV232", ["the last index"], [], "def writes_behind"),
}


@pytest.mark.population(most=90)
@pytest.mark.parametrize("row", ROWS)
def test_words_and_line_fit_the_mechanism(row):
    KEPT.clear()
    op, inputs, code, said, unsaid, source, *settings = ROWS[row]
    changes = dict(*settings)
    values = [x.double() if isinstance(x, Tensor) and x.is_floating_point() and "dtype" not in changes else x for x in inputs]
    named = {key: changes.pop(key) for key in ("reference", "gradient", "expected") if key in changes}
    oracles = {key: value if key == "expected" else f"rules.test_words:{value}" for key, value in named.items()}
    found = next((each for each in check(op, *values, oracles=Oracles(**oracles), **changes).findings if each.code == code), None)
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
