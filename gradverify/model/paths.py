"""Paths as a report names them, links followed; the files of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = ".git"  # a folder; a file in worktrees and submodules


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file; False for an invalid name or an inaccessible folder, where
    `Path.is_file` of Python before 3.14 raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a folder, as `is_file` does for files."""
    return os.path.isdir(path)  # noqa: PTH112


def shown_path(file: str, folder: str | None = None) -> str:
    """Return a path relative to the folder of the run (None: the current one) if it lies inside, or
    elsewhere in the same repository; else unchanged."""
    home = Path(folder) if folder is not None else Path.cwd()
    relative = os.path.relpath(home / file, home)
    if not relative.startswith(os.pardir):
        return relative
    below = repository_folder(home)
    if below and not os.path.normpath(f"{below}/{relative}").startswith(os.pardir):
        return relative
    return file


def resolved(file: Path) -> Path:
    """Return the absolute path with links followed. Circular links are left unresolved, where
    `Path.resolve` of Python before 3.13 raises; so is a name that the system's encoding cannot
    write, which therefore is no file's."""
    try:
        return Path(os.path.realpath(file))
    except UnicodeEncodeError:
        return Path(os.path.normpath(Path.cwd() / file))


def repository_folder(folder: Path) -> str:
    """Return the folder relative to the root of its repository, with `/`: empty for the root
    itself, and without a repository."""
    root = nearest_with(folder, REPOSITORY) or folder
    return "" if root == folder else folder.relative_to(root).as_posix()


def nearest_with(folder: Path, *names: str) -> Path | None:
    """Return the nearest folder, at or above this one, that contains a file or folder of one of
    these names."""
    return next(
        (
            each
            for each in (folder, *folder.parents)
            if any((each / name).exists() for name in names)
        ),
        None,
    )


NEVER = frozenset({".git", ".hg", ".svn", "__pycache__"})  # folders without files of the user
INSTALLED = frozenset({"node_modules", "site-packages"})
BUILT = frozenset({"build", "dist"})  # only next to one of the files below
BUILT_BY = ("pyproject.toml", "setup.py", "setup.cfg", "package.json", "CMakeLists.txt")


def files_below(
    folder: Path, suffixes: tuple[str, ...], left_out: list[tuple[Path, str]] | None = None
) -> Iterator[Path]:
    """Yield the files whose names have one of `suffixes`, in any case, sorted within each folder.
    Links to folders are followed, and each folder is read once.

    `left_out` receives the folders that are not searched, with the reason. If it is given, folders
    that cannot be listed are yielded too: reading them raises the error to report.
    """
    known = {os.path.realpath(folder)}
    unreadable: list[Path] = []
    for root, folders, files in os.walk(
        folder, onerror=lambda error: unreadable.append(Path(error.filename)), followlinks=True
    ):
        kept = []
        for name in sorted(folders):
            path = Path(root, name)
            reason = _why_left_out(path)
            if reason is None and (real := os.path.realpath(path)) not in known:
                known.add(real)
                kept.append(name)
            elif reason is not None and left_out is not None and name not in NEVER:
                left_out.append((path, reason))
        folders[:] = kept
        yield from (Path(root, name) for name in sorted(files) if name.lower().endswith(suffixes))
    yield from unreadable if left_out is not None else ()


def _why_left_out(folder: Path) -> str | None:
    name = folder.name
    if name in NEVER or name.startswith("."):
        return "a hidden folder"
    if name in INSTALLED:
        return "installed packages"
    if (folder / "pyvenv.cfg").exists():
        return "a virtual environment"
    if name in BUILT and any((folder.parent / file).exists() for file in BUILT_BY):
        return "build output"
    return None
