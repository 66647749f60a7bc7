"""`--save-failures`: what a check was wrong at, as a file of torch, and a script for each wrong pair that shows it with torch alone."""

from __future__ import annotations

import hashlib
import inspect
import io
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.model.fault import described
from gradverify.model.interrupt import is_interrupt
from gradverify.model.paths import shown_path
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult, Comparison, Entry
from gradverify.subject.find import REGISTERED, module_name, run_folder
from gradverify.subject.layout import laid
from gradverify.subject.subject import Subject
from gradverify.subject.target import named

JACOBIAN = ("GV101", "GV111")
"""Rules whose elements are slopes of the function at the check's own inputs."""

FICKLE = ("GV205", "GV206")

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
    def persistent_load(self, key):
        x = self.tensors[key]
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x) if all(x.stride()) else x

def call(tensors):
    reader = Call(io.BytesIO(saved['call']))
    reader.tensors = saved['tensors'] | tensors
    return reader.load()

sys.path[:0] = {path!r}
{imports}
saved = torch.load(__file__.rpartition('--')[0] + '.pt', weights_only=False)
init, parameters, args, kwargs = call({{}})
{built}
def f(x):
    {seeds}
    init, parameters, args, kwargs = call({{{key!r}: x}})
    return opened({function})[{output}]
x, cotangent = saved['tensors'][{key!r}], saved['cotangents'][{number}]
h = torch.zeros_like(x).detach()
h{at} = {unit}{step:.3g}
analytic = torch.autograd.grad(f(x), x, cotangent, allow_unused=True, materialize_grads=True)[0]{at}{part}
numeric = ((f(x + h) - f(x - h)).detach() * cotangent.conj()).real.sum() / {twice:.6g}
print(f{shown!r})
'''
SEEDS = "random.seed(saved['seed']); numpy.random.seed(saved['seed'] % 2**32); torch.manual_seed(saved['seed'])"
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
    """Everything that the function gets by name, a module's buffers too, how it gets it (pickled, by these names), and a script for each pair."""
    case = subject.case
    called = subject.called(subject.leaves())
    tensors = {a.name: laid(a.value, a.layout).detach().requires_grad_(a.differentiable) for a in subject.arguments if a.is_tensor}
    values = [tensors.get(a.name, a.value) for a in subject.arguments]
    lent = subject.parameters(values)
    if subject.target.kind == "module":
        buffers = subject.buffers(called)
        tensors |= {f"buffer {name}": buffer for name, buffer in buffers.items()}
        lent |= buffers
    keys, written = {id(tensor): key for key, tensor in tensors.items()}, io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> str | None:
            return keys[id(value)] if isinstance(value, Tensor) else None

    Pickler(written).dump((dict(case.init or {}), lent, *subject.arranged(values)))
    stem = _stem(f"{case.name}", f"{case.id} {case.settings.seed}")
    torch.save({"seed": case.settings.seed, "call": written.getvalue(), "tensors": tensors,
                "cotangents": [_cotangent(called.outputs[each.output or 0], each.worst[0]) for each in wrong]}, folder / f"{stem}.pt")
    for number, comparison in enumerate(wrong):
        path = folder / f"{stem}--{_slug(f'y{comparison.output}-{comparison.input}', LONGEST_NAME // 2)}-{number}.py"
        path.write_text(_script(subject, comparison, number), encoding="utf-8")
        yield path


def _cotangent(output: Tensor, entry: Entry) -> Tensor:
    """One at the output element; i for the imaginary part of a complex one, whose real product with it is that part."""
    cotangent = torch.zeros_like(output, memory_format=torch.contiguous_format).detach()
    one: complex = 1j if entry.output_part == "im" else 1
    cotangent[entry.output_index] = one      # type: ignore[assignment]
    return cotangent


def _script(subject: Subject, comparison: Comparison, number: int) -> str:
    """The source for one pair; `number`: of its cotangent."""
    case, entry = subject.case, comparison.worst[0]
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
    return SCRIPT.format(
        about=about.encode("unicode_escape").decode().replace('"', "'"), path=[*folders, *search_folders(case)], imports="\n".join(imports),
        built=built, seeds=SEEDS if case.settings.reseed else "", key=moved.name, function=function, output=comparison.output, number=number,
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
