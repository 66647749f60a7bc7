"""One written check to its cases: expand its matrix, validate each variant, look for sense, settle. The first of these steps that finds faults is
the last one; sound variants become cases."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from gradverify.model.case import Case, DrawKind, InputRecipe, Json, Oracles, Search, Sparse, SpecPlace, TensorRecipe
from gradverify.spec.fault import Fault, Path, allowed, flow, nearest, shown
from gradverify.spec.names import own_name, resolve
from gradverify.spec.schema import Check, Matrix, Settings, Tensor
from gradverify.spec.sense import (
    PARAMETER,
    Builtins,
    avoided,
    check_sense,
    draw_of,
    is_tensors,
    known_shape,
    layout_complaint,
    members,
    name_faults,
    split_key,
    tensors,
)
from gradverify.spec.settings import RUN_KEYS, Layer, layer_of, settle
from gradverify.spec.wording import validated

MAX_CASES = 10_000  # of one check; beyond that a matrix is a slip, or a reason to think again
MAX_LABEL = 40  # characters of one value inside a case's name; longer ones are shown by their place
VARIABLE = re.compile(rf"\$(\$?)({PARAMETER.pattern})")
SETTERS = frozenset(Settings.model_fields) - {"matrix"} | {"layout"}
"""Variables of these names set the setting (or every tensor's layout), without a `$name` anywhere."""
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


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination. `data` is the check with values in place of variables; `part`: the end of its name; `places` says where each variable's
    value stands in the document; `axes` are all values of each."""

    data: Mapping[str, Json]
    part: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, Path] = field(default_factory=dict)
    axes: Mapping[str, list[Json]] = field(default_factory=dict)


def build(raw: Json, base: Path, line: int, world: World) -> tuple[list[Built], list[Fault]]:
    """The cases of the check `raw` that stands at `base`, on `line`, and its faults; a faulty variant has no case."""
    if not isinstance(raw, dict):
        return [], [Fault(base, f"expected a mapping, got {shown(raw)}; for example {AN_EXAMPLE}")]
    variants, faults = expand(raw, base, world.matrix)
    built: list[Built] = []
    for variant in variants:
        found = _judged(variant, base, line, world)
        if isinstance(found, Built):
            built.append(found)
        else:
            known = {fault.path for fault in faults}
            faults += [fault for fault in (placed(each, variant, raw, base) for each in found) if fault.path not in known]
    return built, faults


# ---- the matrix
def expand(check: Mapping[str, Json], base: Path, inherited: Json = None) -> tuple[list[Variant], list[Fault]]:
    """The variants of the check that stands at `base`, or what is wrong with its matrix; `inherited` is the matrix of the spec's defaults, used
    where it has none."""
    own = "matrix" in check
    written = check["matrix"] if own else inherited
    place: Path = (*base, "matrix") if own else ("defaults", "matrix")
    rest = {key: value for key, value in check.items() if key != "matrix"}
    axes: dict[str, list[Json]] = {}
    exclude: list[dict[str, Json]] = []
    faults: list[Fault] = []
    if own or written is not None:
        matrix = validated(Matrix, written, place)
        if isinstance(matrix, tuple):
            return [], list(matrix) if own else []      # of the defaults' whoever reads those tells
        axes, exclude = {name: values for name, values in written.items() if name != "exclude"}, matrix.exclude

    used = set()

    def use(name: str, path: Path) -> Json:
        used.add(name)
        if name not in axes:
            help_ = allowed(name, tuple(axes), "variables of the matrix") if axes else "the check has no `matrix`"
            faults.append(Fault((*base, *path), f"unknown variable ${name}; {help_}"))
        return None

    _filled(rest, use)
    faults += _matrix_faults(axes, exclude, used, place)
    if faults:
        return [], faults
    keys = {name: [comparable(value) for value in values] for name, values in axes.items()}
    dropped = dict[tuple[str, ...], set[tuple[Hashable, ...]]]()
    for rule in exclude:
        dropped.setdefault(tuple(rule), set()).add(tuple(map(comparable, rule.values())))
    variants = []
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, indices, strict=True))
        if any(tuple(keys[name][chosen[name]] for name in names) in rules for names, rules in dropped.items()):
            continue
        values = {name: axes[name][index] for name, index in chosen.items()}
        data = _filled(rest, lambda name, _, values=values: values[name])       # type: ignore[misc]
        part = ",".join(f"{name}={label(values[name], index)}" for name, index in chosen.items())
        variants.append(Variant(data | {name: values[name] for name in values.keys() & SETTERS if name != "layout"}, f"[{part}]" if part else "",
                                values, {name: (*place, name, index) for name, index in chosen.items()}, axes))
    return variants, [] if variants else [Fault((*place, "exclude"), "`exclude` drops every combination")]


def _filled(check: Mapping[str, Json], value_of: Callable[[str, Path], Json]) -> dict[str, Json]:
    return {key: value if key == "name" else substitute(value, value_of, (key,)) for key, value in check.items()}


def substitute(value: Json, value_of: Callable[[str, Path], Json], path: Path) -> Json:
    """The value with every `$name` in it replaced, at any depth; `$$name` stands for the text `$name`."""
    if isinstance(value, str):
        match = VARIABLE.fullmatch(value)
        return value if match is None else value[1:] if match[1] else value_of(match[2], path)
    if isinstance(value, list):
        return [substitute(item, value_of, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: substitute(item, value_of, (*path, key)) for key, item in value.items()}
    return value


def label(value: Json, index: int) -> str:
    """A value as it stands in a case's name: `7`, `cuda`, `[2,3]`; a long one by its place: `#2`."""
    text = value if isinstance(value, str) else flow(value).replace(", ", ",").replace(": ", ":")
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"#{index}"


def comparable(value: Json) -> Hashable:
    """What is equal for equal values: `true` is not 1, and NaN equals itself."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if is_number else json.dumps(value)


def _matrix_faults(axes: Mapping[str, list[Json]], exclude: list[dict[str, Json]], used: set[str], place: Path) -> Iterator[Fault]:
    count = math.prod(len(values) for values in axes.values())
    if count > MAX_CASES:
        yield Fault(place, f"{count:,} combinations; at most {MAX_CASES:,} cases come from one check")
    for name, values in axes.items():
        if not PARAMETER.fullmatch(name):
            yield Fault((*place, name), f"the variable {name!r} is no name of letters, digits and `_`", key=True)
        elif name not in SETTERS and name not in used:
            near = nearest(name, SETTERS)
            hint = f"; did you mean {near!r}?" if near else ""
            yield Fault((*place, name), f"${name} is used nowhere, and {name!r} is no setting{hint}", key=True)
        seen: set[str] = set()
        for index, value in enumerate(values):
            if (text := json.dumps(value)) in seen:
                yield Fault((*place, name, index), f"{shown(value)} is there twice: both cases would have one name")
            seen.add(text)
    known = {name: set(map(comparable, values)) for name, values in axes.items()}
    for index, rule in enumerate(exclude):
        for name, value in rule.items():
            path = (*place, "exclude", index, name)
            if name not in axes:
                yield Fault(path, f"unknown variable {name!r}; {allowed(name, tuple(axes), 'variables of the matrix')}", key=True)
            elif comparable(value) not in known[name]:
                yield Fault(path, f"{shown(value)} is no value of {name}; values: {', '.join(map(shown, axes[name]))}")


def placed(fault: Fault, variant: Variant, check: Mapping[str, Json], base: Path) -> Fault:
    """A fault of a variant at the place a person wrote: at the matrix's value where that set a setting, at the `$name` it came through."""
    inside = fault.path[len(base):]
    if inside and inside[0] in variant.places and inside[0] in SETTERS:
        return replace(fault, path=(*variant.places[str(inside[0])], *inside[1:]))
    value: Json = check
    for depth, part in enumerate((*inside, None)):
        match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if match and not match[1] and match[2] in variant.values:
            return Fault((*base, *inside[:depth]), f"{fault.message} (${match[2]} is {shown(variant.values[match[2]])})")
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):       # the check's own key is missing, or the value ends here
            return fault
    return fault


# ---- one variant
def _judged(variant: Variant, base: Path, line: int, world: World) -> Built | tuple[Fault, ...]:
    check = validated(Check, dict(variant.data), base)
    if isinstance(check, tuple):
        return check
    setters, place = variant.values.keys() & SETTERS, f"{world.file}:{line}"
    layers = (world.project, layer_of(world.defaults, f"{world.file}: defaults"), layer_of(check, place, set(RUN_KEYS) - setters),
              layer_of(check, f"{place}: matrix", setters), world.options)
    dtype = settle(*layers).dtype
    faults = (*name_faults(check, base, world.codes), *check_sense(check, base, dtype, world.folder, world.builtins, world.required),
              *_layout_faults(check, variant.values.get("layout"), base))
    return faults or _built(check, variant, line, layers, world)


def _layout_faults(check: Check, layout: str | None, base: Path) -> Iterator[Fault]:
    """A layout from the matrix that no input can have: the case would be the contiguous one under another name."""
    if layout in (None, "contiguous") or check.inputs is None:
        return
    complaints = [known_shape(tensor) is not None and layout_complaint(tensor, layout) for _, tensor in tensors(check)
                  if "layout" not in tensor.model_fields_set]
    if all(complaints):
        why = next(iter(complaints), "there is no tensor that names no `layout` of its own")
        yield Fault((*base, "layout"), f"no input can be laid out `{layout}`: {why}")


def _built(check: Check, variant: Variant, line: int, layers: tuple[Layer, ...], world: World) -> Built:
    """The case of a sound check; functions in files stand in it by their absolute path."""
    written: dict[str, str] = {}

    def target(text: str | None) -> str | None:
        found = None if text is None else resolve(text, world.folder)[0]
        if text is not None and found is not None and found != text:
            written[found] = text
        return found

    def tensor(said: Tensor) -> TensorRecipe:
        draw, form = draw_of(said), said.sparse
        arguments = target(said.make) if draw == "make" else getattr(said, draw)
        if draw == "file":
            name, key = split_key(said.file)
            arguments = str((world.folder / name).resolve()) + (f"#{key}" if key else "")
        return TensorRecipe(
            shape=None if said.shape is None or draw in ("values", "file") else tuple(said.shape), draw=cast(DrawKind, draw), arguments=arguments,
            avoid=avoided(said), margin=said.margin, dtype=said.dtype, requires_grad=said.requires_grad,
            domain=pair(said.domain), symmetric=said.symmetric or said.kind == "spd",
            distinct=said.distinct, device=said.device, layout=said.layout if "layout" in said.model_fields_set else None,
            sparse=None if form is None else Sparse(form.layout, form.density, pair(form.blocksize), form.masked),
            nested=None if said.nested is None else tuple(said.nested.lengths))

    def pair(said: Any) -> Any:
        return None if said is None else (said[0], said[1])

    def recipe(name: str | int | None, value: Json) -> InputRecipe:
        name = name if isinstance(name, str) else None
        if is_tensors(value):
            return InputRecipe(name, tensors=tuple(map(tensor, value)))
        return InputRecipe(name, tensor(value)) if isinstance(value, Tensor) else InputRecipe(name, value=value)

    function = cast(str, target(check.function))
    name, settings = check.name or own_name(function), settle(*layers)
    said = world.defaults.said() | check.said()
    expect = said.get("expect", "pass")
    keywords = {name: value for name, value in check.kwargs.items() if isinstance(value, Tensor) or is_tensors(value)}
    devices = variant.axes.get("device", ())        # the others are compared with the CPU, else with the first
    first = "cpu" if "cpu" in devices else next(iter(devices), None)
    case = Case(
        id=f"{world.file}::{name}{variant.part}", name=f"{name}{variant.part}", check=name, spec=SpecPlace(world.file, line), target=function,
        inputs=tuple(recipe(*member) for member in members(check)), inputs_from=target(check.inputs_from), init=check.init,
        kwargs={name: value for name, value in check.kwargs.items() if name not in keywords},
        keywords=tuple(recipe(*member) for member in keywords.items()), settings=settings,
        oracles=Oracles(target(check.reference), check.expected, check.grad_output, target(check.gradient), target(check.surrogate)),
        expect=expect if isinstance(expect, str) else tuple(expect), tags=tuple(said.get("tags", ())), skip=said.get("skip"),
        requires=tuple(said.get("requires", ())), search=world.search, layout=variant.values.get("layout"), sources=tuple(said.get("sources", ())),
        beside=first if first != settings.device and variant.values.get("device") == settings.device else None)
    return Built(case, layers, written)
