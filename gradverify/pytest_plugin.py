"""The pytest plugin: specs are collected as tests. It imports nothing heavy until pytest meets a
spec; `-p no:gradverify` switches it off."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradverify.model.case import Case
    from gradverify.model.report import Gate
    from gradverify.model.result import CaseResult
    from gradverify.running.schedule import Crew
    from gradverify.running.signals import Signals

SUFFIXES = (".yaml", ".yml", ".json")
FILES = ("*.gradverify.yaml", "*.gradverify.yml")
MARK = "gradverify"
ACTED_ON = ("skip", "skipif", "xfail")
"""Marks by which pytest itself decides what comes of a test: a tag of that name is no word to
it."""


class Wrong(Exception):  # noqa: N818 - its text is the whole failure
    """A check that is not as expected; the text is what a terminal shows of it."""


class NotDecided(pytest.PytestWarning):
    """A check that could not be decided, and is not to fail for that."""


GATE: pytest.StashKey[Gate] = pytest.StashKey()


# ---- hooks
def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradverify", "checks of gradients, from YAML specs")
    group.addoption(
        "--gradverify-isolate",
        action="store_true",
        help="run each check in a worker process: a crash or a hang costs that check alone",
    )
    parser.addini(
        "gradverify_files",
        "spec files that are collected (globs of names or of paths below the root)",
        type="args",
        default=list(FILES),
    )
    parser.addini(
        "gradverify_undecided",
        "what an undecided check is: warn or fail (default: what [tool.gradverify] says, else "
        "fail where CI is set)",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: a check of gradients, from a spec")
    said = config.getini("gradverify_undecided")
    if said not in ("", "warn", "fail"):
        raise pytest.UsageError(f"gradverify_undecided: {said!r} must be warn or fail")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A spec: matched by `gradverify_files`, or named on the command line and a spec by its first
    key."""
    if file_path.suffix.lower() not in SUFFIXES:
        return None
    root = parent.config.rootpath
    below = file_path.relative_to(root) if file_path.is_relative_to(root) else Path(file_path.name)
    if not any(below.match(pattern) for pattern in parent.config.getini("gradverify_files")):
        if not parent.session.isinitpath(file_path):
            return None
        from gradverify.spec.walk import is_spec

        if not is_spec(file_path):
            return None
    spec: pytest.Collector = SpecFile.from_parent(parent, path=file_path)
    return spec


def pytest_sessionfinish(session: pytest.Session) -> None:
    found = session.config.stash.get(RUNNING, None)
    if found is not None:
        found.close()


# ---- collection
class SpecFile(pytest.File):
    """A spec; its tests are its checks, `matrix` expanded."""

    def collect(self) -> Iterable[pytest.Item]:
        from gradverify.cli.gather import gather
        from gradverify.report.names import inert

        found = gather([os.path.relpath(self.path)])
        if found.problems:
            raise self.CollectError(inert("\n".join(str(problem) for problem in found.problems)))
        for case in found.cases:
            yield CheckItem.from_parent(self, name=case.name, case=case)


class CheckItem(pytest.Item):
    """One check. Its tags are marks, but for those that pytest acts on or cannot have as marks;
    `-k` finds all of them."""

    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case
        self.add_marker(MARK)
        self.extra_keyword_matches.update(case.tags)
        for tag in case.tags:
            if tag not in ACTED_ON and not tag.startswith("_"):
                self.config.addinivalue_line("markers", f"{tag}: a tag of gradverify specs")
                self.add_marker(tag)

    def runtest(self) -> None:
        from gradverify.cli.gather import named
        from gradverify.model.report import judged

        gate = _gate(self.config)
        result = judged(named(_running(self.config).result(self.case)), gate)
        self.user_properties += _properties(result)
        if result.verdict == "skip" and result.ok:
            raise pytest.skip.Exception(result.reason or "skipped", _use_item_location=True)
        if not result.ok:
            raise Wrong(_text(result))
        if result.expect != "pass" and not (result.verdict == "pass" and result.not_judged):
            pytest.xfail(f"as expected: {_codes(result)}")
        if result.verdict == "undecided":
            self.warn(NotDecided(f"{result.id}: {result.reason}"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Wrong):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.spec.line - 1, self.name


def _gate(config: pytest.Config) -> Gate:
    """What pytest's own configuration says, then the project's `[tool.gradverify]`, then `CI`."""
    from gradverify.api import gate_of
    from gradverify.cli.gather import project_here
    from gradverify.cli.output import is_set

    if GATE not in config.stash:
        project = {"undecided": "fail" if is_set(os.environ, "CI") else "warn"} | dict(
            project_here().options
        )
        config.stash[GATE] = gate_of(project, config.getini("gradverify_undecided") or None)
    return config.stash[GATE]


def _text(result: CaseResult) -> str:
    """What it comes to in one line, which pytest repeats at the end; then what a terminal shows."""
    from gradverify.direct import headline
    from gradverify.report.names import inert, readable
    from gradverify.report.plain import panel_text
    from gradverify.report.terminal.status import broken_expectation

    shown = readable(result)
    first = broken_expectation(shown) or headline(shown)
    return inert("\n".join([first.split("\n")[0], panel_text(shown, ("check",))]))


def _codes(result: CaseResult) -> str:
    return ", ".join(dict.fromkeys(finding.code for finding in result.errors))


def _properties(result: CaseResult) -> Iterator[tuple[str, Any]]:
    """For JUnit files."""
    yield "verdict", result.verdict
    yield "calls", result.calls.forward + result.calls.backward
    if result.comparisons:
        yield "elements", sum(each.elements for each in result.comparisons)
        yield "max_abs_error", max(each.max_abs_error for each in result.comparisons)


# ---- running
class Running:
    """Who runs checks in this session. `signals` are heard while a check runs; between checks they
    are pytest's."""

    def __init__(self, crew: Crew, signals: Signals | None = None) -> None:
        self._crew, self._signals = crew, signals

    def result(self, case: Case) -> CaseResult:
        """Of one check; a skip where it cannot run here. Raises KeyboardInterrupt where the run was
        told to end, Wrong where no worker can start."""
        from gradverify.model.event import CheckFinished
        from gradverify.model.problem import ProblemsError
        from gradverify.running.inline import placed, skipped
        from gradverify.running.signals import Stopped

        try:
            with self._signals.during() if self._signals else nullcontext():
                machine = self._crew.machine() if case.skip is None else None
                lacking = skipped(case, machine)
                if lacking is not None:
                    return lacking
                *_, last = self._crew.run([placed(case, machine)])
        except Stopped as error:
            raise KeyboardInterrupt from error
        except ProblemsError as error:
            raise Wrong(str(error)) from None
        assert isinstance(last, CheckFinished)
        return last.result

    def close(self) -> None:
        self._crew.close()
        if self._signals is not None:
            self._signals.close()


RUNNING = pytest.StashKey[Running]()


def _running(config: pytest.Config) -> Running:
    from gradverify.running.schedule import Here, Workers
    from gradverify.running.signals import Signals

    if RUNNING not in config.stash:
        signals = Signals() if config.getoption("gradverify_isolate") else None
        config.stash[RUNNING] = Running(Workers(signals=signals) if signals else Here(), signals)
    return config.stash[RUNNING]
