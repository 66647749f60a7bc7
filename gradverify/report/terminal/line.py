"""One line per check: verdict, name, elements compared, the smallest error it could have seen, calls, seconds; below it what needs saying."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradverify.model.result import CaseResult, Comparison, Finding, left_out
from gradverify.report.look import Look
from gradverify.report.names import clean, device_of, one_line, title_of
from gradverify.report.numbers import bar, counted, seconds
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import indented
from gradverify.report.terminal.columns import COUNT, GAP, Columns

JACOBIAN = ("GV101", "GV111")
"""The rules that compare the elements of the Jacobian; other rules compare the same elements again."""

LOW = "GV112"
"""The rule whose pass says in which precision the function was held against the Jacobian, and what it would have seen there."""

NAME_LIMIT = 48


def line(check: CaseResult, look: Look, columns: Columns) -> Iterator[RenderableType]:
    """The line, then one indented line for each reason and each warning."""
    head, name = (status.word(check).ljust(columns.word - 1) + " ", status.style(check)), one_line(check.name)
    late = max(0, cell_len(head[0]) - columns.word)     # a word that is wider than its column
    body = _reason(check, look, columns) if check.verdict in ("skip", "not_run") else _body(check, look, columns)
    whole = Text.assemble(head, name, _without(body, cell_len(name) + late), no_wrap=True)
    if not look.boxes or (cell_len(name) <= columns.name and whole.cell_len <= look.columns):
        yield whole
    else:
        yield Text.assemble(head, name, no_wrap=True)
        yield Text.assemble(" " * columns.word, body, no_wrap=True)
    yield from (indented(note, columns.word, look) for note in _notes(check, look, columns))


def name_width(names: Iterable[str]) -> int:
    """The width of the column of names: that of the longest one which is not extreme."""
    widths = [cell_len(one_line(name)) for name in names]
    return max([width for width in widths if width <= NAME_LIMIT], default=0)


def _without(body: Text, taken: int) -> Text:
    """The rest of a line of which the name has taken the first columns; at least a gap stays."""
    blank = cell_len(body.plain) - cell_len(body.plain.lstrip())
    return Text.assemble(" " * GAP, body[blank:]) if taken > blank - GAP else body[taken:]


def _reason(check: CaseResult, look: Look, columns: Columns) -> Text:
    """Where the phrases of other lines begin; as far left of it as the reason needs."""
    reason = one_line(check.reason or "")
    left = min(columns.to_phrase, look.columns - columns.word - cell_len(reason))
    return Text(" " * max(0, left if look.boxes else columns.to_phrase) + reason, style="dim")


def _body(check: CaseResult, look: Look, columns: Columns) -> Text:
    """Everything right of the verdict, blanks in place of the name."""
    shown = judged_comparisons(check)
    elements = sum(comparison.elements for comparison in shown)
    calls = check.calls.forward + check.calls.backward
    noun, times = _noun(shown, elements).ljust(len("elements")), "call " if calls == 1 else "calls"
    text = f"{elements:>{columns.name + GAP + COUNT},} {noun}  {phrase(check, shown, columns.phrase):<{columns.phrase}}"
    text += f"  {calls:>5} {times}" if columns.calls else ""
    text += f"  {seconds(check.seconds):>7}" if columns.seconds else ""
    return Text(text + _beside(check, look, columns))


def _noun(shown: tuple[Comparison, ...], count: int) -> str:
    """Elements, or the lines of a Jacobian that were compared instead."""
    nouns = {comparison.lines or "elements" for comparison in shown}
    noun = nouns.pop() if len(nouns) == 1 else "elements"
    return noun[:-1] if count == 1 else noun


def judged_comparisons(check: CaseResult) -> tuple[Comparison, ...]:
    """The comparisons whose elements the line counts: of a failure, those of the rules that failed; among them the Jacobian's, or all without any."""
    failed = {finding.code for finding in check.findings if finding.severity == "error"}
    own = tuple(comparison for comparison in check.comparisons if comparison.rule in failed)
    among = own or check.comparisons
    return tuple(comparison for comparison in among if comparison.rule in JACOBIAN) or among


def phrase(check: CaseResult, shown: tuple[Comparison, ...], width: int) -> str:
    """What came of it in at most so many columns, or in the fewest."""
    if check.verdict == "pass":
        return _fitting(width, *(("nothing to compare", "nothing") if not sum(each.elements for each in shown) else (sensitivity(shown), "")))
    if check.verdict == "undecided":
        return _fitting(width, _open(shown), _open(shown).split(", ")[-1]) or "undecided"
    errors = [finding for finding in check.findings if finding.severity == "error"]
    return _fitting(width, ", ".join(dict.fromkeys(map(title_of, errors))), ", ".join(dict.fromkeys(finding.code for finding in errors)))


def _fitting(width: int, *texts: str) -> str:
    """The first that fits, else the last."""
    return next((text for text in texts if cell_len(text) <= width), texts[-1])


def sensitivity(shown: Sequence[Comparison]) -> str:
    """The one sentence on a pass. Nothing where the resolution is 0: every gradient is, and no error was too small to see."""
    smallest = max((comparison.resolution for comparison in shown), default=0.0)
    return f"would catch any absolute error above {bar(smallest)}" if smallest else ""


def _open(shown: tuple[Comparison, ...]) -> str:
    """What was compared but not judged: `3 kinks, 14 undecided`."""
    kinks = sum(comparison.kinks for comparison in shown)
    undecided = sum(comparison.undecided + comparison.non_finite for comparison in shown)
    return ", ".join([counted(kinks, "kink")] * bool(kinks) + [f"{undecided} undecided"] * bool(undecided))


def _beyond(shown: tuple[Comparison, ...]) -> str:
    """What finite differences did not decide: `312 by forward's own derivative, 1 undecided`."""
    witnessed, agrees = sum(comparison.witnessed for comparison in shown), bool(shown) and all(comparison.witness_apart == 0 for comparison in shown)
    own = f"{witnessed:,} by forward's own derivative" if witnessed else "as does forward's own derivative, by torch" if agrees else ""
    return ", ".join(filter(None, (own, by_a_fit(shown), _open(shown))))


def by_a_fit(shown: Iterable[Comparison]) -> str:
    """`3 by a fit over 256 points`; nothing where no fit decided."""
    own = [comparison for comparison in shown if comparison.fitted]
    count = sum(comparison.fitted for comparison in own)
    return f"{count:,} by a fit over {max(comparison.fit_points for comparison in own)} points" if own else ""


def _beside(check: CaseResult, look: Look, columns: Columns) -> str:
    """The elements of a pass that finite differences left open, at the end of its line, where there is room."""
    text = _beyond(judged_comparisons(check)) if check.verdict == "pass" else ""
    return f"  {text}" if text and (not look.boxes or columns.width + GAP + cell_len(text) <= look.columns) else ""


def _notes(check: CaseResult, look: Look, columns: Columns) -> Iterator[Text]:
    if (check.verdict in ("undecided", "error") or check.repeats) and check.reason:
        yield Text(clean(check.reason))
    if check.interpreter:
        yield Text(f"on {device_of(check)}", style="dim")
    if check.verdict == "pass":
        shown = judged_comparisons(check)
        below = [sensitivity(shown) if not phrase(check, shown, columns.phrase) else "", "" if _beside(check, look, columns) else _beyond(shown)]
        yield from [Text("; ".join(filter(None, below)))] if any(below) else []
    if check.verdict == "pass":
        yield from (Text(clean(rule.reason), style="dim") for rule in check.rules if rule.code == LOW and rule.status == "ran" and rule.reason)
    left, part = left_out(check.rules)
    if left or part:
        listed = "; in part: ".join(filter(None, (", ".join(left), ", ".join(part)))) if left else f"parts of {', '.join(part)}"
        yield Text(f"left out for the budget: {listed} (raise `budget`)", style="dim")
    if status.left_open(check):
        yield Text(f"note: {status.left_open(check)}")
    if not status.is_red(check):
        yield from (_known(finding) for finding in check.findings if _is_told(finding, check))
        yield from (_warning(finding) for finding in check.findings if finding.severity == "warning" and finding.code not in check.expect)


def _is_told(finding: Finding, check: CaseResult) -> bool:
    """Of a check that is ok for its baseline: a known error that the line's reason does not tell already."""
    return check.baselined and finding.known and finding.severity == "error" and finding.message != check.reason


def _known(finding: Finding) -> Text:
    return Text.assemble(("known ", "yellow"), f"{title_of(finding)}: {clean(finding.message)}")


def _warning(finding: Finding) -> Text:
    hint = f". Remedy: {clean(finding.hint)}" if finding.hint else ""
    return Text.assemble(("warning ", "yellow"), f"{title_of(finding)}: {clean(finding.message).removesuffix('.')}{hint}")
