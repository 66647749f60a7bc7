"""The files below a folder that are a project's own: hidden folders, virtual environments and build output are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "build", "dist"})


def files_below(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Those whose names end so, sorted within each folder."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(root) / name))
        yield from (Path(root) / name for name in sorted(files) if name.endswith(suffixes))


def _is_skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or (folder / "pyvenv.cfg").exists()
