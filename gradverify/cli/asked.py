"""What was asked: the options of all commands in one table, what the project gives for all runs, and how the output is to look; as typed values."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_type_hints

import typer

from gradverify.cli import values
from gradverify.cli.gather import OF_WORKERS
from gradverify.cli.output import Output, is_read_on_github, is_set, is_watched, look, terminal
from gradverify.cli.reports import ReportFile, report_file
from gradverify.model.case import ASKED, Json
from gradverify.model.dtypes import FLOATING
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate
from gradverify.model.result import WORST
from gradverify.report.formats import NAMES
from gradverify.report.look import MIN_WIDTH, ROWS, Look

if TYPE_CHECKING:
    from gradverify.spec.project import Project

CHECK_FORMATS = ("table", "plain", "json", "jsonl", "github")
FORMATS, COLORS = ("table", "plain", "json"), ("auto", "always", "never")
OVERRIDE, GATE, SELECTION, RUNNING, SHOWN = (
    "Settings (over those of the specs)",
    "Gate",
    "Selection",
    "Running",
    "Output",
)
SETTINGS = ("eps", "atol", "rtol", "seed", "device", "dtype", "mode")
Command = Callable[["Asked", Output], int]
Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None
REQUIRED: Any = ...     # as typer says it


def option(names: str, value: str | None, help: str, panel: str | None = None, **more: Any) -> Any:
    """An option for typer; `value`: its metavar."""
    return typer.Option(
        *names.split(),
        metavar=value,
        help=help,
        rich_help_panel=panel,
        **{"show_default": False} | more,
    )


def argument(value: str, help: str) -> Any:
    return typer.Argument(metavar=value, help=help, show_default=False)


def from_(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A reader for whole numbers from `least` (to `most`), defaults included; typer's own shows its limits as `[x>=1]`."""

    def read(value: str | int) -> int:
        text = str(value)
        if (
            not re.fullmatch(r"\d{1,9}", text)
            or int(text) < least
            or (most is not None and int(text) > most)
        ):
            raise typer.BadParameter(
                f"{text!r} is no whole number from {least}{f' to {most}' if most is not None else ''}"
            )
        return int(text)

    return read


CHECK_FORMAT = Annotated[
    Text,
    option(
        "--format",
        "FORMAT",
        "table, plain, json, jsonl or github. Default: table on a terminal, github where GitHub Actions runs this, else plain.",
        SHOWN,
    ),
]
ANY_FORMAT = Annotated[
    Text,
    option(
        "--format",
        "table|plain|github|KIND",
        "Default: table on a terminal, else plain; or a kind of report, such as json.",
        SHOWN,
    ),
]
CONFIG_FORMAT = Annotated[
    Text,
    option(
        "--format",
        "table|plain|json",
        "With --show-config: how it is printed. Default: table on a terminal, else plain.",
        SHOWN,
    ),
]
CONFIG_OF = Annotated[
    Texts, argument("PATH", "With --show-config: specs, or PATH::NAME for one check.")
]
FILES = Annotated[Texts, argument("FILES", "The changed files, deleted ones too.")]
PERCENT = {"min": 0.0, "max": 100.0}
COVERED = Annotated[
    float,
    option(
        "--fail-under",
        "PERCENT",
        "Exit with 1 if a smaller share of the Functions has a check.",
        GATE,
        **PERCENT,
    ),
]


@dataclass(frozen=True)
class Asked:
    """The options of a command as typed in. Behind an option stands how its text is read, where that does not depend on the command."""

    paths: Annotated[
        Texts,
        argument(
            "PATH",
            "Specs, folders, or PATH::NAME for one check. Without any: `paths` of pyproject.toml, else specs/, else "
            "*.gradverify.yaml.",
        ),
    ] = None
    keyword: Annotated[
        Text,
        option(
            "-k", "EXPR", "Checks whose id contains these words: 'softmax and not cuda'.", SELECTION
        ),
    ] = None
    tags: Annotated[
        Text, option("-m", "TAGEXPR", "Checks with these tags: 'fast and not gpu'.", SELECTION)
    ] = None
    last_failed: Annotated[
        bool,
        option(
            "--lf",
            None,
            "Only checks that did not end as expected last time; all if there are none.",
            SELECTION,
        ),
    ] = False
    failed_first: Annotated[
        bool,
        option(
            "--ff",
            None,
            "All checks, beginning with those that --lf would choose.",
            SELECTION,
        ),
    ] = False
    changed_from: Annotated[
        Text,
        option(
            "--changed-from",
            "REF",
            "Only checks affected by what changed since this branch left REF (needs git).",
            SELECTION,
        ),
    ] = None
    shard: Annotated[
        Text,
        option(
            "--shard",
            "I/N",
            "Only part I of N of the checks; `merge` joins the reports.",
            SELECTION,
        ),
        values.part,
    ] = None
    exitfirst: Annotated[
        bool,
        option(
            "-x --exitfirst", None, "Stop after the first check that is not as expected.", SELECTION
        ),
    ] = False
    maxfail: Annotated[
        int | None,
        option(
            "--maxfail",
            "N",
            "Stop after N checks that are not as expected.",
            SELECTION,
            parser=from_(1),
        ),
    ] = None
    jobs: Annotated[
        Text,
        option(
            "-j --jobs",
            "N|auto",
            "Worker processes; default 1, auto: one for each processor.",
            RUNNING,
        ),
        values.jobs,
    ] = None
    timeout: Annotated[
        Text,
        option(
            "--timeout",
            "SECONDS",
            "Time limit of each check, in place of `timeout` in the specs.",
            RUNNING,
        ),
        values.duration,
    ] = None
    import_timeout: Annotated[
        Text,
        option(
            "--import-timeout",
            "SECONDS",
            "Time limit for importing and building what a check names; default 600.",
            RUNNING,
        ),
        values.duration,
    ] = None
    memory: Annotated[
        Text,
        option("--memory", "SIZE", "Memory limit of each worker process, such as 2G.", RUNNING),
        values.size,
    ] = None
    repeat: Annotated[
        Text,
        option(
            "--repeat",
            "N",
            "Run each check N times, each time with the next seed; all must end as expected.",
            RUNNING,
        ),
        values.count_from(1),
    ] = None
    no_isolate: Annotated[
        bool,
        option(
            "--no-isolate",
            None,
            "Run checks in this process, not in workers, for a debugger; a crash ends the run.",
            RUNNING,
        ),
    ] = False
    eps: Annotated[
        Text,
        option(
            "--eps",
            "auto|NUMBER",
            "Step of finite differences: chosen for each element, or this number.",
            OVERRIDE,
        ),
        values.step,
    ] = None
    atol: Annotated[
        Text,
        option("--atol", "NUMBER", "Absolute error that is accepted.", OVERRIDE),
        values.tolerance,
    ] = None
    rtol: Annotated[
        Text,
        option("--rtol", "NUMBER", "Relative error that is accepted.", OVERRIDE),
        values.tolerance,
    ] = None
    seed: Annotated[
        Text, option("--seed", "INTEGER", "Seed of the random inputs.", OVERRIDE), values.seed
    ] = None
    device: Annotated[
        Text, option("--device", "DEVICE", "cpu, cuda, cuda:N or auto.", OVERRIDE), values.device
    ] = None
    dtype: Annotated[
        Text,
        option("--dtype", "DTYPE", "float64, float32, complex128 …", OVERRIDE),
        values.one_of(FLOATING),
    ] = None
    mode: Annotated[
        Text,
        option(
            "--mode", "MODE", "What is compared: auto, entries, rows or blocks.", OVERRIDE
        ),
        values.one_of(ASKED),
    ] = None
    select: Annotated[
        Texts,
        option(
            "--select",
            "CODE",
            "Only rules whose code begins with CODE, e.g. GV2 (repeatable).",
            OVERRIDE,
        ),
    ] = None
    ignore: Annotated[
        Texts,
        option("--ignore", "CODE", "No rules whose code begins with CODE (repeatable).", OVERRIDE),
    ] = None
    strict: Annotated[bool, option("--strict", None, "Warnings count as errors.", OVERRIDE)] = False
    undecided: Annotated[
        Text,
        option(
            "--undecided",
            "warn|fail",
            "Whether undecided checks fail the run (exit 3). Default: fail where CI is set, else "
            "warn.",
            GATE,
        ),
        values.one_of(values.UNDECIDED),
    ] = None
    fail_on_skip: Annotated[
        bool | None,
        option(
            "--fail-on-skip/--no-fail-on-skip", None, "Skipped checks fail the run (exit 3).", GATE
        ),
    ] = None
    require_device: Annotated[
        Texts,
        option(
            "--require-device",
            "DEVICE",
            "Checks skipped because this device is missing fail the run (exit 3; repeatable).",
            GATE,
        ),
        values.device,
    ] = None
    baseline: Annotated[
        Text,
        option(
            "--baseline",
            "FILE",
            "Findings listed in FILE are shown, but do not fail the run.",
            GATE,
        ),
    ] = None
    baseline_update: Annotated[
        bool, option("--baseline-update", None, "Add what fails now to the baseline file.", GATE)
    ] = False
    baseline_prune: Annotated[
        bool,
        option(
            "--baseline-prune",
            None,
            "Remove from the baseline file what the checks that ran no longer find.",
            GATE,
        ),
    ] = False
    exit_zero: Annotated[
        bool,
        option(
            "--exit-zero",
            None,
            "Exit with 0 whatever the verdicts are, in place of 1, 3 and 5.",
            GATE,
        ),
    ] = False
    format: Annotated[
        Text,
        option("--format", "table|plain|json", "Default: table on a terminal, else plain.", SHOWN),
    ] = None
    report: Annotated[
        Texts,
        option(
            "--report",
            "KIND:PATH",
            f"Also write a file: {', '.join(NAMES[:-1])} or {NAMES[-1]} (repeatable).",
            SHOWN,
        ),
        report_file,
    ] = None
    save_failures: Annotated[
        Text,
        option(
            "--save-failures",
            "DIR",
            "Write there a script for each wrong gradient that shows it with torch alone.",
            SHOWN,
        ),
    ] = None
    max_rows: Annotated[
        int | None,
        option(
            "--max-rows",
            "N",
            f"Elements shown for each finding, {WORST} at most; default {ROWS}.",
            SHOWN,
            parser=from_(1, WORST),
        ),
    ] = None
    durations: Annotated[
        Text,
        option("--durations", "N", "List the N slowest checks with their calls; 0: all.", SHOWN),
        values.count_from(0),
    ] = None
    verbose: Annotated[
        int,
        option(
            "-v --verbose",
            "",
            "Show settings, rules and comparisons of each check; -vv: expected failures in full too.",
            SHOWN,
            count=True,
        ),
    ] = 0
    quiet: Annotated[
        bool, option("-q --quiet", None, "Show only failures and the summary.", SHOWN)
    ] = False
    color: Annotated[
        str,
        option(
            "--color",
            "auto|always|never",
            "Colour; auto obeys NO_COLOR, FORCE_COLOR, CI and TERM.",
            SHOWN,
            show_default=True,
        ),
        values.one_of(COLORS),
    ] = "auto"
    width: Annotated[
        int | None,
        option(
            "--width",
            "N",
            f"Width in columns, at least {MIN_WIDTH}; default: COLUMNS, else the terminal's, else 120.",
            SHOWN,
            parser=from_(MIN_WIDTH),
        ),
    ] = None
    no_progress: Annotated[
        bool, option("--no-progress", None, "Show no line about what is running.", SHOWN)
    ] = False

    # ---- of single commands
    fail_under: Annotated[
        float,
        option(
            "--fail-under",
            "PERCENT",
            "Exit with 1 if the checks find a smaller share of the mistakes.",
            GATE,
            **PERCENT,
        ),
    ] = 0.0
    functions: Annotated[
        bool, option("--functions", None, "List the built-in functions instead of checks.")
    ] = False
    report_schema: Annotated[
        bool,
        option("--report", None, "Print the schema of the JSON report instead of that of specs."),
    ] = False
    show_config: Annotated[
        bool,
        option(
            "--show-config",
            None,
            "Print each option and setting (with PATH, of its checks), and where it comes from.",
        ),
    ] = False
    code: Annotated[
        Text,
        argument(
            "CODE|PATH::NAME",
            "A rule's code or name, such as GV101 or jacobian; or one check. Default: list all rules.",
        ),
    ] = None
    element: Annotated[
        Text,
        option(
            "--element",
            "INPUT:OUTPUT",
            "One element of a check: w[3,1]:y[0]; of a complex one, z[2].imag. Default: the worst.",
        ),
    ] = None
    source: Annotated[
        list[str], argument("SOURCE", "Python files, folders or importable packages.")
    ] = REQUIRED
    specs: Annotated[
        Texts,
        option(
            "--specs", "PATH", "Specs or folders (repeatable); default: those that `check` takes."
        ),
    ] = None
    json_report: Annotated[
        str, argument("REPORT", "A JSON report, as `check --report json:REPORT` writes it.")
    ] = REQUIRED
    shards: Annotated[
        list[str], argument("REPORT", "The JSON reports of all shards, in any order.")
    ] = REQUIRED
    target: Annotated[
        list[str],
        argument(
            "TARGET",
            "module:name, file.py:name, torch.ops.library.name; or a Python file, folder or installed package, "
            "for all autograd Functions in it.",
        ),
    ] = REQUIRED
    output: Annotated[
        str,
        option(
            "-o --output",
            "FILE|DIR",
            "Where to write: a .yaml file for one spec, or a folder for one spec per module.",
            show_default=True,
        ),
    ] = "specs"
    imports: Annotated[
        Texts,
        option(
            "--import",
            "MODULE",
            "A module to import first, because it registers the operators (repeatable).",
        ),
    ] = None
    force: Annotated[bool, option("--force", None, "Overwrite specs that exist.")] = False
    dry_run: Annotated[bool, option("-n --dry-run", None, "Print the specs, write nothing.")] = (
        False
    )

    changes: Any = None  # of `hook`: they are handed over, not asked of git


FIELDS = tuple(field.name for field in fields(Asked))
OF_CHECK = FIELDS[: FIELDS.index("fail_under")]


def command(*names: str, **others: Any) -> Callable[[Command], Callable[..., int]]:
    """A function of Asked and Output as one of typer, with the options of these names; `others`: what some of them are in this command."""

    def decorate(run: Command) -> Callable[..., int]:
        def called(ctx: typer.Context, **given: Any) -> int:
            return run(Asked(**given), ctx.obj)

        own = inspect.Parameter(
            "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        asked = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(Asked, name),
                annotation=others.get(name, _hints()[name]),
            )
            for name in names
        ]
        called.__doc__, called.__annotations__ = run.__doc__, {}
        setattr(called, "__signature__", inspect.Signature([own, *asked]))  # noqa: B010
        return called

    return decorate


@cache
def _hints() -> Mapping[str, Any]:
    return get_type_hints(Asked, include_extras=True)


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


def shown_as(out: Output, asked: Asked) -> Look:
    """The look of a command that runs no checks. Raises ProblemsError."""
    values.settled(
        [
            ("--format", asked.format, values.one_of(FORMATS)),
            ("--color", asked.color, values.one_of(COLORS)),
        ]
    )
    return look(
        terminal(out.stdout),
        os.environ,
        format=asked.format,
        color=asked.color,
        asked_width=asked.width,
    )


def settle(
    asked: Asked,
    codes: Sequence[str],
    out: Output,
    environ: Mapping[str, str],
    formats: Sequence[str] = FORMATS,
) -> Settled:
    """Raises ProblemsError with everything that is not allowed. `formats`: those of the command."""
    read = values.each_settled(
        _readings(
            asked,
            {
                "format": values.one_of(formats),
                **dict.fromkeys(("select", "ignore"), values.code_list(codes)),
            },
        )
    )
    typed = dict(read)
    said = {name: typed[f"--{name}"] for name in SETTINGS if f"--{name}" in typed}
    said |= {
        name: [code for option, found in read if option == f"--{name}" for code in found]
        for name in ("select", "ignore")
        if getattr(asked, name)
    }
    if asked.strict:
        said["strict"] = True
    kept = [
        option
        for option in ("--jobs", "--timeout", "--import-timeout", "--memory")
        if option in typed
    ]
    if asked.no_isolate and kept:
        raise ProblemsError([Problem(f"{kept[0]} needs worker processes: leave out --no-isolate")])
    running = Running(
        typed.get("--jobs", 1),
        typed.get("--timeout"),
        typed.get("--import-timeout"),
        typed.get("--memory"),
        not asked.no_isolate,
        1 if asked.exitfirst else asked.maxfail,
        typed.get("--repeat", 1),
    )
    undecided = typed.get("--undecided", "fail" if is_set(environ, "CI") else "warn")
    shown = look(
        terminal(out.stdout),
        environ,
        format=asked.format,
        color=asked.color,
        asked_width=asked.width,
        max_rows=asked.max_rows or ROWS,
        verbosity=-1 if asked.quiet else asked.verbose,
        slowest=typed.get("--durations"),
    )
    return Settled(
        said,
        Gate(
            undecided, bool(asked.fail_on_skip), tuple(asked.require_device or ()), asked.exit_zero
        ),
        shown,
        asked.format,
        is_read_on_github(asked.format, environ),
        tuple(file for option, file in read if option == "--report"),
        not asked.no_progress and not asked.quiet and is_watched(terminal(out.stderr), environ),
        not asked.quiet,
        running,
        typed.get("--shard"),
        asked,
    )


def _readings(
    asked: Asked, readers: Mapping[str, values.Reader]
) -> Iterator[tuple[str, str | None, values.Reader]]:
    """Every text that was given, once for each time, with its reader: one of `readers`, or the one that stands behind the option."""
    for name in OF_CHECK:
        read = readers.get(name) or get_args(_hints()[name])[-1]
        given = getattr(asked, name)
        if given is not None and callable(read):
            yield from (
                (f"--{name.replace('_', '-')}", text, read)
                for text in (given if isinstance(given, (list, tuple)) else [given])
            )


# ---- the project
def configured(asked: Asked, project: Project) -> Asked:
    """Fill options that the command line leaves open from the project; so does an empty list of a repeatable one."""

    def is_open(name: str) -> bool:
        return getattr(asked, name) in (None, (), []) and not (
            asked.no_isolate and name in OF_WORKERS
        )

    given = {name.replace("-", "_"): value for name, value in project.options.items()}
    return replace(
        asked,
        **{name: _as_typed(name, value, project) for name, value in given.items() if is_open(name)},
    )


def _as_typed(name: str, value: Json, project: Project) -> Json:
    """As it would be typed in: numbers as text where the option is read from text, files from the project's folder."""
    folder = project.folder or Path()
    if name == "report":
        return [
            f"{file.kind}:{folder / file.path}"
            for file in (report_file("report", text) for text in value)
        ]
    if name == "baseline":
        return str(folder / value)
    return str(value) if name in (*OF_WORKERS, "durations") else value
