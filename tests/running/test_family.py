"""What a process started ends with it, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradverify.running.family import end_family, family

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").is_file(), reason="processes are found by /proc"
)
STARTS = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.setpgid(0, int(sys.argv[1])))
subprocess.Popen(["sleep", "60"], preexec_fn=os.setpgrp)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("alive", [True, False])
def test_a_group_that_others_belong_to_is_not_ended_as_a_whole(alive):
    """As the children that a process started before it left the group of a terminal or of a CI
    service."""
    other = subprocess.Popen(["sleep", "60"], process_group=0)
    root = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(other.pid)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert root.stdout.readline() == "ready\n"
        below = family(root.pid)
        assert len(below) == 2
        end_family(root.pid, alive=alive)
        until = time.monotonic() + 20
        while not all(ended(pid) for pid in below) and time.monotonic() < until:
            time.sleep(0.01)  # a killed process ends once it is scheduled
        assert other.poll() is None
        assert all(ended(pid) for pid in below)
        assert (root.wait(20) == -9) if alive else root.poll() is None
    finally:
        for process in (other, root):
            process.kill()
            process.wait()
        root.stdout.close()


def ended(pid):
    """Also where nobody has asked for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
