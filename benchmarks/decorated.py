"""Verdicts of labelled functions (right, wrong, at a kink) under decorations that change no number.

    python benchmarks/decorated.py [--only NAME ...] [--decorations NAME ...] [--out benchmarks/results/decorated.md]

Each function is checked as it is and under each decoration; what changed is a verdict, or the code
of the first error.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from corpus.decorations import DECORATIONS, HELD, decorated, names
from corpus.labelled import SIMPLE, Labelled
from live import check

Outcome = tuple[str, str]
SAME = {"GV111": "GV101"}  # of a parameter: of an input


def outcome(each: Labelled, decoration: str) -> Outcome:
    """The verdict and the code of the first error."""
    function, arguments = decorated(decoration, each.function, each.arguments)
    result = check(function, *arguments)
    code = next((found.code for found in result.findings if found.severity == "error"), "")
    return result.verdict, SAME.get(code, code)


def chosen(names: list[str], all_names: list[str]) -> list[str]:
    return [name for name in all_names if not names or any(part in name for part in names)]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the functions' names")
    parser.add_argument("--decorations", nargs="*", default=[], help="parts of their names")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    decorations, started = chosen(asked.decorations, [*DECORATIONS, *HELD]), time.process_time()
    functions = [
        each for each in SIMPLE if each.name in chosen(asked.only, [one.name for one in SIMPLE])
    ]
    changes, checks = list[str](), 0
    changed, of = Counter[str](), Counter[str]()
    for each in functions:
        plain = outcome(each, "")
        for decoration in [name for name in decorations if name in names(each.arguments)]:
            found, checks = outcome(each, decoration), checks + 1
            of[each.label] += 1
            if found != plain:
                changed[each.label] += 1
                changes.append(
                    f"| {each.name} | {each.label} | {decoration} | {' '.join(plain)} | "
                    f"{' '.join(found)} |"
                )
                print(changes[-1], flush=True)
    head = [
        f"{checks} checks of {len(functions)} functions under {len(decorations)} decorations: "
        f"{len(changes)} verdicts changed "
        f"({', '.join(f'{label}: {changed[label]} of {of[label]}' for label in of)}).",
        "",
    ]
    table = (
        [
            "| function | label | decoration | as it is | decorated |",
            "| --- | --- | --- | --- | --- |",
            *changes,
        ]
        if changes
        else []
    )
    print(head[0], f"{time.process_time() - started:.0f} s of CPU", file=sys.stderr)
    if asked.out:
        asked.out.write_text(
            "\n".join(["# Verdicts under decorations", "", *head, *table]) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
