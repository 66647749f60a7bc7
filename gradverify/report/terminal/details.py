"""What `-v` adds below a check's line: settings, mode, what it could miss, each rule, each comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.case import Json
from gradverify.model.result import Calls, CaseResult, Comparison, RuleRun
from gradverify.report.look import Look
from gradverify.report.names import clean, one_line, output
from gradverify.report.numbers import counted, error, ratio, seconds
from gradverify.report.terminal.canvas import indented
from gradverify.report.terminal.line import by_a_fit, sensitivity

KINK = "at a kink the slopes on both sides differ: backward passes with either of them, or with one between"
OPEN = "undecided elements could not be judged: the error bar is wider than the tolerance, or the function steps or is not finite there"
FEW = "; a check passes with at most one in 10,000 of them (or a single one)"
FEW_LINES = "; a check passes with at most one in 10,000 of them"

NAMED = 8       # codes in a row that somebody reads
STATUS = {"ran": "ran", "not_applicable": "not applicable", "ignored": "ignored"}


def details(check: CaseResult, look: Look, indent: int, origins: Mapping[str, str] | None = None) -> Iterator[RenderableType]:
    """`origins`: setting → the place that named it; where it is known, what nobody named is left out."""
    yield from (indented(Text(line, style="dim"), indent, look) for line in _lines(check, look, origins))


def _lines(check: CaseResult, look: Look, origins: Mapping[str, str] | None) -> Iterator[str]:
    settings = _settings(check, origins)
    if settings:
        yield f"settings: {settings}"
    if check.mode:
        yield f"mode: {check.mode}" + (f", {clean(check.mode_reason)}" if check.mode_reason else "")
    if check.could_miss:
        yield f"could miss: {clean(check.could_miss)}"
    yield from (_comparison(comparison, look) for comparison in check.comparisons)
    yield from _open(check)
    yield from _rules(sorted(check.rules, key=lambda rule: rule.code))
    if check.changed:
        yield f"the check {', '.join(check.changed)}: that was put back, or no other check ran in its process"
    if check.verdict not in ("skip", "not_run"):
        held = f", at most {check.device_memory / 2**20:,.1f} MiB on {check.device}" if check.device_memory is not None else ""
        yield f"in all: {_calls(check.calls)}, {seconds(check.seconds)}{held}"


def _settings(check: CaseResult, origins: Mapping[str, str] | None) -> str:
    if origins is None:
        return ", ".join(f"{one_line(name)} {_value(value)}" for name, value in check.settings.items() if value is not None)
    named = {name: value for name, value in check.settings.items() if name in origins}
    return ", ".join(f"{one_line(name)} {_value(value)} ({one_line(origins[name])})" for name, value in named.items())


def _value(value: Json) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{one_line(str(name))}={_value(item)}" for name, item in value.items())
    return one_line(", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value))


def _comparison(comparison: Comparison, look: Look) -> str:
    y = output(comparison.output, comparison.output_name)
    pair = f"{one_line(comparison.input)} {look.glyphs.arrow} {y}" if comparison.input else y
    counts = {"wrong": comparison.mismatched, "at a kink": comparison.kinks, "undecided": comparison.undecided,
              "non-finite": comparison.non_finite}
    parts = [counted(comparison.elements, (comparison.lines or "elements")[:-1]), *(f"{count:,} {what}" for what, count in counts.items() if count)]
    if comparison.worst or not comparison.lines:        # of lines that all pass no element was looked at
        parts.append(f"largest error {error(comparison.max_abs_error)} absolute, {error(comparison.max_rel_error)} relative")
    parts += filter(None, [sensitivity([comparison]) if not comparison.mismatched else ""])
    nearest = comparison.worst[0] if comparison.worst else None
    if nearest and nearest.outcome == "pass":
        parts.append(f"the nearest at {ratio(nearest.abs_error, nearest.tolerance)} of its tolerance")
    parts += _own(comparison)
    if comparison.row_groups and not comparison.groups:
        parts.append(counted(comparison.row_groups, "row group"))
    if comparison.groups:
        rows = f" and {counted(comparison.row_groups, 'row group')}" if comparison.row_groups else ""
        parts.append(f"{counted(comparison.groups, 'column group')}{rows}")
    return f"{comparison.rule} {pair}: {', '.join(parts)}"


def _own(comparison: Comparison) -> Iterator[str]:
    """What torch's own derivative of forward says of it, where it was asked, and what a fit decided."""
    if comparison.fitted:
        yield by_a_fit((comparison,))
    if comparison.witnessed:
        yield f"{comparison.witnessed:,} by forward's own derivative"
    elif comparison.witness_apart == 0:
        yield "the same as forward's own derivative"
    elif comparison.witness_apart is not None:
        yield f"off by {error(comparison.witness_apart)} of a row from forward's own derivative"


def _rules(rules: Sequence[RuleRun]) -> Iterator[str]:
    """One line each; those that were ignored without a word of their own share one, which names them where they are few."""
    silent = [rule.code for rule in rules if rule.status == "ignored" and not rule.reason]
    yield from (_rule(rule) for rule in rules if rule.code not in silent)
    if silent:
        yield f"ignored: {', '.join(silent) if len(silent) <= NAMED else 'all other rules'}"


def _rule(rule: RuleRun) -> str:
    calls = f", {_calls(rule.calls)}" if rule.status == "ran" and rule.calls != Calls() else ""
    return f"{rule.code} {STATUS[rule.status]}{calls}" + (f": {clean(rule.reason)}" if rule.reason else "")


def _calls(calls: Calls) -> str:
    return f"{calls.forward} forward, {calls.backward} backward"


def _open(check: CaseResult) -> Iterator[str]:
    """What the counts of elements that were neither right nor wrong mean, where there are any."""
    if any(comparison.kinks for comparison in check.comparisons):
        yield KINK
    if any(comparison.undecided + comparison.non_finite for comparison in check.comparisons):
        few = FEW_LINES if any(comparison.lines for comparison in check.comparisons) else FEW
        yield OPEN + (few if check.verdict == "pass" else "")
