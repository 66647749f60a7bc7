"""Starts the recorder in each Python process of a recorded command once that has imported torch;
then runs the `sitecustomize` that this one hides. Imports gradverify only with torch: pytest warns
of plugins that are imported before it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HERE = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is not imported yet


class AfterTorch:
    """A finder that starts the recorder after the import of torch, and then removes itself."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            execute, loader = found.loader.exec_module, found.loader

            def exec_module(module: ModuleType) -> None:
                execute(module)
                del loader.exec_module
                from gradverify.recording.start import start

                start(self.folder)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


def begin(folder: str) -> None:
    able = importlib.util.find_spec("gradverify") is not None
    name = f"{os.getpid()}.{'python' if able else 'unable'}"
    with open(os.path.join(folder, name), "w") as file:  # noqa: PTH118, PTH123
        file.write(sys.executable)
    if able:
        sys.meta_path.insert(0, AfterTorch(folder))


def begin_hidden() -> None:
    hidden = PathFinder.find_spec("sitecustomize")
    if hidden is not None and hidden.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(hidden)
        hidden.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if entry != HERE]
if os.path.isdir(os.environ.get("GRADVERIFY_RECORD", "")):  # noqa: PTH112
    begin(os.environ["GRADVERIFY_RECORD"])
begin_hidden()
