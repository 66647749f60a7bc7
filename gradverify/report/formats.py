"""The kinds of report a run can leave: each is a module of this folder with `render(report) ->
str`, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import PurePath

from gradverify.model.report import Report
from gradverify.model.rule import RuleInfo

Render = Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """The module of gradverify.report with its name renders it; a path that ends in one of
    `suffixes` can mean nothing else. `book`: it shows pages of rules. `file`: `--report` may ask
    for it; what may not belongs on stdout, among other text."""

    name: str
    suffixes: tuple[str, ...] = ()
    book: bool = False
    file: bool = True


KINDS = (
    Kind("json"),
    Kind("jsonl", (".jsonl",)),
    Kind("junit", (".xml",)),
    Kind("sarif", (".sarif",), book=True),
    Kind("markdown", (".md",)),
    Kind("html", (".html", ".htm")),
    Kind("gitlab"),
    Kind("github", file=False),
)
"""In the order in which they are listed. Several kinds are JSON: `.json` alone tells none of
them."""

NAMES = tuple(kind.name for kind in KINDS if kind.file)


def renderer(name: str, book: Callable[[], Sequence[RuleInfo]] = tuple, **options: int) -> Render:
    """The function of a kind: pure, of a report (of a run, or read from a JSON report). Raises
    KeyError for a name that is none.

    `book` gives the rules (`rules.catalogue.rules`, which this floor does not know), for kinds that
    show their pages; `options` are its module's own.
    """
    kind = {kind.name: kind for kind in KINDS}[name]
    render: Callable[..., str] = import_module(f"gradverify.report.{name}").render
    return partial(render, **({"book": book()} if kind.book else {}), **options)


def meant_by(path: PurePath) -> str | None:
    """The kind that a file's name alone tells; None where it tells none."""
    return next(
        (
            kind.name
            for kind in KINDS
            for suffix in kind.suffixes
            if path.name.lower().endswith(suffix)
        ),
        None,
    )
