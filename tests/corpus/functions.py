"""Right functions of torch with inputs at which they are smooth: at least as far from a kink as
gradcheck's step reaches."""

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
    return low + (high - low) * torch.rand(
        shape or SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


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


def one(
    call: Op, x: Callable[..., Tensor] = normal, *arguments: Any, name: str = "", **kwargs: Any
) -> Sample:
    return Sample(name or call.__name__, call, lambda: (x(*arguments, **kwargs),))


ELEMENTWISE = (
    one(torch.sin),
    one(torch.exp),
    one(torch.log, between, 0.3, 3.0),
    one(torch.reciprocal, between, 0.4, 2.0),
    one(torch.acos, between, -0.8, 0.8),
    one(torch.abs, off_zero),
    one(F.relu, off_zero),
    one(F.gelu),
    one(F.softplus),
    one(F.hardtanh, between, -0.9, 0.9),
)

SPECIAL = (
    one(special.erfinv, between, -0.8, 0.8),
    one(special.erfcx),
    one(special.digamma, between, 0.5, 3.0),
    one(special.i0),
    one(special.entr, between, 0.2, 2.0),
    one(special.sinc, off_zero),
    Sample("xlogy", special.xlogy, lambda: (normal(), between(0.3, 2.0, seed=1))),
    Sample("zeta", lambda q: special.zeta(2.5, q), lambda: (between(0.5, 2.0),)),
    Sample("logsumexp", lambda x: special.logsumexp(x, 1), lambda: (normal(),)),
)

STRUCTURED = (
    Sample("softmax", lambda x: F.softmax(x, 1), lambda: (normal(),)),
    Sample("cosine_similarity", F.cosine_similarity, lambda: (normal(), normal(seed=1))),
    Sample(
        "layer_norm",
        lambda x, w, b: F.layer_norm(x, (3,), w, b),
        lambda: (normal(), normal(3, seed=1), normal(3, seed=2)),
    ),
    Sample(
        "batch_norm", lambda x: F.batch_norm(x, None, None, training=True), lambda: (normal(4, 2),)
    ),
    Sample(
        "bilinear",
        F.bilinear,
        lambda: (normal(2, 2), normal(2, 2, seed=1), normal(2, 2, 2, seed=2)),
    ),
    Sample(
        "conv_transpose1d", F.conv_transpose1d, lambda: (normal(1, 2, 3), normal(2, 1, 2, seed=1))
    ),
    Sample("max_pool1d", lambda x: F.max_pool1d(x, 2), lambda: (spread(1, 2, 4),)),
    Sample(
        "interpolate",
        lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
        lambda: (normal(1, 2, 3),),
    ),
    Sample("pad reflect", lambda x: F.pad(x, (1, 1), mode="reflect"), lambda: (normal(1, 2, 3),)),
    Sample("huber_loss", F.huber_loss, lambda: (normal(), normal(seed=1) + 0.1)),
    Sample(
        "kl_div",
        lambda x, t: F.kl_div(x, t, reduction="sum"),
        lambda: (normal(), between(0.2, 0.9, seed=1)),
    ),
    Sample("sort", lambda x: torch.sort(x, 1)[0], lambda: (spread(),)),
    Sample(
        "inv", torch.linalg.inv, lambda: (normal(3, 3) + 3 * torch.eye(3, dtype=torch.float64),)
    ),
    Sample("two outputs", lambda x, y: (x * y, (x + y).sum(1)), lambda: (normal(), normal(seed=1))),
    Sample("0-dim", lambda x: x * x, lambda: (torch.tensor(0.7, dtype=torch.float64),)),
)

COMPLEX = (
    one(torch.exp, complex_normal, name="complex exp"),
    one(torch.conj_physical, complex_normal),
    one(torch.abs, complex_normal, name="complex abs"),
    one(torch.angle, complex_normal),
    one(torch.real, complex_normal),
    Sample("complex mul", torch.mul, lambda: (complex_normal(), complex_normal(seed=1))),
    Sample("complex div", torch.div, lambda: (complex_normal(), complex_normal(seed=1) + 2)),
    Sample(
        "complex matmul", torch.matmul, lambda: (complex_normal(2, 2), complex_normal(2, 2, seed=1))
    ),
    Sample("complex from parts", torch.complex, lambda: (normal(), normal(seed=1))),
    Sample("fft", torch.fft.fft, lambda: (normal(3),)),
    Sample("real times complex", torch.mul, lambda: (normal(), complex_normal(seed=1))),
)

SAMPLES = (*ELEMENTWISE, *SPECIAL, *STRUCTURED, *COMPLEX)
