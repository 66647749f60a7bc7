"""The child process of a command in place of its server: it asks `server.py` for a fork, waits for its end and ends as it did.

Where the command's process differs from pytest's in something that a fork of `server.py` would not have (limits, variables that an interpreter or
torch reads as it starts), it becomes the real server instead. Only built-in modules are imported: it starts in 15 ms.
"""
# It starts in milliseconds, without pathlib.
# ruff: noqa: PTH109, PTH112, PTH123

import _signal
import _socket
import marshal
import os
import resource
import sys

READ_AT_THE_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "MKL_", "TORCH", "CUDA_", "TRITON", "ATEN", "KMP_", "MALLOC", "GLIBC")
NOT_THESE = ("PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")


def state():
    """What a fork could not take on."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(READ_AT_THE_START) and name not in NOT_THESE}
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    return [sorted(variables.items()), sorted(limits.items())]


def ask(path, program, fds):
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(path)
    numbers = [fd for fd in (0, 1, 2) if is_open(fd)] + fds
    ignored = [number for number in range(1, 65) if ignores(number)]
    blocked = [int(number) for number in _signal.pthread_sigmask(_signal.SIG_BLOCK, [])]
    umask = os.umask(0)
    request = marshal.dumps({"program": program, "fds": numbers, "environ": dict(os.environ), "folder": os.getcwd(), "umask": umask,
                             "ignored": ignored, "blocked": blocked})
    handed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    data = b"%d\n" % len(request) + request
    sent = connection.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
    if sent < len(data):
        connection.sendall(data[sent:])
    for number in numbers:
        os.close(number)
    status = connection.recv(64)
    if not status:
        os.kill(os.getpid(), 9)
    status = int(status)
    if os.WIFSIGNALED(status):
        _signal.signal(os.WTERMSIG(status), _signal.SIG_DFL) if os.WTERMSIG(status) != 9 else None
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 255)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def ignores(number):
    try:
        return _signal.getsignal(number) == _signal.SIG_IGN
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    path, program, *fds = sys.argv[1:]
    with open(path + ".state", "rb") as file:
        known = marshal.load(file)
    if state() != known or not os.path.isdir("."):
        os.execv(sys.executable, [sys.executable, "-c", program])
    ask(path, program, [int(fd) for fd in fds])
