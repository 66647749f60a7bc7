"""The calls of `specs/calls.yaml`, from the JSON report of `gradverify check`, against the limits
for each kind of function."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SPECS = Path(__file__).with_name("specs")
ROOT = SPECS.parents[1]
SOFTMAX, BATCH, INNER, OUTER, INPUTS, OUTPUTS = 16, 32, 128, 10, 60, 40  # the sizes in calls.yaml
BLOCKS = (80, 6)  # forward calls with detection and noise, of one input; backward calls

Calls = tuple[int, int]


@dataclass(frozen=True)
class Limits:
    """The most forward and backward calls, by entries and by rows; of gradcheck; and their
    formulas."""

    gradcheck: str
    entries: Calls
    rows: Calls
    inputs: int = 1


LIMITS = {
    "elementwise": Limits("2N + 1 / N", (60, 6), (60, 4)),
    "softmax": Limits("2RC + 1 / RC", (8 * SOFTMAX + 80, SOFTMAX + 12), (60, SOFTMAX + 6)),
    "product": Limits(
        "2(BI + IO) + 2 / BO",
        (5 * INNER + 150, 2 * (BATCH + OUTER) + 16),
        (120, BATCH + OUTER + 10),
        2,
    ),
    "dense": Limits("2N + 1 / M", (7 * INPUTS + 80, OUTPUTS + 8), (70, OUTPUTS + 8)),
}


@dataclass(frozen=True)
class Row:
    """Counted and allowed calls of one kind of function in one way."""

    kind: str
    way: str
    counted: Calls
    most: Calls

    @property
    def kept(self) -> bool:
        return self.counted[0] <= self.most[0] and self.counted[1] <= self.most[1]


def rows(report: dict[str, object] | None = None) -> list[Row]:
    """Each kind by entries, by rows and by blocks."""
    calls = _calls(report or reported())
    return [
        row
        for kind, limits in LIMITS.items()
        for row in _rows(kind, limits, lambda mode, kind=kind: calls[kind, mode])
    ]  # type: ignore[misc]


def _rows(kind: str, limits: Limits, calls: Callable[[str], Calls]) -> list[Row]:
    return [
        Row(kind, "entries", calls("entries"), limits.entries),
        Row(kind, "rows", calls("rows"), limits.rows),
        Row(kind, "blocks", calls("blocks"), (BLOCKS[0] * limits.inputs, BLOCKS[1])),
    ]


def _calls(report: dict[str, object]) -> dict[tuple[str, str], Calls]:
    found = {}
    for check in report["checks"]:  # type: ignore[attr-defined]
        if check["verdict"] != "pass":
            raise SystemExit(f"{check['id']}: {check['verdict']}: {check['reason']}")
        kind = check["name"].partition("[")[0]
        found[kind, check["mode"]] = (check["calls"]["forward"], check["calls"]["backward"])
    return found


def reported() -> dict[str, object]:
    """The JSON report of a process of its own."""
    line = [
        sys.executable,
        "-m",
        "gradverify",
        "check",
        str(SPECS),
        "--format",
        "json",
        "--no-progress",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    if not run.stdout:
        raise SystemExit(run.stderr)
    report: dict[str, object] = json.loads(run.stdout)
    return report
