"""Whether a check's keys make sense together: its inputs against the built-in, its oracles against its inputs, its rule codes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path as FilePath

from gradverify.model.case import Json
from gradverify.spec.fault import Fault, Path, allowed
from gradverify.spec.names import resolve
from gradverify.spec.schema import Check, Rules, RunSettings, Tensor
from gradverify.spec.tensor_sense import dtype_of, known_shape, leaves, number_faults, scalar_complaint, shape_of, tensor_faults

PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INSIDE = re.compile(rf"{PARAMETER.pattern}(\.[A-Za-z0-9_]+)*")     # also a parameter of a module inside a module: `layers.0.weight`
LOGIC = ("and", "or", "not")  # the words of `-m TAGEXPR`

Builtins = Mapping[str, tuple[str, ...]]


def members(check: Check) -> Iterator[tuple[str | int, Json]]:
    """(name or position, value) of every input."""
    yield from check.inputs.items() if isinstance(check.inputs, dict) else enumerate(check.inputs or ())


def is_tensors(value: Json) -> bool:
    """Is it a list of tensors?"""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Tensor) for item in value)


def tensors(check: Check, base: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor of the inputs, those in lists and those by keyword too, and where it stands."""
    for key, named in (("inputs", members(check)), ("kwargs", check.kwargs.items())):
        for name, value in named:
            for place, item in leaves(value, (*base, key, name)) if is_tensors(value) else [((*base, key, name), value)]:
                if isinstance(item, Tensor):
                    yield place, item


def check_sense(check: Check, base: Path, dtype: str, folder: FilePath, builtins: Builtins, required: Mapping[str, int]) -> Iterator[Fault]:
    """Everything wrong with one concrete check (variables replaced) beyond the types of its keys. `required`: how many of a built-in's parameters,
    the first ones, have no default."""
    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*base, *place), message, key)

    name = check.name or ""
    if not name.isprintable() or name != name.strip():
        yield fault("a name is one line without " + ("spaces at its ends" if name.isprintable() else "control characters or others that do not show"),
                    "name")
    for key in ("function", "reference", "gradient", "surrogate", "inputs_from"):
        known = tuple(builtins) if key in ("function", "reference") else ()
        if (text := getattr(check, key)) is not None and (complaint := resolve(text, folder, known)[1]):
            yield fault(complaint, key)

    if check.inputs is None and check.inputs_from is None:
        yield fault("the key 'inputs' (or `inputs_from`) is missing")
    elif check.inputs is not None and check.inputs_from is not None:
        yield fault("`inputs` and `inputs_from` both give the inputs: keep one", "inputs_from", key=True)
    given = check.inputs if isinstance(check.inputs, dict) else {}
    for name, value in given.items():
        if not INSIDE.fullmatch(name):
            hint = f": put a space after the colon: `{name.replace(':', ': ', 1)}`" if value is None and ":" in name else " (letters, digits and `_`)"
            yield fault(f"the input name {name!r} is no parameter's name{hint}", "inputs", name, key=True)
        if name in check.kwargs:
            yield fault(f"{name!r} is an input already", "kwargs", name, key=True)
    for name in check.kwargs:
        if not PARAMETER.fullmatch(name):
            yield fault(f"the keyword {name!r} is no parameter's name (letters, digits and `_`)", "kwargs", name, key=True)
    for path, tensor in tensors(check, base):
        yield from tensor_faults(tensor, path, dtype, folder)
    parameters = builtins.get(check.function)
    if parameters is not None and check.inputs is not None:
        yield from _builtin_faults(check, parameters, required.get(check.function, 0), base)

    # a module's parameters are inputs too; what those of a function of the user's are called, only it knows
    names = (*given, *check.kwargs, *(parameters or () if check.init is not None else ())) if isinstance(check.inputs, dict) else None
    for name, numbers in (check.expected or {}).items():
        path, own = (*base, "expected", name), {**given, **check.kwargs}.get(name)
        faults = tuple(number_faults(numbers, path, dtype))
        yield from faults
        if parameters is not None and names is not None and name not in names:
            yield Fault(path, f"there is no input {name!r}; {allowed(name, names, 'inputs')}", key=True)
        elif isinstance(own, Tensor) and not faults:
            if own.requires_grad is False or dtype_of(own, "float64").startswith(("int", "uint", "bool")):
                yield Fault(path, f"the input {name!r} is not differentiated: it has no gradient", key=True)
            if (shape := known_shape(own)) is not None and shape != shape_of(numbers):
                yield Fault(path, f"the gradient of {name!r} has its shape {list(shape)}, got {list(shape_of(numbers))}")
        elif (name in given or name in check.kwargs) and not isinstance(own, (Tensor, list)):
            yield Fault(path, f"the input {name!r} is no tensor: it has no gradient", key=True)
    if check.grad_output is not None:       # numbers, whatever their nesting: several outputs have a list of them, whose shapes may differ
        if check.expected is None:
            yield fault("`grad_output` gives the weights of `expected`, and there is none", "grad_output", key=True)
        for place, number in leaves(check.grad_output):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, "grad_output", *place)


def _builtin_faults(check: Check, parameters: tuple[str, ...], required: int, base: Path) -> Iterator[Fault]:
    def fault(message: str, *place: str) -> Fault:
        return Fault((*base, *place), f"{check.function} {message}", key=True)

    names = tuple(check.inputs) if isinstance(check.inputs, dict) else ()
    strangers = [name for name in names if name not in parameters]
    for name in filter(INSIDE.fullmatch, strangers):
        beside = f" ({name!r} is a key of the check: it belongs next to `inputs`)" if name in Check.model_fields else ""
        yield fault(f"has no input {name!r}; {allowed(name, parameters, 'its inputs')}{beside}", "inputs", name)
    for name in filter(PARAMETER.fullmatch, check.kwargs):
        if name not in parameters:
            yield fault(f"has no parameter {name!r}; {allowed(name, parameters, 'its parameters')}", "kwargs", name)
    count = len(check.inputs)
    if strangers:
        return
    lacking = [name for name in parameters[:required] if name not in check.kwargs and name not in (names or parameters[:count])]
    if lacking:
        optional = f" ({', '.join(parameters[required:])} may be left out)" if parameters[required:] else ""
        yield fault(f"needs {' and '.join(map(repr, lacking))}; its inputs: {', '.join(parameters)}{optional}", "inputs")
    elif count > len(parameters):
        yield fault(f"takes at most {len(parameters)} ({', '.join(parameters)}), got {count}", "inputs")
    elif names and names != parameters[:count]:
        yield Fault((*base, "inputs"), f"inputs are passed in order; {check.function} has {', '.join(parameters)}, got {', '.join(names)}", key=True)


def name_faults(said: RunSettings, base: Path, codes: Collection[str]) -> Iterator[Fault]:
    """Rule codes that no rule has, and tags that `-m` could not name."""
    rules = said.rules or Rules.model_validate({})
    for place, listed in ((("rules", "select"), rules.select), (("rules", "ignore"), rules.ignore), (("expect",), getattr(said, "expect", ()))):
        for index, code in enumerate(listed if isinstance(listed, list) else ()):
            if code not in codes and not (place[0] == "rules" and any(known.startswith(code) for known in codes)):
                yield Fault((*base, *place, index), f"no rule {code!r}; {allowed(code, sorted(codes))}")
    for index, tag in enumerate(getattr(said, "tags", ())):
        if tag in LOGIC:
            yield Fault((*base, "tags", index), f"the tag {tag!r} is a word of `-m` expressions: choose another")
