"""The gallery as the tests see it: every file, and the inputs of its spec."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import CustomOpDef

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.rules.catalogue import codes
from gradverify.spec.load import load as load_specs
from gradverify.subject.find import find
from gradverify.subject.forms import Argument
from gradverify.subject.prepare import prepare

GALLERY = Path(__file__).resolve().parents[2] / "specs" / "gallery"


def names() -> list[str]:
    """Without those that need Triton (tests/gallery/test_kernels.py) or end their process."""
    return sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "ends_its_process")


def load(name: str) -> ModuleType:
    """A file of the gallery as the module that checks import, once per process: an operator is
    registered once."""
    return sys.modules[find(f"{GALLERY / name}.py:__name__", "function")]


def twins(name: str) -> tuple[Any, Any]:
    """The faulty one and the right one."""
    return load(name).Faulty, load(name).Right


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Standard normal numbers that require a gradient."""
    generator = torch.Generator().manual_seed(seed + math.prod(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


@cache
def cases() -> Mapping[str, Case]:
    """Of every file the first check of its faulty one, in double precision on the CPU."""
    found = dict[str, Case]()
    parameters = {name: builtin.parameters for name, builtin in BUILTINS.items()}
    for case in load_specs(
        sorted(GALLERY.glob("*.yaml")), builtins=parameters, codes=codes()
    ).cases:
        path, _, twin = case.target.rpartition(":")
        dtype = "complex128" if case.settings.dtype.startswith("complex") else "float64"
        if twin == "Faulty":
            settings = replace(case.settings, dtype=dtype, device="cpu")
            found.setdefault(Path(path).stem, replace(case, settings=settings))
    return found


def inputs(name: str) -> tuple[Any, ...]:
    """Those of the spec that checks the file, on which its fault shows."""

    def given(argument: Argument) -> Any:
        if not argument.is_tensor:
            return argument.value
        x = argument.value.detach().clone()
        x = argument.form.built(x) if argument.form else x
        return x.requires_grad_(argument.differentiable)

    return tuple(given(a) for a in prepare(cases()[name]).arguments if not a.parameter)


def call(twin: Any) -> Callable[..., Any]:
    """How a twin is called: an operator as it is, a module as an object with double-precision
    parameters, a Function through `apply`."""
    if isinstance(twin, CustomOpDef):
        return twin
    if issubclass(twin, nn.Module):
        return twin(3).double()
    return twin.apply


def gradients(
    twin: Any, inputs: tuple[Any, ...], grad_output: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """The gradient of every floating input under the given cotangent, or under a fixed signed
    one."""
    output = call(twin)(*inputs)
    if grad_output is None:
        grad_output = (
            torch.linspace(-1.0, 2.0, output.numel(), dtype=torch.float64)
            .reshape(output.shape)
            .to(output.dtype)
        )
    tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor) and tensor.requires_grad]
    return torch.autograd.grad(output, tensors, grad_output, allow_unused=True)
