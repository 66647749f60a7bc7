"""The benchmark of parity: saved verdicts are made again, and what turned is told, worse ones first. Both ways: nothing has changed, something has.

The class of faults: a change of the engine that turns a right gradient into a false alarm, passes a wrong one, or decides less, unseen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "parity.py"
EXACT = "family sin, float64, noise 0, scale 1 |"
PASSED = "family sin, float32, noise 0, scale 1 | tiny"  # wrong by 1e-4, a tenth of the tolerance of float32
GALLERY = "specs/gallery/gv101_jacobian.yaml::square without its factor 2"
MODES = ("entries", "rows", "blocks", "auto")
FAULTS = ("none", "tiny", "percent", "double", "sign", "zero")
WORSE = 1


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The script as a process of its own, on the package beside it."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, env=environment)


def loaded(file: Path) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in json.loads(file.read_text())}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a function, right and damaged, of one that is wrong and passes, and of a fault of the gallery."""
    file = tmp_path_factory.mktemp("parity") / "saved.json"
    done = run("--only", EXACT, PASSED, GALLERY, "--out", file)
    assert done.returncode == 0, done.stderr
    return file


def test_every_mode_and_fault_of_a_function_is_judged_and_rightly(saved):
    exact = [(name.split(" | "), record) for name, record in loaded(saved).items() if name.startswith(EXACT)]
    assert {(fault, mode) for (_, fault, mode, _), _ in exact} == set(product(FAULTS, MODES))
    assert all(record["verdict"] == ("pass" if fault == "none" else "fail") for (_, fault, *_), record in exact)
    assert all(record["by"] == mode for (*_, mode, _), record in exact if mode != "auto")


def test_a_check_of_the_gallery_is_judged_in_every_mode_by_three_seeds(saved):
    found = {tuple(name.split(" | ")[2:]): record["verdict"] for name, record in loaded(saved).items() if name.startswith(GALLERY)}
    assert found == dict.fromkeys(product(MODES, "012"), "fail")


def test_the_same_engine_finds_no_difference_whatever_the_number_of_processes(saved):
    done = run("--against", saved, "--jobs", 2)
    assert done.returncode == 0
    assert f"{len(loaded(saved))} records, 0 differ" in done.stdout


def test_what_the_engine_does_otherwise_is_told(saved):
    """The saved file says what another engine found: a false alarm, another code, one call more, and a record that is not made any more."""
    alarm, code, call, gone = f"{EXACT} none | rows", f"{GALLERY} | as written | entries | 1", f"{EXACT} zero | blocks", f"{EXACT} sign | rows"
    records = loaded(saved)
    for name, record in records.items():
        if name.startswith(alarm):
            record.update(verdict="fail", codes=["GV101"])
        elif name == code:
            record.update(codes=["GV101", "GV114"])
        elif name.startswith(call):
            record["calls"][0] += 1
        elif name.startswith(gone):
            record.update(name=name.replace("sign", "signs"))
    other = saved.with_name("other.json")
    other.write_text(json.dumps(list(records.values())))
    done = run("--against", other)
    assert done.returncode == 0
    told = [line.strip() for line in done.stdout.splitlines()[1:9]]
    assert told[0].startswith(f"better   {alarm}") and told[1].startswith("verdict fail | pass") and "codes GV101 | -" in told[1]
    assert told[2] == f"codes    {code}" and told[3].startswith("codes GV101/GV114 | GV101")
    assert told[4].startswith(f"calls    {call}")
    assert told[6].startswith("gone     ") and told[7].endswith("not made any more")
    assert "4 differ, better 1, codes 1, calls 1, gone 1" in done.stdout


def test_a_verdict_that_is_worse_comes_first_and_ends_with_1(saved):
    """What passes was found by the other engine, says the saved file."""
    call = f"{EXACT} none | blocks"
    records = [record for name, record in loaded(saved).items() if name.startswith((PASSED, call))]
    for record in records:
        if record["name"].startswith(call):
            record["calls"][1] += 1
        else:
            record.update(verdict="fail", codes=["GV101"])
    other = saved.with_name("worse.json")
    other.write_text(json.dumps(records))
    done = run("--against", other)
    assert done.returncode == WORSE
    told = done.stdout.splitlines()[1:]
    assert told[0].startswith(f"WORSE    {PASSED}") and "verdict fail | pass" in told[1] and told[1].endswith("(wrong)")
    assert f"WORSE {len(MODES)}, calls 1" in told[-1]


@pytest.mark.parametrize(("truth", "old", "new", "kind"), [
    ("right", ("pass",), ("fail", "GV101"), "WORSE"), ("right", ("undecided", "GV007"), ("fail", "GV101"), "WORSE"),
    ("wrong", ("fail", "GV101"), ("pass",), "WORSE"), ("wrong", ("fail", "GV101"), ("error",), "WORSE"),
    ("wrong", ("pass",), ("undecided",), "better"),
    ("GV224", ("pass", "GV224"), ("pass",), "WORSE"), ("GV224", ("pass",), ("pass", "GV224"), "better"),
    ("unknown", ("pass",), ("fail", "GV101"), "WORSE"), ("unknown", ("fail", "GV101"), ("pass",), "WORSE"),
    ("wrong", ("fail", "GV101"), ("fail", "GV114"), "codes"), ("right", ("error",), ("undecided",), "verdict"),
])
def test_every_turn_of_a_verdict_has_its_kind(monkeypatch, truth, old, new, kind):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    from parity import Record, differences

    before, after = (Record("a", truth, verdict, tuple(codes), "entries", (4, 0, 0, 0, 0), (9, 9, 0)) for verdict, *codes in (old, new))
    assert [each.kind for each in differences({"a": before}, {"a": after})] == [kind]
    assert differences({"a": before}, {"a": before}) == []


def test_operators_of_torch_are_judged_with_one_wrong_entry_beside_the_right_gradient(tmp_path):
    out = tmp_path / "operators.json"
    assert run("--only", "sample exp float64", "sample mul complex128 0 | one", "--out", out).returncode == 0
    by_fault = {(name.split(" | ")[1], record["truth"], record["verdict"]) for name, record in loaded(out).items()}
    assert by_fault == {("none", "right", "pass"), ("one entry", "wrong", "fail")}
