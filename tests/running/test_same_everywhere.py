"""However checks are ordered, spread over processes, threads and shards, their report is the same but for times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).parents[2] / "specs" / "seeds"
SOME = [SEEDS / f"{name}.yaml" for name in ("mul", "relu", "kill_head", "affine", "linear_module")]
TIMES = {"seconds", "argv"}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """`report(paths, *options, threads=1)`: the checks, with all that the report says of each but for times, by id; and the summary."""
    folder = tmp_path_factory.mktemp("reports")

    def run(paths, *options, threads=1, command="check"):
        out = folder / f"{len(list(folder.iterdir()))}.json"
        subprocess.run([sys.executable, "-m", "gradverify", command, *map(str, paths), "-q", "--report", f"json:{out}", *options],
                       env={**os.environ, "OMP_NUM_THREADS": str(threads)}, capture_output=True, timeout=280, check=True)
        found = json.loads(out.read_text())
        return {check["id"]: {key: value for key, value in check.items() if key not in TIMES} for check in found["checks"]}, found["summary"], out

    return run


@pytest.fixture(scope="module")
def alone(report):
    return report(SOME)


@pytest.mark.population(most=2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("order", "options"), [(1, ["-j", "2"]), (-1, ["-j", "1"]), (-1, ["-j", "2"]), (1, ["--no-isolate"])])
def test_in_any_order_over_any_number_of_processes(report, alone, order, options):
    assert len(alone[0]) > 10 and report(SOME[::order], *options)[:2] == alone[:2]


@pytest.mark.timeout(600)
def test_in_shards_that_are_joined(report, alone):
    shards = [report(SOME, "--shard", f"{number}/4", "-j", "2") for number in (1, 2, 3, 4)]
    assert all(len(checks) < len(alone[0]) for checks, _, _ in shards)
    assert report([out for _, _, out in shards[::-1]], command="merge")[:2] == alone[:2]


@pytest.mark.timeout(600)
def test_on_any_number_of_threads(report, alone):
    assert report(SOME, threads=4)[:2] == alone[:2]


@pytest.mark.timeout(600)
def test_with_any_seed_the_verdicts_are_the_same(report, alone):
    found = {name: check["verdict"] for name, check in report(SOME, "-j", "2", "--seed", "7")[0].items()}
    assert found == {name: check["verdict"] for name, check in alone[0].items()}


LOUD = "import ctypes, os\nprint('{0} in Python')\nos.write(2, b'{0} natively')\nctypes.CDLL(None).puts(b'{0} in C')\n"
LOUD_OP = LOUD + "def f(x):\n    return x * x\n\ndef says(x):\n    print('says', end='')\n    return x * x\n"
LOUD_FILES = {"op.py": LOUD_OP.format("op"), "by_name.py": LOUD_OP.format("name"), "pkg/__init__.py": LOUD.format("package"),
              "pkg/op.py": LOUD_OP.format("inner"), "also.py": LOUD.format("also"), "raises.py": LOUD.format("raises") + "raise ValueError\n"}
LOUD_TARGETS = ("op.py:f", "by_name:f", "pkg.op.f", "pkg.op:f", "op.py:says", "raises.py:f")


@pytest.mark.population(most=3)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("order", "options"), [(1, ["-j", "1"]), (-1, ["-j", "1"]), (1, ["-j", "2"]), (-1, ["-j", "2"]), (1, ["--no-isolate"])])
def test_what_modules_print_when_they_are_imported_is_no_part_of_a_check(tmp_path, order, options):
    """Only the first check of a process that names a module imports it; which one that is follows from `-j` and the order."""
    for name, text in LOUD_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    checks = [f"  - {{name: '{target} {number}', function: '{target}', inputs: {{x: {{shape: [2]}}}}}}\n"
              for target in LOUD_TARGETS for number in (1, 2)]
    (tmp_path / "s.yaml").write_text("gradverify: 1\nimport: [also]\nchecks:\n" + "".join(checks[::order]))
    subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml", "-q", "--report", "json:r.json", *options], cwd=tmp_path,
                   capture_output=True, timeout=280, check=False)
    captured = {check["name"]: check["captured"] or "" for check in json.loads((tmp_path / "r.json").read_text())["checks"]}
    assert {name for name, text in captured.items() if text} == {f"{target} {number}" for target in LOUD_TARGETS[-2:] for number in (1, 2)}
    for number in (1, 2):
        assert set(captured[f"op.py:says {number}"].split("says")) == {""}
        assert all(f"raises {how}" in captured[f"raises.py:f {number}"] for how in ("in Python", "natively", "in C"))
