"""Recording within a running program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradverify.recording.start import environment, start


@contextmanager
def record(output: str | os.PathLike[str] = "specs", *, force: bool = False) -> Iterator[None]:
    """Context that notes the calls of autograd Functions and operators, in this process and in
    those that it starts, and at its end writes specs for them, as `gradverify record` does.

    `output`: a folder, or a .yaml file; `force`: overwrite specs that exist. What was written is
    listed on stderr.
    """
    command = [sys.executable, "-m", "gradverify", "record", "-o", os.fspath(output)]
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="gradverify-", ignore_cleanup_errors=True) as folder:
        changed = environment(folder)
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        end = start(folder)
        try:
            yield
        finally:
            end()
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            subprocess.run(
                [*command, "--notes", folder, *["--force"] * force], cwd=here, check=False
            )
