"""One panel per failure: every finding of the check, what the user's code printed, and the command that shows just this again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import ASCII, ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from gradverify.model.fault import FAILED
from gradverify.model.report import told
from gradverify.model.result import CaseResult
from gradverify.report.look import Look
from gradverify.report.names import clean, device_of, one_line, uncolored
from gradverify.report.reproduce import again
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import indented, uncut
from gradverify.report.terminal.finding import finding

TITLE_FRAME = 6
"""Columns that a panel takes around its title."""

PRINTED_LINES = 20
"""The last lines of what the user's code printed are the ones near the failure."""


def panel(check: CaseResult, argv: Sequence[str] | None, look: Look) -> Iterator[RenderableType]:
    """Framed, or as plain lines under a title; below it the command that shows it again, where `argv` can be had."""
    word, name = Text(status.word(check), style=status.style(check)), Text(one_line(check.name), style="bold")
    title, body = Text.assemble(word, "  ", name), tuple(_body(check, look))
    if not look.boxes:
        yield uncut(Text.assemble("== ", title, " =="), look)
        yield from body
    elif title.cell_len + TITLE_FRAME <= look.columns:
        yield _framed(title, body, look)
    else:
        yield _framed(word, (name, *body), look)
    if argv is not None:
        yield _again(check, argv)
    yield from _saved(check)
    yield Text("")


def _framed(title: Text, body: Sequence[RenderableType], look: Look) -> Panel:
    box = ASCII if look.ascii else ROUNDED
    return Panel(Group(*body), title=title, title_align="left", box=box, width=look.columns)


def _again(check: CaseResult, argv: Sequence[str]) -> Text:
    """Outside the frame and on one line, so that it can be copied."""
    return Text.assemble(("this again: ", "bold"), again(check, argv), no_wrap=True)


def _saved(check: CaseResult) -> Iterator[Text]:
    """Where that was asked for: what shows it without gradverify."""
    yield from (Text.assemble(("without gradverify: ", "bold"), shlex.join(["python", script]), no_wrap=True) for script in check.saved)
    if check.unsaved:
        yield Text(f"no script was written: {check.unsaved}", style="yellow")


def _body(check: CaseResult, look: Look) -> Iterator[RenderableType]:
    place = f"{one_line(check.function.target)} on {device_of(check)}, {check.dtype}, from {one_line(check.spec.path)}:{check.spec.line}"
    yield uncut(Text(place, style="dim"), look)
    broken = status.broken_expectation(check)
    if broken:
        yield Text(broken, style="bold red")
    if check.reason and not check.findings:
        yield Text(clean(check.reason))
    flipped = told(check.repeats)
    if flipped and check.findings:
        yield Text(flipped, style="bold")
    for found in check.findings:
        yield Text("")
        yield from finding(found, check, look)
    yield from (Text(sentence, style="yellow") for sentence in missing(check))
    yield from _printed(check, look)


def missing(check: CaseResult) -> Iterator[str]:
    """What a fault of ours has cost beside the verdict, which has its reason."""
    for fault in check.faults:
        if not fault.costs or check.verdict != "error":
            stands = "the verdict rests on the other rules" if fault.costs else "the verdict does not depend on it"
            yield clean(f"{FAILED} in {fault.during} ({fault.what}); {stands}")


def _repeated(line: str, times: int) -> str:
    return line if times == 1 else f"{line}  ({times} times)"


def _printed(check: CaseResult, look: Look) -> Iterator[RenderableType]:
    lines = [_repeated(line, len(list(same))) for line, same in groupby(uncolored(check.captured or "").strip("\n").splitlines())]
    if not lines:
        return
    shown = lines[-PRINTED_LINES:]
    left = f", the last {len(shown)} lines" if len(shown) < len(lines) else ""
    yield Text("")
    yield Text(f"printed by your code{left}:", style="bold")
    yield indented(Text("\n".join(shown)), 4, look, code=True)
