"""GitHub's workflow commands: annotations at the lines to change."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from gradverify.model.report import Report
from gradverify.report.names import readable
from gradverify.report.numbers import counted
from gradverify.report.troubles import Trouble, title, troubles

MOST = 10
"""The number of annotations of one kind that GitHub shows for a step."""

LONGEST = 4000
"""Characters of a message; GitHub folds longer ones away, and the summary has everything."""

LONGEST_TITLE = 200  # GitHub's own limit is 255


def render(report: Report) -> str:
    """Return a line for each check with an error or warning, errors first; of more than ten, the
    first nine and a sentence for the rest."""
    found, others = _merged(troubles(readable(report)))
    each = {
        level: list(
            {
                id(trouble.check): trouble for trouble in reversed(found) if trouble.level == level
            }.values()
        )[::-1]
        for level in ("error", "warning")
    }
    shown = [
        *each["error"],
        *(
            trouble
            for trouble in each["warning"]
            if all(trouble.check is not other.check for other in each["error"])
        ),
    ]
    if len(shown) <= MOST:
        return "".join(_command(each, others[id(each)]) for each in shown)
    rest = shown[MOST - 1 :]
    level = rest[0].level
    return "".join(_command(each, others[id(each)]) for each in shown[: MOST - 1]) + (
        f"::{level} title=gradverify::and {counted(len(rest), 'more check')}: see the job summary\n"
    )


def _merged(found: Iterable[Trouble]) -> tuple[list[Trouble], dict[int, int]]:
    """Return the first trouble of each code at a line, and by its `id` how many more there are."""
    groups: dict[Hashable, list[Trouble]] = {}
    for each in found:
        what = (each.level, each.rule, each.place or each.check.id)
        groups.setdefault(what if each.finding else (*what, each.message), []).append(each)
    return [first for first, *_ in groups.values()], {
        id(first): len({each.check.id for each in rest} - {first.check.id})
        for first, *rest in groups.values()
    }


def _command(trouble: Trouble, others: int) -> str:
    place = trouble.place
    properties = {"file": place.file, "line": str(place.line or 1)} if place else {}
    more = f" and {counted(others, 'more check')}" if others else ""
    properties["title"] = _cut(f"{trouble.check.name}{more}: {title(trouble)}", LONGEST_TITLE)
    listed = ",".join(
        f"{name}={_data(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in properties.items()
    )
    return f"::{trouble.level} {listed}::{_data(_cut(trouble.message, LONGEST))}\n"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … cut, {len(text):,} characters"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
