"""A command as a person runs it: on a terminal of 100 columns, with the environment's programs first on PATH. A plain `gradverify …` runs in this
process, whose workers torch is loaded for once; everything else in a shell."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

COLUMNS, ROWS = 100, 50
LIMIT_S = 120
PLAIN = re.compile(r"(?P<variables>(?:[A-Z_]+=\S+ )*)gradverify (?P<arguments>[^|&;<>$`*]*)")
LAST = re.compile(r"(?P<before>.*)(?: &&|;) (?P<last>gradverify .*)")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's but PATH: no CI, no colours, no CUDA, so that what is shown is the same everywhere."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(command: str, folder: Path, last_exit: int = 0) -> tuple[int, str]:
    """(exit code, everything printed); `$?` is `last_exit` at the start."""
    plain = PLAIN.fullmatch(command)
    if plain:
        variables = dict(word.split("=", 1) for word in shlex.split(plain["variables"]))
        return in_process(shlex.split(plain["arguments"]), folder, **variables)
    sequence = LAST.fullmatch(command)
    if sequence and PLAIN.fullmatch(sequence["last"]):
        code, printed = run(sequence["before"], folder, last_exit)
        if code != 0:
            return code, printed
        code, more = run(sequence["last"], folder)
        return code, printed + more
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    shell = ["bash", "-c", f"(exit {last_exit}); {command}"]
    with subprocess.Popen(shell, cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, stdout=follower, stderr=follower) as process:
        os.close(follower)
        printed = _drain(leader)
        code = process.wait(LIMIT_S)
    os.close(leader)
    return code, printed.replace("\r\n", "\n")


def in_process(arguments: list[str], folder: Path, **more: str) -> tuple[int, str]:
    """The same of `gradverify` with these arguments, run in this process; `more`: variables of the environment."""
    from gradverify.cli.boundary import run as command
    from gradverify.cli.output import Output

    screen, before = _Screen(), dict(os.environ)
    with contextlib.chdir(folder):
        os.environ.clear()
        os.environ.update(environment(folder, COLUMNS=str(COLUMNS), **more))
        try:
            return command(Output(arguments, screen, screen)), screen.getvalue()
        finally:
            os.environ.clear()
            os.environ.update(before)


def _drain(leader: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 1 << 16)
        except OSError:     # on Linux the end of a terminal is an input/output error
            chunk = b""
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)
