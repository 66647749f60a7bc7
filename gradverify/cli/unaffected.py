"""`gradverify hook` if no check is affected, as for most commits: handled before the command line
is built, to be quick."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.cli.output import Output
from gradverify.report.numbers import counted
from gradverify.running.affected import Changes, of_hook, sieved


def passed(out: Output) -> bool:
    """Return whether `hook FILES…` is done, because no check is affected. False with options, which
    the full command line reads."""
    files = out.arguments[1:]
    if files[:1] == ("--",):
        files = files[1:]
    elif any(word.startswith("-") for word in files):
        return False
    changes, specs, total = affected_by(files)
    if not specs:
        out.say(sentence(changes, total))
    return not specs


def affected_by(files: tuple[str, ...]) -> tuple[Changes, tuple[str, ...], int]:
    """Return the changed files, the specs that they may affect, and how many were examined."""
    changes = of_hook(files, Path.cwd(), os.environ)
    return changes, *sieved(changes, Path.cwd())


def sentence(changes: Changes, total: int) -> str:
    return (
        f"no check is affected by {counted(changes.count, 'changed file')} "
        f"({counted(total, 'spec')} looked at)"
    )
