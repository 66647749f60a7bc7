"""The options of all commands in one table, and their typed values: settings, gate, look, report
files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradverify.cli import values
from gradverify.cli.output import Output, is_set, is_watched, look, terminal
from gradverify.cli.reports import ReportFile, report_file
from gradverify.model.case import Json
from gradverify.model.problem import ProblemsError
from gradverify.model.report import Gate
from gradverify.model.result import WORST
from gradverify.report.formats import NAMES
from gradverify.report.look import MIN_WIDTH, ROWS, Look
from gradverify.spec.document import scalar

if TYPE_CHECKING:
    from gradverify.spec.project import Project

OVERRIDE = "Settings (over those of the specs)"
GATE = "Gate"
SELECTION = "Selection"
TARGETS = "Functions without a spec"
RUNNING = "Running"
SHOWN = "Output"
ADVANCED = "Advanced"
SETTINGS = ("eps", "atol", "rtol", "seed", "device", "dtype", "mode")
OF_WORKERS = ("jobs",)
"""Options that only apply to worker processes; those of the project are ignored with
`--no-isolate`."""
RANDOM, SEED_BYTES = "random", 4  # the word of `--seed` for a seed that is drawn
REQUIRED: Any = ...  # typer's own mark


@dataclass(frozen=True)
class Option:
    """An option, or an argument if `names` is empty. `value`: its metavar, None for a flag; `read`:
    the reader that turns its text into a value, or raises Refused; `many`: it may be given several
    times; `more`: further arguments for typer."""

    names: str
    value: str | None
    help: str
    panel: str | None = None
    read: values.Reader | None = None
    many: bool = False
    type: type = str
    default: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the function parameter from which typer makes this option."""
        shown = {
            "metavar": self.value,
            "help": self.help,
            "show_default": isinstance(self.default, str),
            **self.more,
        }
        declared = (
            typer.Option(*self.names.split(), rich_help_panel=self.panel, **shown)
            if self.names
            else typer.Argument(**shown)
        )
        kind: Any = bool if self.value is None else list[str] if self.many else self.type
        hint: Any = Annotated[kind if self.default is not None else kind | None, declared]
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=hint
        )


def _flag(names: str, help: str, panel: str | None = None) -> Option:
    return Option(names, None, help, panel, default=False)


def _format(help: str, *allowed: str, value: str = "FORMAT") -> Option:
    return Option("--format", value, help, SHOWN, values.one_of(allowed))


PERCENT = {"min": 0.0, "max": 100.0}
OPTIONS: Mapping[str, Option] = {
    "paths": Option(
        "",
        "PATH",
        "Specs, folders, or PATH::NAME for one check. Without any: `paths` of pyproject.toml, "
        "else specs/, else *.gradverify.yaml.",
        many=True,
    ),
    "input": Option(
        "--input",
        "NAME=VALUE",
        "An argument, in the function's order: 2x3, 3, for a vector, 2x3:int64[0,5), a number, "
        "none, x.npy … (repeatable). Without any, inputs are found by trial.",
        TARGETS,
        many=True,
    ),
    "kwarg": Option(
        "--kwarg", "NAME=VALUE", "An argument by keyword (repeatable).", TARGETS, many=True
    ),
    "init": Option(
        "--init",
        "NAME=VALUE",
        "An argument that builds a torch.nn.Module class (repeatable).",
        TARGETS,
        many=True,
    ),
    "reference": Option(
        "--reference", "NAME", "Another implementation, as ref.py:name or module:name.", TARGETS
    ),
    "keyword": Option(
        "-k", "EXPR", "Checks whose id contains these words: 'softmax and not cuda'.", SELECTION
    ),
    "tags": Option("-m", "TAGEXPR", "Checks with these tags: 'fast and not gpu'.", SELECTION),
    "last_failed": _flag(
        "--lf",
        "Only checks that did not end as expected last time; all if there are none.",
        SELECTION,
    ),
    "changed_from": Option(
        "--changed-from",
        "REF",
        "Only checks affected by what changed since this branch left REF (needs git).",
        SELECTION,
    ),
    "shard": Option(
        "--shard",
        "I/N",
        "Only part I of N of the checks, for several machines.",
        ADVANCED,
        values.part,
    ),
    "exitfirst": _flag(
        "-x --exitfirst", "Stop after the first check that is not as expected.", SELECTION
    ),
    "maxfail": Option(
        "--maxfail",
        "N",
        "Stop after N checks that are not as expected.",
        ADVANCED,
        values.count_from(1),
    ),
    "jobs": Option(
        "-j --jobs",
        "N|auto",
        "Worker processes; default 1, auto: one for each processor.",
        RUNNING,
        values.jobs,
    ),
    "timeout": Option(
        "--timeout",
        "SECONDS",
        "Time limit of each check, in place of `timeout` in the specs.",
        RUNNING,
        values.duration,
    ),
    "no_isolate": _flag(
        "--no-isolate",
        "Run checks in this process, not in workers, for a debugger; a crash ends the run.",
        ADVANCED,
    ),
    "eps": Option(
        "--eps",
        "auto|NUMBER",
        "Step of finite differences: chosen for each element, or this number.",
        OVERRIDE,
    ),
    "atol": Option("--atol", "NUMBER", "Absolute error that is accepted.", OVERRIDE),
    "rtol": Option("--rtol", "NUMBER", "Relative error that is accepted.", OVERRIDE),
    "seed": Option(
        "--seed", "INTEGER|random", "Seed of the random inputs; random: one is drawn.", OVERRIDE
    ),
    "device": Option("--device", "DEVICE", "cpu, cuda, cuda:N or auto.", OVERRIDE),
    "dtype": Option("--dtype", "DTYPE", "float64, float32, complex128 …", OVERRIDE),
    "mode": Option("--mode", "MODE", "What is compared: auto, entries, rows or blocks.", OVERRIDE),
    "select": Option(
        "--select",
        "CODE",
        "Only rules whose code begins with CODE, e.g. GV2 (repeatable).",
        OVERRIDE,
        many=True,
    ),
    "ignore": Option(
        "--ignore",
        "CODE",
        "No rules whose code begins with CODE (repeatable).",
        OVERRIDE,
        many=True,
    ),
    "strict": _flag("--strict", "Warnings count as errors.", OVERRIDE),
    "poison": _flag(
        "--poison",
        "Fill uninitialised memory, and guard the memory around tensors, in every call.",
        OVERRIDE,
    ),
    "undecided": Option(
        "--undecided",
        "warn|fail",
        "Whether undecided checks fail the run (exit 3). Default: fail where CI is set, else warn.",
        GATE,
        values.one_of(values.UNDECIDED),
    ),
    "fail_on_skip": Option(
        "--fail-on-skip/--no-fail-on-skip", None, "Skipped checks fail the run (exit 3).", GATE
    ),
    "require_device": Option(
        "--require-device",
        "DEVICE",
        "Checks skipped because this device is missing fail the run (exit 3; repeatable).",
        ADVANCED,
        values.device,
        many=True,
    ),
    "baseline": Option(
        "--baseline", "FILE", "Findings listed in FILE are shown, but do not fail the run.", GATE
    ),
    "baseline_update": _flag(
        "--baseline-update",
        "Bring the baseline file up to date: add what fails now, remove what is no longer found.",
        ADVANCED,
    ),
    "exit_zero": _flag(
        "--exit-zero", "Exit with 0 whatever the verdicts are, in place of 1, 3 and 5.", ADVANCED
    ),
    "format": _format(
        "Default: table on a terminal, else plain.",
        "table",
        "plain",
        "json",
        value="table|plain|json",
    ),
    "report": Option(
        "--report",
        "KIND:PATH",
        f"Also write a file: {', '.join(NAMES[:-1])} or {NAMES[-1]} (repeatable).",
        SHOWN,
        report_file,
        many=True,
    ),
    "max_rows": Option(
        "--max-rows",
        "N",
        f"Elements shown for each finding, {WORST} at most; default {ROWS}.",
        ADVANCED,
        values.whole(1, WORST),
    ),
    "durations": Option(
        "--durations",
        "N",
        "List the N slowest checks with their calls; 0: all.",
        ADVANCED,
        values.count_from(0),
    ),
    "verbose": Option(
        "-v --verbose",
        "",
        "Show settings, rules and comparisons of each check; -vv: expected failures in full too.",
        SHOWN,
        type=int,
        default=0,
        more={"count": True},
    ),
    "quiet": _flag("-q --quiet", "Show only failures and the summary.", SHOWN),
    "color": Option(
        "--color",
        "auto|always|never",
        "Colour; auto obeys NO_COLOR, FORCE_COLOR, CI and TERM.",
        SHOWN,
        values.one_of(("auto", "always", "never")),
        default="auto",
    ),
    "width": Option(
        "--width",
        "N",
        f"Width in columns, at least {MIN_WIDTH}; default: COLUMNS, else the terminal's, else 120.",
        ADVANCED,
        values.count_from(MIN_WIDTH),
    ),
    "no_progress": _flag("--no-progress", "Show no line about what is running.", ADVANCED),
    # ---- of single commands
    "fail_under": Option(
        "--fail-under",
        "PERCENT",
        "Exit with 1 if the checks find a smaller share of the mistakes.",
        GATE,
        type=float,
        default=0.0,
        more=PERCENT,
    ),
    "functions": _flag("--functions", "List the built-in functions instead of checks."),
    "report_schema": _flag(
        "--report", "Print the schema of the JSON report instead of that of specs."
    ),
    "code": Option(
        "",
        "CODE|PATH::NAME",
        "A rule's code or name, such as GV101 or jacobian; or one check. Default: list all rules.",
    ),
    "element": Option(
        "--element",
        "INPUT:OUTPUT",
        "One element of a check: w[3,1]:y[0]; of a complex one, z[2].imag. Default: the worst.",
    ),
    "source": Option(
        "", "SOURCE", "Python files, folders or importable packages.", many=True, default=REQUIRED
    ),
    "specs": Option(
        "--specs",
        "PATH",
        "Specs or folders (repeatable); default: those that `check` takes.",
        many=True,
    ),
    "json_report": Option(
        "", "REPORT", "A JSON report, as `check --report json:REPORT` writes it.", default=REQUIRED
    ),
    "target": Option(
        "",
        "TARGET",
        "module:name, file.py:name, torch.ops.library.name; or a Python file, folder or installed "
        "package, for all autograd Functions in it.",
        many=True,
        default=REQUIRED,
    ),
    "output": Option(
        "-o --output",
        "FILE|DIR",
        "Where to write: a .yaml file for one spec, or a folder for one spec per module.",
        default="specs",
    ),
    "imports": Option(
        "--import",
        "MODULE",
        "A module to import first, because it registers the operators (repeatable).",
        many=True,
    ),
    "command": Option(
        "", "COMMAND", "A command that starts Python, with its arguments.", many=True
    ),
    "notes": Option("--notes", "DIR", "Write specs for calls noted there.", more={"hidden": True}),
    "force": _flag("--force", "Overwrite specs that exist."),
    "dry_run": _flag("-n --dry-run", "Print the specs, write nothing."),
}
OF_CHECK = tuple(OPTIONS)[: list(OPTIONS).index("fail_under")]
CHECK_FORMAT = _format(
    "table, plain, json, jsonl or github. Default: table on a terminal, github where GitHub "
    "Actions runs this, else plain.",
    "table",
    "plain",
    "json",
    "jsonl",
    "github",
)


class Options(SimpleNamespace):
    """The options of a command as typed in, by their names in OPTIONS; those that it does not have
    are as if they were not given.

    `declared`: those it has, as they are in this command; `changes`: of `hook`, which is handed
    them and does not ask git."""

    declared: Mapping[str, Option]

    def __init__(self, **given: Any) -> None:
        super().__init__(
            **{
                "changes": None,
                "declared": {},
                **{name: option.default for name, option in OPTIONS.items()},
                **given,
            }
        )

    def but(self, **changes: Any) -> Options:
        """Return a copy with other values."""
        return Options(**{**vars(self), **changes})


def command(
    *names: str, **others: Option
) -> Callable[[Callable[[Options, Output], int]], Callable[..., int]]:
    """Decorate a function of Options and Output as a typer command with the options of these names.
    `others`: options that differ in this command from OPTIONS."""
    declared = {name: others.get(name, OPTIONS[name]) for name in names}

    def decorate(run: Callable[[Options, Output], int]) -> Callable[..., int]:
        def called(ctx: typer.Context, **given: Any) -> int:
            return run(Options(declared=declared, **given), ctx.obj)

        context = inspect.Parameter(
            "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        )
        last = sorted(declared.items(), key=lambda each: each[1].panel == ADVANCED)
        parameters = [option.parameter(name) for name, option in last]
        called.__doc__, called.__annotations__ = run.__doc__, {}
        setattr(called, "__signature__", inspect.Signature([context, *parameters]))  # noqa: B010
        return called

    return decorate


@dataclass(frozen=True)
class Settled:
    """Validated options. `values`: the typed values of the given ones, by name; `settings`: the
    layer over those of the specs; `reports`: the files to write; `watched`: progress is to be
    shown."""

    options: Options
    values: Mapping[str, Any]
    settings: Mapping[str, Json]
    gate: Gate
    look: Look
    reports: tuple[ReportFile, ...]
    watched: bool

    @property
    def for_programs(self) -> bool:
        """Whether stdout contains only machine-readable output."""
        return self.options.format in ("json", "jsonl")


def settle(options: Options, out: Output) -> Settled:
    """Validate options. Raises ProblemsError with every value that is not allowed."""
    given = []
    for name, option in options.declared.items():
        texts = getattr(options, name)
        if option.read is not None and texts is not None:
            given += [
                (f"--{name.replace('_', '-')}", text, option.read)
                for text in (texts if option.many else [texts])
            ]
    read = values.settled(given)
    typed = {option.removeprefix("--").replace("-", "_"): value for option, value in read}
    settings: dict[str, Json] = {
        name: scalar(text) for name in SETTINGS if (text := getattr(options, name)) is not None
    }
    if settings.get("seed") == RANDOM:
        settings["seed"] = int.from_bytes(os.urandom(SEED_BYTES), "big")
    for name in ("select", "ignore"):
        if codes := [
            code.strip()
            for text in getattr(options, name) or ()
            for code in text.split(",")
            if code.strip()
        ]:
            settings[name] = codes
    settings |= {name: True for name in ("strict", "poison") if getattr(options, name)}
    kept = [name for name in (*OF_WORKERS, "timeout") if name in typed]
    if options.no_isolate and kept:
        raise ProblemsError(
            f"--{kept[0].replace('_', '-')} needs worker processes: leave out --no-isolate"
        )
    gate = Gate(
        typed.get("undecided", "fail" if is_set(os.environ, "CI") else "warn"),
        bool(options.fail_on_skip),
        tuple(options.require_device or ()),
        options.exit_zero,
    )
    shown = look(
        terminal(out.stdout),
        os.environ,
        format=options.format,
        color=options.color,
        given_width=typed.get("width"),
        max_rows=typed.get("max_rows", ROWS),
        verbosity=-1 if options.quiet else options.verbose,
        slowest=typed.get("durations"),
    )
    watched = (
        not options.no_progress
        and not options.quiet
        and is_watched(terminal(out.stderr), os.environ)
    )
    return Settled(
        options,
        typed,
        settings,
        gate,
        shown,
        tuple(file for option, file in read if option == "--report"),
        watched,
    )


def configured(options: Options, project: Project) -> Options:
    """Return the options with those that the command line does not give (or gives as an empty list)
    taken from the project."""
    given = {}
    for key, value in project.options.items():
        name, folder = key.replace("-", "_"), project.folder or Path()
        if getattr(options, name) not in (None, (), []) or (
            options.no_isolate and name in OF_WORKERS
        ):
            continue
        if name == "report":  # files are relative to the project's folder
            files = values.settled((f"{project.file}: report", text, report_file) for text in value)
            value = [f"{file.kind}:{folder / file.path}" for _, file in files]
        if name == "baseline":
            value = str(folder / value)
        given[name] = value if isinstance(value, (bool, str, list)) else str(value)
    return options.but(**given)
