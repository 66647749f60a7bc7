"""False alarms, missed errors and undecided checks of gradverify, in each mode, and of
torch.autograd.gradcheck, slow and fast.

    python benchmarks/verdicts.py [--quick] [--families NAME ...] [--points N] [--no-modes] [-j N] [--out benchmarks/results/verdicts.md]

One run is one check of one function at one point. Every number comes from fixed seeds.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch
from checkers import BY_MODE, COARSE, GRADCHECK, Error, Noise, Verdict, gradverify, planted
from families import FAMILIES, Family

SCALES = (1.0, 1e5, 1e-5)
CLEAN = Noise()
NOISES = (Noise(1e-12), Noise(1e-9), Noise(1e-12, seen=True), Noise(1e-9, seen=True))
# Precision and noise of forward; float32 rounds coarser than any noise, so it has none added
SETTINGS = (
    (torch.float64, CLEAN),
    *((torch.float64, noise) for noise in NOISES),
    (torch.float32, CLEAN),
    (torch.complex128, CLEAN),
    *((torch.complex128, noise) for noise in NOISES),
)
POINTS = 2  # of each function, scale and setting
READING = Path(__file__).with_name("reading.md")
OURS = "gradverify"
CHECKERS = (OURS, *GRADCHECK)
EVERY = (OURS, *GRADCHECK, *BY_MODE)
BEYOND = COARSE[1:]
NAMED = {
    Error.BILLIONTH: "+1e-9",
    Error.MILLIONTH: "+1e-6",
    Error.TINY: "+1e-4",
    Error.PERCENT: "+1 %",
    Error.DOUBLE: "×2",
    Error.SIGN: "sign",
    Error.ZERO: "zero",
}
RIGHT = ("checks of each gradient", "false alarms", "right, undecided")
MISSED = (*RIGHT, *(f"missed {NAMED[error]}" for error in BEYOND), "wrong, undecided")
MODES_TITLE = "## By mode"
MODES_READING = (
    "The table by mode is of one point of each function at each scale, without the noise that "
    "torch differentiates."
)


@dataclass(frozen=True)
class Extent:
    """How much of it is run."""

    settings: Sequence[tuple[torch.dtype, Noise]] = SETTINGS
    scales: Sequence[float] = SCALES
    points: int = POINTS
    modes: bool = True


QUICK = Extent((SETTINGS[0], SETTINGS[5]), SCALES[::2], 1)


@dataclass(frozen=True, order=True)
class Condition:
    """One block of rows."""

    precision: str
    noise: Noise
    inputs: str

    @property
    def forward(self) -> str:
        noise = f", noise {self.noise.relative:g}" if self.noise.relative else ""
        return f"{self.precision}{noise}{', differentiated' if self.noise.seen else ''}"


@dataclass
class Counts:
    """The verdicts of one checker under one condition, by planted error."""

    seen: Counter[tuple[Error, Verdict]] = field(default_factory=Counter)

    def right(self) -> list[int]:
        """Of the right gradients: all, those called wrong, the undecided."""
        runs = sum(n for (error, _), n in self.seen.items() if error is Error.NONE)
        return [runs, self.seen[Error.NONE, "fail"], self.seen[Error.NONE, "undecided"]]

    def passed(self, errors: Iterable[Error]) -> list[int]:
        return [self.seen[error, "pass"] for error in errors]

    def missed(self) -> list[int]:
        return [
            *self.right(),
            *self.passed(BEYOND),
            sum(self.seen[error, "undecided"] for error in BEYOND),
        ]


Table = dict[Condition, dict[str, Counts]]


def measure(families: Sequence[Family], extent: Extent, processes: int) -> Table:
    """Every checker on every family, setting, scale and point, with every error."""
    units = list(product((family.name for family in families), range(extent.points)))
    work = partial(judge, extent=extent)
    if processes == 1:
        return added(map(work, units))
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        return added(pool.imap_unordered(work, units, chunksize=1))


def judge(unit: tuple[str, int], extent: Extent) -> Table:
    """One family at one point."""
    (family,), seed, table = chosen(unit[:1]), unit[1], Table()
    for (dtype, noise), scale, error in product(extent.settings, extent.scales, Error):
        if dtype.is_complex and not family.complex:
            continue
        inputs = family.inputs(seed, scale, dtype)
        function = planted(family.at(scale), error, noise)
        where = Condition(
            str(dtype).removeprefix("torch."),
            noise,
            "of order 1" if scale == 1 else "of order 10^±5",
        )
        rows = table.setdefault(where, {name: Counts() for name in EVERY})
        rows[OURS].seen[error, gradverify(function, inputs)] += 1
        further = (
            {**GRADCHECK, **(BY_MODE if extent.modes and not seed and not noise.seen else {})}
            if error in COARSE
            else {}
        )
        for name, check in further.items():
            torch.manual_seed(seed)  # gradcheck's fast mode draws its probes
            rows[name].seen[error, check(function, inputs)] += 1
    return table


def added(tables: Iterable[Table]) -> Table:
    """One table, in the order of `SETTINGS` and `SCALES`."""
    found: Table = {}
    for table in tables:
        for where, rows in table.items():
            own = found.setdefault(where, {name: Counts() for name in EVERY})
            for name, counts in rows.items():
                own[name].seen.update(counts.seen)
    order = [(str(dtype).removeprefix("torch."), noise) for dtype, noise in SETTINGS]
    return dict(
        sorted(
            found.items(),
            key=lambda each: (
                order.index((each[0].precision, each[0].noise)),
                each[0].inputs != "of order 1",
            ),
        )
    )


def markdown(table: Table) -> str:
    """A row for each condition and checker; one for each precision and mode."""
    first = [
        ((where.forward, where.inputs, name), rows[name].missed())
        for where, rows in table.items()
        for name in CHECKERS
    ]
    first += [(("all", "all", name), total(table)[name].missed()) for name in CHECKERS]
    modes = [
        ((forward, name), rows[name].missed())
        for forward, rows in by_forward(table).items()
        for name in BY_MODE
        if rows[name].seen
    ]
    parts = [_table(("forward", "inputs", "checker", *MISSED), 3, first)]
    parts += [MODES_TITLE, _table(("forward", "mode", *MISSED), 2, modes)] if modes else []
    return "\n\n".join(parts)


def _table(
    header: Sequence[str], words: int, rows: Sequence[tuple[Sequence[str], Sequence[int]]]
) -> str:
    """`words`: how many of the columns are no numbers."""
    lines = [
        "| " + " | ".join(header) + " |",
        "| " + "--- | " * words + " | ".join(["---:"] * (len(header) - words)) + " |",
    ]
    return "\n".join(
        [
            *lines,
            *("| " + " | ".join([*names, *map(str, numbers)]) + " |" for names, numbers in rows),
        ]
    )


def by_forward(table: Table) -> dict[str, dict[str, Counts]]:
    """The inputs of all scales together, of what was judged in each mode."""
    own = {where: rows for where, rows in table.items() if not where.noise.seen}
    names = dict.fromkeys(where.forward for where in own)
    return {
        **{
            name: total({where: rows for where, rows in own.items() if where.forward == name})
            for name in names
        },
        "all": total(own),
    }


def total(table: Table) -> dict[str, Counts]:
    together = {name: Counts() for name in EVERY}
    for rows in table.values():
        for name, counts in rows.items():
            together[name].seen.update(counts.seen)
    return together


def page(table: Table, families: int, command: Sequence[str]) -> str:
    """The tables with their command, their versions and how to read them."""
    runs = sum(
        sum(counts.missed()[:1]) for name, counts in total(table).items() if name in CHECKERS
    ) * len(COARSE)
    line = " ".join(["python benchmarks/verdicts.py", *command])
    made = (
        f"Made by `{line}` with torch {torch.__version__.partition('+')[0]} and Python "
        f"{platform.python_version()} on the CPU, one thread: {runs} checks of {families} "
        "functions in the first table."
    )
    tables = markdown(table)
    readings = [MODES_READING] * (MODES_TITLE in tables) + [READING.read_text().strip()]
    return "\n\n".join(["# Verdicts, counted", made, tables, *readings]) + "\n"


def chosen(names: Sequence[str]) -> Iterator[Family]:
    """Families by name; all where none is named. Raises SystemExit for a name that is none."""
    known = {family.name: family for family in FAMILIES}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"--families: there is no {name!r}; there are {', '.join(known)}")
        yield known[name]


def main(arguments: Sequence[str]) -> str:
    """Prints the tables, and returns them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="float64 and float32 without noise, at scales 1 and 1e-5, one point each",
    )
    parser.add_argument(
        "--families", nargs="+", default=(), metavar="NAME", help="only these functions"
    )
    parser.add_argument(
        "--points",
        type=int,
        metavar="N",
        help=f"of each function ({POINTS}, with --quick {QUICK.points})",
    )
    parser.add_argument(
        "--no-modes",
        action="store_false",
        dest="modes",
        help="without the table by mode, which takes a third of the time",
    )
    parser.add_argument(
        "-j",
        type=int,
        default=1,
        metavar="N",
        dest="processes",
        help="so many processes; the numbers do not depend on it",
    )
    parser.add_argument("--out", type=Path, help="also write a page with the tables")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    families = list(chosen(options.families))
    extent = QUICK if options.quick else Extent()
    table = measure(
        families,
        replace(extent, points=options.points or extent.points, modes=options.modes),
        options.processes,
    )
    if options.out:
        options.out.write_text(page(table, len(families), arguments))
    print(markdown(table))
    return markdown(table)


if __name__ == "__main__":
    main(sys.argv[1:])
