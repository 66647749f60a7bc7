"""The verdicts of a user's checks, saved, and compared with saved ones: does a change of the engine
keep them?

    python benchmarks/parity.py --quick --out before.json          # before the change
    python benchmarks/parity.py --quick --against before.json      # after it: old beside new, worse
    ones first

Judged are the gallery and the built-ins, PyTorch's operator samples and the functions of the
benchmark of verdicts, right and damaged, in every mode and by three seeds. Exits with 1 where a
verdict is worse than the saved one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

import torch
from population import Planned, Unit, kinds_of, unit_of, units
from worth import TRUTHS, worth

from gradverify.model.result import CaseResult

SHOWN = 40  # differences in calls alone that are printed; `--all` prints the rest
# Of differences, in the order of the table
KINDS = ("WORSE", "better", "verdict", "codes", "counts", "calls", "gone")


@dataclass(frozen=True)
class Record:
    """What came of one check. `truth`: as in `Planned`, which two records may disagree on and be
    the same.

    `compared`: elements, or lines of a screen, and how many of them differ, are kinks, are
    undecided or not finite; `calls`: forward, backward, and how many of them ran in batches.
    """

    name: str
    truth: str = field(compare=False)
    verdict: str
    codes: tuple[str, ...]
    by: str
    compared: tuple[int, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True)
class Difference:
    """One record that came out in another way; `new` is None where it is not made any more."""

    kind: str
    old: Record
    new: Record | None


Records = Mapping[str, Record]


# ---- making
def made(
    names: Sequence[str], quick: bool, jobs: int, asked: frozenset[str] | None = None
) -> Records:
    """Records whose names contain one of `names` (none: all), by name; `asked`: no others than
    these."""
    owners = None if asked is None else {unit_of(name) for name in asked}
    every = units(kinds_of(names or owners or [""]))
    chosen = [
        unit
        for unit in every
        if (not quick or unit.quick)
        and (owners is None or unit.name in owners)
        and _named(unit, names)
    ]
    work = [(unit, tuple(names), quick, asked) for unit in chosen]
    if jobs == 1:
        found = [record for each in work for record in _records(each)]
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn"), settle) as pool:
            found = [record for some in pool.map(_records, work) for record in some]
    return {record.name: record for record in sorted(found, key=lambda record: record.name)}


def _named(unit: Unit, names: Sequence[str]) -> bool:
    """A file of specs may hold the name, which only its checks tell."""
    return (
        not names
        or unit.kind == "spec"
        or any(name in unit.name or unit.name in name for name in names)
    )


def settle() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _records(work: tuple[Unit, Sequence[str], bool, frozenset[str] | None]) -> list[Record]:
    unit, names, quick, asked = work
    wanted = (
        each
        for each in unit.planned()
        if not (quick and each.turn) and (not names or any(name in each.name for name in names))
    )
    return [recorded(each, each.judge()) for each in wanted if asked is None or each.name in asked]


def recorded(planned: Planned, result: CaseResult) -> Record:
    found = result.comparisons
    compared = [
        sum(getattr(each, what) for each in found)
        for what in ("elements", "mismatched", "kinks", "undecided", "non_finite")
    ]
    codes = tuple(sorted({finding.code for finding in result.findings}))
    calls = result.calls
    faults = tuple(sorted(fault.what for fault in result.faults))
    return Record(
        planned.name,
        planned.truth,
        result.verdict,
        codes + faults,
        result.mode or "",
        tuple(compared),
        (calls.forward, calls.backward, calls.batched),
    )


# ---- files
def written(records: Records) -> str:
    """A JSON array, a record a line."""
    return (
        "[\n"
        + ",\n".join(
            json.dumps(asdict(record), separators=(",", ":")) for record in records.values()
        )
        + "\n]\n"
    )


def read(file: Path) -> Records:
    """The records of a file that `written` made."""
    every = json.loads(file.read_text())
    return {
        each["name"]: Record(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in each.items()
            }
        )
        for each in every
    }


# ---- comparing
def differences(old: Records, new: Records) -> list[Difference]:
    """Worse verdicts first."""
    pairs = ((before, new.get(name)) for name, before in old.items())
    found = [
        Difference(_kind(before, after), before, after)
        for before, after in pairs
        if before != after
    ]
    return sorted(found, key=lambda each: (KINDS.index(each.kind), each.old.name))


def _kind(old: Record, new: Record | None) -> str:
    if new is None:
        return "gone"
    before, after = (worth(new.truth, record.verdict, record.codes) for record in (old, new))
    turned = old.verdict != new.verdict
    if after < before or (turned and new.truth == "unknown"):
        return "WORSE"
    if after > before or turned:
        return "better" if after > before else "verdict"
    if old.codes != new.codes:
        return "codes"
    return "counts" if (old.compared, old.by) != (new.compared, new.by) else "calls"


def table(found: Sequence[Difference], everything: bool = False) -> Iterator[str]:
    """Old beside new, only what differs of each."""
    calls = 0
    for each in found:
        calls += each.kind == "calls"
        if each.kind != "calls" or everything or calls <= SHOWN:
            yield f"{each.kind:<8} {each.old.name}\n         {_change(each)}"
    if calls > SHOWN and not everything:
        yield f"... and {calls - SHOWN} more that differ in calls alone (--all)"


def _change(each: Difference) -> str:
    if each.new is None:
        return f"{each.old.verdict} | not made any more"
    old, new = asdict(each.old), asdict(each.new)
    differing = [key for key in old if old[key] != new[key] and key != "truth"]
    return (
        "   ".join(f"{key} {_cell(old[key])} | {_cell(new[key])}" for key in differing)
        + f"   ({each.new.truth})"
    )


def _cell(value: object) -> str:
    return "/".join(map(str, value)) or "-" if isinstance(value, tuple) else str(value)


def totals(old: Records, new: Records) -> Iterator[str]:
    """Calls by mode, of the records that both have."""
    shared = [(old[name], new[name]) for name in old if name in new]
    for mode in sorted({_mode(name) for name in new}):
        pairs = [(a, b) for a, b in shared if _mode(a.name) == mode]
        before, after = (
            (sum(sum(record.calls[:2]) for record in side) for side in zip(*pairs, strict=True))
            if pairs
            else (0, 0)
        )
        yield (
            f"{mode:<8} {len(pairs):>6} records   calls {before:>9} | {after:>9}   "
            f"{100 * (after / max(before, 1) - 1):+.2f} %"
        )


def _mode(name: str) -> str:
    return name.split(" | ")[2]


def verdicts(records: Iterable[Record]) -> str:
    """In one line: how many came out how."""
    seen = Counter(
        (record.truth if record.truth in TRUTHS else "codes expected", record.verdict)
        for record in records
    )
    return ", ".join(
        f"{truth} {verdict} {count}" for (truth, verdict), count in sorted(seen.items())
    )


def report(old: Records, new: Records, everything: bool) -> bool:
    """Prints the table; is none worse?"""
    found = differences(old, new)
    for line in (*table(found, everything), *totals(old, new)):
        print(line)
    kinds = Counter(each.kind for each in found)
    print(
        f"{len(old)} records, {len(found)} differ"
        + "".join(f", {kind} {kinds[kind]}" for kind in KINDS if kinds[kind])
    )
    return not kinds["WORSE"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fixed subset of every kind, mode, fault and seed: about three minutes of one core",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        metavar="NAME",
        help="records whose names contain one of these",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="save the records as JSON, one a line"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="make the records of this file again, and print every difference",
    )
    parser.add_argument(
        "--all", action="store_true", help="also print every difference in calls alone"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    options = parser.parse_args(arguments)
    settle()
    old = read(options.against) if options.against else None
    started = time.process_time(), time.perf_counter()
    new = made(options.only, options.quick, options.jobs, None if old is None else frozenset(old))
    if options.out:
        options.out.write_text(written(new))
    spent = f"{time.perf_counter() - started[1]:.0f} s" + (
        f", {time.process_time() - started[0]:.0f} s of CPU" if options.jobs == 1 else ""
    )
    print(f"{len(new)} records in {spent}: {verdicts(new.values())}")
    if old is None:
        return 0
    partly = options.quick or options.only
    return (
        0
        if report(
            {name: old[name] for name in old if name in new} if partly else old, new, options.all
        )
        else 1
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
