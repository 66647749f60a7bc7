"""Operators in bfloat16, float16 and float32, right in several ways and wrong in eight: what is
said of them, beside what else people use.

    python benchmarks/sixteen.py [--seeds N] [--operators NAME ...] [--dtypes bfloat16 float16 float32]
                                 [--wrong-seeds N] [--counts FILE] [--out PAGE]

A mistake counts where it is larger than three times the native error in a row of eight elements or
more, told without gradverify: by the plain computation in 16 bits at 16 points of its own. What is
counted goes into FILE, a line for each operator, dtype and seed; what stands there already is not
judged again, so that a run may come in parts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import sixteen_kit as kits
import sixteen_set as kit
import sixteen_single as single
import torch
from sixteen_judges import DAMAGES, WIDE, Point, function_of, inputs_of
from sixteen_page import Counts, page
from sixteen_single_page import HEADING, single_page

COUNTS = 3.0  # native errors
# Seeds on which gradcheck is asked, and right ways are judged without a reference too
FEW = 2
WRONG = (*kits.WRONG, *DAMAGES)
ALARMS = {
    "right alarms",
    *(
        f"{how} {reference} caught"
        for how in (*kits.RIGHT, "torch's own")
        for reference in (False, True)
    ),
}


def right_ways(name: str) -> list[str]:
    return [*kits.RIGHT, *(["torch's own"] if kit.OPERATORS[name].torchs else [])]


def wrong_ways(name: str, dtype: torch.dtype) -> Iterator[str]:
    """Those that change anything at all."""
    for how in (*WRONG, *(kits.SMALL if dtype == torch.float32 else ())):
        inputs = inputs_of(name, dtype, 0, WIDE.get(how, 1.0))
        if how in DAMAGES or not torch.allclose(
            function_of(name, how)(*inputs),
            kit.plain(name)(*inputs),
            rtol=0,
            atol=0,
            equal_nan=True,
        ):
            yield how


def counted(name: str, dtype: torch.dtype, seed: int) -> Counter[str]:
    """Of all ways to compute an operator at one point."""
    counts, point = Counter[str](), Point(name, dtype, seed)
    for how in right_ways(name):
        _, close, three = point.others(how)
        counts.update({"right each": 1, "right close": close, "right three": three})
        if seed < FEW:
            counts.update({"right few": 1, "right gradcheck": point.gradcheck(how)})
        for reference in (False, True) if seed < FEW else (True,):
            wrong = point.gv112(how, reference)
            counts.update({"right all": 1, "right alarms": bool(wrong)})
            if wrong:
                print(
                    f"  false alarm: {name} {dtype} seed {seed} {how}, reference {reference}: "
                    f"{wrong[0]}",
                    file=sys.stderr,
                    flush=True,
                )
    wide = Point(name, dtype, seed, WIDE["no maximum"])
    for how in wrong_ways(name, dtype):
        counts.update(_of_mistake(wide if how in WIDE else point, how))
    return counts


def _of_mistake(point: Point, how: str) -> dict[str, int]:
    excess, close, three = point.others(how)
    found, above = bool(point.gv112(how, True)), excess > COUNTS
    if above and not found:
        print(
            f"  missed: {point.name} {point.dtype} seed {point.seed} {how}, {excess:.3g} × the "
            "native error",
            file=sys.stderr,
            flush=True,
        )
    seen = {
        "all": True,
        "above": above,
        "found": above and found,
        "small": found and not above,
        "close": above and close,
        "three": above and three,
    }
    if point.seed < FEW:
        seen |= {"few": above, "gradcheck": above and point.gradcheck(how)}
    return {f"{how} {key}": int(value) for key, value in seen.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--operators", nargs="*", default=list(kit.OPERATORS))
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float16"])
    parser.add_argument(
        "--wrong-seeds",
        type=int,
        help="of float32: on how many of the seeds wrong ones are judged too; without it on all",
    )
    parser.add_argument("--counts", type=Path, help="where counts are kept")
    parser.add_argument("--out", type=Path, help="the page to write; without it, it is printed")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    known = (
        {
            tuple(line["of"]): Counter(line["counts"])
            for line in map(json.loads, asked.counts.read_text().splitlines())
        }
        if (asked.counts and asked.counts.exists())
        else {}
    )
    for seed in range(asked.seeds):
        for key in ((name, dtype, seed) for dtype in asked.dtypes for name in asked.operators):
            if key in known:
                continue
            known[key] = _counted(*key, wrong=asked.wrong_seeds is None or seed < asked.wrong_seeds)
            if asked.counts:
                with asked.counts.open("a") as file:
                    print(json.dumps({"of": key, "counts": known[key]}), file=file)
    text = whole(known, asked.out.read_text() if asked.out and asked.out.exists() else "")
    asked.out.write_text(text) if asked.out else print(text)
    return int(
        any(value for each in known.values() for key, value in each.items() if key in ALARMS)
    )


def _counted(name: str, dtype: str, seed: int, wrong: bool) -> Counter[str]:
    if dtype != "float32":
        return counted(name, getattr(torch, dtype), seed)
    # The same as torch's operations, in float32
    ways = [how for how in right_ways(name) if how != "float32 inside"]
    return single.counted(
        name, seed, single.FEW, ways, list(wrong_ways(name, torch.float32)) if wrong else []
    )


def whole(known: Counts, before: str) -> str:
    """The page. A run in one kind of dtypes leaves the other part of it as it was."""
    low, mark, rest = before.partition(HEADING)
    single_ones = {key: each for key, each in known.items() if key[1] == "float32"}
    others = {key: each for key, each in known.items() if key not in single_ones}
    first = page(others, WRONG, FEW) if others else low
    return (first.rstrip() + "\n\n" if first else "") + (
        single_page(single_ones, WRONG) if single_ones else mark + rest
    )


if __name__ == "__main__":
    sys.exit(main())
