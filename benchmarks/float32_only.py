"""Right kernels that take float32 alone, at default settings: how many are undecided or accused,
and which damaged twins are found.

    python benchmarks/float32_only.py [--seeds N] [--damages] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from corpus.float32_only import DAMAGES, OPERATORS, STYLES, verdict


def rows(names: Sequence[str], seeds: int, damages: bool) -> Iterator[tuple[str, str, str, str]]:
    """(style, operator, damage, verdict) of each check."""
    for style in STYLES:
        for name in names or OPERATORS:
            for seed in range(seeds):
                for what, damage in {"right": lambda g: g, **(DAMAGES if damages else {})}.items():
                    found = verdict(style, name, seed, damage)
                    if (found.verdict == "pass") != (what == "right"):
                        print(
                            f"  {style}, {name}, seed {seed}, {what}: {found.verdict}, "
                            f"{[each.message for each in found.findings]}, {found.calls}",
                            flush=True,
                        )
                    yield style, name, what, found.verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--damages", action="store_true")
    asked = parser.parse_args()
    counts = Counter(
        (style, what, found)
        for style, _, what, found in rows(asked.names, asked.seeds, asked.damages)
    )
    for key, count in sorted(counts.items()):
        print(*key, count)


if __name__ == "__main__":
    main()
