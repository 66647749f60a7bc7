"""What was asked of `check`, as typed values: the layer of settings, the gate, the look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradverify.cli import values
from gradverify.cli.output import Output
from gradverify.cli.terminal import is_set, is_watched, look, terminal
from gradverify.model.case import Json
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate
from gradverify.report.look import Look

FORMATS, COLORS, UNDECIDED, REPORTS = ("table", "plain", "json"), ("auto", "always", "never"), ("warn", "fail"), ("json",)


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
    keyword: str | None = None
    tags: str | None = None
    exitfirst: bool = False
    maxfail: int | None = None
    jobs: str | None = None
    timeout: str | None = None
    import_timeout: str | None = None
    memory: str | None = None
    no_isolate: bool = False
    undecided: str | None = None
    fail_on_skip: bool = False
    require_device: Sequence[str] = ()
    format: str | None = None
    report: Sequence[str] = ()
    max_rows: int = 10
    verbose: int = 0
    quiet: bool = False
    color: str = "auto"
    width: int | None = None
    no_progress: bool = False


@dataclass(frozen=True)
class Running:
    """How checks are run: `jobs` processes, limits in seconds (`timeout` None: each check's own) and bytes; `isolated`: not in this process."""

    jobs: int = 1
    timeout: float | None = None
    loading: float | None = None
    memory: int | None = None
    isolated: bool = True
    maxfail: int | None = None


@dataclass(frozen=True)
class Settled:
    """All of it, allowed and typed. `said` is the layer of settings over those of the specs."""

    said: Mapping[str, Json]
    gate: Gate
    look: Look
    as_json: bool
    reports: tuple[Path, ...]
    progress: bool
    notes: bool
    running: Running
    asked: Asked = field(repr=False)


def settle(asked: Asked, codes: Sequence[str], out: Output, environ: Mapping[str, str]) -> Settled:
    """Raises ProblemsError with everything that is not allowed."""
    typed = values.settled(_readings(asked, codes))
    said = {name: typed[f"--{name}"] for name in ("eps", "atol", "rtol", "seed", "device", "dtype", "mode") if f"--{name}" in typed}
    said |= {name: _joined(typed, f"--{name}") for name in ("select", "ignore") if getattr(asked, name)}
    if asked.strict:
        said["strict"] = True
    undecided = typed.get("--undecided", "fail" if is_set(environ, "CI") else "warn")
    shown = look(terminal(out.stdout), environ, format=asked.format, color=asked.color, asked_width=asked.width, max_rows=asked.max_rows,
                 verbosity=-1 if asked.quiet else asked.verbose)
    return Settled(
        said, Gate(undecided, asked.fail_on_skip, tuple(asked.require_device or ())), shown, asked.format == "json",
        tuple(path for key, path in typed.items() if key.startswith("--report")),
        not asked.no_progress and not asked.quiet and is_watched(terminal(out.stderr), environ),
        not asked.quiet, _running(asked, typed), asked)


def _running(asked: Asked, typed: Mapping[str, Any]) -> Running:
    """Raises ProblemsError where limits are asked for that nobody could keep."""
    kept = [option for option in ("--jobs", "--timeout", "--import-timeout", "--memory") if option in typed]
    if asked.no_isolate and kept:
        raise ProblemsError([Problem(f"{kept[0]} needs worker processes: leave out --no-isolate")])
    return Running(typed.get("--jobs", 1), typed.get("--timeout"), typed.get("--import-timeout"), typed.get("--memory"), not asked.no_isolate,
                   1 if asked.exitfirst else asked.maxfail)


def _readings(asked: Asked, codes: Sequence[str]) -> list[tuple[str, str | None, Callable[[str, str], Any]]]:
    plain: list[tuple[str, str | None, Callable[[str, str], Any]]] = [
        ("--eps", asked.eps, values.step), ("--atol", asked.atol, values.tolerance), ("--rtol", asked.rtol, values.tolerance),
        ("--seed", asked.seed, values.seed), ("--device", asked.device, values.device), ("--dtype", asked.dtype, values.one_of(values.DTYPES)),
        ("--mode", asked.mode, values.one_of(values.MODES)), ("--undecided", asked.undecided, values.one_of(UNDECIDED)),
        ("--jobs", asked.jobs, values.jobs), ("--timeout", asked.timeout, values.duration),
        ("--import-timeout", asked.import_timeout, values.duration), ("--memory", asked.memory, values.size),
        ("--format", asked.format, values.one_of(FORMATS)), ("--color", asked.color, values.one_of(COLORS))]
    codes_read = values.code_list(codes)
    return [*plain, *(_repeated("--select", asked.select, codes_read)), *(_repeated("--ignore", asked.ignore, codes_read)),
            *(_repeated("--report", asked.report, report_path)), *(_repeated("--require-device", asked.require_device, values.device))]


def _repeated(option: str, texts: Sequence[str] | None, read: Callable[[str, str], Any]) -> list[tuple[str, str | None, Callable[[str, str], Any]]]:
    """One reading for each time the option was given, under keys of their own."""
    return [(f"{option}" + " " * place, text, lambda key, value: read(key.strip(), value)) for place, text in enumerate(texts or ())]


def _joined(typed: Mapping[str, Any], option: str) -> list[str]:
    return [code for key, found in typed.items() if key.strip() == option for code in found]


def report_path(option: str, text: str) -> Path:
    """`json:PATH`; other kinds come with later versions."""
    kind, colon, path = text.partition(":")
    if not colon or not path or kind not in REPORTS:
        raise values.Refused(f"{option} {text!r}: must be KIND:PATH, where KIND is {' or '.join(REPORTS)}{values.nearest(kind, REPORTS)}")
    return Path(path)
