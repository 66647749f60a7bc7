"""`gradverify hook` where no check is affected, as after most commits: answered before the command
line is built."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.cli.output import Output
from gradverify.report.numbers import counted
from gradverify.running.affected import Changes, of_hook, sieved


def passed(out: Output) -> bool:
    """Whether `hook FILES…` is answered, because no check is affected. One with options is left to
    who reads them."""
    files = out.arguments[1:]
    if files[:1] == ("--",):
        files = files[1:]
    elif any(word.startswith("-") for word in files):
        return False
    changes, specs, total = asked(files)
    if not specs:
        out.say(sentence(changes, total))
    return not specs


def asked(files: tuple[str, ...]) -> tuple[Changes, tuple[str, ...], int]:
    """The changed files, the specs that they may affect, and how many were looked at."""
    changes = of_hook(files, Path.cwd(), os.environ)
    return changes, *sieved(changes, Path.cwd())


def sentence(changes: Changes, total: int) -> str:
    return (
        f"no check is affected by {counted(changes.count, 'changed file')} "
        f"({counted(total, 'spec')} looked at)"
    )
