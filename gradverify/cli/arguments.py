"""Arguments of a function as written on the command line, `x=2x3:float32` or `beta=0.5`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradverify.cli.values import Refused, nearest, settled
from gradverify.model.case import InputRecipe, Json, TensorRecipe
from gradverify.model.dtypes import TABLE
from gradverify.model.problem import Problem, ProblemsError
from gradverify.spec.document import scalar

NAME = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)=(.*)", re.DOTALL)
TENSOR = re.compile(r"(scalar|\d+,|\d+(?:x\d+)+)(?::(\w+))?(?:\[([^,\]]+),([^,\])]+)\))?")
FILE = re.compile(r".+\.(npy|pt|npz#.+)")
WORD = re.compile(r"[A-Za-z_][\w.-]*")
WHOLE = frozenset[str | None](name for name, held in TABLE.items() if held.integers)
CONSTANTS = {"none": None, "null": None, "true": True, "false": False}
TENSORS = "`2x3`, `3,` for a vector, `scalar`, `2x3:float32`, `2x3:int64[0,5)`, `2x3:bool`"
FORMS = (
    f"a tensor ({TENSORS}), a file (.npy, .npz#key or .pt), a number, true, false, none, a word, "
    "or a list of these as [1, 2]"
)


def arguments(option: str, texts: Sequence[str] | None, tensors: bool = True) -> list[InputRecipe]:
    """Return the arguments of NAME=VALUE; with `tensors` false only plain values are allowed.
    Raises ProblemsError with every text that is none."""

    def read(option: str, text: str) -> InputRecipe:
        match = NAME.fullmatch(text)
        if match is None:
            raise Refused(f"{option} {text!r}: must be NAME=VALUE, such as x=2x3 or beta=0.5")
        found = _argument(match[1], match[2], f"{option} {text}")
        if found.recipes and not tensors:
            raise Refused(f"{option} {text}: must be a number, true, false, none, a word or a list")
        return found

    found = [each for _, each in settled((option, text, read) for text in texts or ())]
    names = [each.name for each in found]
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    if twice:
        raise ProblemsError(
            Problem(f"{option} {name}=…: given {names.count(name)} times") for name in twice
        )
    return found


def _argument(name: str, text: str, where: str) -> InputRecipe:
    if not (text.startswith("[") and text.endswith("]")):
        found = _value(text.strip(), where)
        return (
            InputRecipe(name, found)
            if isinstance(found, TensorRecipe)
            else InputRecipe(name, value=found)
        )
    parts = [_value(part, where) for part in _parts(text[1:-1])]
    tensors = tuple(part for part in parts if isinstance(part, TensorRecipe))
    if tensors and len(tensors) < len(parts):
        raise Refused(f"{where}: a list holds tensors or plain values, not both")
    return InputRecipe(name, tensors=tensors) if tensors else InputRecipe(name, value=parts)


def _parts(text: str) -> Iterator[str]:
    """Yield the elements of a list; the comma of a range is inside an element."""
    for part in re.split(r",(?!:|[^\[]*\))", text) if text.strip() else ():
        yield part.strip()


def _value(text: str, where: str) -> TensorRecipe | Json:
    if match := TENSOR.fullmatch(text):
        return _tensor(match, where)
    if FILE.fullmatch(text):
        return TensorRecipe(draw="file", arguments=text)
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    found = scalar(text)
    if isinstance(found, str) and not WORD.fullmatch(found):
        near = re.fullmatch(r"(\d+)([:\[].*)", text)  # of a vector, without its comma
        meant = f"; did you mean '{near[1]},{near[2]}'?" if near else f": allowed are {FORMS}"
        raise Refused(f"{where}: {text!r} is no value{meant}")
    return found


def _tensor(match: re.Match[str], where: str) -> TensorRecipe:
    size, dtype, low, high = match.groups()
    shape = tuple(int(number) for number in re.findall(r"\d+", size))
    if dtype is not None and dtype not in TABLE:
        raise Refused(f"{where}: {dtype!r} is no dtype{nearest(dtype, TABLE)}; write {TENSORS}")
    bounds = [scalar(low), scalar(high)] if low is not None else None
    if bounds and not all(isinstance(bound, int | float) for bound in bounds):
        raise Refused(f"{where}: {low} and {high} must be numbers, as in {size}:int64[0,5)")
    if dtype == "bool" and not bounds:
        return TensorRecipe(shape, "kind", "mask")
    if dtype in WHOLE:
        if not bounds:
            raise Refused(f"{where}: integers need a range, high excluded: {size}:{dtype}[0,5)")
        return TensorRecipe(shape, "integers", bounds, dtype=dtype if dtype != "int64" else None)
    if bounds:
        return TensorRecipe(shape, "uniform", bounds, dtype=dtype)
    return TensorRecipe(shape, dtype=dtype)
