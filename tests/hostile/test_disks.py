"""Reports on disks that are full, read-only, slow, or written by somebody else at the same time: a
clear error or a complete file, never half a report; and what cannot be written costs neither the
other files nor what is shown."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import checks, here, shell, spec

from gradverify.cli.output import NotWritten, forget, keep, promise
from gradverify.model.problem import ProblemsError

SPEC = spec("name: first, function: 'op.py:mul', inputs: {x: {shape: [2]}, y: {shape: [2]}}")
OP = """import pathlib
pathlib.Path("ran").touch()


def mul(x, y):
    return x * y
"""
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
NO_SPACE = "could not be written: No space left on device\n"


@pytest.fixture
def folder(folder):
    (folder / "s.yaml").write_text(SPEC)
    (folder / "op.py").write_text(OP)
    return folder


@pytest.fixture
def shown(folder):
    """`shown(options)` shows a report of a right function again under bash, and writes others."""
    assert here("check", "s.yaml", "-q", "--report", "json:before.json")[0] == 0
    return lambda text, before="": shell(f"{before} gradverify show before.json {text}", cwd=folder)


def litter(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@FULL
def test_a_full_device_is_told_after_all_else_is_shown_and_written(folder):
    code, out, err = here(
        "check", "s.yaml", "--report", "json:/dev/full", "--report", "json:r.json"
    )
    assert (code, err) == (4, f"/dev/full {NO_SPACE}")
    assert "PASS       first" in out and "1 passed" in out and checks(folder / "r.json")


def test_a_disk_that_fills_up_while_the_report_is_written_leaves_no_half(shown, folder):
    (folder / "r.json").write_text("old")
    # Files of 1 KiB at most
    done = shown("--report json:r.json", "export PYTHONDONTWRITEBYTECODE=1; ulimit -f 1;")
    assert done.returncode == 4 and "r.json could not be written: File too large" in done.stderr
    assert (folder / "r.json").read_text() == "old" and not litter(folder)
    assert "1 passed" in done.stdout


@FULL
def test_a_full_disk_behind_stdout_is_told_in_one_line(shown):
    done = shown("--format=json > /dev/full")
    assert (done.returncode, done.stderr) == (4, f"stdout {NO_SPACE}")


@FULL
def test_a_full_disk_behind_stdout_costs_no_report(folder):
    done = shell(
        "gradverify check s.yaml --report json:r.json --report json:/dev/full > /dev/full",
        cwd=folder,
    )
    assert done.stderr == f"stdout {NO_SPACE}/dev/full {NO_SPACE}" and done.returncode == 4
    assert checks(folder / "r.json")["first"]["verdict"] == "pass"


def test_a_read_only_folder_is_told_before_anything_runs(folder):
    closed = folder / "closed"
    closed.mkdir(mode=0o555)
    # Root may write anywhere but where there is no disk
    place = "/proc" if os.access(closed, os.W_OK) else closed
    code, out, err = here("check", "s.yaml", "--report", f"json:{place}/r.json")
    assert (
        code == 2 and err.startswith(f"--report: {place}/r.json cannot be written: ") and out == ""
    )
    assert not (folder / "ran").exists()


def test_closed_streams_cost_no_report(folder):
    done = shell("gradverify check s.yaml --report json:r.json <&- >&- 2>&-", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert checks(folder / "r.json")["first"]["verdict"] == "pass" and not litter(folder)


def test_whoever_reads_while_many_write_sees_a_whole_report_or_none(tmp_path):
    path = tmp_path / "r.json"
    texts = [letter * 300_000 for letter in "abcd"]
    over = threading.Event()

    def write(text):
        while not over.is_set():
            promise(path)
            forget(path)
            keep(path, text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    seen, tries = set(), 0
    while tries < 300 or (not seen and tries < 100_000):  # between two writes there is no file
        tries += 1
        try:
            seen.add(path.read_text())
        except FileNotFoundError:
            continue
    over.set()
    for thread in threads:
        thread.join()
    assert seen and seen <= set(texts) and path.read_text() in texts and not litter(tmp_path)


WRITES = """import sys
from pathlib import Path
from gradverify.cli.output import keep
text = "x" * 50_000_000
print("begins", flush=True)
keep(Path("r.json"), text)
print("written", flush=True)
"""


@pytest.mark.parametrize(("number", "after"), [(signal.SIGTERM, 0.05), (signal.SIGINT, 0.0)])
def test_a_signal_while_the_report_is_written_waits_for_it(tmp_path, number, after):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert writer.stdout.readline() == "begins\n"
    time.sleep(after)
    writer.send_signal(number)
    said, _ = writer.communicate(timeout=60)
    assert not litter(tmp_path)
    if (tmp_path / "r.json").exists():
        assert (tmp_path / "r.json").stat().st_size == 50_000_000
    assert writer.returncode == -number or said == "written\n", "the signal is heard, not swallowed"


def test_a_signal_is_heard_after_the_file_is_there(tmp_path, monkeypatch):
    """The deterministic half: it comes in the middle of the write."""
    from gradverify.cli import output

    replace = output._replace

    def interrupted(path, text):
        signal.raise_signal(signal.SIGINT)
        replace(path, text)

    monkeypatch.setattr(output, "_replace", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        keep(tmp_path / "r.json", "whole")
    assert (tmp_path / "r.json").read_text() == "whole" and signal.getsignal(
        signal.SIGINT
    ) is before


def test_a_second_ctrl_c_ends_a_write_that_does_not_end(tmp_path, monkeypatch):
    from gradverify.cli import output

    def hangs(path):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(output.Path, "replace", lambda self, path: hangs(path))
    with pytest.raises(KeyboardInterrupt):
        keep(tmp_path / "r.json", "text")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_becomes_read_only_or_goes_is_told(tmp_path):
    path = promise(tmp_path / "deep" / "r.json")
    (tmp_path / "deep").rmdir()
    with pytest.raises(
        NotWritten, match=r"r\.json could not be written: No such file or directory"
    ):
        keep(path, "text")


@pytest.mark.parametrize(
    ("stream", "begins"), [("jsonl:/dev/fd/1", '{"event"'), ("json:/proc/self/fd/1", "{")]
)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no /proc")
def test_an_open_stream_is_written_to_and_keeps_what_it_holds(shown, folder, stream, begins):
    """`/dev/stdout` may be a regular file: renaming onto it would take its name from everybody
    else."""
    (folder / "out.txt").write_text("before\n")
    assert shown(f"--report {stream} -q >> out.txt").returncode == 0
    text = (folder / "out.txt").read_text()
    assert text.startswith(f"before\n{begins}") and "1 passed" in text and not litter(folder)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "r.json").symlink_to(tmp_path / "there" / "latest.json")
    for text in ("one", "two"):
        path = promise(tmp_path / "r.json")
        forget(path)
        keep(path, text)
        assert path.is_symlink() and (tmp_path / "there" / "latest.json").read_text() == text
    assert not litter(tmp_path) and not litter(tmp_path / "there")


def test_the_longest_name_that_a_disk_takes_is_taken(tmp_path):
    path = promise(tmp_path / ("r" * 250 + ".json"))
    keep(path, "text")
    assert path.read_text() == "text"
    with pytest.raises(ProblemsError, match="cannot be written"):
        promise(
            tmp_path / "x.json" / "y.json"
            if (tmp_path / "x.json").write_text("a file")
            else tmp_path
        )
