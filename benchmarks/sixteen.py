"""Operators in bfloat16 and float16, right in several ways and wrong in eight: what GV112 says of them, beside what else people use.

    python benchmarks/sixteen.py [--seeds N] [--operators NAME ...] [--dtypes bfloat16 float16]

A mistake counts where it is larger than three times the native error in a row of eight elements or more, told without gradverify: by the plain
computation in 16 bits at 16 points of its own.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sixteen_operators as kit
import torch
from torch import Tensor

from gradverify.model.case import Case, Oracles, Search, Settings, SpecPlace
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.verify import evidence_of

DAMAGES = ("dropped tail", "zeroed row", "branch of 16 bits")
WIDE = {"no maximum": 40.0}     # how large its inputs are
POINTS, COUNTS = 16, 3.0
HEADER = ("mistake", "checks", "above 3 × native", "of these found by GV112", "below 3 × found", "allclose 1e-2", "3 × rule", "gradcheck")


class Damaged(torch.autograd.Function):
    """A right function whose backward is damaged in 16 bits."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], how: str, *inputs: Tensor) -> Tensor:
        ctx.function, ctx.how = function, how
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            found = list(torch.autograd.grad(ctx.function(*leaves), leaves, cotangent))
        if kit.is_low(leaves[0]):
            found = damaged(found, ctx.how)
        return None, None, *found


def damaged(gradients: list[Tensor], how: str) -> list[Tensor]:
    """The first gradient without its last eight columns, or without its smallest row; the last one negative."""
    first, last = gradients[0].clone(), gradients[-1].clone()
    if how == "dropped tail":
        first[..., -8:] = 0
    elif how == "zeroed row":
        rows = first.view(-1, first.shape[-1])
        sizes = rows.float().square().mean(1)
        rows[torch.where(sizes > 0, sizes, torch.inf).argmin()] = 0
    else:
        return [*gradients[:-1], -last]
    return [first, *gradients[1:]]


def inputs_of(name: str, dtype: torch.dtype, seed: int, size: float = 1.0) -> list[Tensor]:
    """Standard normal ones, of rows of different sizes."""
    source = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=source, dtype=torch.float64) for shape in kit.OPERATORS[name].shapes]
    made[0] = made[0] * (4.0 ** torch.randn(made[0].shape[:-1], generator=source, dtype=torch.float64)[..., None]).clamp(0.05, 4) ** 0.5
    return [(x * size).to(dtype).requires_grad_() for x in made]


def function_of(name: str, how: str) -> Callable[..., Tensor]:
    operator = kit.OPERATORS[name]
    if how in DAMAGES:
        return partial(Damaged.apply, partial(operator.function, kit.Upcast()), how)
    if how == "torch's own":
        assert operator.torchs is not None
        return operator.torchs
    return partial(operator.function, (kit.RIGHT | kit.WRONG)[how])


def judged(name: str, how: str, inputs: Sequence[Tensor], seed: int, reference: bool) -> list[str]:
    """What the second leg finds wrong, a sentence each."""
    function = function_of(name, how)
    oracles = Oracles(reference=f"sixteen_operators:plain_{name}") if reference else Oracles()
    case = Case("sixteen", name, f"{name} {seed}", SpecPlace("sixteen.py", 1), name, settings=Settings(
        dtype=str(inputs[0].dtype).removeprefix("torch."), seed=seed), oracles=oracles, search=Search(str(Path(__file__).parent)))
    given = [Argument(f"x{n}", x.detach(), True) for n, x in enumerate(inputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evidence = evidence_of(assemble(case, live(name, lambda *args: function(*args), None, torch.float64), given))
        assert evidence.kernel is not None
        with evidence.standing.mode():
            seen = (*evidence.kernel.outputs, *evidence.kernel.gradients)
    return [f"{n}: {each.miss}, {each.ratio:.3g} × the native error, gain {each.gain:.4f}" for n, each in enumerate(seen) if each.miss]


# ---- without gradverify
def pulled(function: Callable[..., Tensor], inputs: Sequence[Tensor], cotangent: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = function(*leaves)
    return [y.detach().double(), *(g.double() for g in torch.autograd.grad(y, leaves, cotangent.to(y.dtype).expand_as(y)))]


def others(name: str, how: str, inputs: Sequence[Tensor], seed: int) -> tuple[float, bool, bool]:
    """The mistake over the native error, in the worst row of eight or more; does allclose, does the 3 × rule find it?"""
    plain, function = kit.plain(name), function_of(name, how)
    exact_inputs, source = [x.detach().double() for x in inputs], torch.Generator().manual_seed(seed + 1)
    shape = plain(*exact_inputs).shape
    cotangent = torch.randn(shape, generator=source, dtype=torch.float64).to(inputs[0].dtype).double()
    exact, mine, theirs = (pulled(f, at, cotangent) for f, at in ((plain, exact_inputs), (function, inputs), (plain, inputs)))
    close = all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in zip(mine, exact, strict=True))
    three = all(float((a - b).abs().max()) <= 3 * float((c - b).abs().max()) + 1e-30 for a, b, c in zip(mine, exact, theirs, strict=True))
    errors = [torch.zeros_like(x) for x in exact]
    for _ in range(POINTS):
        signs = [torch.randint(0, 2, x.shape, generator=source) * 2.0 - 1 for x in exact_inputs]
        half = [torch.finfo(inputs[0].dtype).eps / 2 * 2.0 ** x.abs().clamp_min(1e-4).log2().floor() for x in exact_inputs]
        moved = [x + sign * ulp for x, sign, ulp in zip(exact_inputs, signs, half, strict=True)]
        narrow = [x.to(inputs[0].dtype) for x in moved]
        there = zip(pulled(plain, narrow, cotangent), pulled(plain, [x.double() for x in narrow], cotangent), strict=True)
        beside = pulled(plain, moved, cotangent)
        errors = [e + ((a - b).square() + (m - x).square()) / POINTS for e, (a, b), m, x in zip(errors, there, beside, exact, strict=True)]
    return max(map(_excess, mine, exact, errors)), not close, not three


def _excess(mine: Tensor, exact: Tensor, squares: Tensor) -> float:
    if not exact.shape or exact.shape[-1] < 8:
        return 0.0
    native = squares.mean(-1).sqrt().clamp_min(1e-30)
    ratio = (mine - exact).square().mean(-1).sqrt() / native
    alive = exact.square().mean(-1) > 1e-18 * exact.square().mean()
    return float(torch.where(alive, ratio.nan_to_num(torch.inf), 0.0).max())


def gradcheck(name: str, how: str, inputs: Sequence[Tensor]) -> bool:
    """Does it raise, at a step that 16 bits can take?"""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return not torch.autograd.gradcheck(function_of(name, how), [x.detach().requires_grad_() for x in inputs], eps=2.0**-4, atol=1e-2,
                                                rtol=1e-2, raise_exception=False, fast_mode=True)
    except (RuntimeError, NotImplementedError):
        return True


def right_ways(name: str) -> list[str]:
    return [*kit.RIGHT, *(["torch's own"] if kit.OPERATORS[name].torchs else [])]


def wrong_ways(name: str, dtype: torch.dtype) -> Iterator[str]:
    """Those that change anything at all."""
    for how in (*kit.WRONG, *DAMAGES):
        inputs = inputs_of(name, dtype, 0, WIDE.get(how, 1.0))
        same = torch.equal(function_of(name, how)(*inputs), kit.plain(name)(*inputs))
        if how in DAMAGES or not same:
            yield how


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--operators", nargs="*", default=list(kit.OPERATORS))
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float16"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    counts, alarms = Counter[tuple[str, str]](), Counter[str]()
    for name in asked.operators:
        for dtype in (getattr(torch, each) for each in asked.dtypes):
            _right(name, dtype, asked.seeds, counts, alarms)
            _wrong(name, dtype, asked.seeds, counts)
    print(f"right: {counts['right', 'all']} checks, false alarms: GV112 {alarms['GV112']}; of {counts['right', 'each']}: allclose 1e-2 "
          f"{alarms['close']}, 3 × rule {alarms['three']}, gradcheck {alarms['gradcheck']}\n")
    print("| " + " | ".join(HEADER) + " |\n| --- " + "| ---: " * (len(HEADER) - 1) + "|")
    for how in (*kit.WRONG, *DAMAGES):
        n = {key: counts[how, key] for key in ("all", "above", "found", "small", "close", "three", "gradcheck")}
        print(f"| {how} | " + " | ".join(map(str, n.values())) + " |")
    above, found = (sum(counts[how, key] for how in (*kit.WRONG, *DAMAGES)) for key in ("above", "found"))
    print(f"\nfound {found} of {above}")
    return int(bool(alarms["GV112"]))


def _right(name: str, dtype: torch.dtype, seeds: int, counts: Counter[tuple[str, str]], alarms: Counter[str]) -> None:
    for seed in range(seeds):
        inputs = inputs_of(name, dtype, seed)
        for how in right_ways(name):
            counts["right", "each"] += 1
            _, close, three = others(name, how, inputs, seed)
            alarms.update(close=close, three=three, gradcheck=gradcheck(name, how, inputs))
            for reference in (False, True):
                wrong = judged(name, how, inputs, seed, reference)
                counts["right", "all"] += 1
                alarms["GV112"] += bool(wrong)
                if wrong:
                    print(f"  false alarm: {name} {dtype} seed {seed} {how}, reference {reference}: {wrong[0]}", file=sys.stderr)


def _wrong(name: str, dtype: torch.dtype, seeds: int, counts: Counter[tuple[str, str]]) -> None:
    for how in wrong_ways(name, dtype):
        for seed in range(seeds):
            inputs = inputs_of(name, dtype, seed, WIDE.get(how, 1.0))
            excess, close, three = others(name, how, inputs, seed)
            found = bool(judged(name, how, inputs, seed, True))
            above = excess > COUNTS
            counts[how, "all"] += 1
            counts[how, "above"] += above
            counts[how, "found"] += above and found
            counts[how, "small"] += not above and found
            counts[how, "close"] += above and close
            counts[how, "three"] += above and three
            counts[how, "gradcheck"] += above and gradcheck(name, how, inputs)
            if above and not found:
                print(f"  missed: {name} {dtype} seed {seed} {how}, {excess:.3g} × the native error", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
