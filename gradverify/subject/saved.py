"""`--save-failures`: what a check was wrong at, as an npz file, and a script for each wrong pair that shows it with torch alone."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.model.fault import described
from gradverify.model.interrupt import is_interrupt
from gradverify.model.paths import shown_path
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult, Comparison, Entry
from gradverify.subject.arguments import Argument, value_of
from gradverify.subject.failure import type_name
from gradverify.subject.find import REGISTERED, run_folder
from gradverify.subject.layout import laid
from gradverify.subject.subject import Called, Subject
from gradverify.subject.target import named

# ---- Values and targets as Python source: what a script needs to make them again, without
# gradverify
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


# ---- `--save-failures`: what a check was wrong at, as an npz file, and a script for each wrong
# pair that shows it with torch alone
JACOBIAN = ("GV101", "GV111")
"""Rules whose elements are slopes of the function at the check's own inputs."""

FICKLE = ("GV205", "GV206")

RESERVED = ("seed", "file")     # `file` is the first parameter of numpy.savez
KEY = re.compile(r"[A-Za-z_][\w.\[\]]*", re.ASCII)
LONGEST_NAME = 80               # characters of a file's name, without what tells it from others
OPENED = ("opened = lambda y: [leaf for each in tree_leaves(y) for leaf in (opened(list(vars(each).values())) "
          "if hasattr(each, '__dataclass_fields__') else [each])]")
SMALL = 1e-2                    # below it the step no longer shrinks with the number: f's own rounding would show


def saved(subject: Subject, result: CaseResult) -> CaseResult:
    """The result, with the scripts that were written into the folder of the case for what is wrong in it; or why there are none."""
    if judged(result, Gate()).ok is not False or result.verdict != "fail" or subject.case.save is None:
        return result
    if any(finding.code in FICKLE for finding in result.findings):
        return replace(result, unsaved="the function gives other values when it is called again, as a script would")
    wrong = [each for each in result.comparisons if each.rule in JACOBIAN and each.mismatched and each.worst and each.output is not None]
    if not wrong:
        return replace(result, unsaved="no element of the Jacobian at these inputs is wrong")
    try:
        return replace(result, saved=tuple(shown_path(str(path), run_folder()) for path in _written(subject, wrong, Path(subject.case.save))))
    except Unspelled as unspelled:
        return replace(result, unsaved=f"it is called with {unspelled}, which no script can be written for")
    except BaseException as error:
        if is_interrupt(error):
            raise
        return replace(result, unsaved=described(error))


def _written(subject: Subject, wrong: Sequence[Comparison], folder: Path) -> Iterator[Path]:
    case = subject.case
    called = subject.called(subject.leaves())
    tensors = _tensors(subject, called)
    arrays: dict[str, Any] = {key: _array(tensor) for key, tensor in tensors.items()}
    arrays["seed"] = np.int64(case.settings.seed)
    stem = _stem(f"{case.name}", f"{case.id} {case.settings.seed}")
    scripts = {}
    for number, comparison in enumerate(wrong):
        entry = comparison.worst[0]
        key = f"cotangent{number}"
        tensors[key] = _cotangent(called.outputs[comparison.output or 0], entry)
        arrays[key] = _array(tensors[key])
        text = _Script(subject, called, tensors, comparison, entry, key).text()
        scripts[folder / f"{stem}--{_slug(f'y{comparison.output}-{comparison.input}', LONGEST_NAME // 2)}-{number}.py"] = text
    np.savez(folder / f"{stem}.npz", **arrays)
    for path, text in scripts.items():
        path.write_text(text, encoding="utf-8")
        yield path


def _tensors(subject: Subject, called: Called) -> dict[str, Tensor]:
    """Everything that the function gets, by the keys of the npz file: its tensor arguments, and a module's buffers."""
    found: dict[str, Tensor] = {}
    for number, argument in enumerate(subject.arguments):
        if argument.is_tensor:
            usable = KEY.fullmatch(argument.name) and argument.name not in (*RESERVED, *found) and not argument.name.startswith("cotangent")
            found[argument.name if usable else f"input{number}"] = argument.value
    if subject.target.kind == "module":
        found |= {f"buffer.{name}": buffer for name, buffer in subject.buffers(called).items()}
    return found


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The exact bits; bfloat16, which NumPy lacks, as int16."""
    tensor = tensor.detach().cpu().contiguous()
    array: np.ndarray[Any, Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _cotangent(output: Tensor, entry: Entry) -> Tensor:
    """One at the output element; i for the imaginary part of a complex one, whose real product with it is that part."""
    cotangent = torch.zeros_like(output, memory_format=torch.contiguous_format).detach()
    one: complex = 1j if entry.output_part == "im" else 1
    cotangent[entry.output_index] = one      # type: ignore[assignment]
    return cotangent


@dataclass(frozen=True)
class _Script:
    """The source for one pair: `tensors` by their keys in the npz file, `key` that of the cotangent."""

    subject: Subject
    called: Called
    tensors: Mapping[str, Tensor]
    comparison: Comparison
    entry: Entry
    key: str

    def text(self) -> str:
        """Raises Unspelled where an argument cannot be written down."""
        moved = next(argument for argument in self.subject.differentiable if argument.name == self.comparison.input)
        if moved.symmetric:
            raise Unspelled("a symmetric matrix, whose elements move in pairs")
        if self.subject.case.oracles.surrogate:
            raise Unspelled("a `surrogate`, whose slope is meant")
        names = self._names(moved)
        names.tensors[id(moved.value)] = self._ref(moved, "x")
        call = self._call(names)
        where = list(dict.fromkeys([*names.folders, *folders(self.subject.case)]))
        head = [f'"""{self._about()}"""', "import random, sys", "import numpy, torch", "from torch.utils._pytree import tree_leaves"]
        imports = [f"sys.path[:0] = {where!r}", *dict.fromkeys(names.lines)]
        return "\n".join([*head, *imports, *self._loading(), *self._function(call), *self._measuring(moved), ""])

    def _about(self) -> str:
        entry = self.entry
        told = (f"{self._element()} of {self.subject.case.target}: backward returned {entry.analytic!r}, "
                f"the finite difference was {entry.numeric!r} +- {entry.bar:.2g}.")
        return told.encode("unicode_escape").decode().replace('"', "'")

    def _element(self) -> str:
        entry, c = self.entry, self.comparison
        parts = {None: "", "re": ".real", "im": ".imag"}
        seen = f"{c.output_name or f'y{c.output}'}{_index(entry.output_index, '')}{parts[entry.output_part]}"
        return f"d {seen} / d {c.input}{_index(entry.input_index, '')}{parts[entry.input_part]}"

    def _key_of(self, tensor: Tensor) -> str:
        return next(key for key, each in self.tensors.items() if each is tensor)

    def _names(self, moved: Argument) -> Names:
        names = Names()
        for argument in self.subject.arguments:
            if argument.is_tensor:
                names.tensors[id(argument.value)] = self._ref(argument, f"saved[{self._key_of(argument.value)!r}]")
        return names

    def _ref(self, argument: Argument, expression: str) -> str:
        """The tensor as the function gets it: a clone where it is written into, in the same layout."""
        tensor = laid(argument.value, argument.layout)
        if not tensor.is_contiguous() and 0 not in tensor.stride():
            return f"torch.empty_strided({tuple(tensor.shape)}, {tensor.stride()}, dtype={tensor.dtype}).copy_({expression})"
        return f"{expression}.clone()" if self.subject.writes else expression

    def _call(self, names: Names) -> str:
        """The call of the function, as source; adds to the names what has to be imported."""
        subject, case = self.subject, self.subject.case
        expression = reached(case, _hashed(case.target), names)
        given, named_ = self._arguments(names)
        if subject.target.kind == "module":
            mapping = {argument.name: names.tensors[id(argument.value)] for argument in subject.arguments if argument.parameter}
            mapping |= {name: f"saved[{f'buffer.{name}'!r}].clone()" for name in self.subject.buffers(self.called)}
            lent = ", ".join(f"{name!r}: {value}" for name, value in mapping.items())
            names.lines += self._built(expression, names)
            return f"torch.func.functional_call(built, {{{lent}}}, ({''.join(f'{each}, ' for each in given)}), {{{_pairs(named_)}}})"
        apply = ".apply" if subject.target.kind == "autograd.Function" else ""
        return f"{expression}{apply}({', '.join([*given, *(f'{name}={value}' for name, value in named_.items())])})"

    def _built(self, expression: str, names: Names) -> list[str]:
        """The module: an instance as it is, a class built as the check builds it; its parameters and buffers are lent to it."""
        if not inspect.isclass(named(self.subject.case.target, "function")):
            return [f"built = {expression}"]
        init = ", ".join(f"{name}={spelled(value, names)}" for name, value in (self.subject.case.init or {}).items())
        return ["torch.set_default_dtype(torch.float64)", f"built = {expression}({init})", "torch.set_default_dtype(torch.float32)"]

    def _arguments(self, names: Names) -> tuple[list[str], dict[str, str]]:
        """By position and by name."""
        given, by_name = list[str](), {name: spelled(value, names) for name, value in self.subject.kwargs.items()}
        for members in self.subject.positions:
            if members[0].parameter:
                continue
            source = spelled(value_of(members, [argument.value for argument in members]), names)
            if members[0].keyword:
                by_name[members[0].whole] = source
            else:
                given.append(source)
        return given, by_name

    def _loading(self) -> list[str]:
        devices = {str(tensor.device) for tensor in self.tensors.values()} - {"cpu"}
        to = f".to({devices.pop()!r})" if len(devices) == 1 else ""
        lines = [f"saved = {{name: torch.from_numpy(each){to} for name, each in numpy.load(__file__.rpartition('--')[0] + '.npz').items()}}"]
        narrow = [key for key, tensor in self.tensors.items() if tensor.dtype == torch.bfloat16]
        return lines + [f"saved[{key!r}] = saved[{key!r}].view(torch.bfloat16)" for key in narrow]

    def _function(self, call: str) -> list[str]:
        seeds = ["    random.seed(int(saved['seed'])); numpy.random.seed(int(saved['seed']) % 2**32); torch.manual_seed(int(saved['seed']))"]
        differentiated = ", ".join(f"saved[{self._key_of(argument.value)!r}]" for argument in self.subject.differentiable)
        inside = any("." in name for name in self.subject.output_names)      # by a key, or a field of a dataclass, which pytree takes for a leaf
        return [f"for each in ({differentiated},):", "    each.requires_grad_()", *([OPENED] if inside else []), "def f(x):",
                *(seeds if self.subject.case.settings.reseed else []),
                f"    return {'opened' if inside else 'tree_leaves'}({call})[{self.comparison.output}]"]

    def _measuring(self, moved: Argument) -> list[str]:
        entry, x = self.entry, f"saved[{self._key_of(moved.value)!r}]"
        at, size = _index(entry.input_index, "()"), float(abs(moved.value[entry.input_index]))
        step = float(torch.finfo(moved.value.dtype).eps) ** (1 / 3) * (size if moved.domain and size else max(size, SMALL))
        part = ".imag" if entry.input_part == "im" else ".real" if entry.input_part else ""
        unit = "1j * " if entry.input_part == "im" else ""
        return [
            f"x, cotangent, h = {x}, saved[{self.key!r}], torch.zeros_like({x}).detach()", f"h{at} = {unit}{step:.3g}",
            f"analytic = torch.autograd.grad(f(x), x, cotangent, allow_unused=True, materialize_grads=True)[0]{at}{part}",
            f"numeric = ((f(x + h) - f(x - h)).detach() * cotangent.conj()).real.sum() / {2 * float(f'{step:.3g}'):.6g}",
            f"print(f{f'{self._element()}: backward {{analytic:.9g}}, finite difference {{numeric:.9g}}'!r})"]


def _index(index: Sequence[int], bare: str) -> str:
    return f"[{','.join(map(str, index))}]" if index else f"[{bare}]" if bare else ""


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r}: {value}" for name, value in values.items())


def _hashed(target: str) -> str:
    """Under which name `find` keeps a file that was imported as a module of its own."""
    path = target.rpartition(":")[0]
    return f"{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def _stem(name: str, id: str) -> str:
    """A file name for any check: letters, digits, `.`, `_` and `-`; what tells it from names that look the same behind it."""
    return f"{_slug(name, LONGEST_NAME)}-{hashlib.sha256(id.encode(errors='backslashreplace')).hexdigest()[:8]}"


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:longest] or "check"
