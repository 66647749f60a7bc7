"""One written check to its cases: expand its matrix, validate, look for sense, settle. Each step adds faults; sound variants become cases."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from gradverify.model.case import Case, DrawKind, InputRecipe, Json, Oracles, Search, Sparse, SpecPlace, TensorRecipe
from gradverify.spec.check_sense import Builtins, check_sense, code_faults, is_tensors, members, tag_faults, tensors
from gradverify.spec.fault import Fault, Path, allowed, flow, nearest, shown
from gradverify.spec.names import own_name, resolve
from gradverify.spec.schema import Check, Matrix, Settings, Tensor
from gradverify.spec.settings import RUN_KEYS, Layer, layer_of, settle
from gradverify.spec.tensor_sense import avoided, draw_of, known_shape, layout_complaint, split_key
from gradverify.spec.wording import validated


def inputs_of(check: Check, folder: FilePath) -> tuple[InputRecipe, ...]:
    """The recipes of all inputs, in order; those of a plain list have no names."""
    return tuple(_input(name if isinstance(name, str) else None, value, folder) for name, value in members(check))


def keywords_of(check: Check, folder: FilePath) -> tuple[InputRecipe, ...]:
    """The recipes of the tensors among the keyword arguments; all others are plain values."""
    return tuple(_input(name, value, folder) for name, value in check.kwargs.items() if isinstance(value, Tensor) or is_tensors(value))


def _input(name: str | None, value: Json, folder: FilePath) -> InputRecipe:
    if is_tensors(value):
        return InputRecipe(name, tensors=tuple(_tensor(item, folder) for item in value))
    return InputRecipe(name, _tensor(value, folder)) if isinstance(value, Tensor) else InputRecipe(name, value=value)


def _tensor(tensor: Tensor, folder: FilePath) -> TensorRecipe:
    draw = draw_of(tensor)
    layout = tensor.layout if "layout" in tensor.model_fields_set else None
    return TensorRecipe(
        shape=None if tensor.shape is None or draw in ("values", "file") else tuple(tensor.shape), draw=cast(DrawKind, draw),
        arguments=_arguments(tensor, draw, folder), avoid=avoided(tensor), margin=tensor.margin, dtype=tensor.dtype,
        requires_grad=tensor.requires_grad, domain=None if tensor.domain is None else (tensor.domain[0], tensor.domain[1]),
        symmetric=bool(tensor.symmetric) or tensor.kind == "spd", distinct=tensor.distinct, device=tensor.device, layout=layout,
        sparse=_sparse(tensor), nested=None if tensor.nested is None else tuple(tensor.nested.lengths))


def _sparse(tensor: Tensor) -> Sparse | None:
    said = tensor.sparse
    if said is None:
        return None
    return Sparse(said.layout, said.density, None if said.blocksize is None else (said.blocksize[0], said.blocksize[1]), said.masked)


def _arguments(tensor: Tensor, draw: str, folder: FilePath) -> Json:
    if draw == "make":
        return _target(tensor.make, folder)
    if draw != "file":
        return getattr(tensor, draw)
    name, key = split_key(tensor.file)
    return str((folder / name).resolve()) + (f"#{key}" if key else "")


def oracles_of(check: Check, folder: FilePath) -> Oracles:
    """What the gradient is compared with; functions in files by their absolute path."""
    return Oracles(_target(check.reference, folder), check.expected, check.grad_output, _target(check.gradient, folder),
                   _target(check.surrogate, folder))


def _target(text: Any, folder: FilePath) -> str | None:
    return None if text is None else resolve(text, folder)[0]


MAX_CASES = 10_000  # of one check; beyond that a matrix is a slip, or a reason to think again
MAX_LABEL = 40  # characters of one value inside a case's name; longer ones are shown by their place
VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
SETTERS = frozenset(Settings.model_fields) - {"matrix"} | {"layout"}
"""Variables of these names set the setting (or every tensor's layout), without a `$name` anywhere."""
UNTOUCHED = ("name", "matrix")


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination. `data` is the check with values in place of variables; `setters` those that set a setting;
    `places` says where each variable's value stands in the document; `axes` are all values of each."""

    data: Mapping[str, Json]
    part: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    setters: frozenset[str] = frozenset()
    places: Mapping[str, Path] = field(default_factory=dict)
    axes: Mapping[str, list[Json]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Where the matrix is at fault the one variant is the check as written, so that the rest of it is looked at too; any fault here
    means that the variants are there to be looked at, not to become cases."""

    variants: tuple[Variant, ...]
    faults: tuple[Fault, ...] = ()


def expand(check: Mapping[str, Json], base: Path, inherited: Json = None) -> Expansion:
    """The variants of the check that stands at `base`; `inherited` is the matrix of the spec's defaults, used where it has none."""
    own = "matrix" in check
    written = check["matrix"] if own else inherited
    place: Path = (*base, "matrix") if own else ("defaults", "matrix")
    used = {name for _, name in variables(check)}
    if written is None and not own:
        return Expansion((_plain(check),), tuple(_unknown(check, base, ())))
    matrix = validated(Matrix, written, place)
    if isinstance(matrix, tuple):
        return Expansion((_plain(check),), matrix if own else ())
    axes: dict[str, list[Json]] = {name: values for name, values in written.items() if name != "exclude"}
    unknown = tuple(_unknown(check, base, tuple(axes)))
    faults = (*_axis_faults(axes, used, place), *_exclude_faults(matrix.exclude, axes, place))
    if faults:
        return Expansion((_plain(check),), (*faults, *unknown))
    variants = tuple(_variant(check, combination, axes, place) for combination in _combinations(axes, matrix.exclude))
    return Expansion(variants, unknown if variants else (*unknown, Fault((*place, "exclude"), "`exclude` drops every combination")))


def _plain(check: Mapping[str, Json]) -> Variant:
    return Variant({key: value if key in UNTOUCHED else substitute(value, {}) for key, value in check.items() if key != "matrix"})


def _variant(check: Mapping[str, Json], chosen: Mapping[str, int], axes: Mapping[str, list[Json]], place: Path) -> Variant:
    values = {name: axes[name][index] for name, index in chosen.items()}
    setters = frozenset(values) & SETTERS
    data = {key: value if key in UNTOUCHED else substitute(value, values) for key, value in check.items() if key != "matrix"}
    part = ",".join(f"{name}={label(values[name], index)}" for name, index in chosen.items())
    return Variant(data | {name: values[name] for name in setters if name != "layout"}, f"[{part}]" if part else "", values, setters,
                   {name: (*place, name, index) for name, index in chosen.items()}, axes)


def _combinations(axes: Mapping[str, list[Json]], exclude: list[dict[str, Json]]) -> Iterator[dict[str, int]]:
    keys = {name: [comparable(value) for value in values] for name, values in axes.items()}
    dropped = dict[tuple[str, ...], set[tuple[Hashable, ...]]]()
    for rule in exclude:
        dropped.setdefault(tuple(rule), set()).add(tuple(map(comparable, rule.values())))
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, indices, strict=True))
        if not any(tuple(keys[name][chosen[name]] for name in names) in rules for names, rules in dropped.items()):
            yield chosen


def label(value: Json, index: int) -> str:
    """A value as it stands in a case's name: `7`, `cuda`, `[2,3]`; a long one by its place: `#2`."""
    text = value if isinstance(value, str) else flow(value).replace(", ", ",").replace(": ", ":")
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"#{index}"


def comparable(value: Json) -> Hashable:
    """What is equal for equal values: `true` is not 1, and NaN equals itself."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if is_number else json.dumps(value)


def placed(fault: Fault, variant: Variant, check: Mapping[str, Json], base: Path) -> Fault:
    """A fault of a variant at the place a person wrote: at the matrix's value where that set a setting, at the `$name` it came through."""
    inside = fault.path[len(base):]
    if inside and inside[0] in variant.places and inside[0] in variant.setters:
        return replace(fault, path=(*variant.places[str(inside[0])], *inside[1:]))
    value: Json = check
    for depth in range(len(inside) + 1):
        match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if match and match[1] in variant.values:
            shows = f"{fault.message} (${match[1]} is {shown(variant.values[match[1]])})"
            return Fault((*base, *inside[:depth]), shows)
        if depth == len(inside) or not _has(value, inside[depth]):
            return fault
        value = value[inside[depth]]
    return fault


def _has(value: Json, part: str | int) -> bool:
    return (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int) and part < len(value))


def substitute(value: Json, values: Mapping[str, Json]) -> Json:
    """The value with every `$name` in it replaced, at any depth; `$$name` stands for the text `$name`."""
    if isinstance(value, str) and value.startswith("$"):
        match = VARIABLE.fullmatch(value)
        if match:
            return values.get(match[1], value)
        return value[1:] if VARIABLE.fullmatch(value[1:]) else value
    if isinstance(value, list):
        return [substitute(item, values) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, values) for key, item in value.items()}
    return value


def variables(value: Json, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Where which variable is used."""
    if isinstance(value, str) and value.startswith("$"):
        match = VARIABLE.fullmatch(value)
        if match:
            yield path, match[1]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from variables(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if path or key not in UNTOUCHED:
                yield from variables(item, (*path, key))


def _unknown(check: Mapping[str, Json], base: Path, names: tuple[str, ...]) -> Iterator[Fault]:
    for path, name in variables(check):
        if name not in names:
            help_ = allowed(name, names, "variables of the matrix") if names else "the check has no `matrix`"
            yield Fault((*base, *path), f"unknown variable ${name}; {help_}")


def _axis_faults(axes: Mapping[str, list[Json]], used: set[str], place: Path) -> Iterator[Fault]:
    count = math.prod(len(values) for values in axes.values())
    if count > MAX_CASES:
        yield Fault(place, f"{count:,} combinations; at most {MAX_CASES:,} cases come from one check")
    for name, values in axes.items():
        if not VARIABLE.fullmatch(f"${name}"):
            yield Fault((*place, name), f"the variable {name!r} is no name of letters, digits and `_`", key=True)
        elif name not in SETTERS and name not in used:
            near = nearest(name, SETTERS)
            hint = f"; did you mean {near!r}?" if near else ""
            yield Fault((*place, name), f"${name} is used nowhere, and {name!r} is no setting{hint}", key=True)
        yield from _repeated(values, (*place, name))


def _repeated(values: list[Json], place: Path) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        text: Any = json.dumps(value)
        if text in seen:
            yield Fault((*place, index), f"{shown(value)} is there twice: both cases would have one name")
        seen.add(text)


def _exclude_faults(exclude: list[dict[str, Json]], axes: Mapping[str, list[Json]], place: Path) -> Iterator[Fault]:
    known = {name: set(map(comparable, values)) for name, values in axes.items()}
    for index, rule in enumerate(exclude):
        for name, value in rule.items():
            path = (*place, "exclude", index, name)
            if name not in axes:
                yield Fault(path, f"unknown variable {name!r}; {allowed(name, tuple(axes), 'variables of the matrix')}", key=True)
            elif comparable(value) not in known[name]:
                yield Fault(path, f"{shown(value)} is no value of {name}; values: {', '.join(map(shown, axes[name]))}")


AN_EXAMPLE = "{function: relu, inputs: {input: {shape: [2, 3]}}}"


@dataclass(frozen=True, slots=True)
class World:
    """What a file's checks are judged by: the known names, the layers around them, the file they stand in."""

    file: str
    folder: FilePath
    builtins: Builtins
    codes: Collection[str]
    project: Layer
    options: Layer
    search: Search = field(default_factory=Search)
    defaults: Settings = field(default_factory=lambda: Settings.model_validate({}))
    matrix: Json = None
    required: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """A case, the layers its settings come from, and its functions in files: as they are looked up → as written."""

    case: Case
    layers: tuple[Layer, ...]
    written: Mapping[str, str]


def build(raw: Json, base: Path, line: int, world: World) -> tuple[tuple[Built, ...], tuple[Fault, ...]]:
    """The cases of the check `raw` that stands at `base`, on `line`, and all its faults; a faulty variant has no case."""
    if not isinstance(raw, dict):
        refused = validated(Check, raw, base)
        formless = refused if isinstance(refused, tuple) else ()
        return (), tuple(replace(fault, message=f"{fault.message}; for example {AN_EXAMPLE}") for fault in formless)
    expansion = expand(raw, base, world.matrix)
    faults: list[Fault] = list(expansion.faults)
    built: list[Built] = []
    for variant in expansion.variants:
        case, own = _judged(variant, base, line, world)
        known = {fault.path for fault in faults}
        reported = (placed(fault, variant, raw, base) for fault in own if not _dangling(fault, expansion.faults))
        faults += [fault for fault in reported if fault.path not in known]
        if case is not None:
            built.append(case)
    if not faults and len(built) < len(expansion.variants):
        raise RuntimeError(f"{world.file}:{line}: {len(built)} of {len(expansion.variants)} cases of a check, and no fault")
    return (tuple(built) if not expansion.faults else ()), tuple(faults)


def _dangling(fault: Fault, of_matrix: Sequence[Fault]) -> bool:
    """Does a fault come only from a variable that stayed unfilled? That one has its own fault."""
    return not fault.key and any(_inside(own.path, fault.path) for own in of_matrix)


def _judged(variant: Variant, base: Path, line: int, world: World) -> tuple[Built | None, tuple[Fault, ...]]:
    data = dict(variant.data)
    checked = validated(Check, data, base)
    typed = checked if isinstance(checked, tuple) else ()
    model = checked if isinstance(checked, Check) else _what_is_sound(data, base, typed)
    faults = [*typed, *_apart(typed, (*code_faults(data, base, world.codes), *tag_faults(data, base)))]
    if model is not None:
        layers = _layers(model, variant, line, world)
        faults += _apart(faults, check_sense(model, base, settle(*layers).dtype, world.folder, world.builtins, world.required))
        faults += _apart(faults, _name_faults(model, base))
        faults += _apart(faults, _layout_faults(model, variant, base))
        if not faults:
            return Built(_case(model, variant, line, layers, world), layers, _written(model, world)), ()
    return None, tuple(faults)


def _apart(known: Collection[Fault], others: Iterator[Fault] | tuple[Fault, ...]) -> Iterator[Fault]:
    """Those of `others` that are no mere consequence of a known fault: not inside its place, nor around it unless the key itself is wrong."""
    places = [fault.path for fault in known]
    for fault in others:
        if not any(_inside(fault.path, place) or (not fault.key and _inside(place, fault.path)) for place in places):
            yield fault


def _inside(path: Path, place: Path) -> bool:
    return path[: len(place)] == place


def _what_is_sound(data: dict[str, Json], base: Path, faults: tuple[Fault, ...]) -> Check | None:
    """The check without the keys at fault, so that the others are judged as well; None where too little is left."""
    pruned: Any = data
    for fault in faults:
        inside = fault.path[len(base):]
        while inside and isinstance(inside[-1], int):
            inside = inside[:-1]
        pruned = _without(pruned, inside) if inside else pruned
        if inside[:1] == ("inputs",) and len(inside) == len(("inputs", "name")):
            pruned = pruned | {"inputs": _blank(pruned["inputs"], data["inputs"])}
    checked = validated(Check, pruned, base)
    return checked if isinstance(checked, Check) else None


def _blank(inputs: Json, written: Json) -> Json:
    """Inputs in their written order, null in place of what was taken out, so that counts and order stay as written."""
    return {name: inputs.get(name) for name in written} if isinstance(inputs, dict) else inputs


def _without(value: Json, path: Path) -> Json:
    head, rest = path[0], path[1:]
    if isinstance(value, dict) and head in value:
        return {key: _without(item, rest) if key == head else item for key, item in value.items() if rest or key != head}
    if isinstance(value, list) and isinstance(head, int) and rest:
        return [_without(item, rest) if index == head else item for index, item in enumerate(value)]
    return value


def _name_faults(check: Check, base: Path) -> Iterator[Fault]:
    name = check.name
    if name is not None and (not name.isprintable() or name != name.strip()):
        yield Fault((*base, "name"), "a name is one line without spaces at its ends" if name.isprintable() else
                    "a name is one line without control characters or others that do not show")


def _layout_faults(check: Check, variant: Variant, base: Path) -> Iterator[Fault]:
    """A layout from the matrix that no input can have: the case would be the contiguous one under another name."""
    layout = variant.values.get("layout")
    if layout in (None, "contiguous") or check.inputs is None:
        return
    open_to_it = [tensor for _, tensor in tensors(check) if "layout" not in tensor.model_fields_set]
    shapes = [(tensor, draw_of(tensor), known_shape(tensor, draw_of(tensor))) for tensor in open_to_it]
    if all(shape is not None and layout_complaint(tensor, draw, layout, shape) for tensor, draw, shape in shapes):
        yield Fault((*base, "layout"), f"no input can be laid out `{layout}`: {_why_not(shapes, layout)}")


def _why_not(shapes: Sequence[tuple[Tensor, str, tuple[int, ...] | None]], layout: str) -> str:
    complaints = (layout_complaint(tensor, draw, layout, shape) for tensor, draw, shape in shapes if shape is not None)
    return next((complaint for complaint in complaints if complaint), "there is no tensor that names no `layout` of its own")


def _layers(check: Check, variant: Variant, line: int, world: World) -> tuple[Layer, ...]:
    written = [key for key in RUN_KEYS if key not in variant.setters]
    return (
        world.project,
        layer_of(world.defaults, f"{world.file}: defaults"),
        layer_of(check, f"{world.file}:{line}", written),
        layer_of(check, f"{world.file}:{line}: matrix", variant.setters),
        world.options,
    )


def _case(check: Check, variant: Variant, line: int, layers: tuple[Layer, ...], world: World) -> Case:
    target = resolve(check.function, world.folder, world.builtins)[0]
    name = check.name or own_name(target)
    said = world.defaults.said() | check.said()
    expect = said.get("expect", "pass")
    keywords = keywords_of(check, world.folder)
    named = {recipe.name for recipe in keywords}
    return Case(
        id=f"{world.file}::{name}{variant.part}", name=f"{name}{variant.part}", check=name, spec=SpecPlace(world.file, line), target=target,
        inputs=inputs_of(check, world.folder), inputs_from=_from(check, world.folder), init=check.init,
        kwargs={name: value for name, value in check.kwargs.items() if name not in named}, keywords=keywords, settings=settle(*layers),
        oracles=oracles_of(check, world.folder), expect=expect if isinstance(expect, str) else tuple(expect), tags=tuple(said.get("tags", ())),
        skip=said.get("skip"), requires=tuple(said.get("requires", ())), search=world.search,
        layout=variant.values.get("layout"), sources=tuple(said.get("sources", ())), beside=_beside(variant, settle(*layers).device))


def _beside(variant: Variant, device: str) -> str | None:
    """The device of the matrix that others are compared with: the CPU, else the first. None for that one, and where `--device` chose another."""
    devices = variant.axes.get("device", ())
    first = "cpu" if "cpu" in devices else next(iter(devices), None)
    return first if first != device and variant.values.get("device") == device else None


def _written(check: Check, world: World) -> dict[str, str]:
    named = (check.function, check.reference, check.gradient, check.surrogate, check.inputs_from, *(tensor.make for _, tensor in tensors(check)))
    texts = [text for text in named if text is not None]
    targets = {resolve(text, world.folder, world.builtins)[0]: text for text in texts}
    return {target: text for target, text in targets.items() if target != text}


def _from(check: Check, folder: FilePath) -> str | None:
    return None if check.inputs_from is None else resolve(check.inputs_from, folder)[0]
