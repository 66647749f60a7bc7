"""Standard streams that are closed or full, as jobs of a CI may have them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = """gradverify: 1
checks:
  - {name: first, function: mul, inputs: {x: {shape: [2]}, y: {shape: [2]}}}
"""


@pytest.fixture
def shell(tmp_path):
    """`shell(redirections)` checks a right function under bash, with a report in r.json."""

    def call(redirections, *options):
        (tmp_path / "s.yaml").write_text(SPEC)
        command = f"{sys.executable} -m gradverify check s.yaml --report json:r.json {' '.join(options)} {redirections}"
        return subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return call


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_nothing_of_the_result(shell, tmp_path, closed):
    done = shell(closed)
    assert done.returncode == 0 and json.loads((tmp_path / "r.json").read_text())["summary"]["pass"] == 1
    assert done.stderr == "" and ("PASS       first" in done.stdout) == (closed == "2>&-")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("option", ["--format=json", "--format=plain"])
def test_a_full_disk_behind_stdout_is_told_in_one_line(shell, option):
    done = shell("> /dev/full", option)
    assert done.returncode == 4 and done.stderr == "stdout could not be written: No space left on device\n"


def test_a_spec_named_twice_through_a_link_and_a_folder_with_blanks_runs_once(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "s 1.yaml").write_text(SPEC)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "a b" / "s 1.yaml")
    done = subprocess.run([sys.executable, "-O", "-m", "gradverify", "check", "link.yaml::first", "a b/s 1.yaml"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=120, check=False, env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("PASS       first") == 1
