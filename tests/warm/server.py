"""A process that has imported torch once for a whole run of pytest. It forks the servers that the tested commands would start.

A `gradverify check` starts a server (`gradverify.running.server`) that imports torch and forks a worker per check: 3.6 s of CPU. The suite starts
hundreds of them. Here the server of a command is a fork of this process (20 ms), which has imported the same modules and computed nothing. To the
command it is what it was: a child process (`stand_in.py`) that ends with the server's status, and whose end is the server's end.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
import types
import warnings

MOST = 1 << 20      # bytes of a request
HIGH = 500          # descriptors are moved here before they get the numbers that the request names


def main(path: str) -> None:
    """Serve requests at the Unix socket `path` until standard input is closed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    _import()
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    for what in (listener, woken, 0):
        selector.register(what, selectors.EVENT_READ)
    servers: dict[int, socket.socket] = {}
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        if 0 in ready:      # pytest has ended
            for pid in servers:
                os.kill(pid, signal.SIGKILL)
            return
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(servers, selector)
        for connection in ready:
            if connection is listener:
                accepted = listener.accept()[0]
                accepted.settimeout(20)
                try:
                    request, fds = _received(accepted)
                except (OSError, EOFError, ValueError):
                    accepted.close()
                    continue
                pid = os.fork()
                if pid == 0:
                    for other in (listener, accepted, selector, *servers.values()):
                        other.close()
                    signal.set_wakeup_fd(-1)
                    _be_the_server(request, fds)
                for fd in fds:
                    os.close(fd)
                servers[pid] = accepted
                selector.register(accepted, selectors.EVENT_READ)
            elif isinstance(connection, socket.socket):     # the stand-in was killed
                for pid, its in servers.items():
                    if its is connection:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                selector.unregister(connection)


def _import() -> None:
    """What `gradverify.running.preload` imports, and nothing of what it does to its process."""
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gradverify.rules
        import gradverify.running.inline
        import gradverify.subject.instruments
        import gradverify.verify
        from gradverify.rules import catalogue
        from gradverify.running.words import leave  # noqa: F401

        for module in pkgutil.iter_modules(gradverify.rules.__path__):
            importlib.import_module(f"gradverify.rules.{module.name}")
        catalogue.asked()
        for name in ("torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp", "torch.utils._device", "numpy.random",
                     "numpy.ma", "multiprocessing.forkserver", "multiprocessing.spawn"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _received(connection: socket.socket) -> tuple[dict, list[int]]:
    data, ancillary, _, _ = connection.recvmsg(MOST, socket.CMSG_LEN(16 * array.array("i").itemsize))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[:len(content) - len(content) % fds.itemsize])
    length, _, data = data.partition(b"\n")
    while len(data) < int(length):
        more = connection.recv(MOST)
        if not more:
            raise EOFError
        data += more
    return marshal.loads(data), list(fds)


def _reap(servers: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        connection = servers.pop(pid, None)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % status)
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(connection)
            connection.close()


def _be_the_server(request: dict, received: list[int]) -> None:
    """In the fork: take on what a process that the command starts itself would have inherited, and run its program."""
    import fcntl

    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH) for fd in received]
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(0, HIGH)
    for fd, number in zip(moved, request["fds"], strict=True):
        os.dup2(fd, number, inheritable=number <= 2)
    os.closerange(HIGH, min(highest, 1 << 16))
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    os.umask(request["umask"])
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        stream = None
        if descriptor in request["fds"]:
            stream = open(descriptor, mode, closefd=False, buffering=1)     # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    first = [entry for entry in request["environ"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    sys.argv = ["-c"]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    status = 1
    try:
        exec(request["program"], main.__dict__)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1])
