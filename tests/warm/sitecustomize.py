"""Imported by every Python that a test starts, and by pytest itself: servers of commands are forked from the one of `server.py`."""
# It starts in milliseconds, without pathlib.
# ruff: noqa: PTH100, PTH110, PTH118, PTH120

import os
import sys

SOCKET = "GRADVERIFY_TESTS_SERVER"
PROGRAM = "from multiprocessing.forkserver import main"


def patch():
    from multiprocessing import util

    start = util.spawnv_passfds
    stand_in = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in.py")

    def spawnv_passfds(path, args, passfds):
        server = os.environ.get(SOCKET)
        if server and args[-1].startswith(PROGRAM) and {*args[1:-1]} <= {"-B", "-P", "-c"} and os.path.exists(server):
            args = [os.fsencode(sys.executable), "-I", "-S", stand_in, server, args[-1], *map(str, passfds)]
        return start(path, args, passfds)

    util.spawnv_passfds = spawnv_passfds


class _Later:
    """Patches `multiprocessing.util` when it is imported: most processes never import it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "multiprocessing.util":
            return None
        from importlib.machinery import PathFinder

        sys.meta_path.remove(_Later)
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def and_patch(module):
            execute(module)
            patch()

        spec.loader.exec_module = and_patch
        return spec


if os.environ.get(SOCKET):
    if "multiprocessing.util" in sys.modules:
        patch()
    else:
        sys.meta_path.insert(0, _Later)
