"""The page that says what was counted of operators in low precision:
`benchmarks/results/low-precision.md`."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence

import sixteen_set as kit
import torch

Counts = Mapping[tuple[str, str, int], Counter[str]]
HEADER = (
    "mistake",
    "checks",
    "above 3 × native",
    "GV112",
    "`allclose` 1e-2",
    "3 × rule",
    "gradcheck",
    "below 3 ×",
    "GV112",
)

MADE = """# Low precision, counted

Made by `python benchmarks/sixteen.py --out benchmarks/results/low-precision.md` with torch {torch} and Python {python} on the CPU, one thread:
{operators} operators ([how GV112 judges](../../docs/method.md#10-bfloat16-and-float16)), {units} ({dtypes}; {seeds}).

Each operator is written once over primitives (a sum, a product, a scale, a maximum, an upcast) and computed in three right ways: torch's
operations in 16 bits, float32 inside, and sums and products in blocks in another order; {torchs} of them in torch's own fused way too. The
reference is the first way. A wrong way is one whose primitive is wrong in low precision alone, or a right one whose gradient is damaged there,
so float64 shows nothing of it.

## Right ones

| checker | checks | accused |
| --- | ---: | ---: |
"""

WRONG = """
GV112 judges each with the reference{few}.

## Wrong ones

A mistake counts where the function or a gradient is off by more than three times the native error in a row of eight elements or more, as told
without gradverify: by the plain computation in the same dtype at 16 points of its own. The columns of checkers say how many of those they find;
the last two count the smaller ones.

"""

READING = """
GV112 finds {found} of {above} ({share:.1f} %).

The mistakes: *accumulates in 16 bits*: sums and products are rounded after each term. *Missing upcast*: what is computed with passes through 8
bits (e4m3). *Rounded constant*: factors have three bits. *Scale twice*: a factor is applied two times. *No maximum*: softmax does not subtract
it, with inputs 40 times as large. *Dropped tail*: the first gradient lacks its last eight columns. *Zeroed row*: it lacks its smallest row.
*Branch of 16 bits*: the last gradient has the other sign.

The other checkers: `torch.allclose` of value and gradients with float64 at `rtol` and `atol` 1e-2. The rule of FlashAttention's tests: the
largest error may be 3 times that of the plain computation in the same dtype. `torch.autograd.gradcheck`, fast, in the dtype itself with steps of
2⁻⁴ and tolerances of 1e-2; it is asked on {few} seeds only ({asked} of these mistakes), and a refusal counts as found. Its fast mode widens the
tolerance with the size of the inputs, so it passes nearly all, right or wrong. In float64, where people use it, it cannot see any of them.

What is missed. Sums of few terms in 16 bits, of which one row is off by little more than three native errors. A zeroed row that is zero anyhow at the
cotangents that GV112 draws. And one mistake that is far above its native error: the slope 0.01 of `leaky_relu` with three bits. Half the elements of
its rows are exact, and what is wrong with the others is less than one rounding of those would be.

What this does not show. The operators are small (rows of 16 to 96 elements), and the planted mistakes are of eight kinds. Zeros are counts of
these runs, not probabilities. No GPU took part.
"""


def page(known: Counts, wrong: Sequence[str], few: int) -> str:
    """All of it, in Markdown."""
    total = sum(known.values(), Counter[str]())
    seeds = sorted({key[2] for key in known}) or [0]
    dtypes = list(dict.fromkeys(key[1] for key in known))
    operators = {key[0] for key in known}
    made = MADE.format(
        torch=torch.__version__.partition("+")[0],
        python=platform.python_version(),
        operators=len(operators),
        dtypes=" and ".join(dtypes),
        units=f"{len(known):,} points",
        seeds=f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed",
        torchs=sum(kit.OPERATORS[name].torchs is not None for name in operators),
    )
    rows = [
        ("GV112", "right all", "right alarms"),
        ("`torch.allclose` at 1e-2", "right each", "right close"),
        ("3 × the plain error", "right each", "right three"),
        ("gradcheck, fast", "right few", "right gradcheck"),
    ]
    right = "".join(
        f"| {name} | {total[of]:,} | {total[accused]:,} |\n" for name, of, accused in rows
    )
    above, found = (sum(total[f"{how} {key}"] for how in wrong) for key in ("above", "found"))
    asked = sum(total[f"{how} few"] for how in wrong)
    alone = f", and on the first {few} seeds without one too" if seeds[0] < few else ""
    return (
        made
        + right
        + WRONG.format(few=alone)
        + _table(total, wrong)
        + READING.format(
            found=f"{found:,}",
            above=f"{above:,}",
            share=100 * found / above if above else 100.0,
            few=few,
            asked=f"{asked:,}",
        )
    )


def _table(total: Counter[str], wrong: Sequence[str]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "| --- " + "| ---: " * (len(HEADER) - 1) + "|"]
    for how in wrong:
        n = {
            key: total[f"{how} {key}"]
            for key in ("all", "above", "found", "close", "three", "gradcheck", "small", "few")
        }
        asked = f"{n['gradcheck']:,} of {n['few']:,}"
        cells = [
            n["all"],
            n["above"],
            n["found"],
            n["close"],
            n["three"],
            asked,
            n["all"] - n["above"],
            n["small"],
        ]
        lines.append(
            f"| {how} | "
            + " | ".join(cell if isinstance(cell, str) else f"{cell:,}" for cell in cells)
            + " |"
        )
    return "\n".join(lines) + "\n"
