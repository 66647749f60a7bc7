"""A check narrowed to the rules that compare gradients: the others look at the calls of a function, which damage leaves as they are."""

from __future__ import annotations

from dataclasses import replace

from gradverify.model.case import Settings
from gradverify.model.result import CaseResult
from gradverify.model.rule import Kills
from gradverify.rules.catalogue import rules
from gradverify.subject.subject import Subject


def codes(*kinds: Kills) -> tuple[str, ...]:
    """Of the rules that declare to judge one of these, those of each kind in a row."""
    return tuple(info.code for kind in kinds for info in rules() if info.kills == kind)


ELSEWHERE = codes("elsewhere")  # what backward returns at another point than the check's, against finite differences there
COMPARES = codes("values", "elsewhere")  # what it returns, against something else
REMEMBERS = codes("memory")  # ... and against what it returned before: for a state that is stale


def compared(settings: Settings) -> tuple[str, ...]:
    """The codes among COMPARES that a check looks for."""
    return tuple(code for code in COMPARES if _looked_for(code, settings))


def focused(subject: Subject, among: tuple[str, ...] = COMPARES) -> Subject:
    """A subject as fresh as the one that was prepared, whose check looks for no other rules than these."""
    settings = subject.case.settings
    codes = tuple(code for code in among if _looked_for(code, settings))
    case = replace(subject.case, settings=replace(settings, select=codes, ignore=()))
    twin = Subject(case, subject.target, subject.arguments, subject.kwargs)
    twin.writes = subject.writes
    return twin


def killed_by(result: CaseResult) -> str | None:
    """The code of the first error that says something is wrong."""
    return next((finding.code for finding in result.findings if finding.severity == "error" and finding.code in COMPARES + REMEMBERS), None)


def _looked_for(code: str, settings: Settings) -> bool:
    return (not settings.select or code.startswith(settings.select)) and not (settings.ignore and code.startswith(settings.ignore))
