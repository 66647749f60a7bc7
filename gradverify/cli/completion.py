"""Completion of `PATH::NAME` in bash, zsh and fish, from YAML alone. Everything else is completed by typer, whose scripts call this program.

bash cuts words at `:` and `=`, and replaces only what stands behind the last of them; zsh and fish pass the line up to the cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradverify.cli.boundary import COMPLETION

BREAKS = re.compile(r"[:=]+")
SPECIAL_IN_BASH = re.compile(r"([^\w@%+=:,./-])")
Environ = Mapping[str, str]


@dataclass(frozen=True)
class Word:
    """What is typed of one `PATH::NAME`, without its quotes. Its first `kept` characters stay as they are; `quote`: one is open."""

    text: str
    kept: int = 0
    quote: str = ""


@dataclass(frozen=True)
class Answer:
    """What the shell's script reads, and the exit code that it looks at."""

    text: str
    code: int = 0


def completion(environ: Environ) -> Answer | None:
    """None where typer is to answer: something else than a check's id is completed, or another shell asks."""
    shell = environ.get(COMPLETION, "")
    if shell not in SHELLS:
        return None
    read, write = SHELLS[shell]
    word = read(environ)
    return write(word, ids(word.text), environ) if "::" in word.text else None


def ids(typed: str) -> tuple[str, ...]:
    """The ids that begin so, of the spec or folder that is typed; also those that stand for all variants of a check. Never an exception."""
    place = typed.partition("::")[0]
    try:
        from gradverify.cli.gather import gather

        cases = gather([str(Path(place).expanduser())]).cases
    except Exception:       # a traceback amid what somebody types helps nobody
        return ()
    names = dict.fromkeys(name for case in cases for name in (case.check, case.name))
    return tuple(id for id in (f"{place}::{name}" for name in names) if id.startswith(typed) and id.isprintable())


def _typed_in_bash(environ: Environ) -> Word:
    """Words that only a `:` or `=` separates are one."""
    words, at = environ.get("COMP_WORDS", "").split("\n"), environ.get("COMP_CWORD", "")
    first = last = min(int(at), len(words) - 1) if at.isdecimal() else 0
    while first > 1 and (BREAKS.fullmatch(words[first]) or BREAKS.fullmatch(words[first - 1])):
        first -= 1
    before, (typed, quote) = "".join(unquoted(word)[0] for word in words[first:last]), unquoted(words[last])
    return Word(before + typed, len(before) + (len(typed) if BREAKS.fullmatch(typed) else 0), quote)


def _typed_in_line(environ: Environ) -> Word:
    text, quote = unquoted(environ.get("_TYPER_COMPLETE_ARGS", ""))
    return Word(text, 0, quote)


def unquoted(line: str) -> tuple[str, str]:
    """The last word of a line as the program would get it, and the quote that is still open."""
    text, quote, rest = "", "", iter(line)
    for char in rest:
        if char == quote:
            quote = ""
        elif char == "\\" and quote != "'":
            text += next(rest, "")
        elif not quote and char in "'\"":
            quote = char
        else:
            text = "" if char.isspace() and not quote else text + char
    return text, quote


def _for_bash(word: Word, ids: Sequence[str], environ: Environ) -> Answer:
    """A line each; bash inserts them as they are."""
    rest = [id[word.kept:] for id in ids]
    return Answer("\n".join(rest if word.quote else [SPECIAL_IN_BASH.sub(r"\\\1", each) for each in rest]))


def _for_zsh(word: Word, ids: Sequence[str], environ: Environ) -> Answer:
    """A command that the script evaluates once its blanks and line ends are all one; zsh quotes what it inserts."""
    return Answer("compadd -- " + " ".join("$'" + "".join(map(_in_zsh, id)) + "'" for id in ids) if ids else "")


def _in_zsh(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\U{ord(char):08x}"


def _for_fish(word: Word, ids: Sequence[str], environ: Environ) -> Answer:
    """First the script asks whether there are any, then which; fish quotes what it inserts."""
    if environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return Answer("", 0 if ids else 1)
    return Answer("\n".join(ids))


SHELLS: Mapping[str, tuple[Callable[[Environ], Word], Callable[[Word, Sequence[str], Environ], Answer]]] = {
    "complete_bash": (_typed_in_bash, _for_bash), "complete_zsh": (_typed_in_line, _for_zsh), "complete_fish": (_typed_in_line, _for_fish)}
"""How a shell says what is typed, and how it is answered."""
