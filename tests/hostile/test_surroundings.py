"""What a run finds short around it (open files, memory, processes, temporary files) is one sentence at every door, and no fault of ours."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from io import StringIO

import pytest

import gradverify
from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.running import limits, server
from gradverify.running.limits import lacking

SPEC = "gradverify: 1\nchecks:\n" + "".join(f"  - {{name: {name}, function: relu, inputs: {{input: {{shape: [2]}}}}}}\n" for name in "ab")
LONG = "d" * 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "")
    (tmp_path / "s.yaml").write_text(SPEC)
    return tmp_path


@pytest.mark.parametrize(("error", "said"), [
    (OSError("AF_UNIX path too long"), "set TMPDIR to a shorter one"), (OSError(errno.EMFILE, "x"), "too few files may be open"),
    (OSError(errno.ENOMEM, "x"), "too little memory"), (MemoryError(), "too little memory"),
    (BlockingIOError(errno.EAGAIN, "x"), "allows no more processes"), (OSError(errno.ENOENT, "x"), None), (EOFError(), None), (None, None)])
def test_what_an_error_tells(error, said):
    assert (lacking(error) is None) if said is None else said in lacking(error)


@pytest.mark.parametrize(("kind", "limit", "said"), [
    ("RLIMIT_NOFILE", 40, "(40, `ulimit -n`)"), ("RLIMIT_AS", 400 << 20, "may have 400 MiB"), ("RLIMIT_DATA", 300 << 20, "may have 300 MiB")])
def test_what_a_limit_tells_where_workers_only_end(monkeypatch, kind, limit, said):
    original = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit) if which == getattr(resource, kind) else original(which))
    assert said in lacking(EOFError())


def test_no_more_threads_are_no_more_processes(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(limits.threading.Thread, "start", refused)
    assert "allows no more processes" in lacking(EOFError())


class Refuses:
    """A forkserver that cannot start: from the first call on, or later."""

    def __init__(self, error, after):
        self.error, self.left = error, after

    def ensure_running(self):
        self.left -= 1
        if self.left < 0:
            raise self.error

    def __getattr__(self, name):
        return getattr(server_module, name)


server_module = server.forkserver


@pytest.mark.parametrize("error", [OSError("AF_UNIX path too long"), OSError(errno.EMFILE, "x"), BlockingIOError(errno.EAGAIN, "x")], ids=str)
def test_before_anything_ran_the_command_line_refuses(folder, monkeypatch, error):
    monkeypatch.setattr(server, "forkserver", Refuses(error, 0))
    (folder / "r.json").write_text("of an earlier run")
    subprocess.run(["git", "init", "--quiet"], check=True)
    for door in ("check", "hook"):
        out = Output([door, "--report", "json:r.json", "s.yaml"], StringIO(), StringIO())
        assert run(out) == 2 and lacking(error) in out.stderr.getvalue() and "Please" not in out.stderr.getvalue()
    assert not (folder / "r.json").exists()


def test_later_the_run_ends_with_its_report(folder, monkeypatch):
    error = BlockingIOError(errno.EAGAIN, "x")
    monkeypatch.setattr(server, "forkserver", Refuses(error, 1))
    out = Output(["check", "s.yaml", "--report", "json:r.json"], StringIO(), StringIO())
    assert run(out) == 3 and "Please" not in out.stderr.getvalue() and lacking(error) in " ".join(out.stdout.getvalue().split())
    report = json.loads((folder / "r.json").read_text())
    assert [(check["verdict"], check["reason"]) for check in report["checks"]] == [("error", lacking(error)), ("not_run", lacking(error))]


@pytest.mark.timeout(900)
def test_from_python_and_under_pytest(folder, monkeypatch):
    (folder / LONG).mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / LONG))
    report = gradverify.run("s.yaml")
    assert report.exit_code == 3 and report.crashed is None and "set TMPDIR to a shorter one" in report.checks[0].reason
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--gradverify-isolate", "s.yaml"],
                          capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 1 and "set TMPDIR to a shorter one" in done.stdout and "Traceback" not in done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("limit", "code", "said"), [("-n 16", 3, "too few files may be open at a time (16"), ("-v 300000", 3, "too little memory")])
def test_with_limits_of_the_system(folder, limit, code, said):
    done = subprocess.run(["bash", "-c", f"ulimit {limit} && exec {sys.executable} -m gradverify check s.yaml"], capture_output=True, text=True,
                          timeout=800, check=False)
    assert done.returncode == code and said in done.stdout and done.stderr == "", done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_torch_without_its_compiler_of_scripts(folder):
    done = subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml"], capture_output=True, text=True, timeout=800, check=False,
                          env={**os.environ, "PYTORCH_JIT": "0"})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("size", ["999999999999999999999T", "9" * 400, "1e6T", "0", "0.0001", "2000000T"])
def test_a_memory_that_is_none_is_refused(folder, size):
    out = Output(["check", "s.yaml", "--memory", size], StringIO(), StringIO())
    assert run(out) == 2 and "must be a size such as 512M or 2G" in out.stderr.getvalue()
