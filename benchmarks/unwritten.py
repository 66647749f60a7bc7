"""Planted faults of memory, each checked many times in one process: which codes they get, and
whether always the same.

    python benchmarks/unwritten.py --runs 20

Between two runs memory is churned, so that what `torch.empty` holds is something else. Ends with 1
where a fault got another code than its own, or a right function one of the two.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.direct import check

Made = Callable[[Tensor], Tensor]


def square(gradient: Made, value: Made | None = None) -> type[Function]:
    """`x²`; what these make of 2x·v, and of the value."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x * x) if value else x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return gradient(2 * ctx.saved_tensors[0] * grad_output)

    return Square


def saving(workspace: Made) -> type[Function]:
    """`x²`, whose backward reads a workspace that forward made."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(workspace(2 * x))
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return ctx.saved_tensors[0] * grad_output

    return Square


EMPTIES: dict[str, Made] = {
    "empty": lambda g: torch.empty(g.shape, dtype=g.dtype),
    "empty_like": torch.empty_like,
    "new_empty": lambda g: g.new_empty(g.shape),
    "new": lambda g: g.new(g.shape),
    "empty_strided": lambda g: torch.empty_strided(g.shape, g.stride(), dtype=g.dtype),
    "new_empty_strided": lambda g: g.new_empty_strided(g.shape, g.stride()),
    "resize_": lambda g: torch.empty(0, dtype=g.dtype).resize_(g.shape),
    "resize_as_": lambda g: torch.empty(0, dtype=g.dtype).resize_as_(g),
    "numpy.empty": lambda g: torch.from_numpy(np.empty(tuple(g.shape))),
    "numpy.empty_like": lambda g: torch.from_numpy(np.empty_like(g.detach().numpy())),
}


def half(empty: Made) -> Made:
    def written(g: Tensor) -> Tensor:
        out = empty(g)
        out.view(-1)[: g.numel() // 2] = g.detach().reshape(-1)[: g.numel() // 2]
        return out

    return written


def tile(g: Tensor) -> Tensor:
    out = torch.empty_like(g)
    for start in range(0, g.numel() - 4, 5):
        out.view(-1)[start : start + 5] = g.reshape(-1)[start : start + 5]
    return out


def summed(g: Tensor) -> Tensor:
    return torch.empty_like(g).add_(g)


def last_row(g: Tensor) -> Tensor:
    out = torch.empty_like(g)
    out[:-1] = g[:-1]
    return out


def where_positive(g: Tensor) -> Tensor:
    out = torch.empty_like(g)
    out[g > 0] = g[g > 0]
    return out


def by_a_mask(g: Tensor) -> Tensor:
    mask = torch.empty(g.shape, dtype=torch.bool)
    mask.view(-1)[1:] = True
    return torch.where(mask, g, 0)


def by_an_index(g: Tensor) -> Tensor:
    index = torch.empty(g.numel(), dtype=torch.int64)
    index[1:] = torch.arange(1, g.numel())
    return g.reshape(-1)[index].view(g.shape)


def by_a_count(g: Tensor) -> Tensor:
    count = torch.empty(1, dtype=torch.int64)
    return g * (count.clamp(0, 1) + 1)


def scattered(g: Tensor) -> Tensor:
    return torch.empty_like(g).scatter_(1, torch.zeros(len(g), 1, dtype=torch.int64), g)


def compared(g: Tensor) -> Tensor:
    return torch.where(torch.empty_like(g) > 0, g, 0 * g)


def padded(g: Tensor) -> Tensor:
    rows = torch.empty(len(g) + 2, g.shape[1], dtype=g.dtype)
    rows[: len(g)] = g
    return rows.sum(0) - rows[len(g) :].sum(0) + 0 * g


def complex_half(g: Tensor) -> Tensor:
    out = torch.empty(g.shape, dtype=torch.complex128)
    out.real.copy_(g)
    return out.abs() * g.sign()


def strided(g: Tensor) -> Tensor:
    out = torch.empty(g.numel(), dtype=g.dtype)
    out[::2] = g.reshape(-1)[::2]
    return out.view(g.shape)


def behind_zero(g: Tensor) -> Tensor:
    return g + 0 * torch.empty_like(g)


LEFT: dict[str, type[Function]] = {
    **{f"backward, {name}": square(half(empty)) for name, empty in EMPTIES.items()},
    **{
        f"backward, {made.__name__}": square(made)
        for made in (
            tile,
            summed,
            last_row,
            where_positive,
            by_a_mask,
            by_an_index,
            by_a_count,
            scattered,
            compared,
            padded,
            complex_half,
            strided,
            behind_zero,
        )
    },
    **{
        f"forward, {made.__name__}": square(lambda g: g, made)
        for made in (tile, last_row, strided, by_a_mask)
    },
    **{f"saved, {made.__name__}": saving(made) for made in (tile, last_row, by_a_mask)},
}


def copied(g: Tensor) -> Tensor:
    return torch.empty_like(g).copy_(g)


def workspace(g: Tensor) -> Tensor:
    rows = torch.empty(len(g) + 2, g.shape[1], dtype=g.dtype)
    rows[: len(g)] = g
    return rows[: len(g)].clone()


def two_halves(g: Tensor) -> Tensor:
    out = half(torch.empty_like)(g)
    out.view(-1)[g.numel() // 2 :] = g.reshape(-1)[g.numel() // 2 :]
    return out


def out_of(g: Tensor) -> Tensor:
    return torch.mul(g, 1, out=torch.empty_like(g))


def beta_zero(g: Tensor) -> Tensor:
    return torch.addmm(torch.empty_like(g), g, torch.eye(g.shape[1], dtype=g.dtype), beta=0)


def filled(g: Tensor) -> Tensor:
    return torch.empty_like(g).fill_(1) * g


def numpys(g: Tensor) -> Tensor:
    out = np.empty(tuple(g.shape))
    out[...] = g.detach().numpy()
    return torch.from_numpy(out)


RIGHT: dict[str, type[Function]] = {
    **{
        f"{where}, {made.__name__}": square(made)
        if where == "backward"
        else square(lambda g: g, made)
        if where == "forward"
        else saving(made)
        for where in ("backward", "forward", "saved")
        for made in (copied, workspace, two_halves, out_of, beta_zero, filled, numpys)
    }
}


def churned(runs: int) -> Iterator[int]:
    """Numbers of runs; before each, freed memory holds other numbers."""
    source = torch.Generator().manual_seed(0)
    for run in range(runs):
        blocks = [
            torch.randn(n, generator=source, dtype=torch.float64) * 10.0 ** (run % 7 - 3)
            for n in range(1, 40)
        ]
        del blocks
        yield run


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--only", default="")
    runs, only = asked.parse_args().runs, asked.parse_args().only
    wrong, x = 0, torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for name, function in ((name, made) for name, made in LEFT.items() if only in name):
        codes = Counter(
            tuple(sorted({f.code for f in check(function, (x.clone(),)).findings}))
            for _ in churned(runs)
        )
        wrong += codes != {("GV231",): runs}
        print(f"left unwritten: {name}: {dict(codes)}", flush=True)
    for name, function in ((name, made) for name, made in RIGHT.items() if only in name):
        found = {f.code for f in check(function, (x.clone(),)).findings} & {"GV231", "GV232"}
        wrong += bool(found)
        print(f"right: {name}: {sorted(found) or 'not accused'}", flush=True)
    print(
        f"{len(LEFT)} faults in {runs} runs each, {len(RIGHT)} right ones: {wrong} came out in "
        "another way"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
