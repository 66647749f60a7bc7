"""The constants of the engine that were set by measurement, measured again: how far may each be
from its value before a verdict changes?

    python benchmarks/constants.py [NAME ...] [--quick] [--results FILE] [--out benchmarks/results/constants.md]

Each is made a quarter, half, twice and four times as large (counts: one and two less, one and two
more), each time in a process of its own that imports gradverify with that value; the same right and
damaged gradients are judged as a user's check judges them. NAME: part of a constant's name.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from altered import Change, Constant, alter, every
from constants_page import Measured, Tried, page, table
from listed import LISTED, Listed
from worth import worth

FACTORS, STEPS = (0.25, 0.5, 2.0, 4.0), (-2, -1, 1, 2)
# Seconds of CPU for all checks at the values as they are; so many times what these took, at another
# value
FIRST, LONGER = 600, 5


@dataclass(frozen=True)
class Check:
    """What came of one check. `rest`: how it was compared, counts of elements, calls."""

    truth: str
    verdict: str
    codes: tuple[str, ...]
    calls: int
    rest: tuple[Any, ...]


Checks = Mapping[str, Check]


@dataclass(frozen=True)
class Plan:
    """Which checks are made at each value, and what came of them at the values as they are, in so
    many seconds of CPU."""

    populations: tuple[str, ...]
    quick: bool
    base: Checks = field(default_factory=dict)
    seconds: float = FIRST / LONGER


# ---- judging
def judged(plan: Plan, name: str = "", change: Change | None = None) -> tuple[Checks, float] | str:
    """All checks and their seconds, in a process of its own; or why there are none."""
    context = get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_judge, args=(theirs, plan, name, change))
    process.start()
    theirs.close()
    try:
        found = mine.recv()
    except EOFError:
        found = f"it crashed, or took {LONGER} times as long"
    process.join()
    return found  # type: ignore[no-any-return]


def _judge(answer: Connection, plan: Plan, name: str, change: Change | None) -> None:
    limit = int(LONGER * plan.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    warnings.simplefilter("ignore")
    try:
        if change:
            alter(name, change)
        from judging import records

        found = {
            each.name: Check(
                each.truth,
                each.verdict,
                each.codes,
                sum(each.calls[:2]),
                (each.by, each.compared, each.calls),
            )
            for each in records(plan.populations, plan.quick)
        }
        answer.send((found, time.process_time()))
    except Exception as error:
        answer.send(f"{type(error).__name__} before the first verdict: {error}")


def compared(before: Checks, found: tuple[Checks, float] | str) -> Tried:
    """What is different."""
    if isinstance(found, str):
        return Tried(ends=found)
    after, _ = found
    turned: dict[str, list[str]] = {}
    for name, old in before.items():
        kind = _kind(old, after[name])
        if kind:
            turned.setdefault(kind, []).append(name)
    ratio = sum(each.calls for each in after.values()) / max(
        sum(each.calls for each in before.values()), 1
    )
    return Tried(
        **{kind: tuple(names) for kind, names in turned.items()}, calls=ratio, same=before == after
    )


def _kind(old: Check, new: Check) -> str:
    was, now = (worth(old.truth, each.verdict, each.codes) for each in (old, new))
    if new.verdict == "error" != old.verdict:
        return "failed"
    if now < was:
        return "undecided" if now else "accused" if old.truth == "right" else "passed"
    return "better" if now > was else ""


# ---- one constant after the other
def measure(constant: Constant, listed: Listed, plan: Plan) -> Measured:
    """The ends first: what changes no verdict there is taken to change none between."""
    changes = [Change(by, listed.counted) for by in (STEPS if listed.counted else FACTORS)]
    tried: dict[Change, Tried] = {}
    for end, near in ((changes[0], changes[1]), (changes[-1], changes[-2])):
        if not plan.quick:
            tried[end] = compared(plan.base, judged(plan, constant.name, end))
        if plan.quick or tried[end].turned:
            tried[near] = compared(plan.base, judged(plan, constant.name, near))
    return Measured(
        constant.name,
        constant.source,
        len(plan.base),
        {str(change): tried[change] for change in changes if change in tried},
    )


def measured(names: Sequence[str], quick: bool) -> Iterator[Measured]:
    """Constants one by one."""
    constants = every()
    plans: dict[tuple[str, ...], Plan] = {}
    for name in names:
        listed = LISTED[name]
        if listed.on not in plans:
            plans[listed.on] = _plan(Plan(listed.on, quick))
        yield measure(constants[name], listed, plans[listed.on])


def _plan(plan: Plan) -> Plan:
    """With what comes of it at the values as they are. Raises SystemExit where nothing does."""
    found = judged(plan)
    if isinstance(found, str):
        raise SystemExit(f"the checks do not run at the values as they are: {found}")
    return replace(plan, base=found[0], seconds=found[1])


def chosen(names: Sequence[str]) -> list[str]:
    """Constants whose names contain one of these, in the list's order; all where none is said.
    Raises SystemExit for what is in none."""
    for name in names:
        if not any(name in each for each in LISTED):
            raise SystemExit(f"no constant of benchmarks/listed.py has {name!r} in its name")
    return [each for each in LISTED if not names or any(name in each for name in names)]


# ---- files
def read(file: Path | None) -> list[Measured]:
    """What an earlier run wrote, a line each."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    return [_read(json.loads(line)) for line in lines]


def _read(each: dict[str, Any]) -> Measured:
    tried = {
        change: Tried(
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in one.items()
            }
        )
        for change, one in each["tried"].items()
    }
    return Measured(each["name"], each["source"], each["checks"], tried)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="constants whose names contain one of these; all where there is none",
    )
    parser.add_argument(
        "--quick", action="store_true", help="every fourth check, at half and twice the value alone"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="append each constant to this file, and measure none again that is in it",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write a page of all that are known, after each"
    )
    options = parser.parse_args(arguments)
    import torch  # before the processes part, as it takes seconds; gradverify after
    import torch.fx.experimental.symbolic_shapes  # which the first check would import

    torch.set_num_threads(1)
    names, known = chosen(options.names), read(options.results)
    there = {each.name for each in known}
    command = " ".join(["python benchmarks/constants.py", *arguments])
    _write(options.out, known, command)
    for one in measured([name for name in names if name not in there], options.quick):
        known.append(one)
        print("\n".join(table([one])[2:]), flush=True)
        if options.results:
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        _write(options.out, known, command)


def _write(out: Path | None, known: Sequence[Measured], command: str) -> None:
    """After each constant, so that a run that is ended leaves its page."""
    if out and known:
        out.write_text(page(known, command), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
