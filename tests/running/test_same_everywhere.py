"""However checks are ordered, spread over processes, threads and shards, their report is the same
but for times. Among them are those that tempt to a difference: a crash, random draws, a wrong
gradient, one that is skipped, one that is expected to fail."""

from __future__ import annotations

import json

import pytest
from commands import apart, checks, here, spec

CHECKS = [
    "name: gives up, function: 'op.py:gives_up', inputs: {x: {shape: [3]}}",
    "name: mul, function: mul, inputs: {x: {shape: [2, $n]}, y: {shape: [2, $n]}}, matrix: {n: "
    "[1, 4]}",
    "name: wrong, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, expected: {x: [2, "
    "2]}, expect: [GV107]",
    "name: later, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, skip: later",
    "name: noisy, function: 'op.py:noisy', inputs: {x: {shape: [4]}}",
    "name: layer, function: 'torch.nn:Linear', init: {in_features: 3, out_features: 2}, inputs: "
    "{input: {shape: [4, 3]}}",
    "name: product, function: 'torch:matmul', inputs: [{shape: [4, 5]}, {shape: [5, 3]}]",
]
OP = """import os, torch


def gives_up(x):
    os.abort()


def noisy(x):
    print("seen")
    return torch.dropout(x, 0.5, True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "")
    (tmp_path / "op.py").write_text(OP)
    return tmp_path


SPECS = ("a.yaml", "b.yaml")


def report(folder, name="r.json"):
    """Exit code, summary, and the checks by their ids, without times."""
    data = json.loads((folder / name).read_text())
    for check in data["checks"]:
        del check["seconds"]
    return data["exit_code"], data["summary"], {check["id"]: check for check in data["checks"]}


@pytest.mark.timeout(600)
def test_in_any_order_over_any_number_of_processes_threads_and_shards(folder):
    for name, part in zip(SPECS, (CHECKS[:4], CHECKS[4:]), strict=True):
        (folder / name).write_text(spec(*part))
    code, _, _ = here("check", *SPECS, "--report", "json:r.json")
    whole = report(folder)
    verdicts = [check["verdict"] for check in checks(folder / "r.json").values()]
    assert code == 3 and verdicts == ["error", "pass", "pass", "fail", "skip", *["pass"] * 3]
    assert (
        apart(
            "check", *SPECS, "--report", "json:r.json", cwd=folder, env={"OMP_NUM_THREADS": "4"}
        ).returncode
        == code
    )
    assert report(folder) == whole
    parts = {}
    for index in (1, 2, 3):
        here("check", *SPECS, "-j", "2", "--shard", f"{index}/3", "--report", "json:r.json")
        parts |= report(folder)[2]
    assert parts == whole[2]
    assert here("check", *SPECS[::-1], "-j", "2", "--report", "json:r.json")[0] == code
    assert report(folder) == whole
    wanted = whole[2]
    del wanted["a.yaml::gives up"]
    here("check", *SPECS, "--no-isolate", "-k", "not gives", "--report", "json:r.json")
    assert report(folder)[2] == wanted
    here("check", *SPECS, "--seed", "7", "-k", "not gives", "--report", "json:r.json")
    verdicts = {id: check["verdict"] for id, check in report(folder)[2].items()}
    assert verdicts == {id: check["verdict"] for id, check in wanted.items()}


LOUD = (
    "import ctypes, os\nprint('{0} in Python')\nos.write(2, b'{0} natively')\n"
    "ctypes.CDLL(None).puts(b'{0} in C')\n"
)
LOUD_OP = (
    LOUD
    + "def f(x):\n    return x * x\n\ndef says(x):\n    print('says', end='')\n    return x * x\n"
)
LOUD_FILES = {
    "op.py": LOUD_OP.format("op"),
    "by_name.py": LOUD_OP.format("name"),
    "pkg/__init__.py": LOUD.format("package"),
    "pkg/op.py": LOUD_OP.format("inner"),
    "also.py": LOUD.format("also"),
    "raises.py": LOUD.format("raises") + "raise ValueError\n",
}
LOUD_TARGETS = ("op.py:f", "by_name:f", "pkg.op.f", "op.py:says", "raises.py:f")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("order", "options"), [(1, ["-j", "2"]), (-1, ["-j", "1"])])
def test_what_modules_print_when_they_are_imported_is_no_part_of_a_check(folder, order, options):
    """Only the first check of a process that names a module imports it; which one that is follows
    from `-j` and the order."""
    for name, text in LOUD_FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    lines = [
        f"name: '{target} {number}', function: '{target}', inputs: {{x: {{shape: [2]}}}}"
        for target in LOUD_TARGETS
        for number in (1, 2)
    ]
    text = spec(*lines[::order]).replace("checks:", "import: [also]\nchecks:")
    (folder / "s.yaml").write_text(text)
    here("check", "s.yaml", "-q", "--report", "json:r.json", *options)
    captured = {name: check["captured"] or "" for name, check in checks(folder / "r.json").items()}
    assert {name.rpartition(" ")[0] for name, text in captured.items() if text} == {
        *LOUD_TARGETS[-2:]
    }
    for number in (1, 2):
        assert set(captured[f"op.py:says {number}"].split("says")) == {""}
        raised = captured[f"raises.py:f {number}"]
        assert all(f"raises {how}" in raised for how in ("in Python", "natively", "in C"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_checks_run_at_a_time_than_j_says(folder, jobs):
    mul = "name: mul, function: mul, inputs: {x: {shape: [2]}, y: {shape: [2]}}"
    (folder / "s.yaml").write_text(spec(f"{mul}, matrix: {{seed: [1, 2, 3, 4, 5, 6]}}"))
    _, out, _ = here("check", "s.yaml", "-j", str(jobs), "--format", "jsonl")
    running, most = 0, 0
    for event in map(json.loads, out.splitlines()):
        running += {"check_started": 1, "check_finished": -1}.get(event["event"], 0)
        most = max(most, running)
    assert (running, most) == (0, jobs)
