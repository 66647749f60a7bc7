"""The table of commands."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(params: list[Any]) -> list[Any]:
    """Return the parameters without the types that typer 0.29 shows after them, `<bool>` or
    `<list[str]>`; earlier versions show none."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
        elif getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


HELP = (  # a newline inside a paragraph would stay where it is
    "Compare hand-written gradients (torch.autograd.Function) with finite differences, element by "
    "element.\n\n"
    "Exit codes: 0 all as expected, 1 a gradient is wrong, 2 usage or spec error, 3 something "
    "could not be judged, "
    "4 a fault in gradverify, 5 nothing was checked, 130, 143 or 129 interrupted."
)

EXAMPLES = """Examples:

gradverify check specs

gradverify check 'specs/linear.yaml::linear' --eps 1e-6 -v

gradverify check specs -k 'softmax and not cuda' --report json:report.json

gradverify validate specs"""

COMMANDS: Mapping[str, str] = {
    "check": "check",
    "hook": "hook",
    "validate": "list",
    "list": "list",
    "explain": "explain",
    "mutate": "mutate",
    "coverage": "coverage",
    "init": "init",
    "record": "record",
    "show": "show",
    "schema": "env",
    "env": "env",
}
"""Command → the file of `cli/` that contains it; its function is `NAME_command`."""


def command(arguments: Sequence[str] = ()) -> Any:
    """Return the command line for `arguments`: with one command if they begin with its name, else
    with all. boundary.py calls its `main`."""
    app = typer.Typer(
        name="gradverify",
        cls=PlainGroup,
        help=HELP,
        epilog=EXAMPLES,
        no_args_is_help=True,
        invoke_without_command=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS:
        # Names of files in a commit may look like options, and a command has its own
        settings = {"allow_interspersed_args": False} if name in ("hook", "record") else {}
        app.command(name, cls=PlainCommand, context_settings=settings)(_function(name))
    return typer.main.get_command(app)


def _function(name: str) -> Callable[..., int]:
    """Import the file of a command and return its function. Each import takes 20 to 60 ms, which
    other commands avoid."""
    function: Callable[..., int] = getattr(
        importlib.import_module(f"gradverify.cli.{COMMANDS[name]}"), f"{name}_command"
    )
    return function


def _root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of gradverify and torch.")
    ] = False,
) -> int:
    if version:
        from gradverify import __version__
        from gradverify.cli.bug import version_of

        ctx.obj.write(
            f"gradverify {__version__} (torch {version_of('torch') or 'not installed'})\n"
        )
    return 0
