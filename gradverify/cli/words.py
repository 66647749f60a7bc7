"""Results in the words of this command line: files as a person names them, and the option that makes a skip count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gradverify.model.event import CheckFinished, Event
from gradverify.model.paths import shown_path
from gradverify.model.report import Gate
from gradverify.model.result import CaseResult, Finding


def worded(events: Iterable[Event], gate: Gate, names: Mapping[str, str]) -> Iterator[Event]:
    """The events; what results say is reworded. `names`: functions in files, as they are looked up (absolute paths) → as a person names them."""
    for event in events:
        yield CheckFinished(_gated(named(event.result, names), gate)) if isinstance(event, CheckFinished) else event


def _gated(result: CaseResult, gate: Gate) -> CaseResult:
    if result.verdict != "skip":
        return result
    if result.missing in gate.require_device:
        return replace(result, reason=f"{result.reason}, required by --require-device {result.missing}")
    return replace(result, reason=f"{result.reason}; --fail-on-skip allows no skip") if gate.fail_on_skip else result


def named(result: CaseResult, names: Mapping[str, str]) -> CaseResult:
    function = replace(result.function, target=names.get(result.function.target, result.function.target))
    findings = tuple(_renamed(finding, names) for finding in result.findings)
    return replace(result, function=function, findings=findings, reason=in_words(result.reason, names),
                   repeats=tuple(replace(each, reason=in_words(each.reason, names)) for each in result.repeats))


def _renamed(finding: Finding, names: Mapping[str, str]) -> Finding:
    frames = tuple(replace(frame, file=shown_path(frame.file)) for frame in finding.frames)
    return replace(finding, message=in_words(finding.message, names) or "", hint=in_words(finding.hint, names), frames=frames)


def in_words(text: str | None, names: Mapping[str, str]) -> str | None:
    """Whole names only: `act.py:Swish` is not the beginning of `act.py:Swishes`."""
    for target, name in names.items():
        text = re.sub(rf"{re.escape(target)}(?!\w)", lambda _, name=name: name, text) if text else text  # type: ignore[misc]
    return text
