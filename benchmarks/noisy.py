"""Noisy forwards with and without the witness, torch's own derivative of forward: false alarms, what stays undecided, and what is let through.

    python benchmarks/noisy.py [--quick] [--families NAME ...]

The functions and scales of verdicts.py, as a user's check judges them, with noise of two kinds: rounding of large numbers that cancel, which torch
differentiates through, and that of verdicts.py, which it does not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from checkers import noisy
from families import Family
from torch import Tensor
from user import JACOBIAN, _verified, differentiated
from verdicts import SCALES, chosen

from gradverify.model.case import Case, Settings, SpecPlace
from gradverify.subject.prepare import assemble
from gradverify.subject.target import live

RELATIVE = (1e-12, 1e-9)
FACTORS = {"right": 1.0, "+1e-9": 1 + 1e-9, "+1e-6": 1 + 1e-6, "+1e-4": 1 + 1e-4, "+1 %": 1.01, "×2": 2.0, "sign": -1.0, "zero": 0.0}
PARTS = (1.0, 1.1875, 1.3125, 1.4375)  # of y, each rounded by itself: with one alone, y moves in steps
HEADER = ("noise", "forward", "inputs", "witness", "checks of each gradient", "false alarms", "right, undecided",
          *(f"passed {name}" for name in FACTORS if name != "right"), "calls")


def cancelling(y: Tensor, relative: float) -> Tensor:
    """y with about as much noise as `noisy` gives it, by adding a large number to each part of it and taking it away again."""
    numbers = torch.view_as_real(y) if y.is_complex() else y
    size = numbers.detach().abs()
    large = 1.5 * 2.0**52 * torch.where(size > 0, 2.0 ** torch.ceil(torch.log2(2 * relative * size)), torch.zeros_like(size))
    result = sum(((numbers * part + large) - large) / part for part in PARTS) / len(PARTS)
    return torch.view_as_complex(result) if y.is_complex() else result


KINDS: dict[str, Callable[[Tensor, float], Tensor]] = {"by cancelling": cancelling, "by bits": noisy}


class Planted(torch.autograd.Function):
    """A noisy forward, and torch's own gradient of the clean one times a factor."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Tensor], kind: str, relative: float, factor: float, *inputs: Tensor) -> Tensor:
        ctx.clean, ctx.factor = forward, factor
        ctx.save_for_backward(*inputs)
        return KINDS[kind](forward(*inputs), relative)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Any, ...]:
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            gradients = torch.autograd.grad(ctx.clean(*leaves), leaves, cotangent)
        return None, None, None, None, *(ctx.factor * g for g in gradients)


def outcome(family: Family, scale: float, kind: str, relative: float, factor: float, dtype: torch.dtype, witness: bool) -> tuple[str, int]:
    """The verdict of one check, and its calls."""
    clean = family.at(scale)
    settings = Settings(dtype=str(dtype).removeprefix("torch."), select=JACOBIAN, witness=witness)
    case = Case(id=family.name, name=family.name, check=family.name, spec=SpecPlace("benchmark", 1), target=family.name, settings=settings)

    def function(*inputs: Tensor) -> Tensor:
        found: Tensor = Planted.apply(clean, kind, relative, factor, *inputs)  # type: ignore[no-untyped-call]
        return found

    arguments = differentiated(family.inputs(0, scale, dtype))
    result = _verified(case, lambda: assemble(case, live(family.name, function, None, torch.float64), arguments), briefly=True)
    return result.verdict, result.calls.forward + result.calls.backward


def rows(families: Sequence[Family], relatives: Sequence[float], dtypes: Sequence[torch.dtype]) -> list[Sequence[object]]:
    """A row for each kind and size of noise, scale and witness."""
    found = list[Sequence[object]]()
    for kind in KINDS:
        for relative in relatives:
            for inputs, scales in (("of order 1", SCALES[:1]), ("of order 10^±5", SCALES[1:])):
                for witness in (False, True):
                    seen, calls = Counter[tuple[str, str]](), 0
                    for family in families:
                        for dtype in dtypes:
                            if dtype.is_complex and not family.complex:
                                continue
                            for scale in scales:
                                for name, factor in FACTORS.items():
                                    verdict, spent = outcome(family, scale, kind, relative, factor, dtype, witness)
                                    seen[name, verdict] += 1
                                    calls += spent
                    runs = sum(n for (name, _), n in seen.items() if name == "right")
                    passed = [seen[name, "pass"] for name in FACTORS if name != "right"]
                    found.append((kind, f"noise {relative:g}", inputs, "on" if witness else "off", runs, seen["right", "fail"],
                                  seen["right", "undecided"], *passed, calls))
                    print("| " + " | ".join(map(str, found[-1])) + " |", flush=True)
    return found


def main(arguments: Sequence[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="float64 and noise of 1e-9 only")
    parser.add_argument("--families", nargs="+", default=(), metavar="NAME", help="only these functions")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| " + " | ".join(HEADER) + " |\n| " + " | ".join("---" for _ in HEADER) + " |")
    quick = (RELATIVE[1:], (torch.float64,)) if options.quick else (RELATIVE, (torch.float64, torch.complex128))
    rows(list(chosen(options.families)), *quick)


if __name__ == "__main__":
    main(sys.argv[1:])
