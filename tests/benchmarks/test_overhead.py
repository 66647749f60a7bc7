"""The benchmark of what isolation costs, on few checks; no time is held against anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "overhead.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_every_figure_is_there_and_may_be_true():
    done = subprocess.run([sys.executable, str(SCRIPT), "--checks", "12", "--repeats", "1"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])})
    rows = dict(line.strip("| ").split(" | ", 1) for line in done.stdout.splitlines()[2:])
    # the computation is a small difference of two CPU times, of either sign on a busy machine
    seconds, computation = (float(rows[name].split()[0]) for name in ("first result after", "computation itself, CPU"))
    early, late = map(int, re.findall(r"(\d+)(?= →| MiB)", rows["memory after 50 and after 12 checks"]))
    assert seconds > 0.1 and abs(computation) < 1e4 and 100 < early < 1e5 and 100 < late < 1e5, done.stdout + done.stderr
