"""The selection: which of the gathered cases run, by each option that selects, one after the other; and what `--lf` finds in the next run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli.affected import affected
from gradverify.cli.asked import Settled
from gradverify.cli.gather import Gathered, others
from gradverify.cli.nearby import nothing_selected
from gradverify.model.case import Case
from gradverify.model.event import Selection
from gradverify.model.report import Report

if TYPE_CHECKING:
    from gradverify.running.memory import Memory


@dataclass(frozen=True)
class Chosen:
    """`cases` run, in this order; `order`: their ids, as the specs have them. `notes`: sentences about the selection, for stderr.
    `left_out`: there were some, and keyword and tags have left none."""

    cases: tuple[Case, ...]
    order: tuple[str, ...]
    selection: Selection
    memory: Memory
    notes: tuple[str, ...] = ()
    left_out: bool = False


def choose(gathered: Gathered, settled: Settled) -> Chosen:
    """What changes affect; of that by keyword and tag; of those what failed last time; of those one shard. Raises ProblemsError for an expression
    that cannot be read."""
    from gradverify.running.memory import memory_at
    from gradverify.running.select import failed_first, select
    from gradverify.running.shard import sharded

    asked, memory = settled.asked, memory_at(Path.cwd())
    concerned = affected(gathered.cases, asked)
    named = select(concerned.cases, keyword=asked.keyword, tags=asked.tags)
    failed = _remembered(gathered, memory) if asked.last_failed or asked.failed_first else frozenset()
    fell = tuple(case for case in named if memory.key(case.id) in failed)
    whole = fell or named if asked.last_failed else named
    cases, shard = sharded(whole, *settled.shard, replace(settled.gate, exit_zero=False), settled.running.repeat) if settled.shard else (whole, None)
    selection = Selection(tuple(asked.paths or ()), asked.keyword, asked.tags, gathered.written - len(whole), shard, settled.running.repeat,
                          len(gathered.left_out))
    notes = [gathered.message or (None if named else nothing_selected(concerned.cases, asked.keyword, asked.tags)),
             *concerned.notes, *(others(gathered) if asked.verbose else ()),
             _nothing_failed(named, len(failed)) if asked.last_failed and named and not fell else None]
    order = tuple(case.id for case in cases)
    ordered = failed_first(cases, fell) if asked.failed_first else cases
    return Chosen(ordered, order, selection, memory, tuple(filter(None, notes)), bool(concerned.cases) and not named)


def keep_in_mind(chosen: Chosen, gathered: Gathered, report: Report) -> None:
    """What `--lf` and `--ff` of the next run need."""
    from gradverify.running.memory import read, remember

    remember(chosen.memory, read(chosen.memory, gathered.files, gathered.origins), report.checks, chosen.cases)


def _remembered(gathered: Gathered, memory: Memory) -> frozenset[str]:
    from gradverify.running.memory import existing, read, recall

    return existing(memory, recall(memory), read(memory, gathered.files, gathered.origins))


def _nothing_failed(named: Sequence[Case], others: int) -> str:
    run = "the one check runs" if len(named) == 1 else f"all {len(named)} checks run"
    if not others:
        return f"--lf: no check is remembered as failed, so {run}"
    return f"--lf: none of the selected checks is remembered as failed ({others} {'other is' if others == 1 else 'others are'}), so {run}"
