"""Sentences for the report about the chosen mode of comparison (entries, rows or blocks): why it
was chosen, and which errors it could miss."""

from __future__ import annotations

from gradverify.numerics.choose import Against, Candidate, Choice, Cost, Mode, Why
from gradverify.numerics.screen import DIRECTIONS
from gradverify.report.numbers import duration, limit


def reason(choice: Choice) -> str:
    """Describe why this mode was chosen, with its predicted cost."""
    if not choice.left:
        return _why(choice)
    noun = choice.mode.lines[:-1] if choice.left == 1 else choice.mode.lines
    return (
        f"{_why(choice)} The budget ended before {choice.left} flagged {noun} could be followed to "
        "their elements."
    )


def could_miss(choice: Choice) -> str:
    """Describe the errors that a pass could miss."""
    share = f"with a chance of {{}} one of {100 * choice.relative:.0e}"
    if choice.mode is Mode.ENTRIES:
        return "Nothing above the tolerance of an element."
    if choice.mode is Mode.BLOCKS:
        few, stand_in = (
            ("4 in 100", "one random probe stands")
            if choice.probes == 1
            else ("5 in 100,000", f"{choice.probes} random probes stand")
        )
        return (
            f"{_below(choice)} block (one entry among very many), and {share.format(few)}: "
            f"{stand_in} for all elements."
        )
    return f"{_below(choice)} row: {DIRECTIONS} random directions stand for all inputs."


def _why(choice: Choice) -> str:
    if choice.why is Why.REQUESTED:
        return f"`mode: {choice.mode.value}` was asked for: {_calls(choice.cost)}."
    before = "; ".join(
        f"{_name(each)} would take {_timed(each.cost)}, {_why_not(against, choice)}"
        for each, against in choice.passed_over
    )
    if choice.why is Why.RAN_OUT:
        return (
            f"{before[:1].upper()}{before[1:]}. What is left is {_name(choice)}: "
            f"{_calls(choice.cost)}."
        )
    if choice.why is Why.NOTHING_FITS:
        return f"Nothing fits: {before}. The cheapest comparison is made all the same."
    if not before:
        return f"Every element is affordable: {_calls(choice.cost)}."
    return (
        f"{before[:1].upper()}{before[1:]}. The strongest that fits is {_name(choice)}: "
        f"{_calls(choice.cost)}."
    )


def _name(candidate: Candidate) -> str:
    if candidate.mode is Mode.BLOCKS and candidate.probes == 1:
        return "blocks by one probe"
    return candidate.mode.value


def _why_not(against: Against, choice: Choice) -> str:
    if against is Against.SLOWER:
        return f"slower than gradcheck with {_timed(choice.gradcheck)}"
    if against is Against.LONGER:
        return "and had not ended when the budget had"
    by_calls = against is Against.CALLS
    most = f"{choice.budget.calls:,} calls" if by_calls else limit(choice.budget.seconds or 0.0)
    return f"more than the budget of {most}"


def _calls(cost: Cost) -> str:
    return f"{cost.forward:,} forward and {cost.backward:,} backward calls"


def _timed(cost: Cost) -> str:
    """Format the cost with its seconds, which vary from run to run."""
    return f"{_calls(cost)}, about {duration(cost.seconds)}"


def _below(choice: Choice) -> str:
    return f"Could miss an entry wrong by less than about {choice.relative:.0e} of the norm of its"
