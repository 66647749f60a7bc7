"""A hint holds for every mechanism that triggers its rule, and the line is that of the method at
fault.

Each row is a mechanism as bug reports have it. What a hint must not say is the repair of another
one. Expected words come from what the mechanism is, not from what gradverify printed.
"""

from __future__ import annotations

import ctypes

import pytest
import torch
from live import Oracles, check, fixed, randn
from torch import Tensor, nn
from torch.autograd import Function


def function(name: str, **methods):
    """A Function made of these methods; x² with a right backward where one is not given."""
    return type(
        name,
        (Function,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(backward),
            **{
                key: staticmethod(each) if callable(each) else each for key, each in methods.items()
            },
        },
    )


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
    (x,) = ctx.saved_tensors
    return g * torch.where(x > 0, x.log() + 1, 0 * x.log())


# ---- GV104
def relu(ctx, x):
    ctx.save_for_backward(x)
    return x.clamp_min(0)


def both(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ((x >= 0).to(g) + (x == 0).to(g))


def beyond(ctx, g):
    (x,) = ctx.saved_tensors
    return g * torch.where(x == 0, -0.5, (x > 0).to(g))


# ---- GV108
def jvp_raises(ctx, t):
    raise ValueError("not written yet")


def with_tangent(ctx, x):
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)
    return x * x


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


Vmapped = function("Vmapped", forward=apart, setup_context=saves, vmap=vmap_scaled)
VmapRaises = function("VmapRaises", forward=apart, setup_context=saves, vmap=vmap_raises)


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
    (x,) = ctx.saved_tensors
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


def clips(ctx, g):
    return 2 * ctx.saved_tensors[0] * g.clamp(-3, 3)


def kept_gradient(ctx, g):
    if not hasattr(ctx, "first"):
        ctx.first = 2 * ctx.saved_tensors[0] * g
    return ctx.first


# ---- GV207
def with_buffer(ctx, x):
    ctx.save_for_backward(x)
    ctx.buffer = torch.zeros_like(x)
    return x * x


def adds_up(ctx, g):
    ctx.buffer += 2 * ctx.saved_tensors[0] * g
    return ctx.buffer


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


def one_of_two(ctx, g):
    return g * ctx.saved_tensors[1]


def three_of_two(ctx, g):
    return g * ctx.saved_tensors[1], g * ctx.saved_tensors[0], g


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
    (index,) = ctx.saved_tensors
    rows = torch.zeros(ctx.rows, *g.shape[1:], dtype=g.dtype)
    return rows.index_add(0, index, g), torch.zeros_like(index)


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


# ---- GV203, GV206, GV208, GV215, GV227
def writes(x):
    x.detach().add_(1)
    return x * x


def both_by_the_first(ctx, g):
    x, w = ctx.saved_tensors
    return (g * w, g * x) if ctx.needs_input_grad[0] else (None, None)


def every_fifth(ctx, g):
    KEPT["calls"] = KEPT.get("calls", torch.zeros(())) + 1
    return 2 * ctx.saved_tensors[0] * g * (0.5 if KEPT["calls"] % 5 == 0 else 1.0)


def on_ctx(ctx, x):
    ctx.x = x
    return x * x


def from_ctx(ctx, g):
    return 2 * ctx.x * g


def deletes(ctx, g):
    gradient = 2 * ctx.x * g
    del ctx.x
    return gradient


# ---- GV006, GV008, GV009
def log(x):
    return x.log()


def marked(ctx, x):
    y = x * x
    ctx.mark_non_differentiable(y)
    return y


def sign(ctx, x):
    return x.sign()


def zeros(ctx, g):
    return torch.zeros_like(g)


# ---- GV102, GV105, GV106, GV107
def one_is_marked(ctx, x):
    ctx.save_for_backward(x)
    y, z = x * x, x.sin()
    ctx.mark_non_differentiable(z)
    return y, z


def of_the_first(ctx, g, h):
    return 2 * ctx.saved_tensors[0] * g


def larger(x):
    return x * x * 1.001


def halved(ctx, g):
    return ctx.saved_tensors[0] * g


def half_of_it(x, g):
    return x * g


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


def one_formula(ctx, g):
    _, w = ctx.saved_tensors
    return g * w, g * w


def other_order(ctx, g):
    x, w = ctx.saved_tensors
    return g * x, g * w


# ---- causes
def three_halves(ctx, g):
    return 3 * ctx.saved_tensors[0] * g


def nearly(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 - 1e-4)


def square_and_sine(ctx, x):
    ctx.save_for_backward(x)
    return x * x, x.sin()


# ---- GV112, GV114
def exps(x):
    return x.exp() / x.exp().sum(-1, keepdim=True)


def other_in_bfloat16(x):
    return x * x * (0.9 if x.dtype == torch.bfloat16 else 1)


def typed_two(ctx, g):
    return 2.0000001 * ctx.saved_tensors[0] * g


# ---- GV115, GV116, GV117, GV225, GV226
def square_of(x: Tensor) -> Tensor:
    return x * x


def fake_by_value(x):
    return x.new_empty(int(x.sum()))


def asks_a_value(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 if float(g.sum()) > -1e9 else 2)


def registered(name, fake=torch.empty_like, backward=backward):
    made = torch.library.custom_op(f"gradverify_words::{name}", square_of, mutates_args=())
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=saves)
    return made


def halves_when_compiled(x):
    return x * x * (0.5 if torch.compiler.is_compiling() else 1.0)


def halves_16_bits(x, w):
    y = x @ w
    return y * 0.5 if y.dtype == torch.bfloat16 else y


def matmul(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x @ w


def inside():
    return torch.is_autocast_enabled("cpu")


def saves_fewer_bits(ctx, x):
    ctx.save_for_backward(x.bfloat16() if inside() else x)
    return x * x


def halves_inside(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (0.5 if inside() else 1)


def double_constant(ctx, x):
    ctx.save_for_backward(x)
    return x * x * torch.ones(1, dtype=torch.float64)


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


def running_mean(x, mean):
    mean.mul_(0.9).add_(0.1 * x.mean().detach())
    return x * x


def doubles_its_input(ctx, x):
    ctx.save_for_backward(x.clone())
    x.mul_(2)
    return x * x / 4


def saves_slope(ctx, x):
    ctx.save_for_backward(2 * x)
    return x * x


# ---- GV205, GV206, GV207, GV208, GV209
OWN = torch.Generator()


def own_generator(x):
    return x * x * torch.rand(3, generator=OWN, dtype=x.dtype)


def more_each_time(x):
    KEPT["calls"] = KEPT.get("calls", 0) + 1
    return x * x * KEPT["calls"]


def draws_a_mask(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (torch.rand_like(g) > 0.5) * 2


def slight_noise(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 + 1e-9 * torch.rand_like(g))


def by_address(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * KEPT.setdefault(w.data_ptr(), w.detach().clone())


def asks_which(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x * w * (1 if ctx.needs_input_grad[0] else 1.1)


def nothing_for_zeros(ctx, g, h):
    (x,) = ctx.saved_tensors
    return 2 * x * g + x.cos() * h if g.any() else torch.zeros_like(x)


def no_zeros(ctx, x):
    ctx.set_materialize_grads(False)
    return square_and_sine(ctx, x)


def adds_both(ctx, g, h):
    (x,) = ctx.saved_tensors
    return 2 * x * g + x.cos() * h


# ---- GV210, GV211: memory
def from_memory(ctx, g):
    (x,) = ctx.saved_tensors
    return 2 * x * (torch.as_strided(g, x.shape, x.stride()) if any(g.stride()) else g)


def without_conjugate_bit(ctx, g):
    return 2 * ctx.saved_tensors[0].conj() * (g.conj() if g.is_conj() else g)


# ---- GV212, GV213, GV214, GV215, GV216, GV217
def one_more_dimension(ctx, g):
    return (2 * ctx.saved_tensors[0] * g)[None]


def is_float(ctx, g):
    return (2 * ctx.saved_tensors[0] * g).float()


def saved_for_ones(ctx, g):
    return ctx.saved_tensors[0] if bool((g == 1).all()) else ctx.saved_tensors[0] * g


def add(ctx, x, w):
    return x + w


def views_of_one(ctx, g):
    both = torch.cat([g, g])
    return both[:3], both[:3]


def keeps_detached(ctx, x):
    y = x.exp()
    ctx.y = y.detach()
    return y


def another_way(cls, x):
    return x * x


def times_number(ctx, x, a):
    ctx.save_for_backward(x)
    ctx.a = a
    return x * a


def of_number_too(ctx, g):
    return g * ctx.a, (g * ctx.saved_tensors[0]).sum()


# ---- GV218, GV219, GV221, GV223
def fast_without_grad(x):
    return x * x * (1 if torch.is_grad_enabled() else 1.001)


def detached(ctx, x):
    return x.detach()


def ones_for_w(ctx, g):
    x, w = ctx.saved_tensors
    return g @ w.T, x.T @ g if g.numel() else torch.ones_like(w)


def assigns(ctx, g):
    (index,) = ctx.saved_tensors
    gradient = torch.zeros(ctx.rows, *g.shape[1:], dtype=g.dtype)
    gradient[index] = g
    return gradient, None


# ---- GV224, GV227, GV228, GV229, GV230, GV231, GV232
def saves_two(ctx, x, w):
    ctx.save_for_backward(x, w)
    return x + w


def passes_on(ctx, g):
    return g, g


def asks_item(ctx, g):
    return 2 * ctx.saved_tensors[0] * g * (1 if g.abs().max().item() >= 0 else 0)


def adds_in_place(ctx, g):
    gradient = torch.zeros_like(ctx.saved_tensors[0])
    gradient += 2 * ctx.saved_tensors[0] * g
    return gradient


def sets_deterministic(x):
    torch.use_deterministic_algorithms(True)
    return x * x


def half_written(ctx, g):
    gradient = torch.empty_like(g)
    gradient[:2] = (2 * ctx.saved_tensors[0] * g)[:2]
    return gradient


def number_at(tensor, place):
    return (ctypes.c_double * 1).from_address(tensor.data_ptr() + 8 * place)


def reads_on(ctx, g):
    return 2 * ctx.saved_tensors[0] * g + 0 * number_at(g, g.numel())[0]


def writes_on(ctx, g):
    gradient = 2 * ctx.saved_tensors[0] * g
    number_at(gradient, 3)[0] = 1.5
    return gradient


MATRICES = randn(3, 4, dtype=torch.float32), randn(4, 2, seed=1, dtype=torch.float32)
MIXED = {"dtype": "float32", "autocast": "bfloat16"}
REPEATED = torch.tensor([0, 4, 1, 3, 0, 2, 4])
# (function, inputs, code, words of the hint, words that message and hint must not have, source of
# the line, settings)
ROWS: dict[str, tuple] = {
    "backward returns None": (
        function("A", backward=returns_none),
        [randn(3)],
        "GV102",
        ["requires_grad"],
        [],
        "return None",
    ),
    "0 · log 0": (
        function("B", forward=log_of_zero, backward=log_backward),
        [torch.tensor([0.5, 0.0])],
        "GV103",
        ["0 · ∞"],
        ["work out the limit"],
        "return g * ",
    ),
    "both branches": (
        function("E", forward=relu, backward=both),
        [torch.tensor([0.5, 0.0])],
        "GV104",
        ["between"],
        ["exactly one branch"],
        "return g * ",
    ),
    "a number below": (
        function("F", forward=relu, backward=beyond),
        [torch.tensor([0.5, 0.0])],
        "GV104",
        ["between"],
        ["exactly one branch"],
        "return g",
    ),
    "jvp raises": (
        function("G", forward=with_tangent, jvp=jvp_raises),
        [randn(3)],
        "GV108",
        [],
        ["tangent that is None"],
        "def jvp_raises",
    ),
    "jvp writes": (
        function("I", forward=with_tangent, jvp=jvp_writes),
        [randn(3)],
        "GV108",
        ["copy"],
        [],
        "def jvp_writes",
    ),
    "vmap scales": (Vmapped, [randn(3)], "GV110", ["out_dims"], ["generated"], "def vmap_scaled"),
    "vmap raises": (
        VmapRaises,
        [randn(3)],
        "GV110",
        [],
        ["in_dims holds", "generated"],
        "def vmap_raises",
    ),
    "a mask is missing": (
        Clamped,
        [torch.linspace(0.9, 0.99, 8)],
        "GV113",
        [],
        ["branch", "kept", "ctx"],
        "return 2 * g",
    ),
    "a mask of the first call": (Kept, [randn(3)], "GV113", [], ["branch"], "return g * "),
    "a slope written into backward": (
        function("J", forward=slope, backward=half_slope),
        [randn(4), 0.5],
        "GV113",
        [],
        ["kept", "branch"],
        "return torch.where",
    ),
    "grad_output ignored": (
        function("K", backward=ignores),
        [randn(3)],
        "GV201",
        ["contain grad_output exactly once"],
        [],
        "return 2 * ",
    ),
    "kept on ctx": (
        function("L", backward=kept_gradient),
        [randn(3)],
        "GV201",
        ["what it returned", "in each call"],
        ["ignores", "as a factor"],
        "return ctx.first",
    ),
    "clipped": (function("M", backward=clips), [randn(3)], "GV201", [], ["ignores"], "return 2 * "),
    "a buffer that adds up": (
        function("O", forward=with_buffer, backward=adds_up),
        [randn(3)],
        "GV207",
        ["as it is"],
        ["ignores", "belongs on ctx"],
        "def adds_up",
    ),
    "a tensor on the class": (
        function("R", forward=on_the_class, backward=from_the_class),
        [randn(3)],
        "GV207",
        ["on the class"],
        [],
        "def from_the",
    ),
    "one buffer for all": (
        function("S", backward=one_buffer),
        [randn(3)],
        "GV207",
        ["fresh"],
        ["ignores"],
        "def one_buffer",
    ),
    "an operator returns one of two": (
        scale,
        [randn(3), randn(3, seed=1)],
        "GV212",
        [],
        ["3 arguments", "GeneratedBackward"],
        "def one_of_two",
    ),
    "a list in a list's place": (
        function("T", forward=sum_of_list, backward=list_in_place),
        [[randn(3), randn(3, seed=1)], randn(3, seed=2)],
        "GV217",
        ["does not look into lists"],
        ["return None"],
        "def list_in_place",
    ),
    "a list in place of a tuple": (
        function("U", forward=product, backward=list_alone),
        [randn(3), randn(3, seed=1)],
        "GV212",
        ["tuple"],
        [],
        "def list_alone",
    ),
    "a gradient of an index": (
        function("V", forward=gather, backward=index_too),
        [randn(4, 2), fixed(torch.tensor([0, 2, 1]))],
        "GV217",
        ["return None"],
        [],
        "return rows.index_add",
    ),
    "an output on ctx": (
        function("W", forward=keeps, backward=kept_output),
        [randn(3)],
        "GV214",
        ["circle"],
        [],
        "def keeps",
    ),
    "saved by setup_context": (
        function("X", forward=apart, setup_context=saves_unused, backward=reads_attribute),
        [randn(3)],
        "GV224",
        [],
        [],
        "def saves_unused",
    ),
    "float32 inside": (
        in_float32,
        [randn(20)],
        "GV222",
        ["unless forward is meant to round"],
        [],
        "def in_float32",
    ),
    "a callable writes into its input": (
        writes,
        [randn(3)],
        "GV203",
        ["copy"],
        ["mark_dirty"],
        "def writes",
    ),
    "one flag for both gradients": (
        function("Y", forward=product, backward=both_by_the_first),
        [randn(3), randn(3, seed=1)],
        "GV208",
        ["whichever others"],
        [],
        "def both_by",
    ),
    "every fifth call is halved": (
        function("AA", backward=every_fifth),
        [randn(3)],
        "GV206",
        ["kept from call to call"],
        ["leave no memory"],
        "def every_fifth",
    ),
    "the input on ctx, by forward": (
        function("AB", forward=on_ctx, backward=from_ctx),
        [randn(3)],
        "GV215",
        ["version"],
        [],
        "def on_ctx",
    ),
    "an attribute is deleted": (
        function("AD", forward=on_ctx, backward=deletes),
        [randn(3)],
        "GV227",
        ["find on ctx"],
        ["delete nothing"],
        "def deletes",
    ),
    "a logarithm of −1": (log, [torch.tensor([-1.0, 2.0])], "GV006", ["repair forward"], [], ""),
    "a marked output": (
        function("BA", forward=marked),
        [randn(3)],
        "GV008",
        [],
        ["detached", "outside of torch"],
        "",
    ),
    "a sign": (
        function("BB", forward=sign, backward=zeros),
        [randn(3)],
        "GV009",
        ["if there are any"],
        [],
        "",
    ),
    "an output is marked": (
        function("BD", forward=one_is_marked, backward=of_the_first),
        [randn(3)],
        "GV102",
        ["`outputs`"],
        ["detached"],
        "",
        {"outputs": (0, 1)},
    ),
    "a reference is larger": (
        function("BE"),
        [randn(3)],
        "GV106",
        [],
        ["is wrong, not", "look for"],
        "",
        {"reference": "larger"},
    ),
    "backward and its reference": (
        function("BH", backward=halved),
        [randn(3)],
        "GV106",
        ["in backward"],
        ["correct"],
        "return ctx.saved_tensors[0] * g",
        {"reference": "square_of"},
    ),
    "half of a gradient is given": (
        function("BI"),
        [randn(3)],
        "GV107",
        ["correct gradient"],
        ["look for"],
        "def half_of_it",
        {"gradient": "half_of_it"},
    ),
    "rounded numbers are given": (
        function("BK"),
        [torch.tensor([0.123456, 0.5, 1.0])],
        "GV107",
        ["correct `expected`"],
        ["look for"],
        "",
        {"expected": {"x": [0.2469, 1.0, 2.0]}},
    ),
    "an intermediate is saved": (
        function("BL", forward=sine_of_exp, backward=from_the_middle),
        [randn(3)],
        "GV109",
        ["ctx.saved_tensors"],
        [],
        "def from_the_middle",
    ),
    "backward detaches": (
        function("BM", backward=detaches_x),
        [randn(3)],
        "GV109",
        ["no .detach()"],
        [],
        "def detaches_x",
    ),
    "backward calls another Function": (
        function("BN", backward=calls_another),
        [randn(3)],
        "GV109",
        ["a Function that backward calls"],
        [],
        "def calls_another",
    ),
    "one formula for both": (
        function("BO", forward=product, backward=one_formula),
        [randn(3), randn(3, seed=1)],
        "GV101",
        ["one formula"],
        ["return the gradients in"],
        "return g * w, g * w",
    ),
    "two gradients exchanged": (
        function("BP", forward=product, backward=other_order),
        [randn(3), randn(3, seed=1)],
        "GV101",
        ["order"],
        [],
        "return g * x, g * w",
    ),
    "another factor": (
        function("BS", backward=three_halves),
        [randn(3)],
        "GV101",
        ["factor"],
        ["leaves out", "twice"],
        "return 3 * ",
    ),
    "an eps beside 1": (
        function("BW", backward=nearly),
        [randn(20)],
        "GV101",
        ["eps"],
        ["typing", "float16"],
        "return 2 * ",
    ),
    "exp in float16": (
        exps,
        [torch.tensor([[12.0, 11.5, 3.0]]).half()],
        "GV112",
        ["range"],
        ["maximum"],
        "def exps",
        {"dtype": "float16"},
    ),
    "a branch on bfloat16": (
        other_in_bfloat16,
        [randn(3).bfloat16()],
        "GV112",
        ["differs"],
        ["range"],
        "def other_in",
        {"dtype": "bfloat16"},
    ),
    "a typed constant": (
        function("CA", backward=typed_two),
        [randn(3)],
        "GV114",
        ["constant"],
        ["series", "float32"],
        "return 2.0",
        {"rtol": 1e-5},
    ),
    "a fake kernel asks for a value": (
        registered("values", fake_by_value),
        [randn(3)],
        "GV115",
        ["no values"],
        [],
        "return x.new_empty(int",
    ),
    "backward of an operator asks for a value": (
        registered("asks", backward=asks_a_value),
        [randn(3)],
        "GV115",
        ["torch.compile meets"],
        ["must not"],
        "",
        {"second_order": False},
    ),
    "half when compiled": (
        halves_when_compiled,
        [randn(3)],
        "GV116",
        ["decides or keeps"],
        [],
        "def halves_when",
        {"compile": True},
    ),
    "half in 16 bits": (
        halves_16_bits,
        [*MATRICES],
        "GV117",
        ["a branch on the dtype"],
        ["keep forward"],
        "def halves_16",
        MIXED,
    ),
    "fewer bits saved under autocast": (
        function("CE", forward=saves_fewer_bits),
        [randn(3)],
        "GV225",
        ["a cast"],
        ["keep forward"],
        "def saves_fewer_bits",
    ),
    "half under autocast": (
        function("CG", backward=halves_inside),
        [randn(3)],
        "GV225",
        ["a branch"],
        [],
        "def halves_inside",
    ),
    "a float64 constant": (
        function("CH", forward=double_constant),
        [randn(3)],
        "GV226",
        ["dtype of its inputs"],
        [],
        "def double_constant",
    ),
    "small cotangents are dropped": (
        function("CK", backward=drops_small),
        [randn(3)],
        "GV201",
        ["threshold"],
        ["residual", "fall under"],
        "return torch.where",
    ),
    "an absolute residual": (
        function("CL", backward=solves),
        [randn(3)],
        "GV201",
        ["absolute tolerance"],
        ["fall under"],
        "def solves",
    ),
    "grad_output in place": (
        function("CM", backward=times_in_place),
        [randn(3)],
        "GV202",
        ["copy"],
        [],
        "def times_in_place",
    ),
    "running statistics": (
        running_mean,
        [randn(3), fixed(torch.ones(1, dtype=torch.float64))],
        "GV203",
        ["unless it is state"],
        ["mark_dirty"],
        "def running_mean",
    ),
    "forward writes": (
        function("CP", forward=doubles_its_input),
        [randn(3)],
        "GV203",
        ["mark_dirty"],
        [],
        "x.mul_(2)",
    ),
    "a generator of its own": (
        own_generator,
        [randn(3)],
        "GV205",
        ["random numbers"],
        [],
        "def own_generator",
    ),
    "more at each call": (more_each_time, [randn(3)], "GV205", ["state"], [], "def more_each"),
    "a mask drawn anew": (
        function("CU", backward=draws_a_mask),
        [randn(3)],
        "GV206",
        ["must be saved"],
        [],
        "def draws_a_mask",
    ),
    "slight noise": (
        function("CW", backward=slight_noise),
        [randn(3)],
        "GV206",
        ["within `rtol`"],
        ["iteration"],
        "def slight_noise",
    ),
    "a cache by address": (
        function("CX", forward=by_address, backward=both_gradients),
        [randn(3), randn(3, seed=1)],
        "GV207",
        ["address"],
        ["on ctx"],
        "def by_address",
    ),
    "forward asks which": (
        function("CY", forward=asks_which, backward=both_gradients),
        [randn(3), randn(3, seed=1)],
        "GV208",
        ["needs_input_grad"],
        [],
        "def asks_which",
    ),
    "nothing for zeros": (
        function("CZ", forward=square_and_sine, backward=nothing_for_zeros),
        [randn(3)],
        "GV209",
        ["may be zero"],
        [],
        "def nothing_for",
    ),
    "None is added": (
        function("DA", forward=no_zeros, backward=adds_both),
        [randn(3)],
        "GV209",
        ["None"],
        [],
        "def adds_both",
    ),
    "the memory of grad_output": (
        function("DC", backward=from_memory),
        [randn(2, 3)],
        "GV210",
        ["contiguous()"],
        [],
        "def from_memory",
    ),
    "its conjugate bit": (
        function("DF", backward=without_conjugate_bit),
        [randn(3, dtype=torch.complex128)],
        "GV210",
        ["resolve_conj"],
        [],
        "def without_conj",
    ),
    "one more dimension": (
        function("DI", backward=one_more_dimension),
        [randn(3)],
        "GV212",
        ["own shape"],
        ["broadcast"],
        "return (2 * ",
    ),
    "a float32 gradient": (
        function("DK", backward=is_float),
        [randn(3)],
        "GV212",
        ["dtype"],
        [],
        "return (2 * ",
    ),
    "what was saved": (
        function("DL", forward=saves_slope, backward=saved_for_ones),
        [randn(3)],
        "GV213",
        ["clone"],
        [],
        "def saved_for_ones",
    ),
    "two views of one result": (
        function("DN", forward=add, backward=views_of_one),
        [randn(3), randn(3, seed=1)],
        "GV213",
        ["clone"],
        [],
        "def views_of_one",
    ),
    "two views accumulate": (
        function("DO", forward=add, backward=views_of_one),
        [randn(3), randn(3, seed=1)],
        "GV220",
        ["nothing else holds"],
        [],
        "def views_of_one",
    ),
    "an input on ctx lives on": (
        function("DR", forward=on_ctx, backward=from_ctx),
        [randn(3)],
        "GV214",
        ["save_for_backward"],
        [],
        "def on_ctx",
    ),
    "a detached output on ctx": (
        function("DT", forward=keeps_detached, backward=kept_output),
        [randn(3)],
        "GV215",
        ["version"],
        [],
        "def keeps_detached",
    ),
    "apply computes": (
        function("DU", apply=classmethod(another_way)),
        [randn(3)],
        "GV216",
        [],
        ["for these inputs"],
        "def another_way",
    ),
    "a gradient of a number": (
        function("DX", forward=times_number, backward=of_number_too),
        [randn(3), 0.5],
        "GV217",
        ["return None"],
        [],
        "return g * ctx.a",
    ),
    "fast without gradients": (
        fast_without_grad,
        [randn(3)],
        "GV218",
        ["every grad mode"],
        [],
        "def fast_without",
    ),
    "ones for nothing": (
        function("ED", forward=matmul, backward=ones_for_w),
        [torch.zeros(0, 3), randn(3, 2)],
        "GV221",
        ["zero"],
        ["torch.empty"],
        "def ones_for_w",
    ),
    "an index is assigned to": (
        function("EE", forward=gather, backward=assigns),
        [randn(5, 2), fixed(torch.tensor([0, 4, 1, 3]))],
        "GV223",
        ["assignment"],
        [],
        "def assigns",
    ),
    "an index that repeats is assigned to": (
        function("EH", forward=gather, backward=assigns),
        [randn(5, 2), fixed(REPEATED)],
        "GV223",
        ["add up what repeats"],
        [],
        "def assigns",
    ),
    "a sum saves": (
        function("EK", forward=saves_two, backward=passes_on),
        [randn(3), randn(3, seed=1)],
        "GV224",
        ["left out"],
        [],
        "def saves_two",
    ),
    "a number of grad_output": (
        function("EN", backward=asks_item),
        [randn(3)],
        "GV228",
        ["torch.where"],
        [],
        "def asks_item",
    ),
    "a sum in place": (
        function("EP", backward=adds_in_place),
        [randn(3)],
        "GV228",
        ["zeros_like(grad_output)"],
        ["where"],
        "def adds_in_place",
    ),
    "a choice of algorithms": (
        sets_deterministic,
        [randn(3)],
        "GV230",
        ["put it back"],
        [],
        "def sets_deterministic",
    ),
    "half is written": (
        function("EU", backward=half_written),
        [randn(3)],
        "GV231",
        ["torch.zeros"],
        ["tile"],
        "def half_written",
    ),
    "one too many is read": (
        function("EX", backward=reads_on),
        [randn(3)],
        "GV231",
        ["within the tensors"],
        ["tile"],
        "def reads_on",
    ),
    "one too many is written": (
        function("EY", backward=writes_on),
        [randn(3)],
        "GV232",
        ["the last index"],
        ["tile"],
        "def writes_on",
    ),
}


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    """An address may come again, in another test, and one of these sets what torch does for all of
    them."""
    KEPT.clear()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.population(most=90)
@pytest.mark.parametrize("row", ROWS)
def test_words_and_line_fit_the_mechanism(row):
    KEPT.clear()
    op, inputs, code, said, unsaid, source, *settings = ROWS[row]
    changes = dict(*settings)
    values = [
        x.double()
        if isinstance(x, Tensor) and x.is_floating_point() and "dtype" not in changes
        else x
        for x in inputs
    ]
    named = {
        key: changes.pop(key) for key in ("reference", "gradient", "expected") if key in changes
    }
    oracles = {
        key: value if key == "expected" else f"rules.test_words:{value}"
        for key, value in named.items()
    }
    found = next(
        (
            each
            for each in check(op, *values, oracles=Oracles(**oracles), **changes).findings
            if each.code == code
        ),
        None,
    )
    assert found is not None
    text = f"{found.message} {found.cause.name if found.cause else ''} {found.hint or ''}"
    assert all(words in (found.hint or "") for words in said) and not any(
        words in text for words in unsaid
    ), text
    assert (found.source or "").startswith(source), found.source


def test_a_quantiser_is_not_taken_for_a_narrow_dtype():
    codes = {
        finding.code for finding in check(lambda x: torch.round(x * 128) / 128, randn(20)).findings
    }
    assert "GV222" not in codes and "GV101" not in codes


def test_of_several_functions_in_a_module_the_wrong_one_is_shown():
    found = [
        each
        for each in check(Clamping, 3.1 + randn(4, 3).abs() / 20).findings
        if each.code == "GV113"
    ]
    assert found and {each.source for each in found} == {"def no_mask(ctx, g):"}


@pytest.mark.parametrize("order", ["Cube(Triple)", "Triple(Cube)"])
def test_of_several_functions_in_a_callable_the_wrong_one_is_shown(order):
    cube = function(
        "Cube", forward=lambda ctx, x: (ctx.save_for_backward(x), x**3)[1], backward=wrong_cube
    )
    triple = function("Triple", forward=lambda ctx, x: 3 * x, backward=lambda ctx, g: 3 * g)
    first, second = (triple, cube) if order == "Cube(Triple)" else (cube, triple)
    found = [
        each
        for each in check(lambda x: second.apply(first.apply(x)), randn(3)).findings
        if each.code == "GV101"
    ]
    assert {each.source for each in found} == {"def wrong_cube(ctx, g):"}


def wrong_cube(ctx, g):
    return 2 * ctx.saved_tensors[0] ** 2 * g
