"""What to say where a selection leaves no check: the word that occurs nowhere, and its nearest neighbour."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gradverify.model.case import Case

LOGIC = ("and", "or", "not")


def nothing_selected(cases: Sequence[Case], keyword: str | None, tags: str | None) -> str | None:
    """A sentence about the first option that no case fits by itself; None where there was nothing to select from, or nothing was asked."""
    from gradverify.running.select import select

    if not cases or not (keyword or tags):
        return None
    if keyword and not select(cases, keyword=keyword):
        return f"-k {keyword!r} fits none of {_count(cases)}{_hint(keyword, _words(cases), _in_an_id(cases))}"
    if tags and not select(cases, tags=tags):
        return f"-m {tags!r} fits none of {_count(cases)}{_hint(tags, _tags(cases), _a_tag(cases))}"
    return f"-k {keyword!r} and -m {tags!r} together fit none of {_count(cases)}"


def _count(cases: Sequence[Case]) -> str:
    from gradverify.report.numbers import counted

    return counted(len(cases), "check")


def _hint(asked: str, known: Iterable[str], occurs: Callable[[str], bool]) -> str:
    from gradverify.spec.fault import nearest

    known = tuple(dict.fromkeys(known))
    unknown = [word for word in re.split(r"[\s()]+", asked) if word and word not in LOGIC and not occurs(word)]
    near = next((name for name in (nearest(word, known) for word in unknown) if name), None)
    return f"; did you mean {near!r}?" if near else ""


def _words(cases: Sequence[Case]) -> list[str]:
    """Names of checks, and the words that paths and names are made of."""
    return [word for case in cases for word in (case.check, *re.findall(r"\w+", case.id))]


def _in_an_id(cases: Sequence[Case]) -> Callable[[str], bool]:
    return lambda word: any(word.lower() in case.id.lower() for case in cases)


def _tags(cases: Sequence[Case]) -> list[str]:
    return [tag for case in cases for tag in case.tags]


def _a_tag(cases: Sequence[Case]) -> Callable[[str], bool]:
    return lambda word: any(word in case.tags for case in cases)
