"""The kinds of report a run can leave: each is a module of this folder with `render(report) -> str`, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import Any

from gradverify.model.event import Event
from gradverify.model.report import Gate, Report
from gradverify.report.look import Page

Render = Callable[[Report], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """`module` of gradverify.report renders it; a path that ends in one of `suffixes` can mean nothing else. `book`: it shows pages of rules.

    `streamed`: its module says each event in a `line` too, and the `last_line`: it is written while the run goes on. `file`: `--report` may ask for
    it; what may not stands on stdout, among other text.
    """

    name: str
    module: str
    suffixes: tuple[str, ...] = ()
    book: bool = False
    pictures: bool = False      # it shows those of failing checks, which cost calls
    streamed: bool = False
    file: bool = True


KINDS = (
    Kind("json", "json"),
    Kind("jsonl", "jsonl", (".jsonl",), streamed=True),
    Kind("junit", "junit", (".xml",)),
    Kind("sarif", "sarif", (".sarif",), book=True),
    Kind("markdown", "markdown", (".md",)),
    Kind("html", "html.page", (".html", ".htm"), pictures=True),
    Kind("gitlab", "gitlab"),
    Kind("github", "github", file=False),
)
"""In the order in which they are listed. Several kinds are JSON: `.json` alone tells none of them."""

NAMES = tuple(kind.name for kind in KINDS if kind.file)
STREAMED = tuple(kind.name for kind in KINDS if kind.streamed)


def renderer(name: str, book: Callable[[], Sequence[Page]] = tuple, **options: int) -> Render:
    """The function of a kind: pure, of a report (of a run, or read from a JSON report). Raises KeyError for a name that is none.

    `book` gives the rules (`rules.catalogue.rules`, which this floor does not know), for kinds that show their pages; `options` are its module's own.
    """
    kind = {kind.name: kind for kind in KINDS}[name]
    render: Callable[..., str] = _module(kind.module).render
    return partial(render, **({"book": book()} if kind.book else {}), **options)


def lines(name: str) -> tuple[Callable[[Event, Gate, str], str], Callable[[Report], str]]:
    """Of a streamed kind: the text of one event (of this version of gradverify), and the last one of a report."""
    module = _module({kind.name: kind for kind in KINDS if kind.streamed}[name].module)
    return module.line, module.last_line


def _module(name: str) -> Any:
    return import_module(f"gradverify.report.{name}")


def pictured(names: Iterable[str]) -> bool:
    """Does any of these kinds show pictures of failing checks?"""
    wanted = set(names)
    return any(kind.pictures and kind.name in wanted for kind in KINDS)


def meant_by(path: PurePath) -> str | None:
    """The kind that a file's name alone tells; None where it tells none."""
    return next((kind.name for kind in KINDS for suffix in kind.suffixes if path.name.lower().endswith(suffix)), None)
