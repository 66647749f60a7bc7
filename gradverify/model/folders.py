"""The files below a folder that are a project's own: hidden folders, virtual environments, installed packages and build output are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

NEVER = frozenset({".git", ".hg", ".svn", "__pycache__"})  # nobody writes files there
INSTALLED = frozenset({"node_modules", "site-packages"})
BUILT = frozenset({"build", "dist"})  # beside one of these files:
BUILT_BY = ("pyproject.toml", "setup.py", "setup.cfg", "package.json", "CMakeLists.txt")


def files_below(
    folder: Path, suffixes: tuple[str, ...], left_out: list[tuple[Path, str]] | None = None
) -> Iterator[Path]:
    """Those whose names end so, in upper or lower case, sorted within each folder; links to folders are followed, each folder read once.

    `left_out` receives the folders that are not searched, with the reason. A folder that cannot be listed is among the files: whoever reads it
    says why.
    """
    known = {os.path.realpath(folder)}
    unreadable: list[Path] = []
    for root, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename)), followlinks=True):
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
