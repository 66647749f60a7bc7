"""Faults that torch.autograd.gradcheck passes with its defaults, line by line: each is caught, by the rule that it is a case of."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from live import check
from rules.functions import RightProduct, X, product, square
from torch import Tensor, nn
from torch.autograd import Function, gradcheck

from gallery.twins import GALLERY, INPUTS, draw, values

HUGE, TINY = 1e3, 1e-6      # cotangents that no test uses, and mixed-precision training does


@dataclass(frozen=True)
class Missed:
    """`make()` gives a Function, callable or module that has no state yet, and its arguments. `beside`: another warning that is true of it."""

    what: str
    code: str
    make: Callable[[], tuple[Any, ...]]
    severity: str = "error"
    beside: str | None = None


def gallery(what: str, code: str, name: str, severity: str = "error") -> Missed:
    """A fault of the gallery, in a copy of its module, so that what it keeps on the class is new."""

    def make() -> tuple[Any, ...]:
        spec = importlib.util.spec_from_file_location(name, GALLERY / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Faulty, *INPUTS[name]()

    return Missed(what, code, make, severity)


def cotangent(what: str, change: Callable[[Tensor], Tensor], severity: str = "error") -> Missed:
    return Missed(f"backward takes {what} of the cotangent", "GV201", lambda: (square(lambda x, g: 2 * x * change(g)), X), severity)


def of_square(what: str, code: str, backward: Callable[[Tensor, Tensor], Any], severity: str = "error") -> Missed:
    return Missed(what, code, lambda: (square(backward), X), severity)


def reused_output() -> type[Function]:
    class Reused(Function):
        buffer: Tensor | None = None

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            if Reused.buffer is None or Reused.buffer.dtype != x.dtype:
                Reused.buffer = torch.empty_like(x)
            torch.mul(x, x, out=Reused.buffer)
            return Reused.buffer.detach()

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * grad_output

    return Reused


def on_ctx() -> type[Function]:
    class OnCtx(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return 2 * ctx.x * grad_output

    return OnCtx


def clamps_its_input() -> type[Function]:
    class Clamps(Function):
        """relu(x)², whose forward writes relu(x) through a pointer that autograd does not see."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.detach().numpy().clip(0, None, out=x.detach().numpy())
            ctx.save_for_backward(x.clone())
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * grad_output

    return Clamps


def own_buffer() -> type[Function]:
    class OwnBuffer(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.buffer = torch.empty_like(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            torch.mul(ctx.saved_tensors[0], 2 * grad_output, out=ctx.buffer)
            return ctx.buffer

    return OwnBuffer


class ZeroWeightGradient(nn.Module):
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(weight)
            return x * weight

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
            weight, = ctx.saved_tensors
            return grad_output * weight, torch.zeros_like(weight)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.Scaled.apply(x, self.weight)


def narrow(x: Tensor, g: Tensor) -> Tensor:
    """Rounded where the sum is, as in a kernel that accumulates in float32."""
    return (2 * x * g).float()


MISSED = (
    cotangent("the magnitude", torch.abs),
    cotangent("a clipped copy", lambda g: g.clamp(-1, 1)),
    cotangent("the positive part", lambda g: g * (g > 0)),
    cotangent("the square", lambda g: g * g),
    cotangent("what is not tiny", lambda g: torch.where(g.abs() < TINY, 0.0, g), "warning"),
    cotangent("what is not huge", lambda g: torch.where(g.abs() > HUGE, 0.0, g)),
    gallery("grad_output is read as contiguous", "GV210", "takes_grad_output_for_contiguous"),
    gallery("an input is read as contiguous", "GV211", "takes_input_for_contiguous"),
    of_square("a cotangent with strides 0 is taken for ones", "GV210", lambda x, g: 2 * x * (1 if g.stride() == (0, 0) else g)),
    Missed("the second gradient is wrong when the first input needs none", "GV208", lambda: (
        product(lambda ctx, x, y, g: (g * y, g * x if ctx.needs_input_grad[0] else g * y)), draw(2, 3), draw(2, 3, seed=1))),
    gallery("the gradient of the weight is missing when the input needs none", "GV208", "skips_weight_with_its_input"),
    gallery("state on the class", "GV207", "keeps_its_mask_on_the_class"),
    Missed("an output buffer is used again by the next call", "GV207", lambda: (reused_output(), X)),
    gallery("a mask is cached from the first call", "GV113", "keeps_the_first_mask"),
    Missed("a tensor on ctx is changed in place", "GV215", lambda: (on_ctx(), X), "warning", "GV214"),
    gallery("saved .data is changed in place", "GV215", "saves_without_a_version", "warning"),
    Missed("forward clamps its input through a pointer", "GV203", lambda: (clamps_its_input(), values(-1.0, 0.5, -0.25, 2.0))),
    Missed("backward returns its own buffer", "GV213", lambda: (own_buffer(), X)),
    gallery("backward returns what it saved", "GV213", "returns_what_it_saved"),
    of_square("a float32 gradient for float64", "GV212", narrow),
    gallery("a gather's backward does not accumulate", "GV223", "overwrites_repeated_rows"),
    Missed("the gradient of a module's weight is zero", "GV111", lambda: (ZeroWeightGradient(), X)),
    Missed("swapped gradients, which equal inputs hide", "GV113", lambda: (product(lambda ctx, x, y, g: (g * x, g * y)), X, X.clone())),
    gallery("backward is wrong on every 20th call", "GV206", "decays_every_twentieth_call"),
    gallery("wrong under autocast only", "GV225", "casts_under_autocast"),
    gallery("wrong in float32 only", "GV226", "forgets_in_float32"),
    gallery("an `.item()` in backward", "GV228", "asks_grad_output_for_a_number", "warning"),
    gallery("zeros for an input that is not used", "GV229", "forgets_its_gain", "warning"),
    of_square("wrong under create_graph only", "GV218", lambda x, g: (1 if torch.is_grad_enabled() else 2) * x * g),
    gallery("wrong jvp", "GV108", "jvp_forgets_a_tangent"),
    gallery("wrong vmap", "GV110", "vmap_ignores_in_dims"),
    *(gallery(f"silently wrong second order: {name.replace('_', ' ')}", "GV109", name, "warning")
      for name in ("keeps_an_intermediate", "detaches_in_backward", "reads_data_in_backward", "backward_without_grad")),
)


@pytest.mark.parametrize("missed", MISSED, ids=lambda missed: missed.what)
def test_gradcheck_passes_it(missed: Missed):
    function, *inputs = missed.make()
    leaves = [x.detach().clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs]
    assert gradcheck(function if isinstance(function, nn.Module) else function.apply, leaves)


@pytest.mark.parametrize("missed", MISSED, ids=lambda missed: missed.what)
def test_its_rule_catches_it_and_no_other_does(missed: Missed):
    function, *inputs = missed.make()
    result = check(function, *(x.detach() for x in inputs))
    expected = {(missed.code, missed.severity)} | ({(missed.beside, "warning")} if missed.beside else set())
    assert {(finding.code, finding.severity) for finding in result.findings} == expected
    assert result.verdict == ("fail" if missed.severity == "error" else "pass")


def test_right_functions_pass_both_on_the_same_inputs():
    for function, inputs in ((square(lambda x, g: 2 * x * g), (X,)), (RightProduct, (X, X.clone()))):
        assert gradcheck(function.apply, [x.clone().requires_grad_() for x in inputs])
        assert check(function, *inputs).findings == ()
