"""Reports on disks that are full, read-only, slow, or written by somebody else at the same time: a clear error or a complete file, never half a
report; and what cannot be written costs neither the other files nor what is shown."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gradverify.cli.output import NotWritten, begin, forget, keep, promise
from gradverify.model.problem import ProblemsError

SPEC = """gradverify: 1
checks:
  - {name: first, function: "op.py:mul", inputs: {x: {shape: [2]}, y: {shape: [2]}}}
"""
OP = """import pathlib
pathlib.Path("ran").touch()


def mul(x, y):
    return x * y
"""
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


@pytest.fixture
def shell(tmp_path):
    """`shell(options)` checks a right function under bash."""
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "op.py").write_text(OP)

    def call(options, before=""):
        return subprocess.run(["bash", "-c", f"{before} {sys.executable} -m gradverify check s.yaml {options}"], cwd=tmp_path, capture_output=True,
                              text=True, timeout=120, check=False)

    return call


def litter(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@FULL
def test_a_full_device_is_told_after_all_else_is_shown_and_written(shell, tmp_path):
    done = shell("--report json:/dev/full --report json:r.json")
    assert (done.returncode, done.stderr) == (4, "/dev/full could not be written: No space left on device\n")
    assert "PASS       first" in done.stdout and "1 passed" in done.stdout and json.loads((tmp_path / "r.json").read_text())


def test_a_disk_that_fills_up_while_the_report_is_written_leaves_no_half(shell, tmp_path):
    (tmp_path / "r.json").write_text("old")
    done = shell("--report json:r.json", before="ulimit -f 1;")     # files of 1 KiB at most; a report has several
    assert done.returncode == 4 and "r.json could not be written: File too large" in done.stderr
    assert not (tmp_path / "r.json").exists() and not litter(tmp_path) and "1 passed" in done.stdout


@FULL
def test_a_full_disk_behind_stdout_costs_no_report(shell, tmp_path):
    done = shell("--report json:r.json > /dev/full")
    assert (done.returncode, done.stderr) == (4, "stdout could not be written: No space left on device\n")
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] == 0
    done = shell("--report json:/dev/full > /dev/full")
    assert done.stderr == "stdout could not be written: No space left on device\n/dev/full could not be written: No space left on device\n"


def test_a_read_only_folder_is_told_before_anything_runs(shell, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    place = "/proc" if os.access(folder, os.W_OK) else folder      # root may write anywhere but where there is no disk
    done = shell(f"--report json:{place}/r.json")
    assert done.returncode == 2 and done.stderr.startswith(f"--report: {place}/r.json cannot be written: ") and done.stdout == ""
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("closed", [">&-", "> /dev/null 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cost_no_report(shell, tmp_path, closed):
    assert shell(f"--report json:r.json {closed}").returncode == 0
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["pass"] == 1 and not litter(tmp_path)


def test_two_runs_that_write_one_report_leave_a_complete_one(tmp_path, shell):
    found = []
    threads = [threading.Thread(target=lambda: found.append(shell("--report json:r.json -q").returncode)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0, 0] and json.loads((tmp_path / "r.json").read_text())["exit_code"] == 0 and not litter(tmp_path)


def test_whoever_reads_while_many_write_sees_a_whole_report_or_none(tmp_path):
    path, texts, over = tmp_path / "r.json", [letter * 300_000 for letter in "abcd"], threading.Event()

    def write(text):
        while not over.is_set():
            promise(path)
            forget(path)
            keep(path, text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    seen, tries = set(), 0
    while tries < 300 or (not seen and tries < 100_000):    # between two writes there is no file
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
text = "x" * 150_000_000
print("begins", flush=True)
keep(Path("r.json"), text)
print("written", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_a_signal_while_the_report_is_written_waits_for_it(tmp_path, number, after):
    writer = subprocess.Popen([sys.executable, "-c", WRITES], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert writer.stdout.readline() == "begins\n"
    time.sleep(after)
    writer.send_signal(number)
    said, _ = writer.communicate(timeout=60)
    assert not litter(tmp_path)
    if (tmp_path / "r.json").exists():
        assert (tmp_path / "r.json").stat().st_size == 150_000_000
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
    assert (tmp_path / "r.json").read_text() == "whole" and signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_ends_a_write_that_does_not_end(tmp_path, monkeypatch):
    from gradverify.cli import output

    def hangs(path):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(output.Path, "replace", lambda self, path: hangs(path))
    with pytest.raises(KeyboardInterrupt):
        keep(tmp_path / "r.json", "text")
    assert not list(tmp_path.iterdir())


def test_runs_that_begin_one_file_at_once_have_each_their_own(tmp_path):
    """Streams of lines: what stands at the path is the lines of one run, never of two; whoever began first loses its name, not its order."""
    path, start, count = tmp_path / "r.jsonl", threading.Barrier(4), 100

    def write(letter, files):
        for _ in range(count):
            start.wait()
            files.append(begin(path))
            files[-1].write(letter)
            files[-1].flush()

    opened = {letter: [] for letter in "abcd"}
    threads = [threading.Thread(target=write, args=item) for item in opened.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for files in zip(*opened.values(), strict=True):
        inodes = {os.fstat(file.fileno()).st_ino for file in files}
        assert len(inodes) == 4 and all(os.fstat(file.fileno()).st_size == 1 for file in files)
    assert len(opened["a"]) == count and path.read_text() in set("abcd")
    for file in (file for files in opened.values() for file in files):
        file.close()


def test_what_is_begun_follows_a_link_and_spares_what_a_stream_holds(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for text in ("one", "two"):
        with begin(tmp_path / "link") as file:
            file.write(text)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "two"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no /proc")
def test_lines_that_go_to_an_open_stream_keep_what_it_holds(shell, tmp_path):
    (tmp_path / "out.txt").write_text("before\n")
    assert shell("--report jsonl:/dev/fd/1 -q >> out.txt").returncode == 0
    text = (tmp_path / "out.txt").read_text()
    assert text.startswith('before\n{"event"') and "1 passed" in text


def test_a_folder_that_becomes_read_only_or_goes_is_told(tmp_path):
    path = promise(tmp_path / "deep" / "r.json")
    (tmp_path / "deep").rmdir()
    with pytest.raises(NotWritten, match=r"r\.json could not be written: No such file or directory"):
        keep(path, "text")


@pytest.mark.parametrize("stream", ["/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no /proc")
def test_an_open_stream_is_written_to_and_keeps_what_it_holds(shell, tmp_path, stream):
    """`/dev/stdout` may be a regular file: renaming onto it would take its name from everybody else."""
    (tmp_path / "out.txt").write_text("before\n")
    assert shell(f"--report json:{stream} -q >> out.txt").returncode == 0
    text = (tmp_path / "out.txt").read_text()
    assert text.startswith("before\n{") and "1 passed" in text and Path(stream).exists() and not litter(tmp_path)


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
        promise(tmp_path / "x.json" / "y.json" if (tmp_path / "x.json").write_text("a file") else tmp_path)
