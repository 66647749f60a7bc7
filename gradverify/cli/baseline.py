"""`--baseline FILE`: known findings, in JSON that is easy to review, sorted and without dates; read
before a run, updated after it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradverify.cli.gather import Gathered
from gradverify.cli.options import Options
from gradverify.cli.output import NotWritten, keep, promise
from gradverify.model.codec import from_json, to_json
from gradverify.model.paths import shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Baseline, Known, Report, gone, unknown
from gradverify.report.numbers import counted, some

MOST_NAMED = 3
VERSION = 1
VERSION_KEY = "gradverify_baseline"


@dataclass(frozen=True)
class Kept:
    """A baseline file and its content. `known`: the entries by the ids of this run; `dead`: those
    of checks that no longer exist; `read`: all entries.
    `files`: specs as shown in this run → as named in the file, relative to its folder.
    """

    path: Path
    shown: str
    update: bool
    read: tuple[Known, ...]
    known: Mapping[str, tuple[Known, ...]]
    dead: tuple[Known, ...]
    files: Mapping[str, str]

    @property
    def rule(self) -> Baseline:
        """The baseline for the gate."""
        return Baseline(self.known, open=self.update)


def opened(options: Options, gathered: Gathered) -> Kept | None:
    """Return the baseline of `--baseline`; None if it was not given. Raises ProblemsError before
    anything runs."""
    if not options.baseline:
        if options.baseline_update:
            raise ProblemsError(
                "--baseline-update needs to know the file: --baseline FILE, or `baseline` "
                "in [tool.gradverify]"
            )
        return None
    path = Path(options.baseline).absolute()
    entries = parsed(path, options.baseline_update)
    if options.baseline_update:
        promise(path, "--baseline")
    files = {
        file.as_posix(): Path(os.path.relpath(file.absolute(), path.parent)).as_posix()
        for file in gathered.files
    }
    ours = {name: file for file, name in files.items()}
    known, dead = dict[str, tuple[Known, ...]](), list[Known]()
    for each in entries:
        spec, _, name = each.check.partition("::")
        id = f"{ours.get(spec)}::{name}"
        if spec in ours and id in gathered.origins:
            known[id] = (*known.get(id, ()), each)
        elif spec in ours or not os.path.exists(path.parent / spec):  # noqa: PTH110 - false for an invalid path
            dead.append(each)
    return Kept(
        path, shown_path(str(path)), options.baseline_update, entries, known, tuple(dead), files
    )


def parsed(path: Path, may_be_new: bool) -> tuple[Known, ...]:
    """Return the entries of a file. Raises ProblemsError."""
    shown = shown_path(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if may_be_new:
            return ()
        raise ProblemsError(
            f"--baseline: there is no file {shown}; --baseline-update writes it"
        ) from None
    except (OSError, ValueError) as error:
        raise ProblemsError(
            f"--baseline: {shown} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        data: Any = json.loads(text)
        if (
            not isinstance(data, dict)
            or data.keys() != {VERSION_KEY, "known"}
            or not isinstance(data["known"], list)
        ):
            raise ValueError(
                f"it holds {VERSION_KEY!r} and a list of what is 'known', as --baseline-update "
                "writes them"
            )
        if data[VERSION_KEY] != VERSION:
            raise ValueError(
                f"version {data[VERSION_KEY]!r} is unknown: this gradverify reads version {VERSION}"
            )
        return tuple(from_json(Known, each) for each in data["known"])
    except (ValueError, RecursionError) as error:
        raise ProblemsError([Problem(f"no baseline: {error}", shown)]) from None


def rendered(entries: Iterable[Known]) -> str:
    """Return the text of a baseline file: sorted, without empty fields."""
    ordered = sorted(
        entries,
        key=lambda each: (each.check, each.code, each.input or "", each.output or "", each.message),
    )
    known = [{name: value for name, value in to_json(each).items() if value} for each in ordered]
    return json.dumps({VERSION_KEY: VERSION, "known": known}, indent=2, ensure_ascii=False) + "\n"


def brought_up_to_date(kept: Kept, report: Report, failures: list[str]) -> list[str]:
    """With `--baseline-update`, write the file with the findings that occur now and without those
    that no longer do. Returns sentences on what was done, or is to be done. Errors of writing are
    added to `failures`."""
    missing = (
        tuple(each for check in report.checks for each in gone(check, kept.known.get(check.id, ())))
        + kept.dead
    )
    if report.interrupted or report.crashed:
        if kept.update:
            return [f"{kept.shown}: left as it is, because the run did not end by itself"]
        return []
    if not kept.update:
        return [_stale(kept, missing)] if missing else []
    found = [
        _named(each, kept)
        for check in report.checks
        for each in unknown(check, kept.known.get(check.id, ()))
    ]
    try:
        # The file may have other entries since it was read
        before, read = Counter(parsed(kept.path, may_be_new=True)), Counter(kept.read)
        after = before - Counter(missing)
        for each, times in Counter(found).items():  # another run may have recorded it too
            after[each] = max(after[each], read[each] + times)
        if before != after or not kept.path.exists():
            keep(kept.path, rendered(after.elements()))
    except NotWritten as error:
        failures.append(str(error))
        return []
    except ProblemsError as error:  # the file is no baseline any more
        failures += [str(problem) for problem in error.problems]
        return []
    removed = f", {counted(len(missing), 'finding')} removed" if missing else ""
    return [
        f"{kept.shown}: {counted(len(found), 'finding')} recorded{removed}; "
        f"{counted(after.total(), 'finding')} known"
    ]


def _named(found: Known, kept: Kept) -> Known:
    spec, _, name = found.check.partition("::")
    return replace(found, check=f"{kept.files[spec]}::{name}")


def _stale(kept: Kept, missing: tuple[Known, ...]) -> str:
    named = some([f"{each.code} of {each.check}" for each in missing], MOST_NAMED)
    verb, them = ("does", "it") if len(missing) == 1 else ("do", "them")
    return (
        f"{kept.shown}: {counted(len(missing), 'known finding')} {verb} not occur any more "
        f"({named}): --baseline-update takes {them} out"
    )
