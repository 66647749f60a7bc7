"""Laws on the source: one writer and one exit; what a rule declares is listed nowhere else; a list
of modes or dtypes stands in one place."""

import ast
import re
from pathlib import Path

import pytest

import gradverify
from gradverify.model.case import MODE_SETTINGS
from gradverify.model.dtypes import TABLE
from gradverify.model.fault import ToolError, attempted, tried

ROOT = Path(gradverify.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}

LIGHT = ("model/", "spec/", "source/", "report/", "cli/", "running/", "__main__.py", "__init__.py")
WRITES = {"print", "typer.echo", "typer.secho", "rich.print", "rich.print_json", "click.echo"}
EXITS = {
    "sys.exit",
    "exit",
    "quit",
    "os._exit",
    "os.abort",
    "SystemExit",
    "typer.Exit",
    "click.exceptions.Exit",
}
STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
# The writer, and what keeps a check's prints away from the terminal
MAY_TOUCH_STREAMS = {"cli/output.py", "running/inline.py"}
# The last two: keeps checked code from it; ends a check's own process
MAY_EXIT = {"cli/boundary.py", "running/sending.py"}

# The modules that catch what the user's code raises: the engine of the rules, and the module of
# `attempted` and `tried`, by which every other module takes it as a value
CATCH = {"rules/engine.py", "model/fault.py"}

CODE = re.compile(r"GV\d{3}")
WITHOUT_CODES = ("verify.py", "rules/engine.py", "causes/")
BELOW_REPORT = ("model/", "numerics/", "oracles/")

TABLES = {"model/dtypes.py", "model/case.py"}
OWN_LISTS = {  # that mean something else
    "spec/fault.py": "slips in spelling",
    "rules/values.py": "what the bits of a number show",
    "causes/scaled.py": "the same",
    "numerics/function/point.py": "what a NumPy view of the memory can show",
}
SEVERAL = 3


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def names(source):
    """Every dotted name of a piece of source, those imported with `from` included under their full
    names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Attribute, ast.Name)):
            yield dotted(node)
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(file, source):
    """`running/inline.py` may hold the streams and not write to them."""
    streams = (
        {"sys.stdout.write", "sys.stderr.write"}
        if file == "running/inline.py"
        else set()
        if file in MAY_TOUCH_STREAMS
        else STREAMS
    )
    return set(names(source)) & (WRITES | streams | (set() if file in MAY_EXIT else EXITS))


def codes(source):
    """Rule codes among the strings of a file, but for docstrings."""
    whole = ast.parse(source)
    spoken = {
        id(node.body[0].value)
        for node in ast.walk(whole)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = (
        node
        for node in ast.walk(whole)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken
    )
    return {code for node in strings for code in CODE.findall(node.value)}


def copies(source):
    """Lines with displays of names: several of a table's, and nothing else."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            found = {
                each.attr
                if isinstance(each, ast.Attribute) and dotted(each.value) == "torch"
                else getattr(each, "value", None)
                for each in node.elts
            } - {""}
            if len(found) >= SEVERAL and (found <= set(TABLE) or found <= set(MODE_SETTINGS)):
                yield node.lineno


def test_one_writer_and_one_exit():
    light = {file: source for file, source in SOURCES.items() if file.startswith(LIGHT)}
    assert len(light) > 30
    assert {
        file: found for file, source in light.items() if (found := forbidden(file, source))
    } == {}


def test_what_puts_rules_together_names_none_and_numbers_are_measured_without_the_words_of_reports():
    assert {
        file: found
        for file, source in SOURCES.items()
        if file.startswith(WITHOUT_CODES) and (found := codes(source))
    } == {}
    below = {file: source for file, source in SOURCES.items() if file.startswith(BELOW_REPORT)}
    assert (
        below
        and {
            file
            for file, source in below.items()
            if any(name.startswith("gradverify.report") for name in names(source))
        }
        == set()
    )


def catches(source):
    """Lines that take what the user's code raised."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            taken = ast.walk(node.type)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
            taken = ast.walk(node)
        else:
            continue
        if any(dotted(each).endswith("UserCodeError") for each in taken):
            yield node.lineno


def test_what_the_users_code_raises_is_caught_in_two_modules_and_is_a_value_elsewhere():
    assert {file for file, source in SOURCES.items() if any(catches(source))} == CATCH


def test_our_own_errors_are_no_value():
    def fails():
        raise ToolError

    for taken in (attempted, tried):
        with pytest.raises(ToolError):
            taken(fails)


def test_no_other_file_lists_modes_or_dtypes():
    found = {
        file: lines
        for file, source in SOURCES.items()
        if file not in TABLES | OWN_LISTS.keys() and (lines := list(copies(source)))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("law", "source"),
    [
        *(
            (lambda source: forbidden("cli/check.py", source), source)
            for source in (
                "print(1)",
                "import typer\ntyper.echo(1)",
                "from rich import print",
                "import sys\nsys.exit(1)",
                "raise SystemExit",
                "from sys import exit",
                "from typer import Exit",
                "import sys\nsys.stdout.write('')",
                "from sys import stderr",
                "import os\nos._exit(3)",
            )
        ),
        (
            lambda source: codes(source) == {"GV101", "GV102"},
            '"""GV100 is a rule."""\nORDER = ("GV101", "GV102")',
        ),
        *(
            (lambda source: list(catches(source)), source)
            for source in (
                "try:\n    f()\nexcept (failure.UserCodeError, RuntimeError):\n    pass",
                "with suppress(UserCodeError):\n    f()",
            )
        ),
        *(
            (lambda source: list(copies(source)), source)
            for source in (
                'D = ("float64", "float32", "complex128")',
                "D = (torch.float64, torch.float32, torch.bfloat16)",
                'lines: Literal["", "entries", "rows", "blocks"]',
                'M = ["entries", "rows", "blocks"]',
            )
        ),
    ],
)
def test_a_law_sees_what_it_forbids(law, source):
    assert law(source)
