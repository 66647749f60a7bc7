"""An environment for each package: its own installs first, then the torch and the gradverify that
this Python has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900  # of an installation


@dataclass(frozen=True)
class Environment:
    """`size` of what was installed in it, in bytes; `lack`: why it could not be made, None where it
    could."""

    python: Path
    size: int
    lack: str | None


def environment(folder: Path, arguments: Sequence[str], extra: Sequence[str] = ()) -> Environment:
    """A virtual environment in which pip installed `arguments`, and `extra` with what they need, on
    top of what this Python has."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    asked = repr((list(arguments), list(extra)))
    if not done.is_file() or done.read_text() != asked:
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True
        )
        below = [str(ROOT), *(entry for entry in sys.path if Path(entry).name == "site-packages")]
        next(folder.glob("lib/python*/site-packages")).joinpath("below.pth").write_text(
            "\n".join(below)
        )
        (folder / "constraints.txt").write_text(f"torch=={version('torch').partition('+')[0]}\n")
        lack = _install(python, arguments) or (_install(python, extra) if extra else None)
        if lack is not None:
            return Environment(python, 0, lack)
        done.write_text(asked)
    return Environment(
        python, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), None
    )


def _install(python: Path, arguments: Sequence[str]) -> str | None:
    """Has pip install; what it says where it cannot. The constraint keeps the torch that is
    there."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-warn-script-location",
        "-c",
        str(python.parents[1] / "constraints.txt"),
        *arguments,
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "MAX_JOBS": "2"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its installation does not end within {LIMIT_S} s"
    if done.returncode == 0:
        return None
    said = (
        [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        or done.stderr.strip().splitlines()
        or ["pip fails without a word"]
    )
    return said[0].removeprefix("ERROR: ")
