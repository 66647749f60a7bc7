"""`--baseline FILE`: known findings read before a run, brought up to date after it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.cli.gather import Gathered
from gradverify.cli.options import Options
from gradverify.cli.output import NotWritten, keep, promise
from gradverify.model.paths import alone, shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Baseline, Known, Report, gone, unknown
from gradverify.report.numbers import counted

MOST_NAMED = 3


@dataclass(frozen=True)
class Kept:
    """A baseline file and what it holds. `known`: by the ids of this run; `others`: of checks whose specs this run does not read; `dead`: of
    checks that do not exist any more. `folder`: from which its specs count; `files`: specs as this run shows them → as the file names them.
    """

    path: Path
    shown: str
    update: bool
    prune: bool
    known: Mapping[str, tuple[Known, ...]]
    others: tuple[Known, ...]
    dead: tuple[Known, ...]
    files: Mapping[str, str]

    @property
    def rule(self) -> Baseline:
        """What the gate is to know."""
        return Baseline(self.known, open=self.update)


def opened(options: Options, gathered: Gathered) -> Kept | None:
    """The file of `--baseline`; None where none was given. Raises ProblemsError, before anything runs."""
    if not options.baseline:
        wanted = "update" if options.baseline_update else "prune" if options.baseline_prune else None
        if wanted:
            raise ProblemsError([Problem(f"--baseline-{wanted} needs to know the file: --baseline FILE, or `baseline` in [tool.gradverify]")])
        return None
    path = Path(options.baseline).absolute()
    entries = _read(path, options.baseline_update)
    if options.baseline_update or options.baseline_prune:
        promise(path, "--baseline")
    files = {file.as_posix(): Path(os.path.relpath(file.absolute(), path.parent)).as_posix() for file in gathered.files}
    ours = {name: file for file, name in files.items()}
    known: dict[str, tuple[Known, ...]] = {}
    others, dead = list[Known](), list[Known]()
    for each in entries:
        spec, _, name = each.check.partition("::")
        id = f"{ours.get(spec)}::{name}"
        if spec in ours and id in gathered.ids:
            known[id] = (*known.get(id, ()), each)
        elif spec in ours or not os.path.exists(path.parent / spec):  # noqa: PTH110 - false for what can be no path
            dead.append(each)
        else:
            others.append(each)
    return Kept(path, shown_path(str(path)), options.baseline_update, options.baseline_prune, known, tuple(others), tuple(dead), files)


def _read(path: Path, may_be_new: bool) -> tuple[Known, ...]:
    from gradverify.spec.baseline import parse

    shown = shown_path(str(path))
    try:
        return parse(path.read_text(encoding="utf-8"), shown)
    except FileNotFoundError:
        if may_be_new:
            return ()
        raise ProblemsError([Problem(f"--baseline: there is no file {shown}; --baseline-update writes it")]) from None
    except (OSError, ValueError) as error:
        raise ProblemsError([Problem(f"--baseline: {shown} cannot be read: {getattr(error, 'strerror', None) or error}")]) from None


def brought_up_to_date(kept: Kept, report: Report, failures: list[str]) -> list[str]:
    """Writes the file where that was asked for; a sentence on what was done, or is to be done. What could not be written joins `failures`."""
    missing = tuple(each for check in report.checks for each in gone(check, kept.known.get(check.id, ()))) + kept.dead
    if report.interrupted or report.crashed:
        return [f"{kept.shown}: left as it is, because the run did not end by itself"] if kept.update or kept.prune else []
    found = tuple(_named(each, kept) for check in report.checks for each in unknown(check, kept.known.get(check.id, ()))) if kept.update else ()
    removed = missing if kept.prune else ()
    notes = [] if kept.prune or not missing else [_stale(kept, missing)]
    if kept.update or kept.prune:
        try:
            return [_done(kept, len(found), len(removed), _written(kept, found, removed)), *notes]
        except NotWritten as error:
            failures.append(str(error))
        except ProblemsError as error:      # meanwhile it has become something else
            failures += [str(problem) for problem in error.problems]
    return notes


def _written(kept: Kept, found: Sequence[Known], removed: Sequence[Known]) -> int:
    """How many entries the file has, which may have got others since it was read. Raises NotWritten or ProblemsError."""
    from gradverify.spec.baseline import render

    read = Counter([*(each for known in kept.known.values() for each in known), *kept.others, *kept.dead])
    with alone(kept.path.parent):
        before = Counter(_read(kept.path, may_be_new=True))
        after = before - Counter(removed)
        for each, times in Counter(found).items():      # another run may have recorded it too
            after[each] = max(after[each], read[each] + times)
        if before != after or not kept.path.exists():
            keep(kept.path, render(after.elements()))
    return after.total()


def _named(found: Known, kept: Kept) -> Known:
    spec, _, name = found.check.partition("::")
    return replace(found, check=f"{kept.files[spec]}::{name}")


def _done(kept: Kept, found: int, removed: int, all_: int) -> str:
    parts = [f"{counted(found, 'finding')} recorded"] * kept.update + [f"{counted(removed, 'finding')} removed"] * kept.prune
    return f"{kept.shown}: {', '.join(parts)}; {counted(all_, 'finding')} known"


def _stale(kept: Kept, missing: tuple[Known, ...]) -> str:
    named = ", ".join(f"{each.code} of {each.check}" for each in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    verb, them = ("does", "it") if len(missing) == 1 else ("do", "them")
    return f"{kept.shown}: {counted(len(missing), 'known finding')} {verb} not occur any more ({named}{more}): --baseline-prune takes {them} out"
