"""Completion of `PATH::NAME`, from YAML alone; typer completes everything else, and its scripts ask for both."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

COMPLETION = "_GRADVERIFY_COMPLETE"
"""Set by a shell that asks what could be typed next."""

BREAKS = re.compile(r"[:=]+")
SPECIAL_IN_BASH = re.compile(r"([^\w@%+=:,./-])")


def join_words(environ: MutableMapping[str, str]) -> None:
    """bash cuts words at `:` and `=`: typer is to see what is typed as one."""
    with suppress(KeyError, ValueError, IndexError):
        words, last = environ["COMP_WORDS"].split("\n"), int(environ["COMP_CWORD"])
        first = last
        while first > 1 and (BREAKS.fullmatch(words[first]) or BREAKS.fullmatch(words[first - 1])):
            first -= 1
        environ.update(COMP_WORDS="\n".join([*words[:first], "".join(words[first:last + 1])]), COMP_CWORD=str(first))


def ids(incomplete: str) -> list[str]:
    """The ids that begin so, of the spec or folder that is typed; also those that stand for all variants of a check. Never an exception.

    bash replaces only what is behind the last `:` or `=`, and inserts it as it is; zsh and fish replace the word and quote it."""
    place, colons, _ = incomplete.partition("::")
    if not colons:
        return []
    try:
        from gradverify.cli.gather import gather

        cases = gather([str(Path(place).expanduser())]).cases
    except Exception:       # a traceback amid what somebody types helps nobody
        return []
    names = dict.fromkeys(name for case in cases for name in (case.check, case.name))
    found = [id for id in (f"{place}::{name}" for name in names) if id.startswith(incomplete) and id.isprintable()]
    typed = os.environ.get("COMP_WORDS", "").rpartition("\n")[2]
    if os.environ.get(COMPLETION) != "complete_bash" or typed[:1] in ("'", '"'):
        return found
    kept = max(map(incomplete.rfind, ":=")) + 1
    return [SPECIAL_IN_BASH.sub(r"\\\1", id[kept:]) for id in found]
