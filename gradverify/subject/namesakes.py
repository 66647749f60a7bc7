"""A spec's own modules beside others of the same name: every importer gets the one that is meant where it stands.

A folder with a `random.py` in it is no trouble to torch, which goes on importing Python's; what lies in the folder gets the folder's own.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Any

PROTECTED = frozenset({"gradverify", "torch", "numpy", "sys", "builtins", "importlib", "__main__"})   # what a check itself stands on
KEEPER = "gradverify: own modules that are out of sight"        # in sys.modules: it holds them between one check and the next
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
STDLIB = f"{Path(os.__file__).parent}{os.sep}"


Aside = Callable[[], AbstractContextManager[None]]
"""What is printed inside counts only where something is raised: a module that prints is imported once, for whichever check comes first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where code of the user's lies (`own`), and which names it finds in its search folders that the process has a namesake of: their homes."""

    own: tuple[str, ...]
    homes: Mapping[str, str]

    def holds(self, file: str) -> bool:
        return any(file.startswith(folder + os.sep) and not any(part in file[len(folder):] for part in INSTALLED) for folder in self.own)


def place_of(own: Sequence[str], folders: Sequence[str]) -> Place:
    """The place of code that lies in `own` and imports from `folders`, in this order."""
    homes: dict[str, str] = {}
    for folder in folders:
        for name, file in _modules(folder).items():
            if name not in homes and name not in PROTECTED and _has_namesake(name, file):
                homes[name] = folder
    return Place(tuple(own), homes)


def _modules(folder: str) -> dict[str, str]:
    """The modules and packages in a folder that may have a namesake: name → file."""
    found: dict[str, str] = {}
    suffixes = tuple(all_suffixes())
    try:
        entries = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return {}
    for entry in entries:
        name = entry.partition(".")[0]
        if name not in sys.modules and name not in sys.stdlib_module_names:
            continue
        path = Path(folder, entry)
        files = [path] if entry[len(name):] in suffixes else [path / f"__init__{suffix}" for suffix in suffixes]
        file = next((file for file in files if file.is_file()), None)
        if file is not None:
            found[name] = str(file)
    return found


def _has_namesake(name: str, file: str) -> bool:
    """Is a module of that name imported from elsewhere, or one of Python's own?"""
    module = sys.modules.get(name)
    if module is None:
        return name in sys.stdlib_module_names
    theirs = getattr(module, "__file__", None)
    return theirs is None or os.path.realpath(theirs) != os.path.realpath(file)


def keeper() -> dict[str, Any]:
    """What is held between one check and the next."""
    return vars(sys.modules.setdefault(KEEPER, ModuleType(KEEPER)))


class Importer:
    """Stands in for `builtins.__import__` and `importlib.import_module` while the checks of a spec run.

    Own modules that have a namesake are in sys.modules only while code of their place imports them; at all other times the others are. `aside`: for
    what is printed while a module is imported that a spec names. `put_back`: the names of what such a module set, and what was put back.
    `folder`: the current one as the checks began, whichever a check changes to.
    """

    def __init__(self, folders: Sequence[str], aside: Aside = nullcontext) -> None:
        self._folders, self.aside, self.put_back = tuple(folders), aside, list[str]()
        self.folder = str(Path.cwd())
        self._places = [place_of(folders, folders)]
        self._homes = set(self._places[0].homes)        # of all places: asked at every import
        self._plain, self._by_name = builtins.__import__, importlib.import_module
        self._in_sight: dict[str, str] = {}     # of own modules: top-level name → home
        self._others: dict[str, dict[str, ModuleType]] = {}
        self._active = False

    def also(self, folder: str) -> None:
        """Code in this folder, too, finds its neighbours there first."""
        if all(folder not in place.own[:1] for place in self._places):
            self._places.append(place_of([folder], [folder, *self._folders]))
            self._homes |= set(self._places[-1].homes)

    def __call__(self, name: str, globals: Mapping[str, Any] | None = None, locals: Mapping[str, Any] | None = None,
                 fromlist: Sequence[str] | None = (), level: int = 0) -> ModuleType:
        top = _top(name, globals, level)
        if not self._active or top not in self._homes or _is_find_spec(globals, fromlist):
            return self._plain(name, globals, locals, fromlist or (), level)
        with self._seen_from(globals or sys._getframe(1).f_globals, top, level):
            return self._plain(name, globals, locals, fromlist or (), level)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        caller = sys._getframe(1).f_globals
        top = (package or name if name.startswith(".") else name).partition(".")[0]
        if not self._active or top not in self._homes:
            return self._by_name(name, package)
        with self._seen_from(caller, top, name.startswith(".")):
            return self._by_name(name, package)

    def imported(self, name: str) -> ModuleType:
        """The module that a spec names. Raises what importing it raises."""
        with self.own(name):
            return self._by_name(name)

    @contextmanager
    def own(self, name: str) -> Iterator[None]:
        """What a spec names is looked up among its own modules first."""
        top = name.partition(".")[0]
        with self._showing(top, self._places[0].homes.get(top)):
            yield

    @contextmanager
    def installed(self) -> Iterator[None]:
        builtins.__import__, importlib.import_module = self, self.import_module
        self._active = True
        try:
            yield
        finally:
            self._active = False
            builtins.__import__, importlib.import_module = self._plain, self._by_name

    # ---- who sees what
    @contextmanager
    def _seen_from(self, importer: Mapping[str, Any], top: str, level: int) -> Iterator[None]:
        place = self._belongs(importer)
        if place is not None and top in place.homes and not (level == 0 and _is_itself(importer, top)):
            with self._showing(top, place.homes[top]):
                yield
        elif top not in self._in_sight and top in sys.modules:
            yield
        else:
            with self._showing(top, None), _without(self._own_folders()):
                yield

    def _belongs(self, importer: Mapping[str, Any]) -> Place | None:
        """The place that an importing module lies in."""
        file = importer.get("__file__")
        if not isinstance(file, str) or str(importer.get("__name__")).partition(".")[0] in PROTECTED or file.startswith(STDLIB):
            return None
        return next((place for place in reversed(self._places) if place.holds(str(Path(file).absolute()))), None)

    def _own_folders(self) -> set[str]:
        return {folder for place in self._places for folder in (*place.own, *place.homes.values())}

    @contextmanager
    def _showing(self, top: str, home: str | None) -> Iterator[None]:
        before = self._in_sight.get(top)
        self._show(top, home)
        try:
            yield
        finally:
            self._show(top, before)

    def _show(self, top: str, home: str | None) -> None:
        """The module of that name from `home`, and all below it, into sys.modules, and its namesake out; None: as the process has it.

        No more than what is being imported: code in C looks up what it imported once again, where nobody knows who asks.
        """
        now = self._in_sight.get(top)
        if home == now:
            return
        if now is not None:
            keeper()[f"{now}:{top}"] = _taken_out(top)
            sys.modules.update(self._others.pop(top))
            del self._in_sight[top]
        if home is not None:
            self._others[top] = _taken_out(top)
            sys.modules.update(keeper().get(f"{home}:{top}", {}))
            self._in_sight[top] = home


def _taken_out(top: str) -> dict[str, ModuleType]:
    """A module and all below it, out of sys.modules."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == top}


def _top(name: str, importer: Mapping[str, Any] | None, level: int) -> str:
    if not level or importer is None:
        return name.partition(".")[0]
    return str(importer.get("__package__") or importer.get("__name__")).partition(".")[0]


def _is_itself(importer: Mapping[str, Any], top: str) -> bool:
    """Does a plain module import its own name? It means the other one: itself it has already."""
    return importer.get("__name__") == top and "__path__" not in importer


def _is_find_spec(importer: Mapping[str, Any] | None, fromlist: Sequence[str] | None) -> bool:
    """Does `importlib.util.find_spec` import a parent, on behalf of somebody whose modules are in sight already?"""
    return importer is not None and importer.get("__name__") == "importlib.util" and list(fromlist or ()) == ["__path__"]


@contextmanager
def _without(folders: set[str]) -> Iterator[None]:
    """These folders are not searched inside."""
    before = list(sys.path)
    sys.path[:] = [entry for entry in before if entry not in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def importer() -> Importer | None:
    """The one in place, while the checks of a spec run."""
    return builtins.__import__ if isinstance(builtins.__import__, Importer) else None


def run_folder() -> str | None:
    """What the paths of a report are relative to; None where no checks of a spec run: the current folder."""
    active = importer()
    return None if active is None else active.folder
