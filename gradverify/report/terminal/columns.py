"""The columns right of the names: the widest arrangement that fits beside the longest name of a run, so that all of its lines align."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.report.look import Look
from gradverify.report.terminal.status import WORD_WIDTH

GAP = 2
COUNT, NOUN = 6, len(" elements")
CALLS, SECONDS = 5 + len(" calls"), len("1234.5 s") - 1
SHORT_WORD = len("XPASS") + 1
"""All verdicts but the rare UNDECIDED and NOT RUN, which move their own name to the right."""

SENTENCE, TITLE, CODES = len("would catch any absolute error above 3.1e-10"), len("nothing to compare"), len("GV101, GV111")
"""Widths of the phrase: the sentence on a pass, which else stands below; a code with its name; two codes."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`word`, `name` and `phrase` are widths; calls and seconds are left out where there is no room for them."""

    word: int
    phrase: int
    calls: bool = True
    seconds: bool = True
    name: int = 0

    @property
    def to_phrase(self) -> int:
        """From the beginning of the name to the beginning of the phrase."""
        return self.name + GAP + COUNT + NOUN + GAP

    @property
    def width(self) -> int:
        """Of the whole line."""
        return self.word + self.to_phrase + self.phrase + self.calls * (GAP + CALLS) + self.seconds * (GAP + SECONDS)


FORMS = (
    Columns(WORD_WIDTH + GAP, SENTENCE), Columns(SHORT_WORD, SENTENCE),
    Columns(WORD_WIDTH + GAP, SENTENCE, calls=False), Columns(SHORT_WORD, SENTENCE, calls=False),
    Columns(WORD_WIDTH + GAP, TITLE), Columns(WORD_WIDTH + GAP, CODES), Columns(SHORT_WORD, CODES),
    Columns(SHORT_WORD, CODES, calls=False), Columns(SHORT_WORD, CODES, calls=False, seconds=False))


def fitted(name_width: int, look: Look) -> Columns:
    """The first form that fits; in the narrowest one the names get what is left."""
    form = next((form for form in FORMS if form.width + name_width <= look.columns), FORMS[-1])
    return Columns(form.word, form.phrase, form.calls, form.seconds, min(name_width, look.columns - form.width))
