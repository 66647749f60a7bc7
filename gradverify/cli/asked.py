"""What was asked of `check`, as typed values: the layer of settings, the gate, the look."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gradverify.cli import values
from gradverify.cli.github import is_read_there
from gradverify.cli.output import Output
from gradverify.cli.reports import ReportFile, report_file
from gradverify.cli.terminal import is_set, is_watched, look, terminal
from gradverify.model.case import ASKED, Json
from gradverify.model.dtypes import FLOATING
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate
from gradverify.report.look import ROWS, Look

if TYPE_CHECKING:
    from gradverify.running.changes import Changes

CHECK_FORMATS = ("table", "plain", "json", "jsonl", "github")
FORMATS, COLORS, UNDECIDED = ("table", "plain", "json"), ("auto", "always", "never"), ("warn", "fail")


@dataclass(frozen=True)
class Asked:
    """The options of `check` as typed in, under the names of its parameters."""

    paths: Sequence[str] = ()
    eps: str | None = None
    atol: str | None = None
    rtol: str | None = None
    seed: str | None = None
    device: str | None = None
    dtype: str | None = None
    mode: str | None = None
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    strict: bool = False
    no_witness: bool = False
    witness: bool = False
    keyword: str | None = None
    tags: str | None = None
    last_failed: bool = False
    failed_first: bool = False
    changed_from: str | None = None
    shard: str | None = None
    exitfirst: bool = False
    maxfail: int | None = None
    jobs: str | None = None
    timeout: str | None = None
    import_timeout: str | None = None
    memory: str | None = None
    repeat: str | None = None
    no_isolate: bool = False
    undecided: str | None = None
    fail_on_skip: bool | None = None
    require_device: Sequence[str] = ()
    exit_zero: bool = False
    baseline: str | None = None
    baseline_update: bool = False
    baseline_prune: bool = False
    format: str | None = None
    report: Sequence[str] = ()
    save_failures: str | None = None
    max_rows: int | None = None
    durations: str | None = None
    verbose: int = 0
    quiet: bool = False
    color: str = "auto"
    width: int | None = None
    no_progress: bool = False
    changes: Changes | None = None      # of `hook`: they are handed over, not asked of git


@dataclass(frozen=True)
class Running:
    """How checks are run: `jobs` processes, limits in seconds (`timeout` None: each check's own) and bytes; `isolated`: not in this process."""

    jobs: int = 1
    timeout: float | None = None
    loading: float | None = None
    memory: int | None = None
    isolated: bool = True
    maxfail: int | None = None
    repeat: int = 1


@dataclass(frozen=True)
class Settled:
    """All of it, allowed and typed. `said` is the layer of settings over those of the specs; `format`: the one named, if any; `annotates`: plain
    text is to carry GitHub's workflow commands."""

    said: Mapping[str, Json]
    gate: Gate
    look: Look
    format: str | None
    annotates: bool
    reports: tuple[ReportFile, ...]
    progress: bool
    notes: bool
    running: Running
    shard: tuple[int, int] | None
    asked: Asked = field(repr=False)

    @property
    def as_json(self) -> bool:
        return self.format == "json"

    @property
    def for_programs(self) -> bool:
        """Does stdout carry nothing that a person reads?"""
        return self.format in ("json", "jsonl")


def shown_as(out: Output, format: str | None, color: str, width: int | None) -> Look:
    """The look of a command that runs no checks. Raises ProblemsError."""
    values.settled([("--format", format, values.one_of(FORMATS)), ("--color", color, values.one_of(COLORS))])
    return look(terminal(out.stdout), os.environ, format=format, color=color, asked_width=width)


def settle(asked: Asked, codes: Sequence[str], out: Output, environ: Mapping[str, str], formats: Sequence[str] = FORMATS) -> Settled:
    """Raises ProblemsError with everything that is not allowed. `formats`: those of the command."""
    read = values.each_settled(_readings(asked, codes, formats))
    typed = dict(read)
    said = {name: typed[f"--{name}"] for name in ("eps", "atol", "rtol", "seed", "device", "dtype", "mode") if f"--{name}" in typed}
    said |= {name: _joined(read, f"--{name}") for name in ("select", "ignore") if getattr(asked, name)}
    if asked.strict:
        said["strict"] = True
    if asked.no_witness or asked.witness:
        said["witness"] = False if asked.no_witness else "always"
    undecided = typed.get("--undecided", "fail" if is_set(environ, "CI") else "warn")
    shown = look(terminal(out.stdout), environ, format=asked.format, color=asked.color, asked_width=asked.width, max_rows=asked.max_rows or ROWS,
                 verbosity=-1 if asked.quiet else asked.verbose, slowest=typed.get("--durations"))
    return Settled(
        said, Gate(undecided, bool(asked.fail_on_skip), tuple(asked.require_device or ()), asked.exit_zero), shown, asked.format,
        is_read_there(asked.format, environ),
        tuple(file for option, file in read if option == "--report"),
        not asked.no_progress and not asked.quiet and is_watched(terminal(out.stderr), environ),
        not asked.quiet, _running(asked, typed), typed.get("--shard"), asked)


def _running(asked: Asked, typed: Mapping[str, Any]) -> Running:
    """Raises ProblemsError where limits are asked for that nobody could keep."""
    kept = [option for option in ("--jobs", "--timeout", "--import-timeout", "--memory") if option in typed]
    if asked.no_isolate and kept:
        raise ProblemsError([Problem(f"{kept[0]} needs worker processes: leave out --no-isolate")])
    return Running(typed.get("--jobs", 1), typed.get("--timeout"), typed.get("--import-timeout"), typed.get("--memory"), not asked.no_isolate,
                   1 if asked.exitfirst else asked.maxfail, typed.get("--repeat", 1))


def _readings(asked: Asked, codes: Sequence[str], formats: Sequence[str]) -> list[tuple[str, str | None, Callable[[str, str], Any]]]:
    plain: list[tuple[str, str | None, Callable[[str, str], Any]]] = [
        ("--eps", asked.eps, values.step), ("--atol", asked.atol, values.tolerance), ("--rtol", asked.rtol, values.tolerance),
        ("--seed", asked.seed, values.seed), ("--device", asked.device, values.device), ("--dtype", asked.dtype, values.one_of(FLOATING)),
        ("--mode", asked.mode, values.one_of(ASKED)), ("--undecided", asked.undecided, values.one_of(UNDECIDED)),
        ("--shard", asked.shard, values.part), ("--jobs", asked.jobs, values.jobs), ("--timeout", asked.timeout, values.duration),
        ("--import-timeout", asked.import_timeout, values.duration), ("--memory", asked.memory, values.size),
        ("--repeat", asked.repeat, values.count_from(1)), ("--durations", asked.durations, values.count_from(0)),
        ("--format", asked.format, values.one_of(formats)), ("--color", asked.color, values.one_of(COLORS))]
    codes_read = values.code_list(codes)
    return [*plain, *(_repeated("--select", asked.select, codes_read)), *(_repeated("--ignore", asked.ignore, codes_read)),
            *(_repeated("--report", asked.report, report_file)), *(_repeated("--require-device", asked.require_device, values.device))]


def _repeated(option: str, texts: Sequence[str] | None, read: Callable[[str, str], Any]) -> list[tuple[str, str | None, Callable[[str, str], Any]]]:
    """One reading for each time the option was given."""
    return [(option, text, read) for text in texts or ()]


def _joined(read: Sequence[tuple[str, Any]], option: str) -> list[str]:
    return [code for name, found in read if name == option for code in found]
