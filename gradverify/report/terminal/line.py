"""One line per check: verdict, name, elements compared, the smallest error that it detects; below
it reasons and warnings, and the details of `-v`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradverify.model.case import Json
from gradverify.model.result import Calls, CaseResult, Comparison, RuleRun, left_out
from gradverify.report.look import Look
from gradverify.report.names import device_of, one_line, output, title_of
from gradverify.report.numbers import bar, counted, error, ratio, seconds
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import indented
from gradverify.report.terminal.status import WORD_WIDTH

GAP = 2
COUNT, NOUN = 6, len(" elements")
CALLS, SECONDS = 5 + len(" calls"), len("1234.5 s") - 1
SHORT_WORD = len("XPASS") + 1
"""The width of all verdicts but the rare UNDECIDED and NOT RUN, after which the name is shifted to
the right."""

SENTENCE = len("would catch any absolute error above 3.1e-10")
TITLE = len("nothing to compare")
CODES = len("GV101, GV111")
"""Widths of the phrase: the sentence on a pass, which is put below if it does not fit; a code with
its name; two codes."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The layout of a line. `word`, `name` and `phrase` are widths; calls and seconds are omitted
    if there is no room."""

    word: int
    phrase: int
    calls: bool = True
    seconds: bool = True
    name: int = 0

    @property
    def to_phrase(self) -> int:
        """The width from the beginning of the name to the beginning of the phrase."""
        return self.name + GAP + COUNT + NOUN + GAP

    @property
    def width(self) -> int:
        """The width of the whole line."""
        return (
            self.word
            + self.to_phrase
            + self.phrase
            + self.calls * (GAP + CALLS)
            + self.seconds * (GAP + SECONDS)
        )


FORMS = (
    Columns(WORD_WIDTH + GAP, SENTENCE),
    Columns(SHORT_WORD, SENTENCE),
    Columns(WORD_WIDTH + GAP, SENTENCE, calls=False),
    Columns(SHORT_WORD, SENTENCE, calls=False),
    Columns(WORD_WIDTH + GAP, TITLE),
    Columns(WORD_WIDTH + GAP, CODES),
    Columns(SHORT_WORD, CODES),
    Columns(SHORT_WORD, CODES, calls=False),
    Columns(SHORT_WORD, CODES, calls=False, seconds=False),
)


def fitted(name_width: int, look: Look) -> Columns:
    """Return the first layout that fits; in the narrowest one names get the remaining width."""
    form = next((form for form in FORMS if form.width + name_width <= look.columns), FORMS[-1])
    return Columns(
        form.word, form.phrase, form.calls, form.seconds, min(name_width, look.columns - form.width)
    )


JACOBIAN = ("GV101", "GV111")
"""The rules that compare the elements of the Jacobian; other rules compare the same elements
again."""

LOW = "GV112"
"""The rule whose pass gives the precision in which the function was compared with the Jacobian,
and the smallest error detected there."""

NAME_LIMIT = 48


def line(check: CaseResult, look: Look, columns: Columns) -> Iterator[RenderableType]:
    """Return the line, then one indented line for each reason and each warning."""
    head = (status.word(check).ljust(columns.word - 1) + " ", status.style(check))
    name = check.name
    late = max(0, cell_len(head[0]) - columns.word)  # a word that is wider than its column
    body = _body(check, look, columns) if check.was_run else _reason(check, look, columns)
    whole = Text.assemble(head, name, _without(body, cell_len(name) + late), no_wrap=True)
    if not look.boxes or (cell_len(name) <= columns.name and whole.cell_len <= look.columns):
        yield whole
    else:
        yield Text.assemble(head, name, no_wrap=True)
        yield Text.assemble(" " * columns.word, body, no_wrap=True)
    yield from (indented(note, columns.word, look) for note in _notes(check, look, columns))


def name_width(names: Iterable[str]) -> int:
    """Return the width of the column of names: that of the longest one, without outliers."""
    widths = [cell_len(one_line(name)) for name in names]
    return max([width for width in widths if width <= NAME_LIMIT], default=0)


def _without(body: Text, taken: int) -> Text:
    """Return the rest of a line after the name, with at least a gap."""
    blank = cell_len(body.plain) - cell_len(body.plain.lstrip())
    return Text.assemble(" " * GAP, body[blank:]) if taken > blank - GAP else body[taken:]


def _reason(check: CaseResult, look: Look, columns: Columns) -> Text:
    """Return the reason, in the column of the phrases of other lines, or further left if it needs
    more room."""
    reason = one_line(check.reason or "")
    left = min(columns.to_phrase, look.columns - columns.word - cell_len(reason))
    return Text(" " * max(0, left if look.boxes else columns.to_phrase) + reason, style="dim")


def _body(check: CaseResult, look: Look, columns: Columns) -> Text:
    """Return the text right of the verdict, with blanks in place of the name."""
    shown = judged_comparisons(check)
    elements = sum(comparison.elements for comparison in shown)
    calls = check.calls.forward + check.calls.backward
    nouns = {comparison.lines or "elements" for comparison in shown}
    times = "call " if calls == 1 else "calls"
    # Or the number of lines (rows, blocks) that were compared instead
    noun: str = nouns.pop() if len(nouns) == 1 else "elements"
    noun = noun[: len(noun) - (elements == 1)].ljust(len("elements"))
    text = (
        f"{elements:>{columns.name + GAP + COUNT},} {noun}  "
        f"{phrase(check, shown, columns.phrase):<{columns.phrase}}"
    )
    text += f"  {calls:>5} {times}" if columns.calls else ""
    text += f"  {seconds(check.seconds):>7}" if columns.seconds else ""
    return Text(text + _open_counts(check, look, columns))


def judged_comparisons(check: CaseResult) -> tuple[Comparison, ...]:
    """Return the comparisons whose elements the line counts: for a failure those of the rules that
    failed; of these the ones of the Jacobian, or all if there are none."""
    failed = {finding.code for finding in check.errors}
    own = tuple(comparison for comparison in check.comparisons if comparison.rule in failed)
    among = own or check.comparisons
    return tuple(comparison for comparison in among if comparison.rule in JACOBIAN) or among


def phrase(check: CaseResult, shown: tuple[Comparison, ...], width: int) -> str:
    """Return the outcome in at most so many columns, or in as few as possible."""
    if check.verdict == "pass":
        return _fitting(
            width,
            *(
                ("nothing to compare", "nothing")
                if not sum(each.elements for each in shown)
                else (sensitivity(shown), "")
            ),
        )
    if check.verdict == "undecided":
        return _fitting(width, _open(shown), _open(shown).split(", ")[-1]) or "undecided"
    return _fitting(
        width,
        ", ".join(dict.fromkeys(map(title_of, check.errors))),
        ", ".join(dict.fromkeys(finding.code for finding in check.errors)),
    )


def _fitting(width: int, *texts: str) -> str:
    """Return the first text that fits, else the last."""
    return next((text for text in texts if cell_len(text) <= width), texts[-1])


def sensitivity(shown: Sequence[Comparison]) -> str:
    """Return the sentence on a pass; empty if the resolution is 0, as all gradients are 0 and no
    error was too small to detect."""
    smallest = max((comparison.resolution for comparison in shown), default=0.0)
    return f"would catch any absolute error above {bar(smallest)}" if smallest else ""


def _open(shown: tuple[Comparison, ...]) -> str:
    """Return the counts of elements compared but not judged: `3 kinks, 14 undecided`."""
    kinks = sum(comparison.kinks for comparison in shown)
    undecided = sum(comparison.undecided + comparison.non_finite for comparison in shown)
    return ", ".join(
        [counted(kinks, "kink")] * bool(kinks) + [f"{undecided} undecided"] * bool(undecided)
    )


def _open_counts(check: CaseResult, look: Look, columns: Columns) -> str:
    """Return the counts of undecided elements of a pass, for the end of its line, if there is
    room."""
    text = _open(judged_comparisons(check)) if check.verdict == "pass" else ""
    if text and (not look.boxes or columns.width + GAP + cell_len(text) <= look.columns):
        return f"  {text}"
    return ""


def _notes(check: CaseResult, look: Look, columns: Columns) -> Iterator[Text]:
    if check.verdict in ("undecided", "error") and check.reason:
        yield Text(check.reason)
    if check.interpreter:
        yield Text(f"on {device_of(check)}", style="dim")
    if check.verdict == "pass":
        shown = judged_comparisons(check)
        below = [
            sensitivity(shown) if not phrase(check, shown, columns.phrase) else "",
            "" if _open_counts(check, look, columns) else _open(shown),
        ]
        yield from [Text("; ".join(filter(None, below)))] if any(below) else []
    if check.verdict == "pass":
        yield from (
            Text(rule.reason, style="dim")
            for rule in check.rules
            if rule.code == LOW and rule.status == "ran" and rule.reason
        )
    left, part = left_out(check.rules)
    if left or part:
        listed = (
            "; in part: ".join(filter(None, (", ".join(left), ", ".join(part))))
            if left
            else f"parts of {', '.join(part)}"
        )
        yield Text(f"left out for the budget: {listed} (raise `budget`)", style="dim")
    if status.left_open(check):
        yield Text(f"note: {status.left_open(check)}")
    if not status.is_red(check):
        # A known error of a check that is ok by its baseline, unless the reason in the line names
        # it
        for finding in check.errors if check.baselined else ():
            if finding.known and finding.message != check.reason:
                yield Text.assemble(("known ", "yellow"), f"{title_of(finding)}: {finding.message}")
        for finding in check.warnings:
            hint = f". Remedy: {finding.hint}" if finding.hint else ""
            yield Text.assemble(
                ("warning ", "yellow"),
                f"{title_of(finding)}: {finding.message.removesuffix('.')}{hint}",
            )


KINK = (
    "at a kink the slopes on both sides differ: backward passes with either of them, or with one "
    "between"
)
OPEN = (
    "undecided elements could not be judged: the error bar is wider than the tolerance, or the "
    "function steps or is not finite there"
)
FEW = "; a check passes with at most one in 10,000 of them (or a single one)"
FEW_LINES = "; a check passes with at most one in 10,000 of them"

NAMED = 8  # codes in a row that somebody reads
STATUS = {"ran": "ran", "not_applicable": "not applicable", "ignored": "ignored"}


def details(
    check: CaseResult, look: Look, indent: int, origins: Mapping[str, str] | None = None
) -> Iterator[RenderableType]:
    """Return the settings. `origins`: setting → the place that gave it; if it is given, defaults
    are omitted."""
    yield from (
        indented(Text(line, style="dim"), indent, look) for line in _lines(check, look, origins)
    )


def _lines(check: CaseResult, look: Look, origins: Mapping[str, str] | None) -> Iterator[str]:
    settings = _settings(check, origins)
    if settings:
        yield f"settings: {settings}"
    if check.mode:
        yield f"mode: {check.mode}" + (f", {check.mode_reason}" if check.mode_reason else "")
    if check.could_miss:
        yield f"could miss: {check.could_miss}"
    yield from (_comparison(comparison, look) for comparison in check.comparisons)
    yield from _open_words(check)
    # Ignored rules without a reason of their own share one line, which names them if they are few
    rules = sorted(check.rules, key=lambda rule: rule.code)
    silent = [rule.code for rule in rules if rule.status == "ignored" and not rule.reason]
    yield from (_rule(rule) for rule in rules if rule.code not in silent)
    if silent:
        yield f"ignored: {', '.join(silent) if len(silent) <= NAMED else 'all other rules'}"
    if check.changed:
        yield (
            f"the check {', '.join(check.changed)}: that was put back, or no other check ran in "
            "its process"
        )
    if check.was_run:
        held = (
            f", at most {check.device_memory / 2**20:,.1f} MiB on {check.device}"
            if check.device_memory is not None
            else ""
        )
        yield f"in all: {_calls(check.calls)}, {seconds(check.seconds)}{held}"


def _settings(check: CaseResult, origins: Mapping[str, str] | None) -> str:
    if origins is None:
        return ", ".join(
            f"{name} {_value(value)}" for name, value in check.settings.items() if value is not None
        )
    named = {name: value for name, value in check.settings.items() if name in origins}
    return ", ".join(f"{name} {_value(value)} ({origins[name]})" for name, value in named.items())


def _value(value: Json) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_value(item)}" for name, item in value.items())
    return (
        ", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)
    )


def _comparison(comparison: Comparison, look: Look) -> str:
    y = output(comparison.output, comparison.output_name)
    pair = f"{comparison.input} {look.glyphs.arrow} {y}" if comparison.input else y
    counts = {
        "wrong": comparison.mismatched,
        "at a kink": comparison.kinks,
        "undecided": comparison.undecided,
        "non-finite": comparison.non_finite,
    }
    parts = [
        counted(comparison.elements, (comparison.lines or "elements")[:-1]),
        *(f"{count:,} {what}" for what, count in counts.items() if count),
    ]
    # If all lines pass, no element was examined
    if comparison.worst or not comparison.lines:
        parts.append(
            f"largest error {error(comparison.max_abs_error)} absolute, "
            f"{error(comparison.max_rel_error)} relative"
        )
    parts += filter(None, [sensitivity([comparison]) if not comparison.mismatched else ""])
    nearest = comparison.worst[0] if comparison.worst else None
    if nearest and nearest.outcome == "pass":
        parts.append(
            f"the nearest at {ratio(nearest.abs_error, nearest.tolerance)} of its tolerance"
        )
    if comparison.row_groups and not comparison.groups:
        parts.append(counted(comparison.row_groups, "row group"))
    if comparison.groups:
        rows = (
            f" and {counted(comparison.row_groups, 'row group')}" if comparison.row_groups else ""
        )
        parts.append(f"{counted(comparison.groups, 'column group')}{rows}")
    return f"{comparison.rule} {pair}: {', '.join(parts)}"


def _rule(rule: RuleRun) -> str:
    calls = f", {_calls(rule.calls)}" if rule.status == "ran" and rule.calls != Calls() else ""
    return f"{rule.code} {STATUS[rule.status]}{calls}" + (f": {rule.reason}" if rule.reason else "")


def _calls(calls: Calls) -> str:
    return f"{calls.forward} forward, {calls.backward} backward"


def _open_words(check: CaseResult) -> Iterator[str]:
    """Return the meaning of the counts of elements that are neither right nor wrong, if there are
    any."""
    if any(comparison.kinks for comparison in check.comparisons):
        yield KINK
    if any(comparison.undecided + comparison.non_finite for comparison in check.comparisons):
        few = FEW_LINES if any(comparison.lines for comparison in check.comparisons) else FEW
        yield OPEN + (few if check.verdict == "pass" else "")
