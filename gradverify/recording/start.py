"""Start the recorder in this process, or in those that it starts."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from pathlib import Path

FOLDER = "GRADVERIFY_RECORD"
"""The environment variable with the folder of the notes."""
PYTHON, UNABLE = "python", "unable"
"""The suffixes of the files that each Python process leaves there, by whether it can import
gradverify."""
SITE = str(Path(__file__).parent / "site")


def environment(folder: str) -> dict[str, str]:
    """Return the variables with which Python processes record into a folder."""
    before = os.environ.get("PYTHONPATH")
    return {FOLDER: folder, "PYTHONPATH": os.pathsep.join([SITE, *([before] if before else [])])}


def start(folder: str) -> Callable[[], None]:
    """Record in this process until it ends, or the returned function is called."""
    from gradverify.recording.notes import Notes
    from gradverify.torch_private import watch_apply

    Path(folder, f"{os.getpid()}.{PYTHON}").touch()
    notes = Notes(Path(folder))
    unwatch = watch_apply(notes.look)

    def end() -> None:
        unwatch()
        atexit.unregister(end)
        notes.end()

    atexit.register(end)
    return end
