"""A list of modes or of dtypes stands in one place: any other literal of several of their names is a copy that can drift."""

import ast
from pathlib import Path

import pytest

import gradverify
from gradverify.model.dtypes import TABLE
from gradverify.model.mode import ASKED

ROOT = Path(gradverify.__file__).parent
SOURCES = {"model/dtypes.py", "model/mode.py"}
OWN = {     # lists that mean something else
    "spec/fault.py": "slips in spelling", "rules/gv222_precision_inside.py": "what the bits of a number show", "causes/scaled.py": "the same",
    "causes/precision.py": "the same", "numerics/function/buffers.py": "what a NumPy view of the memory can show"}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).as_posix() not in SOURCES | OWN.keys()]
SEVERAL = 3


def copies(source):
    """Displays of names: several of a table's, and nothing else."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            names = {_name(each) for each in node.elts} - {""}
            if len(names) >= SEVERAL and (names <= set(TABLE) or names <= set(ASKED)):
                yield node.lineno


def _name(node):
    """A string, or an attribute of torch."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    return node.value if isinstance(node, ast.Constant) else None


def test_no_other_file_lists_modes_or_dtypes():
    assert {path.relative_to(ROOT).as_posix(): lines for path in FILES if (lines := list(copies(path.read_text(encoding="utf-8"))))} == {}


@pytest.mark.parametrize("source", ['D = ("float64", "float32", "complex128")', "D = (torch.float64, torch.float32, torch.bfloat16)",
                                    'lines: Literal["", "entries", "rows", "blocks"]', 'M = ["entries", "rows", "blocks"]'])
def test_the_law_sees_a_copy(source):
    assert list(copies(source))
