"""The options of all commands, once: name, help, group."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from gradverify.model.result import WORST
from gradverify.report.formats import NAMES
from gradverify.report.look import MIN_WIDTH, ROWS

OVERRIDE, GATE, SELECTION, RUNNING, SHOWN = "Settings (over those of the specs)", "Gate", "Selection", "Running", "Output"


def from_(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A reader for whole numbers from `least` (to `most`), defaults included; typer's own shows its limits as `[x>=1]`."""
    def read(value: str | int) -> int:
        text = str(value)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < least or (most is not None and int(text) > most):
            raise typer.BadParameter(f"{text!r} is no whole number from {least}{f' to {most}' if most is not None else ''}")
        return int(text)

    return read


Paths = Annotated[list[str] | None, typer.Argument(
    metavar="PATH", show_default=False,
    help="Specs, folders, or PATH::NAME for one check. Without any: `paths` of pyproject.toml, else specs/, else *.gradverify.yaml.")]

Files = Annotated[list[str] | None, typer.Argument(metavar="FILES", show_default=False, help="The changed files, deleted ones too.")]

Eps = Annotated[str | None, typer.Option("--eps", metavar="auto|NUMBER", help="Step of finite differences: chosen for each element, or this number.",
                                         rich_help_panel=OVERRIDE)]
Atol = Annotated[str | None, typer.Option("--atol", metavar="NUMBER", help="Absolute error that is accepted.", rich_help_panel=OVERRIDE)]
Rtol = Annotated[str | None, typer.Option("--rtol", metavar="NUMBER", help="Relative error that is accepted.", rich_help_panel=OVERRIDE)]
Seed = Annotated[str | None, typer.Option("--seed", metavar="INTEGER", help="Seed of the random inputs.", rich_help_panel=OVERRIDE)]
Device = Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:N or auto.", rich_help_panel=OVERRIDE)]
Dtype = Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="float64, float32, complex128 …", rich_help_panel=OVERRIDE)]
Mode = Annotated[str | None, typer.Option("--mode", metavar="MODE", rich_help_panel=OVERRIDE,
                                          help="What is compared: auto, entries, columns, rows or blocks.")]
Select = Annotated[list[str] | None, typer.Option("--select", metavar="CODE", help="Only rules whose code begins with CODE, e.g. GV2 (repeatable).",
                                                  rich_help_panel=OVERRIDE)]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", metavar="CODE", help="No rules whose code begins with CODE (repeatable).",
                                                  rich_help_panel=OVERRIDE)]
NoWitness = Annotated[bool, typer.Option("--no-witness", rich_help_panel=OVERRIDE,
                                         help="Leave undecided what finite differences leave so: do not ask forward's own derivative.")]
Witness = Annotated[bool, typer.Option("--witness", rich_help_panel=OVERRIDE,
                                       help="Ask forward's own derivative of every check, and say where it agrees.")]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings count as errors.", rich_help_panel=OVERRIDE)]

Keyword = Annotated[str | None, typer.Option("-k", metavar="EXPR", help="Checks whose id contains these words: 'softmax and not cuda'.",
                                             rich_help_panel=SELECTION)]
Tags = Annotated[str | None, typer.Option("-m", metavar="TAGEXPR", help="Checks with these tags: 'fast and not gpu'.", rich_help_panel=SELECTION)]
LastFailed = Annotated[bool, typer.Option("--lf", "--last-failed", rich_help_panel=SELECTION,
                                          help="Only checks that did not end as expected last time; all if there are none.")]
FailedFirst = Annotated[bool, typer.Option("--ff", "--failed-first", rich_help_panel=SELECTION,
                                           help="All checks, beginning with those that --lf would choose.")]
ChangedFrom = Annotated[str | None, typer.Option("--changed-from", metavar="REF", show_default=False, rich_help_panel=SELECTION,
                                                 help="Only checks affected by what changed since this branch left REF (needs git).")]
Part = Annotated[str | None, typer.Option("--shard", metavar="I/N", show_default=False, rich_help_panel=SELECTION,
                                          help="Only part I of N of the checks; `merge` joins the reports.")]
ExitFirst = Annotated[bool, typer.Option("-x", "--exitfirst", help="Stop after the first check that is not as expected.",
                                         rich_help_panel=SELECTION)]

MaxFail = Annotated[int | None, typer.Option("--maxfail", parser=from_(1), metavar="N", show_default=False, rich_help_panel=SELECTION,
                                             help="Stop after N checks that are not as expected.")]

Jobs = Annotated[str | None, typer.Option("-j", "--jobs", metavar="N|auto", rich_help_panel=RUNNING, show_default=False,
                                          help="Worker processes; default 1, auto: one for each processor.")]
Timeout = Annotated[str | None, typer.Option("--timeout", metavar="SECONDS", rich_help_panel=RUNNING, show_default=False,
                                             help="Time limit of each check, in place of `timeout` in the specs.")]
ImportTimeout = Annotated[str | None, typer.Option("--import-timeout", metavar="SECONDS", rich_help_panel=RUNNING, show_default=False,
                                                   help="Time limit for importing and building what a check names; default 600.")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", rich_help_panel=RUNNING, show_default=False,
                                            help="Memory limit of each worker process, such as 2G.")]
Times = Annotated[str | None, typer.Option("--repeat", metavar="N", rich_help_panel=RUNNING, show_default=False,
                                           help="Run each check N times, each time with the next seed; all must end as expected.")]
NoIsolate = Annotated[bool, typer.Option("--no-isolate", rich_help_panel=RUNNING,
                                         help="Run checks in this process, not in workers, for a debugger; a crash ends the run.")]

Undecided = Annotated[str | None, typer.Option("--undecided", metavar="warn|fail", rich_help_panel=GATE, show_default=False,
                                               help="Whether undecided checks fail the run (exit 3). Default: fail where CI is set, else warn.")]
FailOnSkip = Annotated[bool | None, typer.Option("--fail-on-skip/--no-fail-on-skip", help="Skipped checks fail the run (exit 3).",
                                                 show_default=False, rich_help_panel=GATE)]
RequireDevice = Annotated[list[str] | None, typer.Option("--require-device", metavar="DEVICE", rich_help_panel=GATE,
                                                         help="Checks skipped because this device is missing fail the run (exit 3; repeatable).")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", rich_help_panel=GATE, help="Exit with 0 whatever the verdicts are, in place of 1, 3 and 5.")]
KnownFile = Annotated[str | None, typer.Option("--baseline", metavar="FILE", rich_help_panel=GATE, show_default=False,
                                               help="Findings listed in FILE are shown, but do not fail the run.")]
UpdateKnown = Annotated[bool, typer.Option("--baseline-update", help="Add what fails now to the baseline file.", rich_help_panel=GATE)]
PruneKnown = Annotated[bool, typer.Option("--baseline-prune", rich_help_panel=GATE,
                                          help="Remove from the baseline file what the checks that ran no longer find.")]
FailUnder = Annotated[float, typer.Option("--fail-under", min=0.0, max=100.0, metavar="PERCENT", rich_help_panel=GATE, show_default=False,
                                          help="Exit with 1 if the checks find a smaller share of the mistakes.")]

Format = Annotated[str | None, typer.Option("--format", metavar="table|plain|json", rich_help_panel=SHOWN, show_default=False,
                                            help="Default: table on a terminal, else plain.")]
CheckFormat = Annotated[str | None, typer.Option("--format", metavar="FORMAT", rich_help_panel=SHOWN, show_default=False,
                                                 help="table, plain, json, jsonl or github. Default: table on a terminal, github where GitHub "
                                                      "Actions runs this, else plain.")]
Reports = Annotated[list[str] | None, typer.Option("--report", metavar="KIND:PATH", rich_help_panel=SHOWN,
                                                   help=f"Also write a file: {', '.join(NAMES[:-1])} or {NAMES[-1]} (repeatable).")]
SaveFailures = Annotated[str | None, typer.Option("--save-failures", metavar="DIR", rich_help_panel=SHOWN, show_default=False,
                                                  help="Write there a script for each wrong gradient that shows it with torch alone.")]
MaxRows = Annotated[int | None, typer.Option("--max-rows", parser=from_(1, WORST), metavar="N", show_default=False, rich_help_panel=SHOWN,
                                             help=f"Elements shown for each finding, {WORST} at most; default {ROWS}.")]
Durations = Annotated[str | None, typer.Option("--durations", metavar="N", show_default=False, rich_help_panel=SHOWN,
                                               help="List the N slowest checks with their calls; 0: all.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, metavar="", show_default=False, rich_help_panel=SHOWN,
                                      help="Show settings, rules and comparisons of each check; -vv: expected failures in full too.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show only failures and the summary.", rich_help_panel=SHOWN)]
Color = Annotated[str, typer.Option("--color", metavar="auto|always|never", help="Colour; auto obeys NO_COLOR, FORCE_COLOR, CI and TERM.",
                                    rich_help_panel=SHOWN)]
Width = Annotated[int | None, typer.Option("--width", parser=from_(MIN_WIDTH), metavar="N", show_default=False, rich_help_panel=SHOWN,
                                           help=f"Width in columns, at least {MIN_WIDTH}; default: COLUMNS, else the terminal's, else 120.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no line about what is running.", rich_help_panel=SHOWN)]

ConfigFormat = Annotated[str | None, typer.Option("--format", metavar="table|plain|json", rich_help_panel=SHOWN, show_default=False,
                                                  help="With --show-config: how it is printed. Default: table on a terminal, else plain.")]

Functions = Annotated[bool, typer.Option("--functions", help="List the built-in functions instead of checks.")]
ReportSchema = Annotated[bool, typer.Option("--report", help="Print the schema of the JSON report instead of that of specs.")]
ConfigOf = Annotated[list[str] | None, typer.Argument(metavar="PATH", show_default=False,
                                                      help="With --show-config: specs, or PATH::NAME for one check.")]
ShowConfig = Annotated[bool, typer.Option("--show-config",
                                         help="Print each option and setting (with PATH, of its checks), and where it comes from.")]
Version = Annotated[bool, typer.Option("--version", help="Print the versions of gradverify and torch.")]
CodeOrCheck = Annotated[str | None, typer.Argument(metavar="CODE|PATH::NAME", show_default=False,
                                                   help="A rule's code or name, such as GV101 or jacobian; or one check. Default: list all rules.")]
Element = Annotated[str | None, typer.Option("--element", metavar="INPUT:OUTPUT", show_default=False,
                                             help="One element of a check: w[3,1]:y[0]; of a complex one, z[2].imag. Default: the worst.")]

Sources = Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False, help="Python files, folders or importable packages.")]
Specs = Annotated[list[str] | None, typer.Option("--specs", metavar="PATH", show_default=False,
                                                 help="Specs or folders (repeatable); default: those that `check` takes.")]
CoverageUnder = Annotated[float, typer.Option("--fail-under", min=0.0, max=100.0, metavar="PERCENT", rich_help_panel=GATE, show_default=False,
                                              help="Exit with 1 if a smaller share of the Functions has a check.")]

ReportFile = Annotated[str, typer.Argument(metavar="REPORT", show_default=False, help="A JSON report, as `check --report json:REPORT` writes it.")]
ShardReports = Annotated[list[str], typer.Argument(metavar="REPORT", show_default=False, help="The JSON reports of all shards, in any order.")]
AnyFormat = Annotated[str | None, typer.Option("--format", metavar="table|plain|github|KIND", show_default=False, rich_help_panel=SHOWN,
                                               help="Default: table on a terminal, else plain; or a kind of report, such as json.")]

Targets = Annotated[list[str], typer.Argument(
    metavar="TARGET", show_default=False,
    help="module:name, file.py:name, torch.ops.library.name; or a Python file, folder or installed package, for all autograd Functions in it.")]
SpecOutput = Annotated[str, typer.Option("-o", "--output", metavar="FILE|DIR",
                                         help="Where to write: a .yaml file for one spec, or a folder for one spec per module.")]
Example = Annotated[str | None, typer.Option("--example", metavar="CALL", show_default=False,
                                             help="Take the inputs from this call in Python, 'f(torch.randn(2, 3), 0.5)', instead of trying.")]
Imports = Annotated[list[str] | None, typer.Option("--import", metavar="MODULE", show_default=False,
                                                   help="A module to import first, because it registers the operators (repeatable).")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite specs that exist.")]
DryRun = Annotated[bool, typer.Option("-n", "--dry-run", help="Print the specs, write nothing.")]
