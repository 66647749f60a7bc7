"""The part of `benchmarks/results/low-precision.md` that says what was counted in float32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sixteen_kit import SMALL
from sixteen_single import CLASSES

HEADING = "## float32"
VERDICTS = ("passed", "undecided", "caught")
WAYS = {
    "16 bits": "torch's operations",
    "other order": "other order",
    "torch's own": "torch's own fused way",
}

MADE = """{heading}

Made by `python benchmarks/sixteen.py --dtypes float32 --seeds {seeds}{option} --out benchmarks/results/low-precision.md`: the same
{operators} operators with fewer rows (6 for 24, and 24 columns for 40), {points:,} points ({seeds} seeds; wrong ones at {wrong_seeds} of them).
Each is judged as a user's check with `dtype: float32`, a `reference` (torch's operations) and default tolerances is
([how](../../docs/method.md#3-float32-and-complex64)): by its verdict. *Undecided* is neither right nor wrong, and counted apart. Right ones are
checked without the reference too, and gradcheck is asked, at the first seed only.

Right ones:

| way | reference | checks | passed | undecided | accused |
| --- | --- | ---: | ---: | ---: | ---: |
"""

OTHERS = """
Of {each:,} right ones `torch.testing.assert_close` with float64, at its defaults for float32 (`rtol` 1.3e-6, `atol` 1e-5), accuses {close:,}, the
rule of 3 × the plain error {three:,}; of {few:,}, gradcheck at its own defaults accuses {gradcheck:,}: float32 cannot resolve its steps of 1e-6.

Wrong ones, in float32 alone (what 16 bits round to 8, float32 rounds to bfloat16). They are compared with the reference first (GV105, GV106), and the
rest of the check is made where that finds nothing. *Within* are those that passed and whose values and derivatives are all
right to the `rtol` of 1e-3 that a check in float32 has, of the largest of their row:

"""

HEADER = (
    "mistake",
    "checks",
    "above 3 × native",
    "caught",
    "undecided",
    "passed",
    "of these within",
    "`assert_close`",
    "3 × rule",
    "gradcheck",
)

SIZED = """
gradverify catches {caught:,} of {above:,} above 3 × native ({share:.1f} %); {all_caught:,} of {every:,} with products in TF32, which are a mode of
tensor cores and no fault. By size in native errors (about 1e-7 of a row; rows of less than eight elements have no size: they are in the first line):

"""

READING = """
Where the argument of a tanh GELU is below −5 (`gelu`, `linear_gelu`, `bias_gelu`), float32 rounds `1 + tanh` to 0, and so the gradient, which in
float64 is −1e-9: right for float32, and passed as such where all that it is off by is measured to be rounding.

What is not caught. A mistake below the default tolerance is not looked for, and may pass: products in TF32 are off by some 5e-4. The line of a pass
says the smallest error that it would have found, and a smaller `rtol` finds more. The eight other mistakes are larger than that, but for a softmax
without maximum in `experts`, whose rows are saturated; that of `tempered_softmax` is undecided, where float32 rounds outputs of 1e-26 to 0. These
tables do not say how many smaller ones would be found.

Without a reference a function in float32 is what it computes. What forward and gradient share, as a scale that is applied twice in both, leaves the
gradient right for it, and such a check passes; where its values are others in float64, beyond the tolerance and what float32 costs, GV112 warns: at
one seed of 13 of the operators, of 34 of 36 wrong forwards that are finite, and of none of 31 right ones. All wrong ones above were checked with the
reference.

`assert_close` finds nearly all of these too, and accuses next to none: it is told the gradients in float64, which somebody has to have, and
the operators are small. gradcheck refuses everything in float32, right or wrong.
"""


def single_page(known: Mapping[tuple[str, str, int], Counter[str]], wrong: Sequence[str]) -> str:
    """It, in Markdown."""
    total = sum(known.values(), Counter[str]())
    seeds, wrong_seeds = (
        len({key[2] for key, each in known.items() if any(name.startswith(of) for name in each)})
        for of in ("", tuple(wrong))
    )
    option = f" --wrong-seeds {wrong_seeds}" if wrong_seeds < seeds else ""
    operators = len({key[0] for key in known})
    made = MADE.format(
        heading=HEADING,
        seeds=seeds,
        option=option,
        wrong_seeds=wrong_seeds,
        operators=operators,
        points=len(known),
    )
    several = {
        key: sum(total[f"{way} {key}"] for way in WAYS)
        for key in ("each", "close", "three", "few", "gradcheck")
    }
    every = (*wrong, *SMALL)
    above, caught = (
        sum(total[f"{how} {key}"] for how in wrong) for key in ("above", "above caught")
    )
    extra, found = (
        sum(total[f"{how} {key}"] for how in SMALL) for key in ("above", "above caught")
    )
    sizes = SIZED.format(
        caught=caught,
        above=above,
        share=100 * caught / above if above else 100.0,
        all_caught=caught + found,
        every=above + extra,
    )
    return (
        made
        + _right(total)
        + OTHERS.format(**several)
        + _wrong(total, every)
        + sizes
        + _sized(total, every)
        + READING
    )


def _right(total: Counter[str]) -> str:
    lines = ""
    for way, name in WAYS.items():
        for reference in (True, False):
            n = [total[f"{way} {reference} {verdict}"] for verdict in VERDICTS]
            lines += _row([name, "yes" if reference else "no", sum(n), *n]) if sum(n) else ""
    return lines


def _wrong(total: Counter[str], wrong: Sequence[str]) -> str:
    lines = _row(HEADER) + "| --- " + "| ---: " * (len(HEADER) - 1) + "|\n"
    for how in wrong:
        keys = (
            "all",
            "above",
            "above caught",
            "above undecided",
            "above passed",
            "above within",
            "close",
            "three",
        )
        lines += _row(
            [
                how,
                *(total[f"{how} {key}"] for key in keys),
                f"{total[f'{how} gradcheck']:,} of {total[f'{how} few']:,}",
            ]
        )
    return lines


def _sized(total: Counter[str], wrong: Sequence[str]) -> str:
    lines = (
        _row(["native errors", "caught", "undecided", "passed"]) + "| --- | ---: | ---: | ---: |\n"
    )
    for size in CLASSES:
        lines += _row(
            [
                size,
                *(
                    sum(total[f"{how} size {size} {verdict}"] for how in wrong)
                    for verdict in reversed(VERDICTS)
                ),
            ]
        )
    return lines


def _row(cells: Iterable[object]) -> str:
    return (
        "| "
        + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
        + " |\n"
    )
