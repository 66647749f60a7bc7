"""Ops as public repositories write them, of as many shapes as there are: what `init` is to find
inputs for. All gradients are right."""

from __future__ import annotations

import math
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Mish(Function):
    """Pointwise."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(F.softplus(x))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        t = torch.tanh(F.softplus(x))
        return grad_output * (t + x * torch.sigmoid(x) * (1 - t * t))


class LinearFunction(Function):
    """The tutorial's linear layer, with an optional bias."""

    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Conv2d(Function):
    """Convolution with stride and padding."""

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0):
        ctx.save_for_backward(input, weight, bias)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(input, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, _ = ctx.saved_tensors
        grad_input = torch.nn.grad.conv2d_input(
            input.shape, weight, grad_output, ctx.stride, ctx.padding
        )
        grad_weight = torch.nn.grad.conv2d_weight(
            input, weight.shape, grad_output, ctx.stride, ctx.padding
        )
        return grad_input, grad_weight, grad_output.sum((0, 2, 3)), None, None


class CrossEntropy(Function):
    """A loss with integer targets."""

    @staticmethod
    def forward(ctx, logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        n, classes = logits.shape
        log_p = F.log_softmax(logits, dim=1)
        wanted = torch.full_like(log_p, label_smoothing / classes)
        wanted.scatter_add_(
            1, target.unsqueeze(1), torch.full((n, 1), 1 - label_smoothing, dtype=logits.dtype)
        )
        ctx.save_for_backward(log_p, wanted)
        return -(wanted * log_p).sum() / n

    @staticmethod
    def backward(ctx, grad_output):
        log_p, wanted = ctx.saved_tensors
        return grad_output * (log_p.exp() - wanted) / len(log_p), None, None


class Attention(Function):
    """Scaled dot-product attention."""

    @staticmethod
    def forward(ctx, q, k, v, causal=False, softmax_scale=None):
        _, _, length, dim = q.shape
        scale = softmax_scale or 1 / math.sqrt(dim)
        scores = q @ k.transpose(-1, -2) * scale
        if causal:
            scores = scores.masked_fill(torch.ones(length, k.shape[2]).triu(1).bool(), -torch.inf)
        p = scores.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ do
        dp = do @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None, None


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Rope(Function):
    """Rotary embedding with its tables."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        _, _, s, d = x.shape
        assert cos.shape == (s, d) and sin.shape == cos.shape
        ctx.save_for_backward(cos, sin)
        return x * cos + rotate_half(x) * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        a, b = (g * sin).chunk(2, -1)
        return g * cos + torch.cat((b, -a), -1), None, None


class ScatterAdd(Function):
    """Rows added up by an index."""

    @staticmethod
    def forward(ctx, src, index, dim_size: int):
        ctx.save_for_backward(index)
        return src.new_zeros(dim_size, src.size(1)).index_add_(0, index, src)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return g.index_select(0, index), None, None


class RMSNorm(nn.Module):
    """A module around a Function."""

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return RMSNormFunction.apply(x, self.weight, self.eps)


class RMSNormFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        rstd = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, rstd)
        return x * rstd * weight

    @staticmethod
    def backward(ctx, g):
        x, weight, rstd = ctx.saved_tensors
        n = x * rstd
        gw = (g * n).reshape(-1, x.shape[-1]).sum(0)
        gn = g * weight
        return rstd * (gn - n * (gn * n).mean(-1, keepdim=True)), gw, None


class MinMax(Function):
    """Two outputs."""

    @staticmethod
    def forward(ctx, x):
        low, high = x.argmin(-1, keepdim=True), x.argmax(-1, keepdim=True)
        ctx.save_for_backward(low, high)
        ctx.shape = x.shape
        return x.gather(-1, low), x.gather(-1, high)

    @staticmethod
    def backward(ctx, g_low, g_high):
        low, high = ctx.saved_tensors
        zero = g_low.new_zeros(ctx.shape)
        return zero.scatter_add(-1, low, g_low).scatter_add(-1, high, g_high)


class Pool(Function):
    """An argument that is no tensor: how it reduces, in words."""

    @staticmethod
    def forward(ctx, x, mode, keepdim):
        assert mode in ("sum", "mean")
        ctx.factor = 1.0 if mode == "sum" else 1.0 / x.shape[-1]
        ctx.shape, ctx.keepdim = x.shape, keepdim
        return x.sum(-1, keepdim=keepdim) * ctx.factor

    @staticmethod
    def backward(ctx, g):
        g = g if ctx.keepdim else g.unsqueeze(-1)
        return (g * ctx.factor).expand(ctx.shape), None, None


class StackSum(Function):
    """Any number of tensors."""

    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim, ctx.count = dim, len(tensors)
        return torch.stack(tensors, dim).sum(dim)

    @staticmethod
    def backward(ctx, g):
        return (None,) + (g,) * ctx.count


def weighted_sum(tensors: list[Tensor], weights: Tensor) -> Tensor:
    """A list of tensors."""
    return sum(w * t for w, t in zip(weights, tensors, strict=True))


def modulated(x: Tensor, *, shift: Tensor, scale: Optional[Tensor] = None) -> Tensor:  # noqa: UP045 - as it is often written
    """Tensors by keyword only."""
    y = Mish.apply(x) + shift
    return y if scale is None else y * scale


@torch.library.custom_op("gradverify_init_tests::leaky", mutates_args=())
def leaky(x: Tensor, slope: float) -> Tensor:
    """A registered operator."""
    return torch.where(x > 0, x, slope * x)


def _remember(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.slope = inputs[1]


def _leaky_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return torch.where(x > 0, g, ctx.slope * g), None


leaky.register_autograd(_leaky_backward, setup_context=_remember)


class Swish(Function):
    """Both halves apart: `setup_context`."""

    @staticmethod
    def forward(x, beta):
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        inner = x * s * (1 - s)
        return g * (s + beta * inner), (g * x * inner).sum_to_size(beta.shape)


class LayerNorm(Function):
    """Normalised over the last dimensions."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, gamma, beta, eps=1e-5):
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
        n = (x - mean) * rstd
        ctx.save_for_backward(n, gamma, rstd)
        return n * gamma + beta

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        n, gamma, rstd = ctx.saved_tensors
        gn = g * gamma
        gx = rstd * (gn - gn.mean(-1, keepdim=True) - n * (gn * n).mean(-1, keepdim=True))
        return gx, (g * n).flatten(0, -2).sum(0), g.flatten(0, -2).sum(0), None


class GroupNorm(Function):
    """Four dimensions, and a number of groups that has to divide the channels."""

    @staticmethod
    def forward(ctx, x, weight, bias, num_groups, eps):
        n, c, h, w = x.size()
        grouped = x.view(n, num_groups, -1)
        mean, var = grouped.mean(-1, keepdim=True), grouped.var(-1, unbiased=False, keepdim=True)
        rstd = (var + eps).rsqrt()
        normal = ((grouped - mean) * rstd).view(n, c, h, w)
        ctx.save_for_backward(normal, weight, rstd)
        ctx.groups = num_groups
        return normal * weight.view(1, c, 1, 1) + bias.view(1, c, 1, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        normal, weight, rstd = ctx.saved_tensors
        shape = (len(g), ctx.groups, -1)
        gn, nn_ = (g * weight.view(1, -1, 1, 1)).reshape(shape), normal.reshape(shape)
        gx = rstd * (gn - gn.mean(-1, keepdim=True) - nn_ * (gn * nn_).mean(-1, keepdim=True))
        return gx.view_as(g), (g * normal).sum((0, 2, 3)), g.sum((0, 2, 3)), None, None


class Embedding(Function):
    """The index comes first."""

    @staticmethod
    def forward(ctx, indices, weight, padding_idx=None):
        ctx.save_for_backward(indices)
        ctx.shape = weight.shape
        return weight[indices]

    @staticmethod
    def backward(ctx, g):
        (indices,) = ctx.saved_tensors
        return None, g.new_zeros(ctx.shape).index_put((indices,), g, accumulate=True), None


class LogDet(Function):
    """A square matrix."""

    @staticmethod
    def forward(ctx, a):
        assert a.shape[-1] == a.shape[-2]
        ctx.save_for_backward(a)
        return torch.linalg.slogdet(a)[1]

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(a).mT


class MaskedMSE(Function):
    """A mask, and a target that gets no gradient by design."""

    @staticmethod
    def forward(ctx, prediction, target, mask):
        difference = torch.where(mask, prediction - target, 0)
        ctx.save_for_backward(difference, mask)
        return difference.pow(2).sum() / mask.sum()

    @staticmethod
    def backward(ctx, g):
        difference, mask = ctx.saved_tensors
        return 2 * g * difference / mask.sum(), None, None


class PixelShuffle(Function):
    """Channels that must be divisible by the square of a factor."""

    @staticmethod
    def forward(ctx, x, upscale_factor):
        ctx.r = upscale_factor
        return F.pixel_shuffle(x, upscale_factor)

    @staticmethod
    def backward(ctx, g):
        return F.pixel_unshuffle(g, ctx.r), None


class Sqrt(Function):
    """Not defined everywhere."""

    @staticmethod
    def forward(ctx, x):
        if (x < 0).any():
            raise ValueError("negative")
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (2 * y)


class SelectiveScan(Function):
    """Many tensors that share sizes in their own ways."""

    @staticmethod
    def forward(ctx, u, delta, A, B):
        b, d, length = u.shape
        n = A.shape[1]
        assert delta.shape == u.shape and A.shape == (d, n) and B.shape == (b, n, length)
        states, h = [], u.new_zeros(b, d, n)
        for t in range(length):
            h = (
                torch.exp(delta[:, :, t, None] * A) * h
                + (delta * u)[:, :, t, None] * B[:, None, :, t]
            )
            states.append(h)
        ctx.save_for_backward(u, delta, A, B, torch.stack(states))
        return torch.stack([h.sum(-1) for h in states], -1)

    @staticmethod
    def backward(ctx, g):
        u, delta, A, B, states = ctx.saved_tensors
        gu, gdelta, gA, gB = (torch.zeros_like(x) for x in (u, delta, A, B))
        gh = torch.zeros_like(states[0])
        for t in reversed(range(u.shape[-1])):
            gh = gh + g[:, :, t, None]
            decay = torch.exp(delta[:, :, t, None] * A)
            before = states[t - 1] if t else torch.zeros_like(gh)
            gdecay = gh * before * decay
            gdelta[:, :, t] = (gdecay * A).sum(-1) + (gh * B[:, None, :, t]).sum(-1) * u[:, :, t]
            gu[:, :, t] = (gh * B[:, None, :, t]).sum(-1) * delta[:, :, t]
            gA += (gdecay * delta[:, :, t, None]).sum(0)
            gB[:, :, t] = (gh * (delta * u)[:, :, t, None]).sum(1)
            gh = gh * decay
        return gu, gdelta, gA, gB


class Checkpoint(Function):
    """Calls a function: no spec can write that."""

    @staticmethod
    def forward(ctx, run_function, x):
        ctx.run, ctx.x = run_function, x.detach()
        with torch.no_grad():
            return run_function(x)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            x = ctx.x.clone().requires_grad_()
            return None, torch.autograd.grad(ctx.run(x), x, g)[0]
