"""Right functions of torch with inputs at which they are smooth: at least as far from a kink as gradcheck's step reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, special

Op = Callable[..., Any]
SHAPE = (2, 3)


@dataclass(frozen=True)
class Sample:
    """`call` takes the tensors of `make()`; the first one is always floating or complex."""

    name: str
    call: Op
    make: Callable[[], tuple[Tensor, ...]]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape or SHAPE, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def between(low: float, high: float, *shape: int, seed: int = 0) -> Tensor:
    return low + (high - low) * torch.rand(shape or SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def off_zero(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers pushed away from the kink at 0."""
    x = normal(*shape, seed=seed)
    return x + 0.2 * x.sign()


def spread(*shape: int, seed: int = 0) -> Tensor:
    """All elements at least 0.1 apart, in random order: for maxima, sorts and medians."""
    count = torch.Size(shape or SHAPE).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (0.1 * order.double() - 0.05 * count + 0.033).reshape(shape or SHAPE)


def complex_normal(*shape: int, seed: int = 0) -> Tensor:
    return normal(*shape, seed=seed, dtype=torch.complex128)


def one(call: Op, x: Callable[..., Tensor] = normal, *arguments: Any, name: str = "", **kwargs: Any) -> Sample:
    return Sample(name or call.__name__, call, lambda: (x(*arguments, **kwargs),))


ELEMENTWISE = (
    one(torch.sin), one(torch.tanh), one(torch.exp), one(torch.atan), one(torch.sinh), one(torch.sigmoid),
    one(torch.log, between, 0.3, 3.0), one(torch.sqrt, between, 0.3, 3.0), one(torch.rsqrt, between, 0.3, 3.0),
    one(torch.reciprocal, between, 0.4, 2.0), one(torch.acos, between, -0.8, 0.8), one(torch.abs, off_zero),
    one(F.relu, off_zero), one(F.leaky_relu, off_zero), one(F.elu, off_zero), one(F.selu, off_zero), one(F.celu, off_zero),
    one(F.gelu), one(F.silu), one(F.mish), one(F.softplus), one(F.logsigmoid), one(F.softsign, off_zero), one(F.tanhshrink),
    one(F.hardtanh, between, -0.9, 0.9), one(F.hardswish, between, -2.5, 2.5), one(F.hardsigmoid, between, -2.5, 2.5), one(F.relu6, off_zero))

SPECIAL = (
    one(special.erf), one(special.erfc), one(special.erfinv, between, -0.8, 0.8), one(special.erfcx), one(special.expit), one(special.expm1),
    one(special.log1p, between, -0.5, 2.0), one(special.gammaln, between, 0.5, 3.0), one(special.digamma, between, 0.5, 3.0),
    one(special.i0), one(special.i0e, off_zero), one(special.i1), one(special.i1e, off_zero), one(special.entr, between, 0.2, 2.0),
    one(special.logit, between, 0.1, 0.9), one(special.ndtr), one(special.ndtri, between, 0.1, 0.9), one(special.log_ndtr),
    one(special.sinc, off_zero), one(special.exp2),
    Sample("xlogy", special.xlogy, lambda: (normal(), between(0.3, 2.0, seed=1))),
    Sample("xlog1py", special.xlog1py, lambda: (normal(), between(0.3, 2.0, seed=1))),
    Sample("zeta", lambda q: special.zeta(2.5, q), lambda: (between(0.5, 2.0),)),
    Sample("polygamma", lambda x: special.polygamma(1, x), lambda: (between(0.5, 2.0),)),
    Sample("multigammaln", lambda x: special.multigammaln(x, 2), lambda: (between(1.5, 3.0),)),
    Sample("logsumexp", lambda x: special.logsumexp(x, 1), lambda: (normal(),)))

STRUCTURED = (
    Sample("softmax", lambda x: F.softmax(x, 1), lambda: (normal(),)),
    Sample("log_softmax", lambda x: F.log_softmax(x, 0), lambda: (normal(),)),
    Sample("softmin", lambda x: F.softmin(x, 1), lambda: (normal(),)),
    Sample("glu", lambda x: F.glu(x, 1), lambda: (normal(2, 4),)),
    Sample("normalize", F.normalize, lambda: (normal(),)),
    Sample("cosine_similarity", F.cosine_similarity, lambda: (normal(), normal(seed=1))),
    Sample("pairwise_distance", F.pairwise_distance, lambda: (normal(), normal(seed=1))),
    Sample("layer_norm", lambda x, w, b: F.layer_norm(x, (3,), w, b), lambda: (normal(), normal(3, seed=1), normal(3, seed=2))),
    Sample("rms_norm", lambda x, w: F.rms_norm(x, (3,), w), lambda: (normal(), normal(3, seed=1))),
    Sample("group_norm", lambda x: F.group_norm(x, 2), lambda: (normal(1, 4, 2),)),
    Sample("instance_norm", F.instance_norm, lambda: (normal(1, 2, 4),)),
    Sample("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), lambda: (normal(4, 2),)),
    Sample("linear", F.linear, lambda: (normal(), normal(2, 3, seed=1), normal(2, seed=2))),
    Sample("bilinear", F.bilinear, lambda: (normal(2, 2), normal(2, 2, seed=1), normal(2, 2, 2, seed=2))),
    Sample("conv1d", F.conv1d, lambda: (normal(1, 2, 5), normal(2, 2, 3, seed=1))),
    Sample("conv2d", lambda x, w: F.conv2d(x, w, padding=1), lambda: (normal(1, 1, 3, 3), normal(1, 1, 3, 3, seed=1))),
    Sample("conv_transpose1d", F.conv_transpose1d, lambda: (normal(1, 2, 3), normal(2, 1, 2, seed=1))),
    Sample("avg_pool1d", lambda x: F.avg_pool1d(x, 2), lambda: (normal(1, 2, 4),)),
    Sample("max_pool1d", lambda x: F.max_pool1d(x, 2), lambda: (spread(1, 2, 4),)),
    Sample("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 2), lambda: (normal(1, 2, 5),)),
    Sample("interpolate", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), lambda: (normal(1, 2, 3),)),
    Sample("pad reflect", lambda x: F.pad(x, (1, 1), mode="reflect"), lambda: (normal(1, 2, 3),)),
    Sample("mse_loss", F.mse_loss, lambda: (normal(), normal(seed=1))),
    Sample("smooth_l1_loss", F.smooth_l1_loss, lambda: (normal(), normal(seed=1) + 0.1)),
    Sample("huber_loss", F.huber_loss, lambda: (normal(), normal(seed=1) + 0.1)),
    Sample("kl_div", lambda x, t: F.kl_div(x, t, reduction="sum"), lambda: (normal(), between(0.2, 0.9, seed=1))),
    Sample("binary_cross_entropy", F.binary_cross_entropy, lambda: (between(0.2, 0.8), between(0.2, 0.8, seed=1))),
    Sample("bce_with_logits", F.binary_cross_entropy_with_logits, lambda: (normal(), between(0.2, 0.8, seed=1))),
    Sample("poisson_nll_loss", F.poisson_nll_loss, lambda: (normal(), between(0.2, 2.0, seed=1))),
    Sample("soft_margin_loss", lambda x: F.soft_margin_loss(x, torch.ones_like(x)), lambda: (normal(),)),
    Sample("sort", lambda x: torch.sort(x, 1)[0], lambda: (spread(),)),
    Sample("median", lambda x: torch.median(x, 1)[0], lambda: (spread(),)),
    Sample("det", torch.linalg.det, lambda: (normal(3, 3),)),
    Sample("inv", torch.linalg.inv, lambda: (normal(3, 3) + 3 * torch.eye(3, dtype=torch.float64),)),
    Sample("two outputs", lambda x, y: (x * y, (x + y).sum(1)), lambda: (normal(), normal(seed=1))),
    Sample("0-dim", lambda x: x * x, lambda: (torch.tensor(0.7, dtype=torch.float64),)))

COMPLEX = (
    one(torch.exp, complex_normal, name="complex exp"), one(torch.sin, complex_normal, name="complex sin"),
    one(torch.conj_physical, complex_normal), one(torch.abs, complex_normal, name="complex abs"), one(torch.angle, complex_normal),
    one(torch.sgn, complex_normal), one(torch.real, complex_normal), one(torch.sigmoid, complex_normal, name="complex sigmoid"),
    Sample("complex mul", torch.mul, lambda: (complex_normal(), complex_normal(seed=1))),
    Sample("complex div", torch.div, lambda: (complex_normal(), complex_normal(seed=1) + 2)),
    Sample("complex matmul", torch.matmul, lambda: (complex_normal(2, 2), complex_normal(2, 2, seed=1))),
    Sample("complex from parts", torch.complex, lambda: (normal(), normal(seed=1))),
    Sample("fft", torch.fft.fft, lambda: (normal(3),)),
    Sample("real times complex", torch.mul, lambda: (normal(), complex_normal(seed=1))))

SAMPLES = (*ELEMENTWISE, *SPECIAL, *STRUCTURED, *COMPLEX)
