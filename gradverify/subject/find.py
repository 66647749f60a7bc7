"""Names in a spec to objects: `module:attribute`, `module.attribute`, `file.py:attribute`; only what is named is imported."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from gradverify.model.case import Search
from gradverify.subject.failure import UserCodeError, describe, user_frames

CODE = "GV001"


@contextmanager
def importable(search: Search) -> Iterator[None]:
    """The spec's folder, the current folder and the `path:` entries are importable inside; `import:` modules are imported."""
    before, folders = list(sys.path), [*search.path, str(Path(search.folder).resolve()), str(Path.cwd())]
    sys.path[:0] = folders
    importlib.invalidate_caches()
    try:
        for name in search.imports:
            _import(name, f"import: {name}")
        yield
    finally:
        sys.path[:] = before


def find(name: str, key: str) -> Any:
    """The object a spec names under `key` ("function", "reference", …). Raises UserCodeError (GV001) where it is not to be had."""
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        return _attribute(_import_file(Path(place), key), attribute, name, key)
    if place:
        return _attribute(_import(place, f"{key}: {name}"), attribute, name, key)
    return _dotted(name, key)


def _dotted(name: str, key: str) -> Any:
    """`package.module.Class.attribute`: the longest importable beginning, then attributes."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        if _exists(module):
            return _attribute(_import(module, f"{key}: {name}"), ".".join(parts[end:]), name, key)
    return _import(parts[0], f"{key}: {name}")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _import(module: str, what: str) -> ModuleType:
    _forget_namesake(module.partition(".")[0])
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise UserCodeError(CODE, f"{what}: there is no module {error.name!r}", hint=_searched()) from None
        raise UserCodeError(CODE, f"{what}: importing {module!r} raised {describe(error)}", user_frames(error)) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserCodeError(CODE, f"{what}: importing {module!r} raised {describe(error)}", user_frames(error)) from error


def _searched() -> str:
    """Where a module was looked for: folders of the user's by name, the interpreter's own as one."""
    folders = [entry for entry in dict.fromkeys(sys.path) if Path(entry or ".").is_dir() and not entry.startswith((sys.prefix, sys.base_prefix))]
    return f"searched: {', '.join(folders)} and what is installed in {sys.prefix}; `path:` in the spec adds folders"


def _forget_namesake(top: str) -> None:
    """A module of the same name from another spec's folder would be checked in this one's place: drop it first."""
    loaded = sys.modules.get(top)
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    if loaded is None or origin is None or top in sys.stdlib_module_names:
        return
    here = PathFinder.find_spec(top, sys.path)
    if here is not None and here.origin is not None and Path(here.origin) != Path(origin):
        for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
            del sys.modules[name]


def _import_file(path: Path, key: str) -> ModuleType:
    """A Python file as a module of its own, once per process; its folder is importable while it loads."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserCodeError(CODE, f"{key}: there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserCodeError(CODE, f"{key}: importing {path.name} raised {describe(error)}", user_frames(error)) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _attribute(module: ModuleType, dotted: str, name: str, key: str) -> Any:
    value: Any = module
    for part in dotted.split("."):
        if not hasattr(value, part):
            shown = getattr(value, "__name__", type(value).__name__)
            raise UserCodeError(CODE, f"{key}: {name}: {shown!r} has no attribute {part!r}", hint=_nearest(part, dir(value)))
        value = getattr(value, part)
    return value


def _nearest(name: str, names: Sequence[str]) -> str | None:
    near = get_close_matches(name, [other for other in names if not other.startswith("__")], n=3)
    return f"did you mean {' or '.join(repr(other) for other in near)}?" if near else None
