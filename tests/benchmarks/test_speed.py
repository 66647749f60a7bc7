"""The benchmark of speed, on its smallest cases; no time is held against anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["embedding 20×8, repeated indices", "swish 32×32 in NumPy"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The script as a process of its own, on the package beside it."""
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    return subprocess.run([sys.executable, str(BENCHMARKS / "speed.py"), *arguments], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, ElementTree.Element]:
    """What the script prints, the page and the picture that it writes."""
    out = tmp_path_factory.mktemp("docs") / "speed.md"
    printed = run("--cases", "embedding", "NumPy", "--repeats", "1", "--edges", "4", "8", "--out", str(out)).stdout
    return printed, out.read_text(), ElementTree.parse(out.with_name("speed.svg")).getroot()


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")]


def milliseconds(text: str) -> float:
    number, unit = re.search(r"([\d.]+) (ms|s)\b", text).groups()
    return float(number) * (1 if unit == "ms" else 1e3)


def test_every_mode_and_both_of_gradcheck_have_a_time_and_the_ratio_is_theirs(made):
    header, _, *rows = cells(made[0])
    assert header == ["function", "gradcheck slow", "gradcheck fast", "auto", "tight", "entries", "rows", "blocks"]
    assert [row[0] for row in rows] == NAMES
    for row in rows:
        slow = milliseconds(row[1])
        for cell in row[3:]:
            ratio = float(re.search(r"\(([\d.e+]+)×\)", cell)[1])
            assert ratio == pytest.approx(slow / milliseconds(cell), rel=0.06)


def test_the_page_counts_the_calls_of_gradcheck_and_of_every_mode(made):
    counted = next(row for row in cells(made[1].partition("## Calls")[2]) if row[0] == NAMES[1])
    assert counted[1] == "2,049 / 1,024"
    assert all(re.fullmatch(r"\d+ / \d+", cell) for cell in counted[2:])


def test_the_page_says_where_gradcheck_was_the_faster(made):
    slower = [row[0] for row in cells(made[0])[2:] if milliseconds(row[3]) > milliseconds(row[1])]
    said = re.search(r"faster than gradcheck slow in (\d) of the (\d) cases that gradcheck can do(?:; slower in: (.*?))?\.", made[1])
    assert (int(said[1]), int(said[2]), said[3] or "") == (2 - len(slower), 2, ", ".join(slower))


def test_the_picture_has_two_panels_of_three_functions_each_with_gradcheck(made):
    lines = made[2].findall(f"{SVG}polyline")
    assert len(lines) == 2 * 3 * 2
    assert sum("stroke-dasharray" in line.attrib for line in lines) == 6
    assert all(len(line.attrib["points"].split()) == 2 for line in lines)
    names = {text.text for text in made[2].findall(f"{SVG}text")}
    assert {"gelu", "softmax", "layer_norm", "softmax, gradcheck slow"} <= names


def test_a_word_that_no_case_has_is_refused_with_the_names_that_there_are():
    refused = run("--cases", "no such thing")
    assert refused.returncode == 1
    assert "softmax 128×16" in refused.stderr


def test_gradcheck_is_not_asked_where_its_jacobians_would_not_fit(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cases
    import timing

    impossible = {case.name for case in cases.CASES if not timing.possible("gradcheck slow", case)}
    assert impossible == {"gelu 1000×1000", "softmax 1000×1000", "layer_norm 1024×1024, weight, bias"}


def test_the_calls_of_the_reported_specs_keep_the_limits(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import counted

    rows = counted.rows()
    assert {(row.kind, row.way) for row in rows} >= {(kind, way) for kind in counted.LIMITS for way in ("entries", "blocks")}
    assert len(rows) == 3 * len(counted.LIMITS)
    assert [row for row in rows if not row.kept] == []
    assert all(row.counted[0] > 12 and row.counted[1] > 0 for row in rows)
