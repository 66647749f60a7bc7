"""What changed: files, by both their names where they are linked, and whether the project's own settings did."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradverify.running.git import changed_since, not_handed_over, text_at
from gradverify.spec.walk import PROJECT_FILE, folder_of

HEAD = "HEAD"
TABLE = ("tool", "gradverify")
PUSHED = ("PRE_COMMIT_FROM_REF", "PRE_COMMIT_TO_REF")       # set by pre-commit where it hands over what lies between two commits


@dataclass(frozen=True, slots=True)
class Changes:
    """`files`: absolute path → as it is shown; `folders`: those of them that are folders (a submodule), which stand for all in them; `gone`: those
    that are no more; `project`: the pyproject.toml whose `[tool.gradverify]` differs, as it is shown."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    project: str | None = None

    @property
    def count(self) -> int:
        """How many files changed: a linked one counts once."""
        return len(set(self.files.values()))

    def hit(self, places: Iterable[str]) -> str | None:
        """The first of these files that changed, as it is shown."""
        for place in places:
            found = self.files.get(place) or self.files.get(os.path.realpath(place))
            found = found or next((self.files[folder] for folder in self.folders if place.startswith(folder + os.sep)), None)
            if found:
                return found
        return None


def of_hook(named: Iterable[str], cwd: Path, environ: Mapping[str, str]) -> Changes:
    """The files handed to a hook, and what pre-commit may hand to nobody. Raises ProblemsError where git cannot tell."""
    start, end = (environ.get(name) for name in PUSHED)
    others = not_handed_over(cwd, (start, end) if start and end else None)
    return _changes((*(cwd / name for name in named), *others), cwd, start or HEAD)


def since(ref: str, cwd: Path) -> Changes:
    """Everything that differs from the commit at which this branch left `ref`. Raises ProblemsError."""
    files, base = changed_since(ref, cwd)
    return _changes(files, cwd, base)


def _changes(paths: Iterable[Path], cwd: Path, before: str) -> Changes:
    files: dict[str, str] = {}
    for path in paths:
        shown = _shown(path, cwd)
        files.setdefault(os.path.abspath(path), shown)  # noqa: PTH100 - links stay what they are
        files.setdefault(os.path.realpath(path), shown)
    gone = frozenset(file for file in files if not os.path.lexists(file))
    folders = tuple(file for file in files if os.path.isdir(file))  # noqa: PTH112 - false for what can be no path
    return Changes(files, folders, gone, _project(files, gone, cwd, before))


def _shown(path: Path, cwd: Path) -> str:
    relative = Path(os.path.relpath(path, cwd))
    return str(path) if relative.parts[:1] == (os.pardir,) else relative.as_posix()


def _project(files: Mapping[str, str], gone: Iterable[str], cwd: Path, before: str) -> str | None:
    """The project's file, where it says something else of gradverify than before, or is gone: then modules may be found elsewhere, too."""
    lost = next((file for file in gone if Path(file).name == PROJECT_FILE and cwd.is_relative_to(Path(file).parent)), None)
    folder = folder_of(cwd)
    if lost or folder is None:
        return files[lost] if lost else None
    file = folder / PROJECT_FILE
    if str(file) not in files or _table(file.read_bytes()) == _table(text_at(before, file) or b""):
        return None
    return files[str(file)]


def _table(text: bytes) -> Any:
    """What a pyproject.toml says of gradverify; the text itself where it cannot be read."""
    try:
        table: Any = tomllib.loads(text.decode("utf-8"))
    except ValueError:
        return text
    for name in TABLE:
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return table
