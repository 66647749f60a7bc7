"""Values and targets as Python source: what a script needs to make them again, without gradverify."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.subject.failure import type_name
from gradverify.subject.registered import REGISTERED

BY_REPR = (type(None), bool, int, str, bytes, torch.dtype, type(...))


class Unspelled(Exception):  # noqa: N818 - it carries the end of a sentence
    """A value that no source can be written for; says what it is."""


@dataclass
class Names:
    """What a script can refer to: tensors by their identity, modules by the names they are imported under; `lines` import them, with `folders`
    first on `sys.path`."""

    tensors: dict[int, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def module(self, name: str) -> str:
        """The expression for an imported module. Raises Unspelled for one that no import finds."""
        if name not in self.modules:
            found = sys.modules.get(name)
            if getattr(found, "__spec__", None) is None or not all(part.isidentifier() for part in name.split(".")):
                raise Unspelled(f"of the module {name}, which no script can import")
            self.lines.append(f"import {name}")
            self.modules[name] = name
        return self.modules[name]


def spelled(value: Any, names: Names) -> str:
    """Source whose value is equal: of plain values, of lists, tuples, dicts, sets, dataclasses and namedtuples of them, of tensors by name.

    Raises Unspelled for anything else.
    """
    if isinstance(value, Tensor):
        return names.tensors[id(value)]
    if type(value) in BY_REPR:
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if type(value) is complex:
        return f"complex({spelled(value.real, names)}, {spelled(value.imag, names)})"
    if isinstance(value, torch.device):
        return f"torch.device('{value}')"
    if type(value) in (list, tuple, torch.Size, set, frozenset):
        return _row(value, names)
    if type(value) is dict:
        return "{" + ", ".join(f"{spelled(key, names)}: {spelled(item, names)}" for key, item in value.items()) + "}"
    return _of_class(value, names)


def _row(value: Any, names: Names) -> str:
    items = [spelled(item, names) for item in value]
    if type(value) is list:
        return f"[{', '.join(items)}]"
    row = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return row if isinstance(value, tuple) else f"{type(value).__name__}({row})"


def _of_class(value: Any, names: Names) -> str:
    cls = type(value)
    if isinstance(value, tuple) and hasattr(cls, "_make"):
        return f"{_class(cls, names)}._make({_row(list(value), names)})"
    if dataclasses.is_dataclass(value):
        fields = [each.name for each in dataclasses.fields(value) if each.init]
        return f"{_class(cls, names)}({', '.join(f'{name}={spelled(getattr(value, name), names)}' for name in fields)})"
    raise Unspelled(f"a value of type {type_name(value)}")


def _class(cls: type, names: Names) -> str:
    if "<" in cls.__qualname__:
        raise Unspelled(f"a {cls.__qualname__}, a class inside of a function")
    return f"{names.module(cls.__module__)}.{cls.__qualname__}"


# ---- what is called
def reached(case: Case, hashed: str, names: Names) -> str:
    """The expression for what a case names as its function. `hashed`: under which name a file was imported as a module of its own."""
    builtin = BUILTINS.get(case.target)
    name = f"{builtin.module}:{builtin.attribute}" if builtin else case.target
    names.lines += [f"import {module}" for module in case.search.imports]
    if name.startswith(REGISTERED):
        return name
    place, _, attribute = name.rpartition(":")
    if not place:
        place, attribute = _parted(name)
    file = Path(place) if place.endswith(".py") else _hidden(place, case)
    if file is None:
        names.lines.append(f"import {place}")
        names.modules[place] = place
        return f"{place}.{attribute}"
    names.modules[hashed] = names.modules[place] = _of_file(file.resolve(), names)
    return f"{names.modules[place]}.{attribute}"


def folders(case: Case) -> list[str]:
    """What is first on `sys.path` while a check runs."""
    return list(dict.fromkeys([*case.search.path, str(Path(case.search.folder).resolve()), str(Path.cwd())]))


def _of_file(file: Path, names: Names) -> str:
    """The file as a module: imported by its name, or run where that name is another module's."""
    other = getattr(sys.modules.get(file.stem), "__file__", None)
    if file.stem.isidentifier() and file.stem not in sys.stdlib_module_names and other in (None, str(file)):
        names.folders.append(str(file.parent))
        names.lines.append(f"import {file.stem}")
        return file.stem
    names.lines.append(f"import runpy, types; module = types.SimpleNamespace(**runpy.run_path({str(file)!r}))")
    return "module"


def _hidden(place: str, case: Case) -> Path | None:
    """The user's own file of a module whose name is one of Python's, which a plain import would give."""
    if place not in sys.stdlib_module_names:
        return None
    return next((file for folder in folders(case) if (file := Path(folder) / f"{place}.py").is_file()), None)


def _parted(name: str) -> tuple[str, str]:
    """`package.module.Class.attribute`: the longest beginning that is an imported module, and the rest."""
    parts = name.split(".")
    end = next((end for end in range(len(parts) - 1, 0, -1) if ".".join(parts[:end]) in sys.modules), 1)
    return ".".join(parts[:end]), ".".join(parts[end:])
