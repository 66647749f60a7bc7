"""What the surroundings of a run may lack for worker processes to start: it is the user's to change, and no fault of gradverify's."""

from __future__ import annotations

import errno
import threading

DESCRIPTORS = 64        # open files that starting workers takes
MEMORY = 2 * 2**30      # bytes of addresses that torch and a check take at most
TOO_LONG = "AF_UNIX path too long"
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def is_lack(error: BaseException) -> bool:
    """Was it raised for want of something, and not for a fault?"""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORT)


def lacking(error: BaseException | None = None) -> str | None:
    """The sentence where the limits of this process, or `error`, tell why it cannot start workers; None where they do not."""
    number = error.errno if isinstance(error, OSError) else None
    if TOO_LONG in str(error):
        import tempfile

        return ("worker processes are started through a socket in the folder for temporary files, whose name is too long: "
                f"set TMPDIR to a shorter one than {tempfile.gettempdir()}")
    try:
        import resource
    except ImportError:
        return None
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if number in (errno.EMFILE, errno.ENFILE) or 0 <= files < DESCRIPTORS:
        return f"gradverify cannot run here: too few files may be open at a time ({files}, `ulimit -n`)"
    sizes = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    least = min((size for size in sizes if size >= 0), default=MEMORY)
    if number == errno.ENOMEM or isinstance(error, MemoryError) or least < MEMORY:
        allowed = f" (a process may have {least // 2**20:,} MiB, `ulimit -v` or `-d`)" if least < MEMORY else ""
        return f"gradverify cannot run here: there is too little memory for torch{allowed}"
    if number == errno.EAGAIN or not _more_threads():
        return "gradverify cannot run here: the system allows no more processes (`ulimit -u`, or the limit of a container)"
    return None


def _more_threads() -> bool:
    """Threads count as processes."""
    thread = threading.Thread(target=str)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join()
    return True
