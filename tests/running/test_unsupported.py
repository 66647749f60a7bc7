"""A platform without forks, as native Windows is: one sentence, never a traceback of ours; what
needs no worker works."""

import subprocess
import sys

import pytest
from commands import process

WITHOUT = """
import multiprocessing, os, signal, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("setsid", "killpg", "getpgrp", "getuid", "geteuid", "waitid", "sched_getaffinity", "getloadavg"):
    vars(os).pop(name, None)
for name in ("SIGSTOP", "SIGUSR1", "SIGKILL", "SIGALRM", "SIGCHLD", "SIGHUP", "SIGPIPE", "pthread_sigmask", "setitimer"):
    vars(signal).pop(name, None)
multiprocessing.get_all_start_methods = lambda: ["spawn"]
"""
SENTENCE = "which need Linux or macOS: on Windows use WSL, or `gradverify check --no-isolate`"
SPEC = "gradverify: 1\nchecks:\n  - {function: relu, inputs: {input: {shape: [2]}}}\n"


@pytest.fixture
def windows(tmp_path):
    """`windows(*command)`: exit code, stdout and stderr of a Python that lacks what Windows
    lacks."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(WITHOUT)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "op.py").write_text(
        "from torch.autograd import Function\nclass Op(Function):\n    pass\n"
    )

    def run(*command):
        done = process(
            sys.executable, *command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "path")}
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("command", [("check", "s.yaml"), ("init", "op.py:Op")])
def test_what_needs_workers_says_so_in_one_sentence(windows, command):
    code, _, stderr = windows("-m", "gradverify", *command)
    assert code == 2 and stderr.count("\n") == 1 and SENTENCE in stderr


def test_python_gets_it_as_its_error(windows):
    code, stdout, _ = windows(
        "-c",
        "import gradverify\ntry:\n    gradverify.run('s.yaml')\nexcept gradverify.ProblemsError "
        "as e:\n    print(e)",
    )
    assert code == 0 and SENTENCE in stdout


@pytest.mark.parametrize(
    ("command", "said"),
    [(("check", "s.yaml", "--no-isolate"), "1 passed"), (("list", "s.yaml"), "s.yaml::relu")],
)
def test_what_needs_none_works(windows, command, said):
    code, stdout, stderr = windows("-m", "gradverify", *command)
    assert code == 0 and said in stdout, stderr
