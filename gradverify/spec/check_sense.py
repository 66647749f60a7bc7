"""Whether a check's keys make sense together: its inputs against the built-in, its oracles against its inputs, its rule codes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path as FilePath

from gradverify.model.case import Json
from gradverify.spec.fault import Fault, Path, allowed
from gradverify.spec.names import resolve
from gradverify.spec.schema import Check, Tensor
from gradverify.spec.tensor_sense import draw_of, dtype_of, known_shape, number_faults, scalar_complaint, shape_of, tensor_faults

PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INSIDE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+")     # a parameter of a module inside a module: `layers.0.weight`
OWN_TARGETS = ("gradient", "surrogate", "inputs_from")
LOGIC = ("and", "or", "not")  # the words of `-m TAGEXPR`

Builtins = Mapping[str, tuple[str, ...]]


def check_sense(check: Check, base: Path, dtype: str, folder: FilePath, builtins: Builtins, required: Mapping[str, int]) -> Iterator[Fault]:
    """Everything wrong with one concrete check (variables replaced) beyond the types of its keys. `required`: how many of a built-in's parameters,
    the first ones, have no default."""
    yield from target_faults(check, base, folder, builtins)
    yield from _input_faults(check, base, dtype, folder)
    if check.function in builtins and isinstance(check.inputs, (dict, list)):
        yield from _builtin_faults(check, builtins[check.function], required.get(check.function, 0), base)
    yield from _expected_faults(check, base, dtype, _differentiable(check, builtins))
    yield from _weight_faults(check, (*base, "grad_output"), dtype)


def target_faults(check: Check, base: Path, folder: FilePath, builtins: Builtins) -> Iterator[Fault]:
    """Names of functions that cannot be one, and files that do not exist."""
    for key in ("function", "reference", *OWN_TARGETS):
        text = getattr(check, key)
        if text is not None:
            complaint = resolve(text, folder, () if key in OWN_TARGETS else tuple(builtins))[1]
            if complaint:
                yield Fault((*base, key), complaint)
    for path, tensor in tensors(check, base):
        complaint = resolve(tensor.make, folder)[1] if tensor.make is not None else None
        if complaint:
            yield Fault((*path, "make"), complaint)


def tensors(check: Check, base: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor of the inputs, those in lists and those by keyword too, and where it stands."""
    placed, named = ((("inputs", name), value) for name, value in members(check)), ((("kwargs", name), value) for name, value in check.kwargs.items())
    for inside, value in (*placed, *named):
        path = (*base, *inside)
        if isinstance(value, Tensor):
            yield path, value
        elif is_tensors(value):
            yield from (((*path, index), item) for index, item in enumerate(value))


def is_tensors(value: Json) -> bool:
    """Is it a list of tensors?"""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Tensor) for item in value)


def _input_faults(check: Check, base: Path, dtype: str, folder: FilePath) -> Iterator[Fault]:
    if check.inputs is None and check.inputs_from is None:
        yield Fault(base, "the key 'inputs' (or `inputs_from`) is missing")
    elif check.inputs is not None and check.inputs_from is not None:
        yield Fault((*base, "inputs_from"), "`inputs` and `inputs_from` both give the inputs: keep one", key=True)
    for name, value in members(check):
        path = (*base, "inputs", name)
        if isinstance(name, str) and not PARAMETER.fullmatch(name) and not INSIDE.fullmatch(name):
            yield Fault(path, _name_complaint(name, value), key=True)
        if isinstance(name, str) and name in check.kwargs:
            yield Fault((*base, "kwargs", name), f"{name!r} is an input already", key=True)
    for name in check.kwargs:
        if not PARAMETER.fullmatch(name):
            yield Fault((*base, "kwargs", name), f"the keyword {name!r} is no parameter's name (letters, digits and `_`)", key=True)
    for path, tensor in tensors(check, base):
        yield from tensor_faults(tensor, path, dtype, folder)


def _name_complaint(name: str, value: Json) -> str:
    if value is None and ":" in name:
        return f"the input name {name!r} is no parameter's name: put a space after the colon: `{name.replace(':', ': ', 1)}`"
    return f"the input name {name!r} is no parameter's name (letters, digits and `_`)"


def members(check: Check) -> Iterator[tuple[str | int, Json]]:
    """(name or position, value) of every input."""
    if isinstance(check.inputs, dict):
        yield from check.inputs.items()
    elif isinstance(check.inputs, list):
        yield from enumerate(check.inputs)


def _builtin_faults(check: Check, parameters: tuple[str, ...], required: int, base: Path) -> Iterator[Fault]:
    names = tuple(check.inputs) if isinstance(check.inputs, dict) else ()
    strangers = [name for name in names if name not in parameters]
    for name in (each for each in strangers if PARAMETER.fullmatch(each) or INSIDE.fullmatch(each)):
        beside = f" ({name!r} is a key of the check: it belongs next to `inputs`)" if name in Check.model_fields else ""
        yield Fault((*base, "inputs", name), f"{check.function} has no input {name!r}; {allowed(name, parameters, 'its inputs')}{beside}", key=True)
    for name in filter(PARAMETER.fullmatch, check.kwargs):
        if name not in parameters:
            complaint = f"{check.function} has no parameter {name!r}; {allowed(name, parameters, 'its parameters')}"
            yield Fault((*base, "kwargs", name), complaint, key=True)
    count = len(check.inputs)
    if strangers:
        return
    lacking = [name for name in parameters[:required] if name not in check.kwargs and name not in (names or parameters[:count])]
    if lacking:
        optional = f" ({', '.join(parameters[required:])} may be left out)" if parameters[required:] else ""
        complaint = f"{check.function} needs {' and '.join(map(repr, lacking))}; its inputs: {', '.join(parameters)}{optional}"
        yield Fault((*base, "inputs"), complaint, key=True)
    elif count > len(parameters):
        yield Fault((*base, "inputs"), f"{check.function} takes at most {len(parameters)} ({', '.join(parameters)}), got {count}", key=True)
    elif names and names != parameters[:count]:
        yield Fault((*base, "inputs"), f"inputs are passed in order; {check.function} has {', '.join(parameters)}, got {', '.join(names)}", key=True)


def _differentiable(check: Check, builtins: Builtins) -> tuple[str, ...] | None:
    """The names that `expected` may use, None where only the function itself knows: a module's parameters are inputs too."""
    if check.function not in builtins or not isinstance(check.inputs, dict):
        return None
    return tuple(check.inputs) + tuple(check.kwargs) + (builtins[check.function] if check.init is not None else ())


def _expected_faults(check: Check, base: Path, dtype: str, names: tuple[str, ...] | None) -> Iterator[Fault]:
    given = {**(check.inputs if isinstance(check.inputs, dict) else {}), **check.kwargs}
    for name, numbers in (check.expected or {}).items():
        path = (*base, "expected", name)
        faults = tuple(number_faults(numbers, path, dtype))
        yield from faults
        if names is not None and name not in names:
            yield Fault(path, f"there is no input {name!r}; {allowed(name, names, 'inputs')}", key=True)
        elif isinstance(given.get(name), Tensor) and not faults:
            yield from _gradient_faults(given[name], numbers, path)
        elif name in given and not isinstance(given[name], (Tensor, list)):
            yield Fault(path, f"the input {name!r} is no tensor: it has no gradient", key=True)


def _gradient_faults(tensor: Tensor, numbers: Json, path: Path) -> Iterator[Fault]:
    if tensor.requires_grad is False or dtype_of(tensor, "float64").startswith(("int", "uint", "bool")):
        yield Fault(path, f"the input {path[-1]!r} is not differentiated: it has no gradient", key=True)
    shape = known_shape(tensor, draw_of(tensor))
    if shape is not None and tuple(shape) != shape_of(numbers):
        yield Fault(path, f"the gradient of {path[-1]!r} has its shape {list(shape)}, got {list(shape_of(numbers))}")


def _weight_faults(check: Check, path: Path, dtype: str) -> Iterator[Fault]:
    """`grad_output`: numbers, whatever their nesting: several outputs have a list of them, whose shapes may differ."""
    if check.grad_output is None:
        return
    if check.expected is None:
        yield Fault(path, "`grad_output` gives the weights of `expected`, and there is none", key=True)
    yield from _leaf_faults(check.grad_output, path, dtype)


def _leaf_faults(value: Json, path: Path, dtype: str) -> Iterator[Fault]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaf_faults(item, (*path, index), dtype)
    elif complaint := scalar_complaint(value, dtype):
        yield Fault(path, complaint)


def code_faults(said: Mapping[str, Json], base: Path, codes: Collection[str]) -> Iterator[Fault]:
    """Rule codes that no rule has; `said` in the keys of a spec. Patterns are the models' matter, so only well-formed ones are looked at."""
    for key, place in (("select", ("rules", "select")), ("ignore", ("rules", "ignore"))):
        rules = said.get("rules")
        listed = rules.get(key) if isinstance(rules, Mapping) else None
        for index, code in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(code, str) and code.startswith("GV") and not any(known.startswith(code) for known in codes):
                yield Fault((*base, *place, index), f"no rule {code!r}; {allowed(code, sorted(codes))}")
    expect = said.get("expect")
    for index, code in enumerate(expect if isinstance(expect, list) else ()):
        if isinstance(code, str) and code.startswith("GV") and len(code) == len("GV101") and code not in codes:
            yield Fault((*base, "expect", index), f"no rule {code!r}; {allowed(code, sorted(codes))}")


def tag_faults(said: Mapping[str, Json], base: Path) -> Iterator[Fault]:
    """Tags that `-m` could not name."""
    tags = said.get("tags")
    for index, tag in enumerate(tags if isinstance(tags, list) else ()):
        if tag in LOGIC:
            yield Fault((*base, "tags", index), f"the tag {tag!r} is a word of `-m` expressions: choose another")
