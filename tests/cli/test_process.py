"""The whole program as a shell sees it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

RIGHT = """gradverify: 1
checks:
  - {name: "op[a=1]", function: "op.py:Square", inputs: {x: {shape: [3]}}}
"""
OP = """import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 2 * x * grad_output
"""


@pytest.fixture
def op(folder):
    """`op(old, new)` writes a spec and an op of one's own, with a change in its code."""

    def write(old="", new=""):
        (folder / "s.yaml").write_text(RIGHT)
        (folder / "op.py").write_text(OP.replace(old, new) if old else OP)

    return write


@pytest.mark.parametrize(
    "old, new, arguments, code, said",
    [
        ("", "", [], 0, "PASS       op[a=1]"),
        ("2 * x", "-2 * x", [], 1, "y0[0]"),
        ("x * x", "x.view(7)", [], 3, "GV002 forward-raised"),
        ("", "", ["-k", "nothing"], 5, "nothing was checked"),
    ],
)
def test_an_op_of_ones_own(gradverify, op, old, new, arguments, code, said):
    op(old, new)
    found, out, err = gradverify("check", "s.yaml", *arguments)
    assert found == code and said in out and "Traceback" not in err


IN_THE_PLACE_OF_OURS = (
    "token",
    "json",
    "random",
    "typer",
    "rich",
    "pydantic",
    "pydantic_core",
    "ruamel",
    "yaml",
    "jinja2",
)
# Imported by `python -m` itself, before anything of ours runs
OF_PYTHON_M = ("runpy", "contextlib", "gradverify", "gradverify.__main__")


@pytest.mark.parametrize(
    ("flags", "path", "arguments"),
    [
        ([], "", ["validate", "s.yaml"]),
        (["-P"], "", ["hook", "--", "s.yaml"]),
        ([], "HERE", ["hook", "--", "s.yaml"]),
        (["-P"], ".", ["validate", "s.yaml"]),
    ],
)
def test_no_module_of_the_folder_takes_the_place_of_another(folder, flags, path, arguments):
    """Each would end the command with 0."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for name in (*IN_THE_PLACE_OF_OURS, *(OF_PYTHON_M if flags and not path else ())):
        file = folder.joinpath(*name.split(".")[:-1], f"{name.rpartition('.')[2]}.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise SystemExit(0)\n")
    (folder / "s.yaml").write_text(
        "gradverify: 1\nchecks: [{function: relu, inputs: [1], no_such: 1}]\n"
    )
    environ = {**os.environ, "PYTHONPATH": path.replace("HERE", str(folder))}
    command = [sys.executable, *flags, "-m", "gradverify", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=280
    )
    assert (
        done.returncode == 2
        and "no_such" in done.stdout + done.stderr
        and "Traceback" not in done.stderr
    )


def test_the_projects_root_is_importable_from_anywhere(gradverify, folder):
    for place in ("repo/specs/deep", "repo/my_ops"):
        (folder / place).mkdir(parents=True)
    (folder / "repo" / "pyproject.toml").touch()
    (folder / "repo" / "my_ops" / "square.py").write_text(OP)
    spec = folder / "repo" / "specs" / "deep" / "s.yaml"
    spec.write_text(RIGHT.replace("op.py:Square", "my_ops.square:Square"))
    assert gradverify("check", "repo/specs")[0] == 0
    (folder / "repo" / "pyproject.toml").unlink()
    code, out, _ = gradverify("check", "repo/specs")
    assert code == 3 and "there is no module 'my_ops'" in out


def test_a_reader_that_goes_away_hears_nothing_of_it(process):
    reading, writing = os.pipe()
    os.close(reading)
    done = process("--help", capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode == 141 and done.stderr == ""


def test_an_ascii_stdout_does_not_crash(gradverify, process, op):
    op("2 * x", "-2 * x")
    assert gradverify("check", "s.yaml", "--report", "json:r.json")[0] == 1
    done = process(
        "show",
        "r.json",
        "--format",
        "table",
        env={"PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
        text=False,
    )
    assert done.stdout.isascii() and b"+- FAIL" in done.stdout and b"Traceback" not in done.stderr


def test_ctrl_c_keeps_what_there_is(process, op, folder):
    op("return x * x", "open('started', 'w').close(); time.sleep(100); return x * x")
    (folder / "op.py").write_text("import time\n" + (folder / "op.py").read_text())
    # A shell's background job ignores it
    running = subprocess.Popen(
        [sys.executable, "-m", "gradverify", "check", "s.yaml", "--report", "json:r.json"],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (folder / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    report = json.loads((folder / "r.json").read_text())
    assert (
        running.returncode == report["exit_code"] == 130
        and report["checks"][0]["verdict"] == "not_run"
    )
    assert out.splitlines()[-1].startswith("interrupted: ") and err == ""


def on_a_terminal(folder, *arguments):
    """Both streams on one pseudo-terminal: (exit code, what was drawn)."""
    parent, child = pty.openpty()
    cleared = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "NO_COLOR", "PRE_COMMIT", "FORCE_COLOR")
    }
    running = subprocess.Popen(
        [sys.executable, "-m", "gradverify", *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        cwd=folder,
        env={**cleared, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(child)
    drawn = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        drawn += part
    os.close(parent)
    return running.wait(timeout=120), drawn.decode(errors="replace")


def test_a_terminal_gets_colour_and_frames_and_keeps_its_cursor(op, folder):
    op("2 * x", "-2 * x")
    code, drawn = on_a_terminal(folder, "check", "s.yaml")
    assert code == 1 and "\x1b[1;31mFAIL" in drawn and "╭" in drawn and "op[a=1]" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h")


SLOW_AT_FIRST = """import time
import torch

calls = 0


def running_sum(x):
    global calls
    calls += 1
    time.sleep(0.02 if calls < 120 else 0)
    return x.cumsum(0)
"""
SLOW_SPEC = """gradverify: 1
checks:
  - {name: running sum, function: "slow.py:running_sum", inputs: {x: {shape: [600]}}, mode: entries}
"""


@pytest.mark.parametrize(("options", "announced"), [(("--no-progress",), True), (("-q",), False)])
def test_a_long_check_says_beforehand_what_it_will_cost(folder, gradverify, options, announced):
    (folder / "slow.py").write_text(SLOW_AT_FIRST)
    (folder / "slow.yaml").write_text(SLOW_SPEC)
    code, out, err = gradverify("check", "slow.yaml", *options)
    assert code == 0, out + err
    line = (
        r"^running sum: comparing entries takes ([\d,]+) forward and [\d,]+ backward calls, about "
        r"\d+ s and [\d.]+ [MG]iB$"
    )
    assert bool(re.search(line, err, re.M)) is announced
    assert "comparing entries takes" not in out


def test_a_limit_on_the_command_line_lets_a_check_stop_before_it_is_ended(gradverify, folder):
    (folder / "op.py").write_text(
        "import time\n\n\ndef f(x):\n    time.sleep(0.3)\n    return x * x\n"
    )
    settings = "timeout: 1000, budget: {seconds: 1000}, mode: entries"
    (folder / "s.yaml").write_text(
        f"gradverify: 1\nchecks:\n  - {{function: 'op.py:f', inputs: {{x: {{shape: [40]}}}}, "
        f"{settings}}}\n"
    )
    _, out, _ = gradverify("check", "s.yaml", "--timeout", "9", "-v")
    assert "the time limit of 9 s was near" in " ".join(out.split()) and "GV005" not in out, out
