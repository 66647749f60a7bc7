"""Names in a spec to objects: `module:attribute`, `module.attribute`, `file.py:attribute`; only what is named is imported."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

from gradverify.model.case import Search
from gradverify.model.interrupt import is_interrupt
from gradverify.subject.failure import CODE as CODE
from gradverify.subject.failure import UserCodeError, blamed, describe, named, user_frames, what_to_write
from gradverify.subject.machine import imported
from gradverify.subject.namesakes import Aside, Importer, importer, keeper
from gradverify.subject.registered import REGISTERED, find_operator

_FOUND_IN = "__gradverify_found_in__"       # set on modules that a spec's folders brought in: the folder each was found in
_MARKED = "marked"      # the names of these among what is kept: to look through thousands of modules takes a twentieth of a small check


@contextmanager
def importable(search: Search, aside: Aside = nullcontext) -> Iterator[list[str]]:
    """The spec's folder, the current folder and the `path:` entries are importable inside; `import:` modules are imported, `aside` as all are that
    `find` imports. Yields the names of what imports set and what was put back (`machine.imported`), all of them at the end.

    For code that lies in these folders their modules win over namesakes, imported or Python's own, which all other code still gets.
    """
    before = list(sys.path)
    try:
        folders = list(dict.fromkeys([*search.path, str(Path(search.folder).resolve()), str(Path.cwd())]))
        active = Importer(folders, aside)
        with _first(folders), active.installed():
            for name in search.imports:
                with aside(), importing():
                    _import(name, f"import: {name}")
            yield active.put_back
    finally:
        sys.path[:] = before


@contextmanager
def importing() -> Iterator[None]:
    """Inside, modules of the user's are imported, or what a check needs is built of them: what they set is not in the way of later calls."""
    active, changed = importer(), list[str]()
    try:
        with imported() as changed:
            yield
    finally:
        if active is not None:
            active.put_back += [name for name in changed if name not in active.put_back]


@contextmanager
def _first(folders: Sequence[str]) -> Iterator[None]:
    """These folders come first on sys.path inside; a namesake of another spec's folder is not taken for a module of these."""
    sys.path[:0] = folders
    importlib.invalidate_caches()
    _forget_namesakes()
    loaded = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - loaded:
            _mark(name, folders)
        for folder in folders:
            if folder in sys.path:
                sys.path.remove(folder)


def _mark(name: str, folders: Sequence[str]) -> None:
    """Notes on a new module in which of the folders it was found, so that the next spec can tell whether it would find the same one."""
    module, parts = sys.modules.get(name), name.split(".")
    file = Path(getattr(module, "__file__", None) or "/")
    depth = len(parts) if file.stem == "__init__" else len(parts) - 1
    own = file.parent.name if file.stem == "__init__" else file.name.partition(".")[0]
    if own == parts[-1] and depth < len(file.parents) and str(file.parents[depth]) in folders:
        vars(module)[_FOUND_IN] = str(file.parents[depth])
        keeper().setdefault(_MARKED, set()).add(name)


def _forget_namesakes() -> None:
    """Drops the modules of earlier specs that would now be found somewhere else, or nowhere; all others stay as they are."""
    homes = dict[str, str | None]()     # a package of a hundred modules is looked for once
    for name in sorted(keeper().get(_MARKED, ())):
        found_in = getattr(sys.modules.get(name), "__dict__", {}).get(_FOUND_IN)
        if found_in is None:
            continue
        top = name.partition(".")[0]
        if top not in homes:
            homes[top] = _home(top)
        if homes[top] != found_in:
            del sys.modules[name]


def _home(top: str) -> str | None:
    """The folder of sys.path in which a top-level name is found: a module or package, else the first plain folder of that name."""
    folders = [Path(entry or ".") for entry in sys.path]
    files = [f"{top}{suffix}" for suffix in all_suffixes()] + [f"{top}/__init__{suffix}" for suffix in all_suffixes()]
    regular = next((folder for folder in folders if any((folder / file).is_file() for file in files)), None)
    home = regular or next((folder for folder in folders if (folder / top).is_dir()), None)
    return None if home is None else str(home)


def find(name: str, key: str) -> Any:
    """The object a spec names under `key` ("function", "reference", …). Raises UserCodeError (GV001) where it is not to be had."""
    active = importer()
    with nullcontext() if active is None else active.aside(), importing():
        return _found(name, key)


def _found(name: str, key: str) -> Any:
    if name.startswith(REGISTERED):
        return find_operator(name, key)
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
        with _own_first(module):
            return importlib.util.find_spec(module) is not None
    except BaseException as error:      # a parent that will not import, whatever it raises: `_import` tells why
        if is_interrupt(error):
            raise
        return False


def _import(module: str, what: str) -> ModuleType:
    try:
        active = importer()
        return importlib.import_module(module) if active is None else active.imported(module)
    except BaseException as error:
        absent = error.name if type(error) is ModuleNotFoundError else None
        if isinstance(absent, str) and (module == absent or module.startswith(f"{absent}.")):
            raise UserCodeError(CODE, f"{what}: there is no module {absent!r}", hint=_searched()) from None
        if is_interrupt(error) or issubclass(type(error), UserCodeError):
            raise
        text, frames = describe(error), user_frames(error)
        raise UserCodeError(CODE, f"{what}: importing {module!r} raised {text}", frames, what_to_write(text, frames)) from error


def _own_first(module: str) -> AbstractContextManager[None]:
    active = importer()
    return nullcontext() if active is None else active.own(module)


def _searched() -> str:
    """Where a module was looked for: folders of the user's by name, the interpreter's own as one."""
    folders = [entry for entry in dict.fromkeys(sys.path) if Path(entry or ".").is_dir() and not entry.startswith((sys.prefix, sys.base_prefix))]
    return f"searched: {', '.join(folders)} and what is installed in {sys.prefix}; `path:` in the spec adds folders"


def _import_file(path: Path, key: str) -> ModuleType:
    """A Python file as a module of its own, once per process; its folder is importable while it loads."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    active = importer()
    if active is not None:
        active.also(str(path.resolve().parent))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserCodeError(CODE, f"{key}: there is no file {path}")
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
        with blamed(CODE, f"{key}: {name}: looking up {part!r}"):
            found = hasattr(value, part)        # a module's own __getattr__ may raise anything
        if not found:
            shown = Path(name.rpartition(":")[0]).name if value is module and ".py:" in name else named(value)
            with blamed(CODE, f"{key}: {name}: looking up {part!r}"):
                names = [name for name in dir(value) if isinstance(name, str)]
            raise UserCodeError(CODE, f"{key}: {name}: {shown!r} has no attribute {part!r}", hint=_nearest(part, names))
        with blamed(CODE, f"{key}: {name}: looking up {part!r}"):
            value = getattr(value, part)
    return value


def _nearest(name: str, names: Sequence[str]) -> str | None:
    near = get_close_matches(name, [other for other in names if not other.startswith("__")], n=3)
    return f"did you mean {' or '.join(repr(other) for other in near)}?" if near else None
