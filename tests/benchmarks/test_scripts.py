"""The benchmark scripts, each on a tiny input: its figures are what was counted, and a verdict that
turned is seen. No time is checked."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)]),
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture
def script(monkeypatch):
    """`script(name)`: the module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def cells(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| ")
    ]


# ---- parity: a change that turns a right gradient into a false alarm, passes a wrong one, or
# decides less, must not be unseen
EXACT = "family sin, float64, noise 0, scale 1 |"
# Wrong by 1e-4, a tenth of the tolerance of float32
PASSED = "family sin, float32, noise 0, scale 1 | tiny"
OPERATOR = "sample exp float64"


def test_parity_sees_no_difference_where_there_is_none_and_tells_the_worst_first(
    script, tmp_path, capsys
):
    parity, saved, other = script("parity"), tmp_path / "saved.json", tmp_path / "other.json"
    assert (
        parity.main(
            [
                "--only",
                f"{EXACT} none | rows",
                f"{EXACT} sign | rows",
                f"{PASSED} | entries",
                OPERATOR,
                "--out",
                str(saved),
            ]
        )
        == 0
    )
    records = {record["name"]: record for record in json.loads(saved.read_text())}
    verdicts = {
        (name.split(" | ")[0], name.split(" | ")[1]): (record["truth"], record["verdict"])
        for name, record in records.items()
    }
    assert {verdict for (name, _), verdict in verdicts.items() if name.startswith(OPERATOR)} == {
        ("right", "pass"),
        ("wrong", "fail"),
    }
    assert verdicts[EXACT[:-2], "none"] == ("right", "pass") and verdicts[EXACT[:-2], "sign"] == (
        "wrong",
        "fail",
    )
    assert verdicts[PASSED.rpartition(" | ")[0], "tiny"] == ("wrong", "pass")
    capsys.readouterr()
    kept = {name: record for name, record in records.items() if name.startswith("family")}
    other.write_text(json.dumps(list(kept.values())))
    assert parity.main(["--against", str(other)]) == 0
    assert f"{len(kept)} records, 0 differ" in capsys.readouterr().out
    for name, record in kept.items():  # what another engine is said to have found
        if name.startswith(f"{EXACT} none"):
            record.update(verdict="fail", codes=["GV101"])
        elif name.startswith(f"{EXACT} sign"):
            record["calls"][0] += 1
        else:
            record.update(verdict="fail", codes=["GV101"])
    other.write_text(json.dumps(list(kept.values())))
    assert parity.main(["--against", str(other), "--all"]) == 1
    said = capsys.readouterr().out
    assert (
        said.index("WORSE    " + PASSED)
        < said.index(f"better   {EXACT} none")
        < said.index(f"calls    {EXACT} sign")
    )
    assert "WORSE 1, better 1, calls 1" in said


@pytest.mark.parametrize(
    ("truth", "old", "new", "kind"),
    [
        ("right", ("pass",), ("fail", "GV101"), "WORSE"),
        ("right", ("undecided", "GV007"), ("fail", "GV101"), "WORSE"),
        ("wrong", ("fail", "GV101"), ("pass",), "WORSE"),
        ("wrong", ("fail", "GV101"), ("error",), "WORSE"),
        ("wrong", ("pass",), ("undecided",), "better"),
        ("GV224", ("pass", "GV224"), ("pass",), "WORSE"),
        ("GV224", ("pass",), ("pass", "GV224"), "better"),
        ("unknown", ("pass",), ("fail", "GV101"), "WORSE"),
        ("unknown", ("fail", "GV101"), ("pass",), "WORSE"),
        ("wrong", ("fail", "GV101"), ("fail", "GV114"), "codes"),
        ("right", ("error",), ("undecided",), "verdict"),
    ],
)
def test_every_turn_of_a_verdict_has_its_kind(script, truth, old, new, kind):
    parity = script("parity")
    before, after = (
        parity.Record("a", truth, verdict, tuple(codes), "entries", (4, 0, 0, 0, 0), (9, 9, 0))
        for verdict, *codes in (old, new)
    )
    assert [each.kind for each in parity.differences({"a": before}, {"a": after})] == [kind]
    assert parity.differences({"a": before}, {"a": before}) == []


# ---- verdicts
def test_verdicts_counts_what_each_checker_says(script, tmp_path):
    verdicts, out = script("verdicts"), tmp_path / "verdicts.md"
    printed = verdicts.main(["--quick", "--families", "sin", "--no-modes", "--out", str(out)])
    table = {
        (row[0], row[1], row[2]): [int(cell) for cell in row[3:]]
        for row in cells(printed)[1:]
        if row[3].isdigit()
    }
    assert len(table) == 3 * (2 * 2 + 1)
    ours = {
        forward: [
            row
            for (each, _, checker), row in table.items()
            if (each, checker) == (forward, "gradverify")
        ]
        for forward in ("float64", "float32")
    }
    assert ours["float64"] == [[1] + [0] * 8] * 2
    # No false alarm, and an error of one in a hundred is found
    assert [(row[1], *row[4:8]) for row in ours["float32"]] == [(0,) * 5] * 2
    # Gradcheck misses what lies within its tolerance, but not the sign
    for mode in ("slow", "fast"):
        assert (
            table["float64", "of order 1", f"gradcheck {mode}"][3],
            table["float64", "of order 1", f"gradcheck {mode}"][6],
        ) == (1, 0)
    assert (
        printed.strip() in out.read_text()
        and (BENCHMARKS / "reading.md").read_text().strip() in out.read_text()
    )
    with pytest.raises(SystemExit, match=r"'sine'; there are .*sigmoid"):
        verdicts.main(["--families", "sine"])


# ---- speed, small
def test_speed_has_a_time_for_each_and_the_ratio_is_theirs(script):
    speed, timing, cases = script("speed"), script("timing"), script("cases")
    header, row = cells(
        speed.main(["--cases", "sort", "--repeats", "1", "--modes", "auto", "rows"])
    )[::2]
    assert (
        header == ["function", "gradcheck slow", "gradcheck fast", "auto", "rows"]
        and row[0] == "sort 16×16"
    )

    def milliseconds(text: str) -> float:
        number, unit = re.search(r"([\d.]+) (ms|s)\b", text).groups()
        return float(number) * (1 if unit == "ms" else 1e3)

    for cell in row[3:]:
        assert float(re.search(r"\(([\d.e+]+)×\)", cell)[1]) == pytest.approx(
            milliseconds(row[1]) / milliseconds(cell), rel=0.06
        )
    # Its Jacobians would not fit
    impossible = {case.name for case in cases.CASES if not timing.possible("gradcheck slow", case)}
    assert impossible == {
        "gelu 1000×1000",
        "softmax 1000×1000",
        "layer_norm 1024×1024, weight, bias",
    }
    with pytest.raises(SystemExit, match="softmax 128×16"):
        speed.main(["--cases", "no such thing"])


def test_the_calls_of_the_reported_specs_keep_the_limits(script):
    counted = script("counted")
    rows = counted.rows()
    assert {(row.kind, row.way) for row in rows} >= {
        (kind, way) for kind in counted.LIMITS for way in ("entries", "blocks")
    }
    assert len(rows) == 3 * len(counted.LIMITS)
    assert [row for row in rows if not row.kept] == []


def test_ordinary_small_functions_pass_under_every_rule_in_few_calls(script):
    """As measured: 92 calls for SwiGLU, and a median of 136."""
    small = script("small")
    results = {name: small.run_case(small.case(name, inputs)) for name, _, inputs in small.SMALL}
    assert {
        name: (result.verdict, result.findings) for name, result in results.items()
    } == dict.fromkeys(results, ("pass", ()))
    calls = {name: result.calls.forward + result.calls.backward for name, result in results.items()}
    assert calls["SwiGLU"] <= 92 and median(calls.values()) <= 136
    # Few calls, and no rule left out
    ran = {run.code for run in next(iter(results.values())).rules if run.status == "ran"}
    assert {
        "GV101",
        "GV109",
        "GV113",
        *(
            f"GV{number}"
            for number in (
                201,
                205,
                206,
                207,
                208,
                209,
                210,
                211,
                213,
                214,
                215,
                218,
                220,
                225,
                226,
                227,
                228,
                229,
            )
        ),
    } <= ran


# ---- constants: an altered value must reach the code that uses it, or every constant looks free
IN_A_PROCESS = """
import json, torch
import torch.fx.experimental.symbolic_shapes
from altered import Change, alter
alter("rungs.Z", Change(2.0**40))
from gradverify.numerics import rungs
from gradverify.numerics.estimate import ladder, samples
from rough import Damage, Rough
from user import differentiated, judged
torch.set_num_threads(1)
sine = Rough("sin", torch.sin, ([0.3, 1.1],))
said = [judged("sin", sine.with_damage(damage), differentiated(sine.inputs()), "entries", 0).verdict for damage in (Damage.NONE, Damage.PERCENT)]
print(json.dumps([said, rungs.Z, ladder.Z, samples.SECOND]))
"""


def test_an_absurd_constant_reaches_the_code_and_turns_verdicts_as_it_must(script):
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
    )
    verdicts, *values = json.loads(done.stdout)
    assert verdicts == ["undecided", "undecided"], "with bars of 10¹³ deviations nothing is decided"
    from gradverify.numerics import rungs
    from gradverify.numerics.estimate import ladder, samples

    # also where it was imported by name, and computed from
    assert values == pytest.approx([2.0**40 * each for each in (rungs.Z, ladder.Z, samples.SECOND)])
    with pytest.raises(RuntimeError, match="imported already"):
        script("altered").alter("rungs.Z", script("altered").Change(2.0))
