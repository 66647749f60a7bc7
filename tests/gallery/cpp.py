"""The C++ operators of the gallery, compiled once for all tests, where there is a compiler."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "specs" / "extensions" / "linear.yaml"
BUILD = SPEC.with_name("build.py")
FAULTS = Path(__file__).with_name("cpp_faults.cpp")
COMMAND = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import build; build.build(*map(pathlib.Path, sys.argv[2:]))"


def builder() -> ModuleType:
    """specs/extensions/build.py as a module."""
    spec = importlib.util.spec_from_file_location("build_gallery_cpp", BUILD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(folder: Path) -> None:
    """Compiles the gallery's operators and this folder's faults into a folder, in a process of its own: setuptools changes more than it says."""
    done = subprocess.run([sys.executable, "-c", COMMAND, str(BUILD.parent), str(folder), str(FAULTS)], capture_output=True, text=True, cwd=folder,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def gradverify(*arguments: str, module_folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`gradverify …` in the project's root, with the compiled module in reach or without."""
    environment = {**os.environ, "CI": "", "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(map(str, (module_folder or ROOT, ROOT)))}
    return subprocess.run([sys.executable, "-m", "gradverify", *arguments], capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
