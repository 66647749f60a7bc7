"""What there is to check: cases with their sizes, and the built-in functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.case import Case, InputRecipe, Json, TensorRecipe
from gradverify.model.codec import to_json
from gradverify.report.look import Look
from gradverify.report.names import one_line
from gradverify.report.terminal.canvas import paint

UNNAMED: Mapping[str, str] = MappingProxyType({})
CASE_HEADERS = ("check", "tags", "device", "inputs")
RULE_HEADERS = ("code", "name", "severity", "when")
FUNCTION_HEADERS = ("built-in", "what it computes")


def cases_text(cases: Iterable[Case], look: Look, names: Mapping[str, str] = UNNAMED) -> str:
    """A table; in the plain format tab-separated lines, one a case, to be searched and cut. `names`: functions in files → as a person names them."""
    return rows(CASE_HEADERS, [(case.id, _tags(case), case.settings.device, _inputs(case, names)) for case in cases], look)


def cases_json(cases: Iterable[Case], names: Mapping[str, str] = UNNAMED) -> str:
    return json.dumps(to_json([_case_data(case, names) for case in cases]), indent=2, allow_nan=False) + "\n"


def functions_text(functions: Iterable[tuple[str, Sequence[str], str]], look: Look) -> str:
    """Each function as (name, its parameters, what it computes)."""
    return rows(FUNCTION_HEADERS, [(f"{name}({', '.join(parameters)})", summary) for name, parameters, summary in functions], look)


def functions_json(functions: Iterable[tuple[str, Sequence[str], str]]) -> str:
    data = [{"name": name, "parameters": list(parameters), "summary": summary} for name, parameters, summary in functions]
    return json.dumps(data, indent=2) + "\n"


def rules_text(rules: Iterable[tuple[str, str, str, str]], look: Look) -> str:
    """Each rule as (code, name, severity, when it is found)."""
    return rows(RULE_HEADERS, list(rules), look)


def rows(headers: Sequence[str], lines: Sequence[Sequence[str]], look: Look) -> str:
    """A grid; in the plain format tab-separated lines without headers."""
    cells = [[one_line(cell) for cell in line] for line in lines]
    if not look.boxes:
        return "".join("\t".join(row).rstrip("\t") + "\n" for row in cells)
    return paint(_grid(headers, cells, look), look)


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], look: Look) -> list[RenderableType]:
    grid = Table(box=None if look.ascii else SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    for header in headers:
        grid.add_column(Text(header), overflow="fold", style="cyan" if header == headers[0] else "")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return [grid]


def _tags(case: Case) -> str:
    marks = [*case.tags, *(f"requires {what}" for what in case.requires), *(["skip"] if case.skip else [])]
    return ", ".join(marks)


def _inputs(case: Case, names: Mapping[str, str]) -> str:
    made = [f"from {names.get(case.inputs_from, case.inputs_from)}"] if case.inputs_from else []
    return " ".join([*made, *(_input(place, recipe) for place, recipe in enumerate((*case.inputs, *case.keywords)))])


def _input(place: int, recipe: InputRecipe) -> str:
    name = recipe.name if recipe.name is not None else str(place)
    if recipe.tensors:
        return f"{name}=[{' '.join(map(_size, recipe.tensors))}]"
    return f"{name}={json.dumps(recipe.value)}" if recipe.tensor is None else f"{name}{_size(recipe.tensor)}"


def _size(tensor: TensorRecipe) -> str:
    shape = _shape(tensor)
    return f"[{','.join(map(str, shape))}]" if shape is not None else "[from a file]"


def _shape(tensor: TensorRecipe) -> tuple[int, ...] | None:
    """None where only a file's content could tell."""
    if tensor.shape is None and tensor.draw == "values":
        return _nesting(tensor.arguments)
    return tensor.shape


def _nesting(values: Json) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    return (len(values), *(_nesting(values[0]) if values else ()))


def _case_data(case: Case, names: Mapping[str, str]) -> Json:
    return {"id": case.id, "name": case.name, "function": names.get(case.target, case.target), "tags": case.tags, "device": case.settings.device,
            "dtype": case.settings.dtype, "inputs": [_input_data(recipe) for recipe in (*case.inputs, *case.keywords)], "skip": case.skip,
            "requires": case.requires, "spec": {"path": case.spec.path, "line": case.spec.line}}


def _input_data(recipe: InputRecipe) -> Json:
    if recipe.tensors:
        return {"name": recipe.name, "shapes": [_shape(tensor) for tensor in recipe.tensors]}
    if recipe.tensor is None:
        return {"name": recipe.name, "value": recipe.value}
    return {"name": recipe.name, "shape": _shape(recipe.tensor)}
