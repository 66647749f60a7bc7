"""`--save-failures`: what a check was wrong at, as an npz file, and a script for each wrong pair that shows it with torch alone."""

from __future__ import annotations

import hashlib
import inspect
import io
import pickle
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from gradverify.subject.arguments import value_of
from gradverify.subject.find import REGISTERED, module_name, run_folder
from gradverify.subject.layout import laid
from gradverify.subject.subject import Called, Subject
from gradverify.subject.target import named

JACOBIAN = ("GV101", "GV111")
"""Rules whose elements are slopes of the function at the check's own inputs."""

FICKLE = ("GV205", "GV206")

RESERVED = ("seed", "call", "file")     # `file` is the first parameter of numpy.savez
KEY = re.compile(r"[A-Za-z_][\w.\[\]]*", re.ASCII)
LONGEST_NAME = 80               # characters of a file's name, without what tells it from others
SMALL = 1e-2                    # below it the step no longer shrinks with the number: f's own rounding would show
SCRIPT = '''"""{about}"""
import importlib.util, io, pickle, random, sys
import numpy, torch
from torch.utils._pytree import tree_leaves

def module(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found

def opened(y):
    return [leaf for each in tree_leaves(y)
            for leaf in (opened(list(vars(each).values())) if hasattr(each, '__dataclass_fields__') else [each])]

class Call(pickle.Unpickler):
    def persistent_load(self, found):
        key, strides = found
        x = self.tensors[key]
        return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x) if all(strides) else x

def call(**tensors):
    reader = Call(io.BytesIO(saved['call'].cpu().numpy().tobytes()))
    reader.tensors = saved | tensors
    return reader.load()

sys.path[:0] = {path!r}
{imports}
saved = {{name: torch.from_numpy(each){to} for name, each in numpy.load(__file__.rpartition('--')[0] + '.npz').items()}}
{narrow}
for name in {differentiated!r}:
    saved[name].requires_grad_()
init, parameters, args, kwargs = call()
{built}
def f(x):
    {seeds}
    init, parameters, args, kwargs = call(**{{{key!r}: x}})
    return opened({function})[{output}]
x, cotangent, h = saved[{key!r}], saved[{cotangent!r}], torch.zeros_like(saved[{key!r}]).detach()
h{at} = {unit}{step:.3g}
analytic = torch.autograd.grad(f(x), x, cotangent, allow_unused=True, materialize_grads=True)[0]{at}{part}
numeric = ((f(x + h) - f(x - h)).detach() * cotangent.conj()).real.sum() / {twice:.6g}
print(f{shown!r})
'''
SEEDS = "random.seed(int(saved['seed'])); numpy.random.seed(int(saved['seed']) % 2**32); torch.manual_seed(int(saved['seed']))"
BUILT = """torch.set_default_dtype(torch.float64)
built = {found}(**init)
torch.set_default_dtype(torch.float32)"""


def saved(subject: Subject, result: CaseResult) -> CaseResult:
    """The result, with the scripts that were written into the folder of the case for what is wrong in it; or why there are none."""
    if judged(result, Gate()).ok is not False or result.verdict != "fail" or subject.case.save is None:
        return result
    wrong = [each for each in result.comparisons if each.rule in JACOBIAN and each.mismatched and each.worst and each.output is not None]
    symmetric = [argument.name for argument in subject.arguments if argument.symmetric]
    if any(finding.code in FICKLE for finding in result.findings):
        reason = "the function gives other values when it is called again, as a script would"
    elif not wrong:
        reason = "no element of the Jacobian at these inputs is wrong"
    elif any(each.input in symmetric for each in wrong):
        reason = "the elements of a symmetric matrix move in pairs"
    elif subject.odd is not None:
        reason = subject.odd
    elif subject.case.oracles.surrogate:
        reason = "it has a `surrogate`, whose slope is meant"
    else:
        try:
            return replace(result, saved=tuple(shown_path(str(path), run_folder()) for path in _written(subject, wrong, Path(subject.case.save))))
        except BaseException as error:
            if is_interrupt(error):
                raise
            reason = described(error)
    return replace(result, unsaved=reason)


def _written(subject: Subject, wrong: Sequence[Comparison], folder: Path) -> Iterator[Path]:
    case = subject.case
    called = subject.called(subject.leaves())
    tensors = _tensors(subject, called)
    arrays: dict[str, Any] = {key: _array(tensor) for key, tensor in tensors.items()}
    arrays |= {"seed": np.int64(case.settings.seed), "call": np.frombuffer(_call(subject, called, tensors), np.uint8)}
    stem = _stem(f"{case.name}", f"{case.id} {case.settings.seed}")
    scripts = {}
    for number, comparison in enumerate(wrong):
        entry, key = comparison.worst[0], f"cotangent{number}"
        tensors[key] = _cotangent(called.outputs[comparison.output or 0], entry)
        arrays[key] = _array(tensors[key])
        name = _slug(f"y{comparison.output}-{comparison.input}", LONGEST_NAME // 2)
        scripts[folder / f"{stem}--{name}-{number}.py"] = _script(subject, tensors, comparison, key)
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


def _call(subject: Subject, called: Called, tensors: Mapping[str, Tensor]) -> bytes:
    """What a module is built with, what is lent to it, and the arguments of the call, pickled; of tensors the keys and strides. Raises what pickling
    does."""
    lent = {argument.name: argument.value for argument in subject.arguments if argument.parameter}
    lent |= subject.buffers(called) if subject.target.kind == "module" else {}
    named_ = dict(subject.kwargs)
    given = list[Any]()
    for members in subject.positions:
        if not members[0].parameter:
            value = value_of(members, [argument.value for argument in members])
            if members[0].keyword:
                named_[members[0].whole] = value
            else:
                given.append(value)
    keys = {id(tensor): key for key, tensor in tensors.items()}
    layouts = {id(argument.value): argument.layout for argument in subject.arguments}
    written = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> tuple[str, tuple[int, ...]] | None:
            if not isinstance(value, Tensor):
                return None
            return keys[id(value)], tuple(laid(value, layouts.get(id(value))).stride())

    Pickler(written).dump((dict(subject.case.init or {}), lent, given, named_))
    return written.getvalue()


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


def _script(subject: Subject, tensors: Mapping[str, Tensor], comparison: Comparison, cotangent: str) -> str:
    """The source for one pair; `cotangent`: the key of its own."""
    case, entry = subject.case, comparison.worst[0]
    keys = {id(tensor): key for key, tensor in tensors.items()}
    moved = next(argument for argument in subject.differentiable if argument.name == comparison.input)
    size = float(abs(moved.value[entry.input_index]))
    step = float(torch.finfo(moved.value.dtype).eps) ** (1 / 3) * (size if moved.domain and size else max(size, SMALL))
    element = _element(comparison, entry)
    about = f"{element} of {case.target}: backward returned {entry.analytic!r}, the finite difference was {entry.numeric!r} +- {entry.bar:.2g}."
    imports, found, folders = _found(case)
    function, built = f"{found}(*args, **kwargs)", ""
    if subject.target.kind == "autograd.Function":
        function = f"getattr({found}, 'apply', {found})(*args, **kwargs)"
    elif subject.target.kind == "module":
        function = "torch.func.functional_call(built, parameters, tuple(args), kwargs)"
        built = BUILT.format(found=found) if inspect.isclass(named(case.target, "function")) else f"built = {found}"
    devices = {str(tensor.device) for tensor in tensors.values()} - {"cpu"}
    return SCRIPT.format(
        about=about.encode("unicode_escape").decode().replace('"', "'"), path=[*folders, *search_folders(case)], imports="\n".join(imports),
        to=f".to({devices.pop()!r})" if len(devices) == 1 else "",
        narrow="\n".join(f"saved[{key!r}] = saved[{key!r}].view(torch.bfloat16)" for key, x in tensors.items() if x.dtype == torch.bfloat16),
        differentiated=[keys[id(argument.value)] for argument in subject.differentiable], built=built,
        seeds=SEEDS if case.settings.reseed else "", key=keys[id(moved.value)], function=function, output=comparison.output, cotangent=cotangent,
        at=_index(entry.input_index, "()"), unit="1j * " if entry.input_part == "im" else "", step=step, twice=2 * float(f"{step:.3g}"),
        part=".imag" if entry.input_part == "im" else ".real" if entry.input_part else "",
        shown=f"{element}: backward {{analytic:.9g}}, finite difference {{numeric:.9g}}")


def _element(c: Comparison, entry: Entry) -> str:
    parts = {None: "", "re": ".real", "im": ".imag"}
    seen = f"{c.output_name or f'y{c.output}'}{_index(entry.output_index, '')}{parts[entry.output_part]}"
    return f"d {seen} / d {c.input}{_index(entry.input_index, '')}{parts[entry.input_part]}"


def _index(index: Sequence[int], bare: str) -> str:
    return f"[{','.join(map(str, index))}]" if index else f"[{bare}]" if bare else ""


def _found(case: Case) -> tuple[list[str], str, list[str]]:
    """What a case names as its function: the lines that import it, the expression for it, the folders that are first on `sys.path`."""
    builtin = BUILTINS.get(case.target)
    name = f"{builtin.module}:{builtin.attribute}" if builtin else case.target
    lines = [f"import {module}" for module in case.search.imports]
    if name.startswith(REGISTERED):
        return lines, name, []
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        file = Path(place).resolve()
        return [*lines, f"found = module({module_name(Path(place))!r}, {str(file)!r})"], f"found.{attribute}", [str(file.parent)]
    if not place:       # `package.module.Class.attribute`: the longest beginning that is an imported module, and the rest
        parts = name.split(".")
        end = next((end for end in range(len(parts) - 1, 0, -1) if ".".join(parts[:end]) in sys.modules), 1)
        place, attribute = ".".join(parts[:end]), ".".join(parts[end:])
    return [*lines, f"import {place}"], f"{place}.{attribute}", []


def search_folders(case: Case) -> list[str]:
    """What is first on `sys.path` while a check runs."""
    return list(dict.fromkeys([*case.search.path, str(Path(case.search.folder).resolve()), str(Path.cwd())]))


def _stem(name: str, id: str) -> str:
    """A file name for any check: letters, digits, `.`, `_` and `-`; what tells it from names that look the same behind it."""
    return f"{_slug(name, LONGEST_NAME)}-{hashlib.sha256(id.encode(errors='backslashreplace')).hexdigest()[:8]}"


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:longest] or "check"
