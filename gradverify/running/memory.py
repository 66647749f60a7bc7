"""`--lf`: remember which checks were not as expected in the last run, in a folder of the
project."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gradverify.model.case import Case
from gradverify.model.paths import REPOSITORY, nearest_with
from gradverify.model.result import CaseResult

FOLDER, FILE, VERSION = ".gradverify_cache", "failed.json", 1
OWN_FILES = {
    ".gitignore": "# made by gradverify\n*\n",
    "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n# made by gradverify; see "
    "https://bford.info/cachedir/\n",
}


class Memory(NamedTuple):
    """The memory in the folder `root`. Ids name specs relative to `cwd`, keys relative to `root`;
    both folders are absolute."""

    root: Path
    cwd: Path

    def key(self, id: str) -> str:
        """Return the key of a check, which does not depend on the current folder."""
        path, colons, name = id.partition("::")
        return _relative(self.cwd / path, self.root) + colons + name

    def read(self) -> frozenset[str]:
        """Return the remembered keys; none if the file is missing, damaged, or of another format
        version."""
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            data = json.loads((self.root / FOLDER / FILE).read_text(encoding="utf-8"))
            if data["version"] == VERSION:
                return frozenset(
                    key
                    for key in data["failed"]
                    if isinstance(key, str) and "::" in key and "\0" not in key
                )
        return frozenset()


@cache  # a spec holds up to thousands of checks
def _relative(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path.resolve(), root)).as_posix()


def memory_at(cwd: Path) -> Memory:
    """Return the memory of the nearest folder, at or above `cwd`, that holds a pyproject.toml or is
    a repository; else of `cwd` itself."""
    cwd = cwd.resolve()
    return Memory(nearest_with(cwd, "pyproject.toml", REPOSITORY) or cwd, cwd)


def recall(memory: Memory, files: Iterable[Path], ids: Iterable[str]) -> frozenset[str]:
    """Return the remembered keys without those of checks that no longer exist. `files`: the specs
    that were read; `ids`: of all checks in them, selected or not."""
    specs, keys = {memory.key(file.as_posix()) for file in files}, set(map(memory.key, ids))
    return frozenset(
        key for key in memory.read() if key in keys or key.partition("::")[0] not in specs
    )


def remember(
    memory: Memory,
    files: Iterable[Path],
    ids: Collection[str],
    results: Sequence[CaseResult],
    cases: Sequence[Case],
) -> None:
    """Update the memory with the results of a run of `cases`, or of a part of them. Checks that
    were not run, or skipped because this machine lacks something, keep their state. Writes nothing
    if nothing changes; a failure to write is ignored."""
    left_out = {case.id for case in cases if case.skip is not None}
    failed = {
        memory.key(result.id)
        for result in results
        if result.ok is False and result.verdict != "not_run"
    }
    ok = {
        memory.key(result.id)
        for result in results
        if result.ok and (result.verdict != "skip" or result.id in left_out)
    }
    folder = memory.root / FOLDER
    with suppress(OSError):
        if not folder.is_dir() and not failed:
            return
        folder.mkdir(exist_ok=True)
        # Ignored by git and by backups from the beginning
        for name, text in OWN_FILES.items():
            if not (folder / name).exists():
                (folder / name).write_text(text)
        new = recall(memory, files, ids) - ok | failed
        if new != memory.read():
            (folder / FILE).write_text(
                json.dumps({"version": VERSION, "failed": sorted(new)}, indent=1) + "\n",
                encoding="utf-8",
            )
