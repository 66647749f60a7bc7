"""False alarms, missed errors and undecided checks of gradverify and of torch.autograd.gradcheck, slow and fast, and of each mode of gradverify.

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
from checkers import BY_MODE, CHECKERS, Error, Verdict, planted
from families import FAMILIES, Family

SCALES = (1.0, 1e5, 1e-5)
SETTINGS = (  # precision and relative forward noise; float32 rounds coarser than either noise, so it has none added
    (torch.float64, 0.0), (torch.float64, 1e-12), (torch.float64, 1e-9),
    (torch.float32, 0.0),
    (torch.complex128, 0.0), (torch.complex128, 1e-12), (torch.complex128, 1e-9),
)
POINTS = 2  # of each function, scale and setting
QUICK_SETTINGS, QUICK_SCALES, QUICK_POINTS = (SETTINGS[0], SETTINGS[3]), SCALES[::2], 1
READING = Path(__file__).with_name("reading.md")
EVERY = {**CHECKERS, **BY_MODE}
HEADER = ("forward", "inputs", "checker", "checks of each gradient", "false alarms", "right, undecided", "missed +1e-4", "missed +1 %",
          "missed ×2", "missed sign", "missed zero", "wrong, undecided")
MODES_TITLE = "## By mode"


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
        return self.seen[Error.NONE, "fail"]

    def missed(self, error: Error) -> int:
        return self.seen[error, "pass"]

    def undecided(self, wrong: bool) -> int:
        return sum(n for (error, verdict), n in self.seen.items() if verdict == "undecided" and (error is not Error.NONE) == wrong)

    def cells(self) -> list[int]:
        missed = [self.missed(error) for error in Error if error is not Error.NONE]
        return [self.runs, self.false_alarms, self.undecided(False), *missed, self.undecided(True)]


Table = dict[Condition, dict[str, Counts]]


def measure(families: Sequence[Family], settings: Sequence[tuple[torch.dtype, float]], scales: Sequence[float], points: int) -> Table:
    """Every checker on every family, setting, scale and point, with every error."""
    table: Table = {}
    for dtype, noise in settings:
        for scale in scales:
            rows = table.setdefault(condition(dtype, noise, scale), {name: Counts() for name in EVERY})
            for family in families:
                if family.complex or not dtype.is_complex:
                    judge(rows, family, dtype, noise, scale, points)
    return table


def judge(rows: dict[str, Counts], family: Family, dtype: torch.dtype, noise: float, scale: float, points: int) -> None:
    for seed in range(points):
        inputs = family.inputs(seed, scale, dtype)
        for error in Error:
            function = planted(family.at(scale), error, noise)
            for name, check in EVERY.items():
                torch.manual_seed(seed)  # gradcheck's fast mode draws its probes
                rows[name].seen[error, check(function, inputs)] += 1


def condition(dtype: torch.dtype, noise: float, scale: float) -> Condition:
    precision = str(dtype).removeprefix("torch.")
    return Condition(f"{precision}, noise {noise:g}" if noise else precision, "of order 1" if scale == 1 else "of order 10^±5")


def markdown(table: Table) -> str:
    """A row for each condition and checker; then one for each precision and mode of gradverify."""
    conditions = [*table.items(), (Condition("all", "all"), total(table))]
    modes = [*by_forward(table).items(), ("all", total(table))]
    first = [((where.forward, where.inputs, name), rows[name]) for where, rows in conditions for name in CHECKERS]
    second = [((forward, name), rows[name]) for forward, rows in modes for name in BY_MODE]
    return "\n\n".join([_table(HEADER, 3, first), MODES_TITLE, _table((HEADER[0], "mode", *HEADER[3:]), 2, second)])


def _table(header: Sequence[str], words: int, rows: Sequence[tuple[Sequence[str], Counts]]) -> str:
    """`words`: how many of the columns are no numbers."""
    lines = ["| " + " | ".join(header) + " |", "| " + "--- | " * words + " | ".join(["---:"] * (len(header) - words)) + " |"]
    return "\n".join([*lines, *("| " + " | ".join([*names, *map(str, counts.cells())]) + " |" for names, counts in rows)])


def by_forward(table: Table) -> dict[str, dict[str, Counts]]:
    """The inputs of all scales together."""
    names = dict.fromkeys(where.forward for where in table)
    return {name: total({where: rows for where, rows in table.items() if where.forward == name}) for name in names}


def total(table: Table) -> dict[str, Counts]:
    together = {name: Counts() for name in EVERY}
    for rows in table.values():
        for name, counts in rows.items():
            together[name].seen.update(counts.seen)
    return together


def page(table: Table, families: int, command: Sequence[str]) -> str:
    """The tables with their command, their versions and how to read them."""
    runs = sum(sum(total(table)[name].seen.values()) for name in CHECKERS)
    line = " ".join(["python benchmarks/verdicts.py", *command])
    made = f"Made by `{line}` with torch {torch.__version__.partition('+')[0]} and Python " \
           f"{platform.python_version()} on the CPU, one thread: {runs} checks of {families} functions, and as many in each mode as of each checker."
    return "\n\n".join(["# Verdicts, counted", made, markdown(table), READING.read_text().strip()]) + "\n"


def chosen(names: Sequence[str]) -> Iterator[Family]:
    """Families by name; all where none is named. Raises SystemExit for a name that is none."""
    known = {family.name: family for family in FAMILIES}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"--families: there is no {name!r}; there are {', '.join(known)}")
        yield known[name]


def main(arguments: Sequence[str]) -> str:
    """Prints the tables, and returns them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="float64 and float32, at scales 1 and 1e-5, one point each")
    parser.add_argument("--families", nargs="+", default=(), metavar="NAME", help="only these functions")
    parser.add_argument("--out", type=Path, help="also write a page with the tables")
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
