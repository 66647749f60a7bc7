"""The table of commands."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from gradverify.cli import options as o
from gradverify.cli.help import PlainCommand, PlainGroup

HELP = (    # a newline inside a paragraph would stay where it is
    "Compare hand-written gradients (torch.autograd.Function) with finite differences, element by element.\n\n"
    "Exit codes: 0 all as expected, 1 a gradient is wrong, 2 usage or spec error, 3 something could not be judged, "
    "4 a fault in gradverify, 5 nothing was checked, 130, 143 or 129 interrupted.")

EXAMPLES = """Examples:

gradverify check specs

gradverify check 'specs/linear.yaml::linear' --eps 1e-6 -v

gradverify check specs -k 'softmax and not cuda' --report json:report.json

gradverify validate specs"""

COMMANDS: Mapping[str, str] = {
    "check": "check", "hook": "hook", "validate": "validate", "list": "list_", "explain": "explain", "mutate": "mutate", "coverage": "coverage",
    "init": "init", "show": "show", "merge": "merge",
    "schema": "schema", "env": "env"}
"""Each command's function, which stands in the file of `cli/` that has the command's name."""


def command(arguments: Sequence[str] = ()) -> Any:
    """The command line that `arguments` need, with one command where they begin with its name, else whole; its `main` is called by the boundary."""
    app = typer.Typer(name="gradverify", cls=PlainGroup, help=HELP, epilog=EXAMPLES, no_args_is_help=True, invoke_without_command=True,
                      add_completion=True, pretty_exceptions_enable=False, pretty_exceptions_show_locals=False, rich_markup_mode="rich",
                      context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_root)
    for name in arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS:
        settings = {"allow_interspersed_args": False} if name == "hook" else {}       # its files are named by whoever wrote the commit
        app.command(name, cls=PlainCommand, context_settings=settings)(_function(name))
    return typer.main.get_command(app)


def _function(name: str) -> Callable[..., int]:
    """Imports the command's file: each costs 20 to 60 ms that the other commands need not wait for."""
    function: Callable[..., int] = getattr(importlib.import_module(f"gradverify.cli.{name}"), COMMANDS[name])
    return function


def _root(ctx: typer.Context, version: o.Version = False) -> int:
    if version:
        from gradverify import __version__
        from gradverify.cli.bug import version_of

        ctx.obj.write(f"gradverify {__version__} (torch {version_of('torch') or 'not installed'})\n")
    return 0
