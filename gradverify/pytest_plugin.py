"""The pytest plugin, which collects specs as tests. It imports nothing heavy until pytest finds a
spec; `-p no:gradverify` disables it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
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
"""Marks by which pytest itself decides the outcome of a test; tags of these names are not added as
marks."""


class Wrong(Exception):  # noqa: N818 - its text is the whole failure
    """Raised for a check that is not as expected; the message is the text that a terminal shows."""


class NotDecided(pytest.PytestWarning):
    """Warning for a check that could not be decided, and does not fail for that."""


GATE: pytest.StashKey[Gate] = pytest.StashKey()
RECORDING = pytest.StashKey[ExitStack]()


# ---- Hooks
def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradverify", "checks of gradients, from YAML specs")
    group.addoption(
        "--gradverify-isolate",
        action="store_true",
        help="run each check in a worker process: a crash or a hang costs that check alone",
    )
    group.addoption(
        "--gradverify-record",
        metavar="DIR",
        help="write specs there for the autograd Functions and operators that the tests call",
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
    undecided = config.getini("gradverify_undecided")
    if undecided not in ("", "warn", "fail"):
        raise pytest.UsageError(f"gradverify_undecided: {undecided!r} must be warn or fail")
    # The workers of pytest-xdist record by the environment
    if config.getoption("gradverify_record") and not hasattr(config, "workerinput"):
        from gradverify import record

        config.stash[RECORDING] = ExitStack()
        config.stash[RECORDING].enter_context(record(config.getoption("gradverify_record")))


def pytest_unconfigure(config: pytest.Config) -> None:
    if RECORDING in config.stash:
        config.stash[RECORDING].close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of a spec: a file that matches `gradverify_files`, or one given on the
    command line that is a spec by its content."""
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


# ---- Collection
class SpecFile(pytest.File):
    """The collector of a spec; its tests are the checks, with `matrix` expanded."""

    def collect(self) -> Iterable[pytest.Item]:
        from gradverify.cli.baseline import opened
        from gradverify.cli.gather import gather, project_here, sound
        from gradverify.cli.options import Options, configured
        from gradverify.model.problem import ProblemsError
        from gradverify.report.names import inert

        try:
            found = sound(gather([os.path.relpath(self.path)]))
            kept = opened(configured(Options(), project_here()), found)
        except ProblemsError as error:
            raise self.CollectError(inert(str(error))) from None
        gate = replace(_gate(self.config), baseline=kept.rule if kept else None)
        for case in found.cases:
            yield CheckItem.from_parent(self, name=case.name, case=case, gate=gate)


class CheckItem(pytest.Item):
    """The test of one check. Its tags are marks, except those that pytest acts on or that cannot be
    marks; `-k` finds all tags."""

    def __init__(self, *, case: Case, gate: Gate, **rest: Any) -> None:
        super().__init__(**rest)
        self.case, self.gate = case, gate
        self.add_marker(MARK)
        self.extra_keyword_matches.update(case.tags)
        for tag in case.tags:
            if tag not in ACTED_ON and not tag.startswith("_"):
                self.config.addinivalue_line("markers", f"{tag}: a tag of gradverify specs")
                self.add_marker(tag)

    def runtest(self) -> None:
        from gradverify.cli.gather import named
        from gradverify.direct import GradverifyWarning, warned
        from gradverify.model.report import judged

        result = judged(named(_running(self.config).result(self.case)), self.gate)
        self.user_properties += _properties(result)
        if result.verdict == "skip" and result.ok:
            raise pytest.skip.Exception(result.reason or "skipped", _use_item_location=True)
        if not result.ok:
            raise Wrong(_text(result))
        if result.baselined:
            pytest.xfail(f"known, by the baseline: {_codes(result)}")
        if result.expect != "pass" and not (result.verdict == "pass" and result.not_judged):
            pytest.xfail(f"as expected: {_codes(result)}")
        for text in warned(result):
            self.warn(GradverifyWarning(f"{result.id}: {text}"))
        if result.verdict == "undecided":
            self.warn(NotDecided(f"{result.id}: {result.reason}"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Wrong):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.spec.line - 1, self.name


def _gate(config: pytest.Config) -> Gate:
    """Return the gate: by pytest's configuration, else the project's `[tool.gradverify]`, else
    `CI`."""
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
    """Return the text of a failure: one line, which pytest repeats at the end, then the text that a
    terminal shows."""
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
    """Yield the properties for JUnit files."""
    yield "verdict", result.verdict
    yield "calls", result.calls.forward + result.calls.backward
    if result.comparisons:
        yield "elements", sum(each.elements for each in result.comparisons)
        yield "max_abs_error", max(each.max_abs_error for each in result.comparisons)


# ---- Running
class Running:
    """The runner of a session's checks. `signals` are handled while a check runs; between checks
    pytest handles them."""

    def __init__(self, crew: Crew, signals: Signals | None = None) -> None:
        self._crew, self._signals = crew, signals

    def result(self, case: Case) -> CaseResult:
        """Run one check and return its result, a skip if it cannot run here. Raises
        KeyboardInterrupt at a signal that ends the run, Wrong if no worker can start."""
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
