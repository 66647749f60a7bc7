"""The picture of numerics/ in docs/architecture.md is true to the imports."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import gradverify

NUMERICS = Path(gradverify.__file__).parent / "numerics"
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def imported(unit):
    """Of a folder or a module of numerics/: the others that it imports."""
    files = (NUMERICS / unit).rglob("*.py") if (NUMERICS / unit).is_dir() else [NUMERICS / f"{unit}.py"]
    modules = [node.module for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {module.split(".")[2] for module in modules if module.startswith("gradverify.numerics.")} - {unit}


def below(unit, graph):
    """Everything that stands below a unit, through others or not."""
    return set().union(*({lower} | below(lower, graph) for lower in graph.get(unit, ())))


@pytest.fixture
def arrows():
    picture = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1]
    return {(upper.strip("/"), lower.strip("/")) for left, right in re.findall(r"^ *(.+?) --> (.+)$", picture, re.M)
            for upper in re.findall(r"\w+", left) for lower in re.findall(r"\w+", right)}


def test_every_arrow_is_an_import_and_every_import_goes_along_arrows(arrows):
    shown = {unit for arrow in arrows for unit in arrow}
    assert {folder.name for folder in NUMERICS.iterdir() if (folder / "__init__.py").exists()} <= shown
    imports, graph = {unit: imported(unit) & shown for unit in shown}, defaultdict(set)
    for upper, lower in arrows:
        graph[upper].add(lower)
    assert {(upper, lower) for upper, lower in arrows if lower not in imports[upper]} == set()
    assert {(upper, lower) for upper in shown for lower in imports[upper] - below(upper, graph)} == set()
