"""One panel per failure: all findings of the check, the output of the user's code, and the command
that repeats the check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from rich.box import ASCII, ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from gradverify.model.fault import FAILED
from gradverify.model.result import CaseResult, Comparison, Finding, Frame
from gradverify.report.look import Look
from gradverify.report.names import device_of, folded, pair_of, title_of, uncolored
from gradverify.report.reproduce import again
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import indented, shielded, uncut
from gradverify.report.terminal.table import error_map, table

REPEATED = "GV223"
"""A rule on repeated indices in the spec, shown by the elements of GV101 (in `also`)."""
VALUES = ("GV1", "GV007")
"""Codes of findings about numbers: a table of their pair is shown with them, whichever rule
compared it."""

WITHOUT_TABLE = ("GV102",)
"""The finding that backward returned nothing: every analytic value of a table would be 0."""

WRITES = ("GV202", "GV203", "GV204")
"""Findings on tensors that were written to: the findings they replace may be about another
input."""


def finding(found: Finding, check: CaseResult, look: Look) -> Iterator[RenderableType]:
    """Yield the parts of a finding: message and cause, tables, hint, the source line, the user's
    frames."""
    kind = ("warning ", "bold yellow") if found.severity == "warning" else ("", "bold red")
    pair = f"  {pair_of(found)}" if pair_of(found) else ""
    yield Text.assemble(
        (f"{kind[0]}{title_of(found)}", kind[1]),
        (pair, "bold"),
        ("  known" if found.known else "", "yellow"),
    )
    yield Text(found.message)
    if found.cause:
        yield Text.assemble(("cause: ", "bold"), f"{found.cause.name}: {found.cause.detail}")
    for comparison in comparisons_of(found, check):
        yield from shielded("the table of elements", partial(table, comparison, look), look)
        if comparison.error_map:
            yield from shielded(
                "the error map", partial(error_map, comparison.error_map, look), look
            )
    if found.hint:
        yield Text.assemble(("hint: ", "bold"), found.hint)
    if found.also:
        yield Text(also(found), style="dim")
    if found.file is not None:
        yield uncut(_place(found.file, found.line, found.inside), look)
        if found.source:
            yield indented(Text(found.source.strip("\n"), style="cyan"), 4, look, code=True)
    yield from _frames(found.frames, check.function.file, look)


def also(found: Finding) -> str:
    """Return a sentence on the less specific findings (`also`) that this one replaces."""
    return f"also: {', '.join(found.also)}" + (
        ", to be judged once nothing is written there"
        if found.code in WRITES
        else " at the same pair"
    )


def comparisons_of(found: Finding, check: CaseResult) -> tuple[Comparison, ...]:
    """Return the comparisons of a finding's rule at its pair; if there are none and it is about
    values, those of the Jacobian at that pair with errors."""
    at_pair = [
        c for c in check.comparisons if c.input == (found.input or "") and c.output == found.output
    ]
    rules = (found.code, *found.also) if found.code == REPEATED else (found.code,)
    own = [comparison for comparison in at_pair if comparison.rule in rules]
    if found.code in WITHOUT_TABLE:
        return ()
    if own or not found.code.startswith(VALUES):
        return tuple(own)
    claimed = {other.code for other in check.findings}
    return tuple(
        comparison for comparison in at_pair if comparison.worst and comparison.rule not in claimed
    )


def _frames(frames: Sequence[Frame], own: str | None, look: Look) -> Iterator[RenderableType]:
    for frame in folded(frames, own):
        if isinstance(frame, str):
            yield Text(f"{look.glyphs.dots} {frame}", style="dim")
            continue
        yield uncut(_place(frame.file, frame.line, frame.function), look)
        if frame.text:
            yield indented(Text(frame.text.strip(), style="cyan"), 4, look, code=True)


def _place(file: str, line: int | None, function: str | None = None) -> Text:
    place = file + (f":{line}" if line is not None else "")
    return Text(f"at {place}" + (f" in {function}" if function else ""))


TITLE_FRAME = 6
"""The columns of a panel's frame around its title."""

PRINTED_LINES = 20
"""The number of lines of captured output that are shown: the last ones, near the failure."""


def panel(check: CaseResult, argv: Sequence[str] | None, look: Look) -> Iterator[RenderableType]:
    """Yield the panel, framed or as plain lines under a title, and below it the command that
    repeats the check, if `argv` is given."""
    word = Text(status.word(check), style=status.style(check))
    name = Text(check.name, style="bold")
    title, body = Text.assemble(word, "  ", name), tuple(_body(check, look))
    if not look.boxes:
        yield uncut(Text.assemble("== ", title, " =="), look)
        yield from body
    elif title.cell_len + TITLE_FRAME <= look.columns:
        yield _framed(title, body, look)
    else:
        yield _framed(word, (name, *body), look)
    if argv is not None:
        # The command is outside the frame and on one line, so that it can be copied
        yield Text.assemble(("this again: ", "bold"), again(check, argv), no_wrap=True)
    yield Text("")


def _framed(title: Text, body: Sequence[RenderableType], look: Look) -> Panel:
    box = ASCII if look.ascii else ROUNDED
    return Panel(Group(*body), title=title, title_align="left", box=box, width=look.columns)


def _body(check: CaseResult, look: Look) -> Iterator[RenderableType]:
    place = f"{check.function.target} on {device_of(check)}, {check.dtype}"
    if check.spec.path != check.function.target:  # else it is checked without a spec
        place += f", from {check.spec.path}:{check.spec.line}"
    yield uncut(Text(place, style="dim"), look)
    broken = status.broken_expectation(check)
    if broken:
        yield Text(broken, style="bold red")
    if check.reason and not check.findings:
        yield Text(check.reason)
    for found in check.findings:
        yield Text("")
        yield from finding(found, check, look)
    yield from (Text(sentence, style="yellow") for sentence in missing(check))
    yield from _printed(check, look)


def missing(check: CaseResult) -> Iterator[str]:
    """Yield a line for each internal error that did not decide the verdict, whose reason is shown
    elsewhere."""
    for fault in check.faults:
        if not fault.costs or check.verdict != "error":
            effect = (
                "the verdict rests on the other rules"
                if fault.costs
                else "the verdict does not depend on it"
            )
            yield f"{FAILED} in {fault.during} ({fault.what}); {effect}"


def _printed(check: CaseResult, look: Look) -> Iterator[RenderableType]:
    counted = [
        (line, len(list(same)))
        for line, same in groupby(uncolored(check.captured or "").strip("\n").splitlines())
    ]
    lines = [line if times == 1 else f"{line}  ({times} times)" for line, times in counted]
    if not lines:
        return
    shown = lines[-PRINTED_LINES:]
    left = f", the last {len(shown)} lines" if len(shown) < len(lines) else ""
    yield Text("")
    yield Text(f"printed by your code{left}:", style="bold")
    yield indented(Text("\n".join(shown)), 4, look, code=True)
