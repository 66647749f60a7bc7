"""The kinds of report: each is a module of this folder with `render(report) -> str`, imported when
it is needed."""

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
    """A kind of report, rendered by the module of gradverify.report with its name. `suffixes`: a
    path that ends in one of them means this kind. `book`: it shows pages of rules. `file`:
    `--report` can write it; a kind that it cannot belongs on stdout, among other text."""

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
"""The kinds in the order in which they are listed. Several kinds are JSON, so `.json` alone means
none of them."""

NAMES = tuple(kind.name for kind in KINDS if kind.file)


def renderer(name: str, book: Callable[[], Sequence[RuleInfo]] = tuple, **options: int) -> Render:
    """Return the pure function that renders a report (of a run, or read from a JSON report) as this
    kind. Raises KeyError for an unknown name.

    `book` returns the rules (`rules.catalogue.rules`, which this layer may not import), for kinds
    that show their pages; `options`: those of the kind's module.
    """
    kind = {kind.name: kind for kind in KINDS}[name]
    render: Callable[..., str] = import_module(f"gradverify.report.{name}").render
    return partial(render, **({"book": book()} if kind.book else {}), **options)


def meant_by(path: PurePath) -> str | None:
    """Return the kind that the name of a file means; None if it means none."""
    return next(
        (
            kind.name
            for kind in KINDS
            for suffix in kind.suffixes
            if path.name.lower().endswith(suffix)
        ),
        None,
    )
