"""Places where the command is not at home: an archive, folders that nobody can write to, an
encoding without the letters of a name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gradverify"


@pytest.fixture
def started(folder):
    """`started(*arguments, **environment)`: exit code and stderr, or else stdout, of a process of
    its own."""

    def call(*arguments, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "gradverify", *arguments],
            cwd=folder,
            capture_output=True,
            timeout=200,
            check=False,
            env={**os.environ, **environment},
        )
        return done.returncode, (done.stderr + (b"" if done.stderr else done.stdout)).decode(
            errors="replace"
        )

    return call


def test_a_home_folder_without_room_for_the_completion_is_said_to_be_one(started):
    code, stderr = started("--install-completion", "bash", HOME="/proc/nobody")
    assert (
        code == 4
        and stderr.count("\n") == 1
        and "the completion was not installed: /proc/nobody" in stderr
    )


def test_a_spec_that_cannot_be_written_is_refused_before_anything_is_tried(gradverify, folder):
    (folder / "op.py").write_text("def f(x):\n    raise SystemExit\n")
    code, out, err = gradverify("init", "op.py:f", "-o", "/proc/s.yaml")
    assert (code, out) == (2, "") and err.startswith("-o: ") and "cannot be written" in err


def test_a_name_that_the_encoding_of_the_system_lacks_is_no_files(started, folder):
    (folder / "s.yaml").write_text(
        'gradverify: 1\nchecks:\n  - {function: "bäs.py:F", inputs: {x: {shape: [2]}}}\n',
        encoding="utf-8",
    )
    code, stderr = started(
        "validate", "s.yaml", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert code == 2 and "s.yaml:3:" in stderr and "Traceback" not in stderr
