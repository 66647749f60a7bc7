"""The table of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import typer

from gradverify.cli import options as o
from gradverify.cli.check import check
from gradverify.cli.env import env
from gradverify.cli.explain import explain
from gradverify.cli.list import list_
from gradverify.cli.mutate import mutate
from gradverify.cli.schema import schema
from gradverify.cli.validate import validate

HELP = """Check hand-written autograd backwards against finite differences, element by element.

Exit codes: 0 all as expected, 1 a gradient is wrong, 2 usage or spec error, 3 something could not be judged, 4 a fault in gradverify,
5 nothing was checked, 130 or 143 interrupted."""

EXAMPLES = """Examples:

gradverify check specs

gradverify check 'specs/linear.yaml::linear' --eps 1e-6 -v

gradverify check specs -k 'softmax and not cuda' --report json:report.json

gradverify validate specs"""

COMMANDS: Mapping[str, Callable[..., int]] = {
    "check": check, "validate": validate, "list": list_, "explain": explain, "mutate": mutate, "schema": schema, "env": env}


def command() -> Any:
    """The whole command line; its `main` is called by the boundary."""
    app = typer.Typer(name="gradverify", help=HELP, epilog=EXAMPLES, no_args_is_help=True, invoke_without_command=True, add_completion=True,
                      pretty_exceptions_enable=False, pretty_exceptions_show_locals=False, rich_markup_mode="rich",
                      context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_root)
    for name, function in COMMANDS.items():
        app.command(name)(function)
    return typer.main.get_command(app)


def _root(ctx: typer.Context, version: o.Version = False) -> int:
    from gradverify import __version__
    from gradverify.cli.bug import version_of

    if version:
        ctx.obj.write(f"gradverify {__version__} (torch {version_of('torch') or 'not installed'})\n")
    return 0
