"""One written check to its cases: expand, validate, look for sense, settle. Each step adds faults; sound variants become cases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from gradverify.model.case import Case, Json, Search, SpecPlace
from gradverify.spec.check_sense import Builtins, check_sense, code_faults, tag_faults, tensors
from gradverify.spec.expand import Variant, expand, placed
from gradverify.spec.fault import Fault, Path
from gradverify.spec.names import own_name, resolve
from gradverify.spec.recipes import inputs_of, keywords_of, oracles_of
from gradverify.spec.schema import Check
from gradverify.spec.schema_inputs import Tensor
from gradverify.spec.schema_settings import Settings
from gradverify.spec.settings import RUN_KEYS, Layer, layer_of, settle
from gradverify.spec.structure_sense import known_shape, layout_complaint
from gradverify.spec.tensor_sense import draw_of
from gradverify.spec.wording import validated

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
