"""The options of all commands, once: name, help, group."""

from __future__ import annotations

from typing import Annotated

import typer

OVERRIDE, GATE, SELECTION, RUNNING, SHOWN = "Settings (over those of the specs)", "Gate", "Selection", "Running", "Output"

Paths = Annotated[list[str] | None, typer.Argument(
    metavar="PATH", show_default=False,
    help="Specs, folders, or PATH::NAME for one check. Without any: `paths` of pyproject.toml, else specs/, else *.gradverify.yaml.")]

Eps = Annotated[str | None, typer.Option("--eps", metavar="auto|NUMBER", help="Finite-difference step; a number is used exactly.",
                                         rich_help_panel=OVERRIDE)]
Atol = Annotated[str | None, typer.Option("--atol", metavar="NUMBER", help="Absolute tolerance beyond the error bar.", rich_help_panel=OVERRIDE)]
Rtol = Annotated[str | None, typer.Option("--rtol", metavar="NUMBER", help="Relative tolerance beyond the error bar.", rich_help_panel=OVERRIDE)]
Seed = Annotated[str | None, typer.Option("--seed", metavar="INTEGER", help="Seed of every draw.", rich_help_panel=OVERRIDE)]
Device = Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:N or auto.", rich_help_panel=OVERRIDE)]
Dtype = Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="float64, float32, complex128 …", rich_help_panel=OVERRIDE)]
Mode = Annotated[str | None, typer.Option("--mode", metavar="MODE", help="What is compared: auto, entries …", rich_help_panel=OVERRIDE)]
Select = Annotated[list[str] | None, typer.Option("--select", metavar="CODE", help="Run only rules whose codes begin so, e.g. GV2 (repeatable).",
                                                  rich_help_panel=OVERRIDE)]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", metavar="CODE", help="Leave out rules whose codes begin so (repeatable).",
                                                  rich_help_panel=OVERRIDE)]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings are errors.", rich_help_panel=OVERRIDE)]

Keyword = Annotated[str | None, typer.Option("-k", metavar="EXPR", help="Checks whose id contains these words: 'softmax and not cuda'.",
                                             rich_help_panel=SELECTION)]
Tags = Annotated[str | None, typer.Option("-m", metavar="TAGEXPR", help="Checks with these tags: 'fast and not gpu'.", rich_help_panel=SELECTION)]
ExitFirst = Annotated[bool, typer.Option("-x", "--exitfirst", help="Stop after the first check that is not as expected.",
                                         rich_help_panel=SELECTION)]

MaxFail = Annotated[int | None, typer.Option("--maxfail", min=1, metavar="N", show_default=False, rich_help_panel=SELECTION,
                                             help="Stop after so many checks that are not as expected.")]

Jobs = Annotated[str | None, typer.Option("-j", "--jobs", metavar="N|auto", rich_help_panel=RUNNING, show_default=False,
                                          help="Worker processes; default 1, auto: one for each processor.")]
Timeout = Annotated[str | None, typer.Option("--timeout", metavar="SECONDS", rich_help_panel=RUNNING, show_default=False,
                                             help="For every check, from its own start, over `timeout` in the specs.")]
ImportTimeout = Annotated[str | None, typer.Option("--import-timeout", metavar="SECONDS", rich_help_panel=RUNNING, show_default=False,
                                                   help="For importing and building what a check names; default 600.")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", rich_help_panel=RUNNING, show_default=False,
                                            help="Of each worker process, such as 2G; more cannot be allocated.")]
NoIsolate = Annotated[bool, typer.Option("--no-isolate", rich_help_panel=RUNNING,
                                         help="Run checks in this process, for a debugger: a crash ends the run.")]

Undecided = Annotated[str | None, typer.Option("--undecided", metavar="warn|fail", rich_help_panel=GATE, show_default=False,
                                               help="What undecided checks mean; default: warn, but fail where CI is set.")]
FailOnSkip = Annotated[bool, typer.Option("--fail-on-skip", help="A skipped check is not ok (exit 3).", rich_help_panel=GATE)]
RequireDevice = Annotated[list[str] | None, typer.Option("--require-device", metavar="DEVICE", rich_help_panel=GATE,
                                                         help="A check skipped for want of this device is not ok (exit 3; repeatable).")]
FailUnder = Annotated[float, typer.Option("--fail-under", min=0.0, max=100.0, metavar="PERCENT", rich_help_panel=GATE, show_default=False,
                                          help="Exit with 1 where less of the damage is killed.")]

Format = Annotated[str | None, typer.Option("--format", metavar="table|plain|json", rich_help_panel=SHOWN, show_default=False,
                                            help="Default: table on a terminal, else plain.")]
Reports = Annotated[list[str] | None, typer.Option("--report", metavar="json:PATH", help="Also write a report file (repeatable).",
                                                   rich_help_panel=SHOWN)]
MaxRows = Annotated[int, typer.Option("--max-rows", min=1, metavar="N", help="Elements shown for each finding, 100 at most.", rich_help_panel=SHOWN)]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, metavar="", show_default=False, rich_help_panel=SHOWN,
                                      help="Each rule, mode and comparison; -vv: panels of expected failures.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only failures and the summary.", rich_help_panel=SHOWN)]
Color = Annotated[str, typer.Option("--color", metavar="auto|always|never", help="Colour; auto obeys NO_COLOR, FORCE_COLOR, CI and TERM.",
                                    rich_help_panel=SHOWN)]
Width = Annotated[int | None, typer.Option("--width", min=20, metavar="N", show_default=False, rich_help_panel=SHOWN,
                                           help="Columns; default: COLUMNS, else the terminal's, else 120.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="No line about what is running.", rich_help_panel=SHOWN)]

Functions = Annotated[bool, typer.Option("--functions", help="The built-in functions instead of checks.")]
ReportSchema = Annotated[bool, typer.Option("--report", help="The schema of the JSON report instead of that of specs.")]
Version = Annotated[bool, typer.Option("--version", help="The versions of gradverify and torch.")]
CodeOrCheck = Annotated[str, typer.Argument(metavar="CODE|PATH::NAME", show_default=False, help="A rule's code, such as GV101; or one check.")]
Element = Annotated[str | None, typer.Option("--element", metavar="INPUT:OUTPUT", show_default=False,
                                             help="Of a check: w[3,1]:y[0], complex parts z[2].imag. Default: the worst one.")]
