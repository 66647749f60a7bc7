"""What is shown when gradverify itself fails: already a bug report."""

from __future__ import annotations

import platform
import shlex
import traceback
from collections.abc import Sequence

FRAMES = 8


def version_of(package: str) -> str | None:
    """The installed version, without importing the package."""
    from importlib.metadata import PackageNotFoundError, version  # 27 ms that no other command needs

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def bug_report(what: str, arguments: Sequence[str]) -> str:
    """`what` is a traceback or a sentence."""
    versions = ", ".join(f"{name} {version_of(name) or 'not installed'}" for name in ("gradverify", "torch", "typer", "rich"))
    return (f"gradverify failed: this is a fault in gradverify, not in what it checks. Please report it with these lines:\n"
            f"  command: {shlex.join(['gradverify', *arguments])}\n"
            f"  {versions}, Python {platform.python_version()}, {platform.platform()}\n{what.rstrip()}")


def last_frames(error: BaseException) -> str:
    """The traceback's last frames, without the values of locals."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES))
