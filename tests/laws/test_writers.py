"""Only cli/output.py writes to the terminal; only cli/boundary.py exits; and a running check is captured where it runs."""

import ast
from pathlib import Path

import pytest

import gradverify

ROOT = Path(gradverify.__file__).parent
LIGHT = ("model", "spec", "source", "report", "cli", "running")
FILES = [*sorted(path for folder in LIGHT for path in (ROOT / folder).rglob("*.py")), ROOT / "__main__.py", ROOT / "__init__.py"]

WRITES = {"print", "typer.echo", "typer.secho", "rich.print", "rich.print_json", "click.echo"}
EXITS = {"sys.exit", "exit", "quit", "os._exit", "os.abort", "SystemExit", "typer.Exit", "click.exceptions.Exit"}
STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
MAY_TOUCH_STREAMS = {"cli/output.py", "running/inline.py"}
"""The writer, and the place that keeps what a check prints away from the terminal (it writes nothing itself)."""


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def names(source):
    """Every dotted name of a piece of source, those imported with `from` included under their full names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Attribute, ast.Name)):
            yield dotted(node)
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def place(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=place)
def test_one_writer_and_one_exit(path):
    found = set(names(path.read_text(encoding="utf-8")))
    assert not found & WRITES
    assert place(path) in MAY_TOUCH_STREAMS or not found & STREAMS
    if place(path) not in ("cli/boundary.py", "running/staying.py", "running/words.py"):    # keeps checked code from it; ends a check's own process
        assert not found & EXITS


def test_running_writes_to_no_stream():
    found = set(names((ROOT / "running/inline.py").read_text(encoding="utf-8")))
    assert not found & {"sys.stdout.write", "sys.stderr.write"}


@pytest.mark.parametrize("source, caught", [
    ("print(1)", WRITES), ("import typer\ntyper.echo(1)", WRITES), ("from rich import print", WRITES), ("import sys\nsys.exit(1)", EXITS),
    ("raise SystemExit", EXITS), ("from sys import exit", EXITS), ("from typer import Exit", EXITS), ("import sys\nsys.stdout.write('')", STREAMS),
    ("from sys import stderr", STREAMS), ("import os\nos._exit(3)", EXITS)])
def test_the_law_sees_what_it_forbids(source, caught):
    assert set(names(source)) & caught


def test_there_are_files_to_look_at():
    assert len(FILES) > 30
