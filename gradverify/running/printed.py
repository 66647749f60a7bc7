"""The file that holds what a check prints: its end is what a report shows, and all that is kept."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

KEPT_LINES, KEPT_BYTES = 200, 2**16     # of the end of what a check printed
MOST = 2**20                            # bytes at which a file is cut to those: a call that prints 100 MB would fill the disk
CUT = b"\0cut\0"                        # how a file begins that was cut


def opened(path: Path | None) -> io.FileIO:
    """Empty, to be written at its end, whoever writes or cuts it, and read; without a name where there is no `path`."""
    if path is None:
        import tempfile

        with tempfile.TemporaryFile("a+b", buffering=0) as file:
            return io.FileIO(os.dup(file.fileno()), "a+")
    file = io.FileIO(path, "a+")
    file.truncate(0)
    return file


def cut(file: io.FileIO) -> None:
    """Keep the end of what is too much."""
    size = file.seek(0, os.SEEK_END)
    if size > MOST:
        file.seek(size - KEPT_BYTES)
        end = file.read()
        file.truncate(0)
        file.seek(0)
        file.write(CUT + end)


def cut_at(path: Path) -> None:
    with suppress(OSError), io.FileIO(path, "a+") as file:
        cut(file)


def tail(path: Path) -> str | None:
    """The end of a file, as it would be in a report; None where it is empty or not there."""
    try:
        with io.FileIO(path) as file:
            return end_of(file)
    except OSError:
        return None


def end_of(file: io.FileIO) -> str | None:
    """The last lines of a file, no more of them than a report can carry; None where there are none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    was_cut = file.read(len(CUT)) == CUT
    file.seek(max(len(CUT) if was_cut else 0, size - KEPT_BYTES))
    lines = file.read().decode(errors="replace").rstrip().splitlines()
    shown = "\n".join(lines[-KEPT_LINES:])
    if not shown:
        return None
    of = f"more than {MOST} bytes, of which the rest was not kept" if was_cut else f"{size} bytes"
    return f"… cut to the end of {of}\n{shown}" if was_cut or size > KEPT_BYTES or len(lines) > KEPT_LINES else shown
