"""A command as a person runs it: on a terminal of 100 columns, with the environment's programs
first on PATH. A plain `gradverify …` runs in this process, whose workers torch is loaded for once,
also before a pipe, a redirection or `;`; everything else in a shell."""

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
import tempfile
import termios
from pathlib import Path

COLUMNS, ROWS = 100, 50
LIMIT_S = 120
PLAIN = re.compile(r"(?P<variables>(?:[A-Z_]+=\S+ )*)gradverify (?P<arguments>[^|&;<>$`*]*)")
THEN = re.compile(
    r"(?P<first>(?:[A-Z_]+=\S+ )*gradverify [^|&;<>$`*]*)(?P<rest>(?P<how>[|>;]) ?(?P<what>.*))"
)
LAST = re.compile(r"(?P<before>.*)(?: &&|;) (?P<last>gradverify .*)")
FIRST = re.compile(r"(?P<first>[^|>;]*[^|>; ]) ?(?P<how>[|>;]) ?(?P<rest>.*)")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's but PATH: no CI, no colours, no CUDA, so that what is shown is the
    same everywhere."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        "PATH": path,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        **more,
    }


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(command: str, folder: Path, last_exit: int = 0) -> tuple[int, str]:
    """(exit code, everything printed); `$?` is `last_exit` at the start."""
    plain = PLAIN.fullmatch(command)
    if plain:
        return in_process(
            plain, folder, screen := _Screen(), screen, COLUMNS=str(COLUMNS)
        ), screen.getvalue()
    first = FIRST.fullmatch(command)
    ours = first and PLAIN.fullmatch(first["first"])
    if first and ours and first["how"] == ";":
        code, printed = run(first["first"], folder, last_exit)
        code, more = run(first["rest"], folder, code)
        return code, printed + more
    if first and ours:
        code = in_process(ours, folder, pipe := io.StringIO(), screen := _Screen())
        if first["how"] == ">":
            (folder / first["rest"]).write_text(pipe.getvalue(), encoding="utf-8")
            return code, screen.getvalue()
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(pipe.getvalue())
            file.flush()
            code, printed = run(f"< {file.name} {first['rest']}", folder)
        return code, screen.getvalue() + printed
    sequence = LAST.fullmatch(command)
    if sequence and PLAIN.match(sequence["last"]):
        code, printed = run(sequence["before"], folder, last_exit)
        if code != 0:
            return code, printed
        code, more = run(sequence["last"], folder)
        return code, printed + more
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    shell = ["bash", "-c", f"(exit {last_exit}); {command}"]
    with subprocess.Popen(
        shell,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    ) as process:
        os.close(follower)
        printed = _drain(leader)
        code = process.wait(LIMIT_S)
    os.close(leader)
    return code, printed.replace("\r\n", "\n")


def in_process(
    plain: re.Match[str], folder: Path, stdout: io.StringIO, stderr: io.StringIO, **more: str
) -> int:
    """The exit code of a plain `gradverify …` that is run in this process; `more`: variables of the
    environment."""
    from gradverify.cli.boundary import run as command
    from gradverify.cli.output import Output

    variables = dict(word.split("=", 1) for word in shlex.split(plain["variables"]))
    before = dict(os.environ)
    with contextlib.chdir(folder):
        os.environ.clear()
        os.environ.update(environment(folder, **more, **variables))
        try:
            return command(Output(shlex.split(plain["arguments"]), stdout, stderr))
        finally:
            os.environ.clear()
            os.environ.update(before)


def _drain(leader: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 1 << 16)
        except OSError:  # on Linux the end of a terminal is an input/output error
            chunk = b""
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)
