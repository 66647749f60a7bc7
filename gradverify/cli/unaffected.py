"""`gradverify hook` if no check is affected, as for most commits: handled before the command line
is built, to be quick."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.cli.output import Output
from gradverify.report.numbers import counted
from gradverify.running.affected import Changes, of_hook, project_specs, sieved, unnamed


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
        for each in unchecked(changes):
            out.say(each)
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


def unchecked(changes: Changes) -> list[str]:
    """Return a sentence for each changed kernel that no spec lists, and each Function of a changed
    file that no check covers."""
    kernels, files = unnamed(changes, Path.cwd())
    sentences = [f"{shown}: no spec lists it under `sources`" for shown in kernels]
    if files:
        from gradverify.cli.coverage import covered_by, found_in
        from gradverify.cli.gather import gather

        cases = gather(project_specs(Path.cwd())).cases
        library, functions = found_in([str(file) for file in files])
        sentences += [
            f"{each.file}:{each.line}: no check covers {each.name}"
            for each in covered_by(cases, library, functions)
            if each.note is None and not each.checks and not each.through
        ]
    return sentences
