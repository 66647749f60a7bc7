"""Functions of difficult kinds, each right, with a `Wrong` twin made by `wrong`."""

import torch
from torch.autograd import Function


class Gather(Function):
    """Rows of x by index."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return g.new_zeros(ctx.rows, *g.shape[1:]).index_add(0, index, g), None


class Filled(Function):
    """`x` with `value` where the mask is set."""

    @staticmethod
    def forward(ctx, x, mask, value=-3.0):
        ctx.save_for_backward(mask)
        return torch.where(mask, torch.full_like(x, value), x)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g.masked_fill(mask, 0), None, None


class Linear(Function):
    """With an optional bias."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return x @ weight.T + (0 if bias is None else bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight, g.T @ x, g.sum(0) if ctx.biased else None


class Loss(Function):
    """A squared error, reduced by a word."""

    @staticmethod
    def forward(ctx, x, target, reduction="mean"):
        if reduction not in ("none", "mean", "sum"):
            raise ValueError(f"no reduction {reduction}")
        ctx.save_for_backward(x - target)
        ctx.reduction = reduction
        loss = (x - target) ** 2
        return loss if reduction == "none" else getattr(loss, reduction)()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        each = 2 * d * g / (d.numel() if ctx.reduction == "mean" else 1)
        return each, -each, None


class Split(Function):
    """Two outputs."""

    @staticmethod
    def forward(ctx, x, at: int):
        ctx.save_for_backward(x)
        ctx.at = at
        return x[:at].sin(), x[at:].exp()

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return torch.cat([g * x[: ctx.at].cos(), h * x[ctx.at :].exp()]), None


class Square(Function):
    """z², of complex numbers too."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g * 2 * z.conj()


class InPlace(Function):
    """exp(x), written into x."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Scaled(torch.nn.Module):
    """A module with a parameter."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, dim, dtype=torch.float64))

    def forward(self, x):
        return Square.apply(x) * self.weight


class Flagged(Function):
    """A sum over an axis, with a flag, in the style of `setup_context`."""

    @staticmethod
    def forward(x, dim: int, keepdim: bool = False):
        return (x**3).sum(dim, keepdim=keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, ctx.keepdim = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g if ctx.keepdim else g.unsqueeze(ctx.dim)) * 3 * x * x, None, None


class Attention(Function):
    """softmax(q·kᵀ/√d)·v; q, k, v: (batch, seq, dim)."""

    @staticmethod
    def forward(ctx, q, k, v, causal: bool = False):
        scale = q.shape[-1] ** -0.5
        scores = q @ k.transpose(-1, -2) * scale
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -1e30)
        p = scores.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        dp = g @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g, None


def wrong(of):
    """The Function with gradients 2 % too large."""

    def backward(ctx, *g):
        given = of.backward(ctx, *g)
        several = isinstance(given, tuple)
        scaled = tuple(v if v is None else 1.02 * v for v in (given if several else (given,)))
        return scaled if several else scaled[0]

    return type(f"Wrong{of.__name__}", (of,), {"backward": staticmethod(backward)})


for each in (Gather, Filled, Linear, Loss, Split, Square, InPlace, Flagged, Attention):
    globals()[f"Wrong{each.__name__}"] = wrong(each)


class WrongScaled(Scaled):
    """The module around a wrong Function."""

    def forward(self, x):
        return wrong(Square).apply(x) * self.weight
