"""Run specs from Python. Nothing is printed, nothing exits, and the caller's process is not
changed: checks run in other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gradverify.model.event import Selection
from gradverify.model.problem import ProblemsError
from gradverify.model.report import Gate, Report

StrPath = str | os.PathLike[str]


def run(
    paths: StrPath | Iterable[StrPath] = (),
    *,
    executor: Executor | None = None,
    jobs: int | Literal["auto"] | None = None,
    keyword: str | None = None,
    tags: str | None = None,
    timeout: float | None = None,
    undecided: Literal["warn", "fail"] | None = None,
    fail_on_skip: bool | None = None,
    require_device: Sequence[str] | None = None,
    **settings: Any,
) -> Report:
    """Run the checks that `gradverify check` would run, and return their report: `.ok`,
    `.exit_code`, `.checks`, `.to_json()`.

    `paths` (none: as on the command line), `keyword`, `tags`, `jobs`, the limits (seconds) and the
    gate are those of `gradverify check`; None: the value of `[tool.gradverify]`, else one job and
    "warn". `settings`: those of a spec (`eps=1e-6`, `dtype="float32"`, `select=["GV1"]`), which
    override the specs. `executor`: any `concurrent.futures.Executor`, to which each check is
    submitted, in place of `jobs` worker processes; it is not shut down.

    Raises ProblemsError with all problems of the specs, the configuration and the arguments, before
    anything runs.
    """
    from gradverify.cli import values
    from gradverify.cli.gather import gather, named, project_here, sound, with_torch
    from gradverify.running.schedule import Request, distributed, hosted
    from gradverify.running.select import select

    given = [
        os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)
    ]
    project = project_here()
    gate = gate_of(project.options, undecided, fail_on_skip, require_device)
    processes = project.options.get("jobs") if jobs is None else jobs
    limits = values.settled(
        (name, None if limit is None else str(limit), read)
        for name, limit, read in (
            ("jobs", processes, values.jobs),
            ("timeout", timeout, values.duration),
        )
    )
    gathered = sound(gather(given, settings, project, origin="run()"))
    cases = select(gathered.cases, keyword=keyword, tags=tags, options=("keyword", "tags"))
    gate_options = {
        "undecided": undecided,
        "fail-on-skip": fail_on_skip,
        "require-device": require_device or None,
    }
    selection = Selection(tuple(given), keyword, tags, gathered.written - len(cases))
    request = Request(
        cases,
        str(Path.cwd()),
        tuple(_command(given, settings | gate_options)),
        selection,
        gate,
        **dict(limits),
    )
    if executor is None:
        with_torch(cases)
    report = hosted(request) if executor is None else distributed(request, executor)
    return replace(report, checks=tuple(named(check) for check in report.checks))


def gate_of(
    configured: Mapping[str, Any],
    undecided: str | None,
    fail_on_skip: bool | None = None,
    require_device: Sequence[str] | None = None,
) -> Gate:
    """Return the gate of the arguments, else of the project. Raises ProblemsError."""
    from gradverify.cli import values

    devices = tuple(
        configured.get("require-device", ()) if require_device is None else require_device
    )
    word = undecided or configured.get("undecided", "warn")
    values.settled(
        [
            ("undecided", word, values.one_of(values.UNDECIDED)),
            *(("require_device", device, values.device) for device in devices),
        ]
    )
    skips = configured.get("fail-on-skip", False) if fail_on_skip is None else fail_on_skip
    return Gate("fail" if word == "fail" else "warn", skips, devices)


def _command(paths: Sequence[str], settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of the equivalent command line, for a reader of the report to copy."""
    from gradverify.report.reproduce import FLAGS, WITH_VALUE

    yield from ("check", *paths)
    for name, value in settings.items():
        option = f"--{name}"
        if value is None:
            continue
        if option in FLAGS and value:
            yield option
        elif option in WITH_VALUE:
            joined = ",".join(value) if isinstance(value, (list, tuple, set)) else str(value)
            for each in value if name == "require-device" else [joined]:
                yield from (option, each)


__all__ = ["ProblemsError", "Report", "run"]
