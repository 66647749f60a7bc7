"""What a case needs of the machine and of what is installed: why it cannot run here. Nothing is
imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from gradverify.model.case import Case, InputRecipe, Search, TensorRecipe
from gradverify.running.inline import Devices

MODULE = "module:"


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a case is skipped; `device`: the kind of device that is missing, None for something
    else."""

    reason: str
    device: str | None = None


def lack(case: Case, machine: Devices | None) -> Lack | None:
    """None where the case can run."""
    if case.skip is not None:
        return Lack(case.skip)
    for name in (
        requirement.removeprefix(MODULE)
        for requirement in case.requires
        if requirement.startswith(MODULE)
    ):
        if not installed(name, case.search):
            return Lack(f"no module {name!r}")
    return _device_lack(case, machine) if machine is not None else None


def cuda_of(case: Case) -> frozenset[str]:
    """The CUDA devices that it runs on, each by its number."""
    return frozenset(
        "cuda:0" if device == "cuda" else device
        for device in _devices(case)
        if device.startswith("cuda")
    )


def _device_lack(case: Case, machine: Devices) -> Lack | None:
    wanted = [device for device in _devices(case) if device.startswith("cuda")]
    absent = next(
        (device for device in wanted if int(device.partition(":")[2] or 0) >= len(machine.cuda)),
        None,
    )
    if absent is None:
        return None
    seen = (
        f"there is no {absent}: {len(machine.cuda)} CUDA device(s) seen"
        if machine.cuda
        else "no CUDA device"
    )
    return Lack(f"{seen}, and no comparison with {case.beside}" if case.beside else seen, "cuda")


def _devices(case: Case) -> Iterator[str]:
    yield case.settings.device
    yield from () if case.beside is None else (case.beside,)
    yield from (requirement for requirement in case.requires if not requirement.startswith(MODULE))
    yield from (
        recipe.device
        for argument in (*case.inputs, *case.keywords)
        for recipe in argument.recipes
        if recipe.device is not None
    )


def placed(case: Case, machine: Devices | None) -> Case:
    """`device: auto`, of the check or of an input, is the first CUDA device where there is one."""
    if "auto" not in set(_devices(case)):
        return case
    found = "cuda" if machine and machine.cuda else "cpu"
    settings = (
        replace(case.settings, device=found) if case.settings.device == "auto" else case.settings
    )
    inputs, keywords = (
        tuple(_moved(argument, found) for argument in some) for some in (case.inputs, case.keywords)
    )
    return replace(
        case,
        settings=settings,
        inputs=inputs,
        keywords=keywords,
        beside=found if case.beside == "auto" else case.beside,
    )


def _moved(argument: InputRecipe, device: str) -> InputRecipe:
    def moved(recipe: TensorRecipe) -> TensorRecipe:
        return replace(recipe, device=device) if recipe.device == "auto" else recipe

    tensor = None if argument.tensor is None else moved(argument.tensor)
    return replace(
        argument, tensor=tensor, tensors=tuple(moved(recipe) for recipe in argument.tensors)
    )


def installed(name: str, search: Search) -> bool:
    """Could the module be imported while the case runs, by what lies in its folders and in the
    interpreter's?"""
    places, parts = [*search.path, search.folder, str(Path.cwd()), *sys.path], name.split(".")
    if parts[0] in sys.builtin_module_names:
        return len(parts) == 1
    for depth in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:depth]), places)
        if found is None:
            return False
        places = list(found.submodule_search_locations or ())
    return True
