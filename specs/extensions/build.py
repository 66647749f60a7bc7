"""Compiles the gallery's C++ operators, with their CUDA kernel where torch finds a GPU and nvcc:
python specs/extensions/build.py [FOLDER]

What comes out is the module `gradverify_gallery_cpp`, in this folder unless another one is named:
importing it registers the operators.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch
from setuptools import Distribution, Extension
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
GALLERY = HERE.parent / "gallery"
MODULE, SOURCE = "gradverify_gallery_cpp", GALLERY / "assumes_contiguous.cpp"
QUICK = ["-O0", "-g0"]  # the loops are short; the headers are not


def lack() -> str | None:
    """Why nothing can be compiled here; None where it can."""
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None:
        return f"no C++ compiler: there is no {compiler!r} on the PATH"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "no Python.h: Python's headers are not installed (Debian, Ubuntu: python3-dev)"
    return None


def lack_of_cuda() -> str | None:
    """Why the CUDA kernel cannot be compiled and run here; None where it can."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    found = (
        cpp_extension.CUDA_HOME is not None
        and shutil.which("nvcc", path=str(Path(cpp_extension.CUDA_HOME) / "bin")) is not None
    )
    return None if found else "no nvcc"


def extension(source: Path) -> Extension:
    if lack_of_cuda() is not None:
        return cpp_extension.CppExtension(
            MODULE, [str(source)], include_dirs=[str(GALLERY)], extra_compile_args=QUICK
        )
    return cpp_extension.CUDAExtension(
        MODULE,
        [str(source), str(SOURCE.with_suffix(".cu"))],
        include_dirs=[str(GALLERY)],
        define_macros=[("WITH_CUDA", None)],
        extra_compile_args={"cxx": QUICK, "nvcc": ["-O2"]},
    )


def build(folder: Path, source: Path = SOURCE) -> None:
    """Compiles the module into a folder. Raises setuptools' CompileError where the compiler
    refuses."""
    with tempfile.TemporaryDirectory() as objects:
        command = cpp_extension.BuildExtension(
            Distribution({"name": MODULE, "ext_modules": [extension(source)]}), use_ninja=False
        )
        command.build_lib, command.build_temp = str(folder), objects
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    missing = lack()
    if missing is not None:
        sys.exit(missing)
    build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
