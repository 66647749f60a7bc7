"""Resolution of names in a spec to objects: `module:attribute`, `module.attribute`,
`file.py:attribute`. Only named modules are imported."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.machinery import BYTECODE_SUFFIXES, SourceFileLoader, all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gradverify.model.case import Search
from gradverify.model.interrupt import is_interrupt
from gradverify.source.graph import is_local
from gradverify.subject.failure import (
    CODE,
    UserCodeError,
    blamed,
    describe,
    named,
    nearest,
    refuse,
    user_frames,
    what_to_write,
)
from gradverify.subject.machine import imported
from gradverify.torch_private import operator_names, schema

# ---- Registered operators: `torch.ops.library.operator`, with or without its overload
REGISTERED = "torch.ops."


def find_operator(name: str, key: str) -> Any:
    """Return the operator, or its overload. Raises UserCodeError (GV001) with the nearest names of
    its library."""
    library, operator, *overload = name.removeprefix(REGISTERED).split(".")
    found = _operator_attribute(getattr(torch.ops, library), operator)
    if found is None:
        registered = {each.partition(".")[0] for each in operator_names()}
        names = [each.partition("::")[2] for each in registered if each.startswith(f"{library}::")]
        libraries = () if names else {each.partition("::")[0] for each in registered}
        meant = nearest(operator, names, 3) or nearest(library, libraries, 3)
        hint = "name the module that registers it under `import:`"
        if not names:
            else_ = f"{meant} Else " if meant else ""
            meant = f"nothing is registered in {library!r}: {else_}{hint}"
        refuse(
            f"{key}: {name}: no operator {operator!r} is registered in the library {library!r}",
            meant or hint,
        )
    if not overload:
        return found
    chosen = _operator_attribute(found, overload[0])
    if chosen is None:
        refuse(
            f"{key}: {name}: the operator {library}::{operator} has no overload {overload[0]!r}",
            f"its overloads are {', '.join(found.overloads())}",
        )
    if _writes(chosen):
        refuse(
            f"{key}: {name} writes its result into an argument, and torch has no gradient for that",
            f"name an overload that returns it: {', '.join(returning(found)) or 'there is none'}",
        )
    return chosen


def returning(operator: Any) -> list[str]:
    """Return the names of an operator's overloads that return their result, and do not write it
    into an argument such as `out`."""
    return [name for name in operator.overloads() if not _writes(getattr(operator, name))]


def _writes(overload: Any) -> bool:
    return any(argument.is_out for argument in schema(overload).arguments)


def _operator_attribute(owner: Any, name: str) -> Any:
    """Return an operator or overload; None where torch has none, for which it raises different
    errors."""
    try:
        return getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None


# ---- Names of Python objects
Aside = Callable[[], AbstractContextManager[None]]
"""Makes a context in which output is kept only if something is raised: a module that prints is
imported once, by whichever check comes first."""


@dataclass
class _Place:
    """Where names are looked up: `folders`, in order. `put_back`: the names of global state that
    imports set and that was restored; `run_folder`: the current folder when the checks began, even
    if a check changes it."""

    folders: tuple[str, ...]
    aside: Aside
    run_folder: str
    put_back: list[str] = field(default_factory=list)


_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)
# Attribute set on modules found in a spec's folders: the folder
_FOUND_IN = "__gradverify_found_in__"
_OWN: Any = vars(ModuleType)["__dict__"]  # avoids the attribute look-up of the module itself
_PROTECTED = ("gradverify", "torch", "numpy")  # modules that gradverify itself needs
_STDLIB = str(Path(os.__file__).parent)
_LIBRARY = (
    _STDLIB,
    str(Path(_STDLIB, "lib-dynload")),
    str(Path(f"{_STDLIB.replace('.', '')}.zip")),
)


def run_folder() -> str | None:
    """Return the folder that the paths of a report are relative to; None, the current folder, where
    no checks of a spec run."""
    place = _PLACE.get()
    return None if place is None else place.run_folder


@contextmanager
def importable(search: Search, aside: Aside = nullcontext) -> Iterator[list[str]]:
    """Context in which the spec's folder, the current folder and the `path:` entries are
    importable; imports the modules under `import:`, inside `aside`, as `find` does. Yields a list,
    complete at the end, of the names of global state that imports set and that was restored
    (`machine.imported`).

    Modules in these folders win over installed ones, but not over Python's own, which torch imports
    as well.
    """
    place, outer, before = _PLACE.get(), _PLACE.get(), list(sys.path)
    if place is None:
        folders = tuple(
            dict.fromkeys([*search.path, str(Path(search.folder).resolve()), str(Path.cwd())])
        )
        place = _Place(folders, aside, str(Path.cwd()))
        _forget_others(folders)
    token = _PLACE.set(place)
    try:
        with (
            nullcontext() if outer else _first(place.folders),
            nullcontext() if outer else _from_source(),
        ):
            for name in search.imports:
                with aside(), importing():
                    _import(name, f"import: {name}")
            yield place.put_back
    finally:
        _PLACE.reset(token)
        if outer is None:
            sys.path[:] = before


@contextmanager
def importing() -> Iterator[None]:
    """Context for importing the user's modules, or building objects of them: global state that they
    set and that would affect later calls is restored."""
    place, changed = _PLACE.get(), list[str]()
    try:
        with imported() as changed:
            yield
    finally:
        if place is not None:
            place.put_back += [name for name in changed if name not in place.put_back]


@contextmanager
def _from_source() -> Iterator[None]:
    """Context in which modules that are not installed are compiled from their source: cached
    bytecode may be of another source of the same size and time."""
    before = SourceFileLoader.get_data

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        if path.endswith(tuple(BYTECODE_SUFFIXES)) and is_local(path):
            # This is how a loader reports that there is no bytecode
            raise OSError("bytecode is not read")
        return before(self, path)

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        SourceFileLoader.get_data = before  # type: ignore[method-assign]


@contextmanager
def _first(folders: Sequence[str]) -> Iterator[None]:
    """Context in which these folders come first on sys.path, but after Python's own library."""
    library = [entry for entry in sys.path if entry in _LIBRARY]
    sys.path[:] = [*library, *folders, *(entry for entry in sys.path if entry not in _LIBRARY)]
    importlib.invalidate_caches()
    loaded = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - loaded:  # record the folder of each new module
            file, top = getattr(sys.modules.get(name), "__file__", None), name.partition(".")[0]
            if top in _PROTECTED:
                continue
            found = [
                folder
                for folder in folders
                if isinstance(file, str)
                and file.startswith((f"{folder}{os.sep}{top}{os.sep}", f"{folder}{os.sep}{top}."))
            ]
            if found:
                vars(sys.modules[name])[_FOUND_IN] = found[0]
        for folder in folders:
            if folder in sys.path:
                sys.path.remove(folder)


def _forget_others(folders: Sequence[str]) -> None:
    """Drop the modules of earlier specs of this process that would now be found somewhere else, or
    nowhere."""
    for name, module in list(sys.modules.items()):
        is_module = issubclass(type(module), ModuleType)
        found_in = _OWN.__get__(module).get(_FOUND_IN) if is_module else None
        if found_in is None:  # nearly all modules
            continue
        top = name.partition(".")[0]
        homes = [folder for folder in folders if _file(top, folder)] or [
            folder for folder in folders if Path(folder, top).is_dir()
        ]
        if found_in not in homes[:1]:
            del sys.modules[name]


def _file(top: str, folder: str) -> Path | None:
    names = [f"{top}{place}{suffix}" for place in ("", "/__init__") for suffix in all_suffixes()]
    return next((path for name in names if (path := Path(folder, name)).is_file()), None)


def find(name: str, key: str) -> Any:
    """Return the object that a spec names under `key` ("function", "reference", …). Raises
    UserCodeError (GV001) where it cannot be found or imported."""
    place = _PLACE.get()
    with nullcontext() if place is None else place.aside(), importing():
        if name.startswith(REGISTERED):
            return find_operator(name, key)
        module, _, attribute = name.rpartition(":")
        if module.endswith(".py"):
            return _attribute(_import_file(Path(module), key), attribute, name, key)
        # `package.module.Class.attribute`: the longest importable prefix, then attributes
        if not module:
            parts = name.split(".")
            end = next(
                (end for end in range(len(parts) - 1, 0, -1) if _exists(".".join(parts[:end]))), 0
            )
            if not end:
                return _import(parts[0], f"{key}: {name}")
            module, attribute = ".".join(parts[:end]), ".".join(parts[end:])
        return _attribute(_import(module, f"{key}: {name}"), attribute, name, key)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    # The import of a parent fails: `_import` reports the error
    except BaseException as error:
        if is_interrupt(error):
            raise
        return False


def _import(module: str, what: str) -> ModuleType:
    try:
        found = importlib.import_module(module)
    except BaseException as error:
        absent = error.name if type(error) is ModuleNotFoundError else None
        if isinstance(absent, str) and (module == absent or module.startswith(f"{absent}.")):
            # The user's folders are listed, the interpreter's own summarised
            folders = [
                entry
                for entry in dict.fromkeys(sys.path)
                if Path(entry or ".").is_dir()
                and not entry.startswith((sys.prefix, sys.base_prefix))
            ]
            raise UserCodeError(
                CODE,
                f"{what}: there is no module {absent!r}",
                hint=f"searched: {', '.join(folders)} and what is installed in "
                f"{sys.prefix}; `path:` in the spec adds folders",
            ) from None
        if is_interrupt(error) or issubclass(type(error), UserCodeError):
            raise
        text, frames = describe(error), user_frames(error)
        raise UserCodeError(
            CODE, f"{what}: importing {module!r} raised {text}", frames, what_to_write(text, frames)
        ) from error
    top, place = module.partition(".")[0], _PLACE.get()
    own = (
        next(filter(None, (_file(top, folder) for folder in place.folders)), None)
        if place is not None
        else None
    )
    # The imported module may have an attribute of the same name
    theirs = getattr(sys.modules.get(top), "__file__", None)
    if (
        own is not None
        and top not in _PROTECTED
        and not (theirs and os.path.realpath(theirs) == os.path.realpath(own))
    ):
        refuse(
            f"{what}: {own} has the name of a module that is imported already, "
            f"{theirs or 'one of Python itself'}",
            "rename it, or name a file: `file.py:name`",
        )
    return found


def _import_file(path: Path, key: str) -> ModuleType:
    """Import a Python file as a module of its own, once per process; its folder is importable
    during the import."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        refuse(f"{key}: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with blamed(CODE, f"{key}: importing {path.name}"), _first([str(path.resolve().parent)]):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _attribute(module: ModuleType, dotted: str, name: str, key: str) -> Any:
    value: Any = module
    for part in dotted.split("."):
        # A module's own __getattr__ may raise anything
        with blamed(CODE, f"{key}: {name}: looking up {part!r}"):
            if not hasattr(value, part):
                shown = (
                    Path(name.rpartition(":")[0]).name
                    if value is module and ".py:" in name
                    else named(value)
                )
                others = (each for each in dir(value) if isinstance(each, str))
                refuse(
                    f"{key}: {name}: {shown!r} has no attribute {part!r}",
                    nearest(part, (other for other in others if not other.startswith("__")), 3),
                )
            value = getattr(value, part)
    return value
