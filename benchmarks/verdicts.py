"""False alarms, missed errors and undecided checks of gradverify and of torch.autograd.gradcheck, slow and fast, in one table.

    python benchmarks/verdicts.py [--quick] [--families NAME ...] [--out docs/verdicts.md]

One run is one check of one function at one point. Every number comes from fixed seeds.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from checkers import CHECKERS, Error, planted
from families import FAMILIES, Family

from gradverify.numerics.compare import Verdict

SCALES = (1.0, 1e5, 1e-5)
SETTINGS = (  # precision and relative forward noise; float32 rounds coarser than either noise, so it has none added
    (torch.float64, 0.0), (torch.float64, 1e-12), (torch.float64, 1e-9),
    (torch.float32, 0.0),
    (torch.complex128, 0.0), (torch.complex128, 1e-12), (torch.complex128, 1e-9),
)
POINTS = 2  # of each function, scale and setting
QUICK_SETTINGS, QUICK_SCALES, QUICK_POINTS = (SETTINGS[0], SETTINGS[3]), SCALES[::2], 1
READING = Path(__file__).with_name("reading.md")
HEADER = ("forward", "inputs", "checker", "checks of each gradient", "false alarms", "right, undecided", "missed +1e-4", "missed +1 %",
          "missed ×2", "missed sign", "missed zero", "wrong, undecided")


@dataclass(frozen=True, order=True)
class Condition:
    """One block of rows."""

    forward: str
    inputs: str


@dataclass
class Counts:
    """The verdicts of one checker under one condition, by planted error."""

    seen: Counter[tuple[Error, Verdict]] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        return sum(n for (error, _), n in self.seen.items() if error is Error.NONE)

    @property
    def false_alarms(self) -> int:
        return self.seen[Error.NONE, Verdict.MISMATCH]

    def missed(self, error: Error) -> int:
        return self.seen[error, Verdict.PASS]

    def undecided(self, wrong: bool) -> int:
        return sum(n for (error, verdict), n in self.seen.items() if verdict == Verdict.UNDECIDED and (error is not Error.NONE) == wrong)

    def cells(self) -> list[int]:
        missed = [self.missed(error) for error in Error if error is not Error.NONE]
        return [self.runs, self.false_alarms, self.undecided(False), *missed, self.undecided(True)]


Table = dict[Condition, dict[str, Counts]]


def measure(families: Sequence[Family], settings: Sequence[tuple[torch.dtype, float]], scales: Sequence[float], points: int) -> Table:
    """Every checker on every family, setting, scale and point, with every error."""
    table: Table = {}
    for dtype, noise in settings:
        for scale in scales:
            rows = table.setdefault(condition(dtype, noise, scale), {name: Counts() for name in CHECKERS})
            for family in families:
                if family.complex or not dtype.is_complex:
                    judge(rows, family, dtype, noise, scale, points)
    return table


def judge(rows: dict[str, Counts], family: Family, dtype: torch.dtype, noise: float, scale: float, points: int) -> None:
    for seed in range(points):
        inputs = family.inputs(seed, scale, dtype)
        for error in Error:
            function = planted(family.at(scale), error, noise)
            for name, check in CHECKERS.items():
                torch.manual_seed(seed)  # gradcheck's fast mode draws its probes
                rows[name].seen[error, check(function, inputs)] += 1


def condition(dtype: torch.dtype, noise: float, scale: float) -> Condition:
    precision = str(dtype).removeprefix("torch.")
    return Condition(f"{precision}, noise {noise:g}" if noise else precision, "of order 1" if scale == 1 else "of order 10^±5")


def markdown(table: Table) -> str:
    """A row for each condition and checker."""
    lines = ["| " + " | ".join(HEADER) + " |", "| --- | --- | --- |" + " ---: |" * (len(HEADER) - 3)]
    for where, rows in [*table.items(), (Condition("all", "all"), total(table))]:
        lines += [f"| {where.forward} | {where.inputs} | {name} | " + " | ".join(map(str, counts.cells())) + " |" for name, counts in rows.items()]
    return "\n".join(lines)


def total(table: Table) -> dict[str, Counts]:
    together = {name: Counts() for name in CHECKERS}
    for rows in table.values():
        for name, counts in rows.items():
            together[name].seen.update(counts.seen)
    return together


def page(table: Table, families: int, command: Sequence[str]) -> str:
    """The table with its command, its versions and how to read it."""
    runs = sum(sum(counts.seen.values()) for counts in total(table).values())
    line = " ".join(["python benchmarks/verdicts.py", *command])
    made = f"Made by `{line}` with torch {torch.__version__.partition('+')[0]} and Python " \
           f"{platform.python_version()} on the CPU, one thread: {runs} checks of {families} functions."
    return "\n\n".join(["# Verdicts, counted", made, markdown(table), READING.read_text().strip()]) + "\n"


def chosen(names: Sequence[str]) -> Iterator[Family]:
    """Families by name; all where none is named. Raises SystemExit for a name that is none."""
    known = {family.name: family for family in FAMILIES}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"--families: there is no {name!r}; there are {', '.join(known)}")
        yield known[name]


def main(arguments: Sequence[str]) -> str:
    """Prints the table, and returns it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="float64 and float32, at scales 1 and 1e-5, one point each")
    parser.add_argument("--families", nargs="+", default=(), metavar="NAME", help="only these functions")
    parser.add_argument("--out", type=Path, help="also write a page with the table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    extent = (QUICK_SETTINGS, QUICK_SCALES, QUICK_POINTS) if options.quick else (SETTINGS, SCALES, POINTS)
    families = list(chosen(options.families))
    table = measure(families, *extent)
    if options.out:
        options.out.write_text(page(table, len(families), arguments))
    print(markdown(table))
    return markdown(table)


if __name__ == "__main__":
    main(sys.argv[1:])
