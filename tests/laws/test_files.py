"""The design's laws on files: what a rule or a kind of mistake declares is listed nowhere else."""

import ast
import re
from pathlib import Path

import pytest

import gradverify

ROOT = Path(gradverify.__file__).parent
FILES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]
CODE = re.compile(r"GV\d{3}")
WITHOUT_CODES = ["verify.py", "rules/asking.py", "rules/precedence.py", "rules/sound.py", "mutation/focus.py",
                 *(file for file in FILES if file.startswith("causes/"))]
BELOW_REPORT = ("model/", "numerics/", "oracles/")


def tree(file):
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def codes(source):
    """Rule codes among the strings of a file, but for docstrings."""
    whole = ast.parse(source)
    spoken = {id(node.body[0].value) for node in ast.walk(whole) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
              and node.body and isinstance(node.body[0], ast.Expr)}
    strings = (node for node in ast.walk(whole) if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken)
    return sorted({code for node in strings for code in CODE.findall(node.value)})


@pytest.mark.parametrize("file", WITHOUT_CODES)
def test_what_puts_rules_together_names_none(file):
    assert codes((ROOT / file).read_text(encoding="utf-8")) == []


def test_the_law_sees_a_code():
    assert codes('"""GV101 is a rule."""\nORDER = ("GV101", "GV102")') == ["GV101", "GV102"]


def imported(file):
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("folder", BELOW_REPORT)
def test_numbers_are_measured_without_the_words_of_reports(folder):
    found = {file: [name for name in imported(file) if name.startswith("gradverify.report")] for file in FILES if file.startswith(folder)}
    assert found and {file: names for file, names in found.items() if names} == {}
