"""The processes that a worker started, by what /proc says; none where there is no /proc."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
PPID, SESSION = 1, 3    # places in /proc/PID/stat behind the name in parentheses, which may hold blanks


def family(pid: int) -> frozenset[int]:
    """Its descendants, and those of its session that have lost their parents."""
    known = _known()
    found = {child for child, (_, session) in known.items() if session == pid}
    while True:
        more = {child for child, (parent, _) in known.items() if parent in found or parent == pid} - found
        if not more:
            return frozenset(found - {pid})
        found |= more


def _known() -> dict[int, tuple[int, int]]:
    """Process → its parent and its session."""
    known = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        known[int(folder.name)] = (int(fields[PPID]), int(fields[SESSION]))
    return known
