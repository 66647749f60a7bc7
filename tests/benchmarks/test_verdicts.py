"""The benchmark of verdicts, on two functions."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "verdicts.py"
FIRST_COUNT = 3


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The script as a process of its own, on the package beside it."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the script prints, and the page that it writes."""
    out = tmp_path_factory.mktemp("docs") / "verdicts.md"
    return run("--quick", "--families", "sin", "log", "--out", str(out)).stdout, out.read_text()


def counts(printed: str) -> dict[tuple[str, str, str], list[int]]:
    rows = cells(printed.partition("## By mode")[0])
    return {(row[0], row[1], row[2]): [int(cell) for cell in row[FIRST_COUNT:]] for row in rows}


def by_mode(printed: str) -> dict[tuple[str, str], list[int]]:
    return {(forward, mode): [int(cell) for cell in row] for forward, mode, *row in cells(printed.partition("## By mode")[2].strip())}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:] if line]


def test_a_row_for_each_precision_scale_and_checker(page):
    table = counts(page[0])
    assert len(table) == 3 * (2 * 2 + 1)
    assert {runs for (forward, *_), (runs, *_) in table.items() if forward != "all"} == {2}


def test_gradverify_raises_no_false_alarm_and_misses_nothing_in_float64(page):
    ours = [row for (forward, _, checker), row in counts(page[0]).items() if (forward, checker) == ("float64", "gradverify")]
    assert [row[1:] for row in ours] == [[0] * 8] * 2


def test_no_mode_raises_a_false_alarm_or_passes_an_error_of_one_in_a_hundred(page):
    table = by_mode(page[0])
    assert table.keys() == set(product(("float64", "float32", "all"), ("rows", "blocks")))
    assert {row[0] for (forward, _), row in table.items() if forward != "all"} == {2 * 2}
    assert {(row[1], *row[4:8]) for row in table.values()} == {(0,) * 5}
    assert {row[3] for (forward, _), row in table.items() if forward == "float64"} == {0}    # nor one of 1e-4


def test_gradcheck_misses_what_lies_within_its_tolerance(page):
    table = counts(page[0])
    assert all(table["float64", "of order 1", f"gradcheck {mode}"][3] == 2 for mode in ("slow", "fast"))
    assert all(table["float64", "of order 1", f"gradcheck {mode}"][6] == 0 for mode in ("slow", "fast"))  # the sign


def test_an_error_of_one_in_a_hundred_is_found_in_float32(page):
    ours = [row for (forward, _, checker), row in counts(page[0]).items() if (forward, checker) == ("float32", "gradverify")]
    assert [row[1] for row in ours] == [0, 0]
    assert [row[4:8] for row in ours] == [[0] * 4] * 2


def test_the_page_holds_the_table_its_command_and_how_to_read_it(page):
    printed, written = page
    assert printed.strip() in written
    assert "benchmarks/verdicts.py --quick --families sin log" in written
    assert SCRIPT.with_name("reading.md").read_text().strip() in written


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import verdicts

    return verdicts


def test_the_witness_decides_where_torch_sees_the_noise_and_lets_nothing_wrong_through(verdicts):
    extent = verdicts.Extent([setting for setting in verdicts.SETTINGS[1:5] if setting[1].relative == 1e-9], (1.0,), 1)
    table = verdicts.added([verdicts.judge(("rational", 0), extent)])
    found = {seen: (rows[verdicts.OFF], rows[verdicts.OURS]) for seen in (False, True)
             for where, rows in table.items() if where.noise.seen is seen}
    assert {seen: (off.right(), on.right()) for seen, (off, on) in found.items()} == {False: ([1, 0, 0],) * 2, True: ([1, 0, 1], [1, 0, 0])}
    assert all(off.passed(verdicts.ALL) == on.passed(verdicts.ALL) for off, on in found.values())
    assert all(on.passed(verdicts.ALL)[1:] == [0] * 6 for _, on in found.values())     # the first, 1e-9, is a thousandth of the tolerance
    assert verdicts.markdown(table).count("| it differentiates | both | on | 1 | 0 | 0 |") == 1


def test_an_unknown_function_is_named_with_those_there_are():
    told = run("--families", "sine")
    assert told.returncode != 0
    assert "'sine'" in told.stderr
    assert "sigmoid" in told.stderr
