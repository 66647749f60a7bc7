"""Under whatever circumstances a run is started, and whatever processes and threads checked code uses in order, its verdicts are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

OP = """import multiprocessing
import os
import sys
import threading

import torch
from torch.utils.data import DataLoader, TensorDataset


def right(x):
    return x * x


def put(queue):
    queue.put(3.0)


def through(x, how):
    context = multiprocessing.get_context(how)
    queue = context.Queue()
    process = context.Process(target=put, args=(queue,))
    process.start()
    factor = queue.get(timeout=100)
    process.join()
    return x * factor


def by_spawn(x):
    return through(x, "spawn") if "spawned" not in globals() and not globals().update(spawned=1) else x * 3.0


def by_fork(x):
    return through(x, "fork") if "forked" not in globals() and not globals().update(forked=1) else x * 3.0


def by_loader(x):
    if "loaded" in globals():
        return x * 4.0
    globals().update(loaded=1)
    return x * sum(float(batch[0].sum()) for batch in DataLoader(TensorDataset(torch.ones(4)), num_workers=1))


def by_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x * x))
    thread.start()
    thread.join()
    return found[0]


def hooked(x):      # its hook warns where no input needs a gradient, as one of our own calls has it
    if "module" not in globals():
        globals().update(module=torch.nn.Linear(2, 2).double())
        module.register_full_backward_hook(lambda module, given, got: None)
    return module(x)


def floods_stderr(x):
    os.write(2, b"e" * (1 << 20))
    print("flood " * 10000, file=sys.stderr)
    return x * x
"""


@pytest.fixture
def checked(tmp_path):
    """`checked(names, *options, how=…)`: exit code, stderr, and the checks of the report."""
    (tmp_path / "own_op.py").write_text(OP)

    def run(names, *options, **how):
        text = "".join(f"  - {{name: {name}, function: 'own_op:{name}', inputs: {{x: {{shape: [2]}}}}}}\n" for name in names)
        (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + text)
        how = {"cwd": tmp_path, "env": {**os.environ, "CI": ""}, **how}
        done = subprocess.run([sys.executable, "-P", "-m", "gradverify", "check", str(tmp_path / "s.yaml"), "--report", f"json:{tmp_path}/r.json",
                               *options], capture_output=True, text=True, timeout=280, check=False, **how)
        report = tmp_path / "r.json"
        return done.returncode, done.stderr, json.loads(report.read_text())["checks"] if report.exists() else None

    return run


def test_processes_threads_and_streams_of_the_checked_code_in_order_are_no_fault(checked):
    code, stderr, checks = checked(["by_spawn", "by_fork", "by_loader", "by_thread", "floods_stderr", "right"], "-j", "2", "--memory", "8G")
    assert {check["name"]: check["verdict"] for check in checks} == {check["name"]: "pass" for check in checks}, stderr
    assert code == 0 and [check["changed"] for check in checks if check["name"] in ("by_fork", "by_thread", "right")] == [[], [], []]


def test_nothing_is_needed_of_the_environment(checked):
    code, stderr, checks = checked(["right"], env={}, stdin=subprocess.DEVNULL, start_new_session=True)
    assert (code, stderr, checks[0]["verdict"]) == (0, "", "pass")


def test_files_of_the_current_folder_stand_in_nobodys_way(checked, tmp_path):
    (tmp_path / "here").mkdir()
    for name in ("types", "random", "socket", "selectors", "signal", "struct", "torch", "numbers"):
        (tmp_path / "here" / f"{name}.py").write_text("raise RuntimeError('not what was asked for')\n")
    code, stderr, checks = checked(["right"], cwd=tmp_path / "here")
    assert (code, stderr, checks[0]["verdict"]) == (0, "", "pass")


def test_a_folder_that_is_gone_is_told_in_a_sentence(checked, tmp_path):
    (tmp_path / "gone").mkdir()
    code, stderr, checks = checked(["right"], cwd=tmp_path / "gone", preexec_fn=(tmp_path / "gone").rmdir)
    assert (code, checks) == (2, None) and stderr == "the current folder does not exist any more: change to one that does\n"


def test_a_memory_limit_that_our_own_computing_meets_is_no_fault_of_anybody(checked):
    code, stderr, checks = checked(["right"], "--memory", "1K")
    assert code == 3 and "fault in gradverify" not in stderr
    assert checks[0]["verdict"] == "error" and checks[0]["faults"] == []
    assert [finding["code"] for finding in checks[0]["findings"]] == ["GV008"] and "too little to start one: it takes about" in checks[0]["reason"]


@pytest.mark.parametrize("options", [[], ["--no-isolate"]])
def test_warnings_that_are_errors_are_neither_ours_nor_the_functions(checked, options):
    """torch warns as it is imported, and where it is called in unusual ways."""
    code, stderr, checks = checked(["right", "hooked"], *options, env={**os.environ, "CI": "", "PYTHONWARNINGS": "error"})
    assert code == 0 and [check["verdict"] for check in checks] == ["pass", "pass"] and not any(check["findings"] for check in checks), stderr
