"""Turn one check of a spec into cases: expand its matrix, validate each variant, check its values
for consistency, fold its settings. Faults end this at the step that finds them; valid variants
become cases."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from gradverify.model.case import (
    Case,
    DrawKind,
    InputRecipe,
    Json,
    Oracles,
    Search,
    Sparse,
    SpecPlace,
    TensorRecipe,
    core,
    dimension_complaint,
    is_cut,
    own_dtype,
)
from gradverify.model.dtypes import COMPLEX, TABLE
from gradverify.model.paths import is_file
from gradverify.spec.fault import Fault, Path, allowed, flow, nearest, shown
from gradverify.spec.names import missing, own_name, resolve
from gradverify.spec.schema import (
    COMPLEX_NUMBER,
    DRAWS,
    Check,
    Matrix,
    Rules,
    RunSettings,
    Settings,
    Tensor,
)
from gradverify.spec.settings import RUN_KEYS, Layer, layer_of, settle
from gradverify.spec.wording import number_hint, validated

# ---- A tensor
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    name: held.integers for name, held in TABLE.items() if held.integers
}
"""dtype → its range of integers, high excluded."""
INTEGER_DRAWS = ("integers", "fill", "values", "file", "choice", "kind", "make")
REDRAWN = ("normal", "uniform", "integers", "choice")
WHOLE = ("permutation", "one_hot", "mask")  # kinds whose numbers fit integer dtypes
BLOCKED = ("bsr", "bsc")
# Elements of the dense shape of a sparse tensor: the numbers are kept in a dense tensor
LARGEST = 1 << 24


def draw_of(tensor: Tensor) -> str:
    """Return the key that gives how a tensor is drawn; `normal` if there is none."""
    return next((name for name in DRAWS if name in tensor.model_fields_set), "normal")


def dtype_of(tensor: Tensor, check: str) -> str:
    """Return the dtype of a tensor in a check of dtype `check`."""
    return tensor.dtype or own_dtype(draw_of(tensor), tensor.kind, check)


def known_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None if it is known only from the content of a file."""
    if "values" in tensor.model_fields_set:
        return shape_of(tensor.values)
    return None if tensor.shape is None else tuple(tensor.shape)


def shape_of(value: Json) -> tuple[int, ...]:
    """Return the shape of nested lists, as given by their first elements."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield the elements of nested lists, each with its path."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def number_faults(
    value: Json, path: Path, dtype: str, shape: tuple[int, ...] | None = None
) -> Iterator[Fault]:
    """Yield the faults that keep nested numbers from being a tensor of `dtype` and `shape` (by
    default that of the first elements)."""
    shape = shape_of(value) if shape is None else shape
    if not shape:
        complaint = (
            f"expected a number, got {shown(value)}: the rows are ragged"
            if isinstance(value, list)
            else scalar_complaint(value, dtype)
        )
        if complaint:
            yield Fault(path, complaint)
    elif not isinstance(value, list):
        yield Fault(path, f"expected a list of {shape[0]}, got {shown(value)}: the rows are ragged")
    elif len(value) != shape[0]:
        yield Fault(
            path,
            f"expected a row of {shape[0]} like the first, got {len(value)}: the rows are ragged",
        )
    else:
        for index, item in enumerate(value):
            yield from number_faults(item, (*path, index), dtype, shape[1:])


def scalar_complaint(value: Json, dtype: str) -> str | None:
    """Return why a value cannot be an element of a tensor of `dtype`, or None."""
    if isinstance(value, bool):
        if dtype == "bool":
            return None
        return f"expected a number, got {shown(value)}; booleans need `dtype: bool`"
    if isinstance(value, str) and COMPLEX_NUMBER.fullmatch(value):
        if dtype in COMPLEX:
            return None
        return f"the complex number {value} needs `dtype: complex128`, the dtype here is {dtype}"
    if not isinstance(value, (int, float)):
        hint = number_hint(value, finite=False)
        return f"expected a number, got {shown(value)}" + (f"; {hint}" if hint else "")
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        if value == value and low <= value < high and int(value) == value:
            return None
        return f"{shown(value)} is no {dtype}"
    return None


def tensor_faults(
    tensor: Tensor, path: Path, check_dtype: str, folder: FilePath
) -> Iterator[Fault]:
    """Yield the faults of one tensor, apart from the types of its keys."""

    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*path, *place), message, key)

    keys = tensor.model_fields_set
    named = [name for name in DRAWS if name in keys]
    yield from (
        fault(f"`{named[0]}` and `{other}` both say how it is drawn: keep one", other, key=True)
        for other in named[1:]
    )
    if len(named) > 1:
        return
    draw = draw_of(tensor)
    dtype = dtype_of(tensor, check_dtype)
    shape = known_shape(tensor)
    kind = tensor.kind
    whole, is_symmetric = INTEGER_RANGES.get(dtype), tensor.symmetric or kind == "spd"

    if shape is None and draw != "file":
        yield fault(f"the key 'shape' is missing: `{draw}` numbers need one")
    elif draw == "file" and shape is not None:
        yield fault("`file` brings its own shape: remove `shape`", "shape", key=True)
    elif draw == "values" and tensor.shape is not None and tuple(tensor.shape) != shape:
        yield fault(
            f"`values` has the shape {list(shape_of(tensor.values))}, `shape` says "
            f"{tensor.shape}: remove `shape`",
            "shape",
        )
    elif draw == "linspace" and shape is not None and len(shape) != 1:
        yield fault(f"`linspace` has one dimension, `shape` says {tensor.shape}", "shape")

    if whole and tensor.requires_grad:
        yield fault(
            f"a tensor of dtype {dtype} cannot require gradients: say a floating `dtype`, or "
            "remove `requires_grad`",
            "requires_grad",
        )
    if whole and draw not in INTEGER_DRAWS:
        yield fault(
            f"`{draw}` does not draw {dtype}; use `integers`, `fill` or `values`",
            "dtype" if tensor.dtype else draw,
        )

    if draw == "values":
        yield from number_faults(tensor.values, (*path, draw), dtype)
    elif draw in ("fill", "choice"):
        for place, number in leaves(getattr(tensor, draw)):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, draw, *place)
    elif draw == "normal" and tensor.normal[1] < 0:
        yield fault(
            f"a standard deviation must be at least 0, got {shown(tensor.normal[1])}", draw, 1
        )
    elif draw == "uniform" and tensor.uniform[0] > tensor.uniform[1]:
        yield fault(
            f"low {shown(tensor.uniform[0])} is above high {shown(tensor.uniform[1])}", draw
        )
    elif draw == "integers":
        low, high = tensor.integers
        if low >= high:
            yield fault(f"no integer lies from {low} to {high}: high is excluded", draw)
        elif whole and not whole[0] <= low < high <= whole[1]:
            yield fault(f"{low} to {high} does not fit into {dtype}", draw)
    elif draw == "make" and (complaint := resolve(tensor.make, folder)[1]):
        yield fault(complaint, draw)
    elif draw == "file":
        name, inner = split_key(tensor.file)
        suffix = FilePath(name).suffix
        if suffix not in (".npy", ".npz", ".pt"):
            yield fault(f"unknown kind of file {suffix!r}; allowed: .npy, .npz#key, .pt", draw)
        elif suffix == ".npz" and not inner:
            yield fault(f"which array of the .npz? write {name}#key", draw)
        elif not is_file(folder / name):
            yield fault(missing(name, folder), draw)

    if "avoid" not in keys:
        if "margin" in keys and tensor.margin != Tensor.model_fields["margin"].default:
            yield fault("`margin` acts only together with `avoid`", "margin", key=True)
    elif draw not in REDRAWN:
        yield fault(
            f"`{draw}` gives the numbers, nothing can be redrawn: remove `avoid`", "avoid", key=True
        )

    if tensor.domain is not None:
        if not tensor.domain[0] < tensor.domain[1]:  # NaN included
            yield fault(
                f"expected [low, high] with low < high, got {shown(tensor.domain)}", "domain"
            )
        elif dtype in COMPLEX:
            yield fault(
                f"a `domain` is an interval of real numbers, and the tensor is {dtype}", "domain"
            )
    if tensor.symmetric and shape is not None and (len(shape) < 2 or shape[-1] != shape[-2]):
        yield fault(f"a symmetric matrix is square, and the shape is {list(shape)}", "symmetric")

    if kind is not None:
        least = core(kind, False)
        if whole and kind not in WHOLE:
            yield fault(
                f"the numbers of `{kind}` are no {dtype}: leave out `dtype`, or say a floating one",
                "kind",
            )
        elif kind == "simplex" and dtype in COMPLEX:
            yield fault(f"a simplex is a set of real numbers, and the tensor is {dtype}", "kind")
        elif shape is not None and len(shape) < least and kind != "mask":
            yield fault(
                f"`{kind}` needs at least {least} dimension{'s' * (least > 1)}, and the shape is "
                f"{list(shape)}",
                "kind",
            )
        elif shape is not None and kind == "spd" and shape[-1] != shape[-2]:
            yield fault(
                f"a positive definite matrix is square, and the shape is {list(shape)}", "kind"
            )
        elif shape is not None and kind == "permutation" and whole and shape[-1] > whole[1]:
            yield fault(f"the numbers 0 to {shape[-1] - 1} do not fit into {dtype}", "kind")
    if (
        "layout" in keys
        and shape is not None
        and (complaint := layout_complaint(tensor, tensor.layout))
    ):
        yield fault(complaint, "layout")

    sparse, form = tensor.sparse, "sparse" if tensor.sparse is not None else "nested"
    if form not in keys:
        return
    for key in keys & {"nested", "layout", *(["symmetric"] if is_symmetric else [])} - {form}:
        yield fault(f"a {form} tensor has no `{key}`: remove one of the two", key, key=True)
    if draw == "make" or (draw == "kind" and is_symmetric):
        yield fault(f"`{form}` and `{kind or draw}` do not go together", form, key=True)
    if sparse is None:
        lengths = tensor.nested.lengths
        if shape is not None and len(shape) < 2:
            yield fault(
                "a nested tensor needs rows, so at least two dimensions, and the shape is "
                f"{list(shape)}",
                form,
                "lengths",
            )
        elif shape is not None and sum(lengths) != shape[0]:
            yield fault(
                f"the lengths add up to {sum(lengths)}, and the shape {list(shape)} has "
                f"{shape[0]} rows",
                form,
                "lengths",
            )
        return
    if draw in ("values", "file") and sparse.density is not None:
        yield fault(
            f"`{draw}` gives the elements, those that are not 0: remove `density`",
            form,
            "density",
            key=True,
        )
    if sparse.layout in BLOCKED and sparse.blocksize is None:
        yield fault(f"the key 'blocksize' is missing: `{sparse.layout}` holds blocks", form)
    elif sparse.layout not in BLOCKED and sparse.blocksize is not None:
        yield fault(
            f"`{sparse.layout}` holds no blocks: remove `blocksize`", form, "blocksize", key=True
        )
    if sparse.layout == "coo" and shape == ():
        yield fault(
            "a sparse tensor has at least one dimension, and the shape is []", form, "layout"
        )
    elif sparse.layout != "coo" and shape is not None and len(shape) != 2:
        yield fault(
            f"a `{sparse.layout}` tensor has two dimensions, and the shape is {list(shape)}",
            form,
            "layout",
        )
    elif (
        shape
        and sparse.layout in BLOCKED
        and any(n % b for n, b in zip(shape, sparse.blocksize or shape, strict=True))
    ):
        yield fault(
            f"blocks of {sparse.blocksize} do not divide the shape {list(shape)}", form, "blocksize"
        )
    if shape is not None and math.prod(shape) > LARGEST:
        yield fault(
            f"its shape {list(shape)} has more than {LARGEST:,} elements, which are kept as a "
            "dense tensor",
            form,
        )
    if (
        tensor.domain is not None
        and not sparse.masked
        and not tensor.domain[0] <= 0 <= tensor.domain[1]
    ):
        yield fault(
            "under `masked: false` the tensor holds zeros, which lie outside this domain", "domain"
        )


def avoided(tensor: Tensor) -> tuple[float, ...]:
    """Return the numbers of `avoid`, given as one number or as a list."""
    if tensor.avoid is None:
        return ()
    return tuple(tensor.avoid) if isinstance(tensor.avoid, list) else (float(tensor.avoid),)


def layout_complaint(tensor: Tensor, layout: str) -> str | None:
    """Return why a tensor of a known shape cannot have this layout in memory, or None."""
    shape = known_shape(tensor) or ()
    complaint = dimension_complaint(layout, shape)
    if complaint or layout != "expanded" or not is_cut(tensor.kind, tensor.symmetric, shape):
        return complaint
    what = f"`{tensor.kind}`" if tensor.kind is not None else "a symmetric matrix"
    return (
        f"an expanded tensor repeats one slice along its first dimension, which would cut {what}: "
        "give the shape a dimension before"
    )


def split_key(text: str) -> tuple[str, str]:
    """Split `data.npz#key` into (`data.npz`, `key`). Other files have no key: a `#` is part of
    their name."""
    name, mark, key = text.rpartition("#")
    return (name, key) if mark and name.endswith(".npz") else (text, "")


# ---- A check
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Also a parameter of a module inside a module: `layers.0.weight`
INSIDE = re.compile(rf"{PARAMETER.pattern}(\.[A-Za-z0-9_]+)*")
LOGIC = ("and", "or", "not")  # the words of `-m TAGEXPR`

Builtins = Mapping[str, tuple[str, ...]]


def members(check: Check) -> Iterator[tuple[str | int, Json]]:
    """Yield (name or position, value) of every input."""
    yield from (
        check.inputs.items() if isinstance(check.inputs, dict) else enumerate(check.inputs or ())
    )


def is_tensors(value: Json) -> bool:
    """Return whether a value is a list of tensors."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(item, Tensor) for item in value)
    )


def tensors(check: Check, base: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Yield every tensor of the inputs with its path, also those in lists and those by keyword."""
    for key, named in (("inputs", members(check)), ("kwargs", check.kwargs.items())):
        for name, value in named:
            for place, item in (
                leaves(value, (*base, key, name))
                if is_tensors(value)
                else [((*base, key, name), value)]
            ):
                if isinstance(item, Tensor):
                    yield place, item


def check_sense(
    check: Check,
    base: Path,
    dtype: str,
    folder: FilePath,
    builtins: Builtins,
    required: Mapping[str, int],
) -> Iterator[Fault]:
    """Yield the faults of one concrete check (variables replaced), apart from the types of its
    keys. `required`: how many of a built-in's parameters, the first ones, have no default."""

    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*base, *place), message, key)

    name = check.name or ""
    if not name.isprintable() or name != name.strip():
        yield fault(
            "a name is one line without "
            + (
                "spaces at its ends"
                if name.isprintable()
                else "control characters or others that do not show"
            ),
            "name",
        )
    for key in ("function", "reference", "gradient", "surrogate", "inputs_from"):
        known = tuple(builtins) if key in ("function", "reference") else ()
        if (text := getattr(check, key)) is not None and (
            complaint := resolve(text, folder, known)[1]
        ):
            yield fault(complaint, key)

    if check.inputs is None and check.inputs_from is None:
        yield fault("the key 'inputs' (or `inputs_from`) is missing")
    elif check.inputs is not None and check.inputs_from is not None:
        yield fault(
            "`inputs` and `inputs_from` both give the inputs: keep one", "inputs_from", key=True
        )
    given = check.inputs if isinstance(check.inputs, dict) else {}
    for name, value in given.items():
        if not INSIDE.fullmatch(name):
            hint = (
                f": put a space after the colon: `{name.replace(':', ': ', 1)}`"
                if value is None and ":" in name
                else " (letters, digits and `_`)"
            )
            yield fault(
                f"the input name {name!r} is no parameter's name{hint}", "inputs", name, key=True
            )
        if name in check.kwargs:
            yield fault(f"{name!r} is an input already", "kwargs", name, key=True)
    for name in check.kwargs:
        if not PARAMETER.fullmatch(name):
            yield fault(
                f"the keyword {name!r} is no parameter's name (letters, digits and `_`)",
                "kwargs",
                name,
                key=True,
            )
    for path, tensor in tensors(check, base):
        yield from tensor_faults(tensor, path, dtype, folder)
    parameters = builtins.get(check.function)
    if parameters is not None and check.inputs is not None:
        yield from _builtin_faults(check, parameters, required.get(check.function, 0), base)

    # A module's parameters are inputs too; the parameters of the user's function are unknown here
    names = (
        (*given, *check.kwargs, *(parameters or () if check.init is not None else ()))
        if isinstance(check.inputs, dict)
        else None
    )
    for name, numbers in (check.expected or {}).items():
        path, own = (*base, "expected", name), {**given, **check.kwargs}.get(name)
        faults = tuple(number_faults(numbers, path, dtype))
        yield from faults
        if parameters is not None and names is not None and name not in names:
            yield Fault(
                path, f"there is no input {name!r}; {allowed(name, names, 'inputs')}", key=True
            )
        elif isinstance(own, Tensor) and not faults:
            if own.requires_grad is False or dtype_of(own, "float64").startswith(
                ("int", "uint", "bool")
            ):
                yield Fault(
                    path, f"the input {name!r} is not differentiated: it has no gradient", key=True
                )
            if (shape := known_shape(own)) is not None and shape != shape_of(numbers):
                yield Fault(
                    path,
                    f"the gradient of {name!r} has its shape {list(shape)}, got "
                    f"{list(shape_of(numbers))}",
                )
        elif (name in given or name in check.kwargs) and not isinstance(own, (Tensor, list)):
            yield Fault(path, f"the input {name!r} is no tensor: it has no gradient", key=True)
    # Numbers with any nesting: for several outputs there is a list of weights, of different shapes
    if check.grad_output is not None:
        if check.expected is None:
            yield fault(
                "`grad_output` gives the weights of `expected`, and there is none",
                "grad_output",
                key=True,
            )
        for place, number in leaves(check.grad_output):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, "grad_output", *place)


def _builtin_faults(
    check: Check, parameters: tuple[str, ...], required: int, base: Path
) -> Iterator[Fault]:
    def fault(message: str, *place: str) -> Fault:
        return Fault((*base, *place), f"{check.function} {message}", key=True)

    names = tuple(check.inputs) if isinstance(check.inputs, dict) else ()
    strangers = [name for name in names if name not in parameters]
    for name in filter(INSIDE.fullmatch, strangers):
        note = (
            f" ({name!r} is a key of the check: it belongs next to `inputs`)"
            if name in Check.model_fields
            else ""
        )
        yield fault(
            f"has no input {name!r}; {allowed(name, parameters, 'its inputs')}{note}",
            "inputs",
            name,
        )
    for name in filter(PARAMETER.fullmatch, check.kwargs):
        if name not in parameters:
            yield fault(
                f"has no parameter {name!r}; {allowed(name, parameters, 'its parameters')}",
                "kwargs",
                name,
            )
    count = len(check.inputs)
    if strangers:
        return
    lacking = [
        name
        for name in parameters[:required]
        if name not in check.kwargs and name not in (names or parameters[:count])
    ]
    if lacking:
        optional = (
            f" ({', '.join(parameters[required:])} may be left out)"
            if parameters[required:]
            else ""
        )
        yield fault(
            f"needs {' and '.join(map(repr, lacking))}; its inputs: "
            f"{', '.join(parameters)}{optional}",
            "inputs",
        )
    elif count > len(parameters):
        yield fault(
            f"takes at most {len(parameters)} ({', '.join(parameters)}), got {count}", "inputs"
        )
    elif names and names != parameters[:count]:
        yield Fault(
            (*base, "inputs"),
            f"inputs are passed in order; {check.function} has {', '.join(parameters)}, got "
            f"{', '.join(names)}",
            key=True,
        )


def name_faults(settings: RunSettings, base: Path, codes: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of unknown rule codes, and of tags that `-m` cannot name."""
    rules = settings.rules or Rules.model_validate({})
    for place, listed in (
        (("rules", "select"), rules.select),
        (("rules", "ignore"), rules.ignore),
        (("expect",), getattr(settings, "expect", ())),
    ):
        for index, code in enumerate(listed if isinstance(listed, list) else ()):
            if code not in codes and not (
                place[0] == "rules" and any(known.startswith(code) for known in codes)
            ):
                yield Fault(
                    (*base, *place, index), f"no rule {code!r}; {allowed(code, sorted(codes))}"
                )
    for index, tag in enumerate(getattr(settings, "tags", ())):
        if tag in LOGIC:
            yield Fault(
                (*base, "tags", index),
                f"the tag {tag!r} is a word of `-m` expressions: choose another",
            )


# ---- From one check to its cases
MAX_CASES = 10_000  # of one check; a larger matrix is taken to be a mistake
MAX_LABEL = 40  # characters of one value inside a case's name; a longer one is shown by its index
VARIABLE = re.compile(rf"\$(\$?)({PARAMETER.pattern})")
SETTERS = frozenset(Settings.model_fields) - {"matrix"} | {"layout"}
"""Variables of these names set the setting of that name (or the layout of every tensor), without
any `$name`."""
AN_EXAMPLE = "{function: relu, inputs: {input: {shape: [2, 3]}}}"


@dataclass(frozen=True, slots=True)
class World:
    """The context of a file's checks: the known names, the layers around their settings, the
    file."""

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
    """A case, and the layers that its settings come from."""

    case: Case
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of a matrix. `data`: the check with variables replaced by values; `part`: the
    end of the case's name; `places`: the path of each variable's value in the document; `axes`: all
    values of each variable."""

    data: Mapping[str, Json]
    part: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, Path] = field(default_factory=dict)
    axes: Mapping[str, list[Json]] = field(default_factory=dict)


def build(raw: Json, base: Path, line: int, world: World) -> tuple[list[Built], list[Fault]]:
    """Return the cases of the check `raw` at path `base` and `line`, and its faults. A faulty
    variant has no case."""
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
            faults += [
                fault
                for fault in (placed(each, variant, raw, base) for each in found)
                if fault.path not in known
            ]
    return built, faults


# ---- The matrix
def expand(
    check: Mapping[str, Json], base: Path, inherited: Json = None
) -> tuple[list[Variant], list[Fault]]:
    """Return the variants of the check at path `base`, or the faults of its matrix. `inherited`:
    the matrix of the spec's defaults, used if the check has none."""
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
            return [], list(matrix) if own else []  # else reported with the defaults
        axes = {name: values for name, values in written.items() if name != "exclude"}
        exclude = matrix.exclude

    used = set()

    def use(name: str, path: Path) -> Json:
        used.add(name)
        if name not in axes:
            help_ = (
                allowed(name, tuple(axes), "variables of the matrix")
                if axes
                else "the check has no `matrix`"
            )
            faults.append(Fault((*base, *path), f"unknown variable ${name}; {help_}"))
        return None

    _filled(rest, use)
    keys = {name: [comparable(value) for value in values] for name, values in axes.items()}
    count = math.prod(map(len, keys.values()))
    if count > MAX_CASES:
        faults.append(
            Fault(place, f"{count:,} combinations; at most {MAX_CASES:,} cases come from one check")
        )
    for name, listed in axes.items():
        if not PARAMETER.fullmatch(name):
            faults.append(
                Fault(
                    (*place, name),
                    f"the variable {name!r} is no name of letters, digits and `_`",
                    key=True,
                )
            )
        elif name not in SETTERS and name not in used:
            near = nearest(name, SETTERS)
            hint = f"; did you mean {near!r}?" if near else ""
            faults.append(
                Fault(
                    (*place, name),
                    f"${name} is used nowhere, and {name!r} is no setting{hint}",
                    key=True,
                )
            )
        texts = list(map(json.dumps, listed))
        faults += [
            Fault(
                (*place, name, index),
                f"{shown(listed[index])} is there twice: both cases would have one name",
            )
            for index, text in enumerate(texts)
            if text in texts[:index]
        ]
    for index, rule in enumerate(exclude):
        for name, value in rule.items():
            path = (*place, "exclude", index, name)
            if name not in axes:
                faults.append(
                    Fault(
                        path,
                        f"unknown variable {name!r}; "
                        f"{allowed(name, tuple(axes), 'variables of the matrix')}",
                        key=True,
                    )
                )
            elif comparable(value) not in keys[name]:
                faults.append(
                    Fault(
                        path,
                        f"{shown(value)} is no value of {name}; values: "
                        f"{', '.join(map(shown, axes[name]))}",
                    )
                )
    if faults:
        return [], faults
    dropped = dict[tuple[str, ...], set[tuple[Hashable, ...]]]()
    for rule in exclude:
        dropped.setdefault(tuple(rule), set()).add(tuple(map(comparable, rule.values())))
    variants = []
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, indices, strict=True))
        if any(
            tuple(keys[name][chosen[name]] for name in names) in rules
            for names, rules in dropped.items()
        ):
            continue
        values = {name: axes[name][index] for name, index in chosen.items()}
        data = _filled(rest, lambda name, _, values=values: values[name])  # type: ignore[misc]
        part = ",".join(f"{name}={label(values[name], index)}" for name, index in chosen.items())
        variants.append(
            Variant(
                data | {name: values[name] for name in values.keys() & SETTERS if name != "layout"},
                f"[{part}]" if part else "",
                values,
                {name: (*place, name, index) for name, index in chosen.items()},
                axes,
            )
        )
    return variants, [] if variants else [
        Fault((*place, "exclude"), "`exclude` drops every combination")
    ]


def _filled(check: Mapping[str, Json], value_of: Callable[[str, Path], Json]) -> dict[str, Json]:
    return {
        key: value if key == "name" else substitute(value, value_of, (key,))
        for key, value in check.items()
    }


def substitute(value: Json, value_of: Callable[[str, Path], Json], path: Path) -> Json:
    """Return the value with every `$name` replaced, at any depth; `$$name` gives the text
    `$name`."""
    if isinstance(value, str):
        match = VARIABLE.fullmatch(value)
        return value if match is None else value[1:] if match[1] else value_of(match[2], path)
    if isinstance(value, list):
        return [substitute(item, value_of, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: substitute(item, value_of, (*path, key)) for key, item in value.items()}
    return value


def label(value: Json, index: int) -> str:
    """Return a value as shown in a case's name: `7`, `cuda`, `[2,3]`; a long one as its index,
    `#2`."""
    text = value if isinstance(value, str) else flow(value).replace(", ", ",").replace(": ", ":")
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"#{index}"


def comparable(value: Json) -> Hashable:
    """Return a key that is equal for equal values, where `true` is not 1, and NaN equals itself."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if is_number else json.dumps(value)


def placed(fault: Fault, variant: Variant, check: Mapping[str, Json], base: Path) -> Fault:
    """Return a fault of a variant at its place in the document: at the value in the matrix if that
    set a setting, or at the `$name` that was replaced."""
    inside = fault.path[len(base) :]
    if inside and inside[0] in variant.places and inside[0] in SETTERS:
        return replace(fault, path=(*variant.places[str(inside[0])], *inside[1:]))
    value: Json = check
    for depth, part in enumerate((*inside, None)):
        match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if match and not match[1] and match[2] in variant.values:
            return Fault(
                (*base, *inside[:depth]),
                f"{fault.message} (${match[2]} is {shown(variant.values[match[2]])})",
            )
        try:
            value = value[part]
        # The key is missing in the check, or the value has no such part
        except (KeyError, IndexError, TypeError):
            return fault
    return fault


# ---- One variant
def _judged(variant: Variant, base: Path, line: int, world: World) -> Built | tuple[Fault, ...]:
    """Return the case of a variant, with files of functions as absolute paths, or its faults."""
    check = validated(Check, dict(variant.data), base)
    if isinstance(check, tuple):
        return check
    setters, place = variant.values.keys() & SETTERS, f"{world.file}:{line}"
    layers = (
        world.project,
        layer_of(world.defaults, f"{world.file}: defaults"),
        layer_of(check, place, set(RUN_KEYS) - setters),
        layer_of(check, f"{place}: matrix", setters),
        world.options,
    )
    settings, layout = settle(*layers), variant.values.get("layout")
    faults = [
        *name_faults(check, base, world.codes),
        *check_sense(check, base, settings.dtype, world.folder, world.builtins, world.required),
    ]
    if layout not in (None, "contiguous") and check.inputs is not None:
        complaints = [
            known_shape(tensor) is not None and layout_complaint(tensor, layout)
            for _, tensor in tensors(check)
            if "layout" not in tensor.model_fields_set
        ]
        if all(complaints):  # the case would be the contiguous one under another name
            why = next(iter(complaints), "there is no tensor that names no `layout` of its own")
            faults.append(Fault((*base, "layout"), f"no input can be laid out `{layout}`: {why}"))
    if faults:
        return tuple(faults)

    def target(text: str | None) -> str | None:
        return None if text is None else resolve(text, world.folder)[0]

    def tensor(given: Tensor) -> TensorRecipe:
        draw, form = draw_of(given), given.sparse
        arguments = target(given.make) if draw == "make" else getattr(given, draw)
        if draw == "file":
            name, key = split_key(given.file)
            arguments = str((world.folder / name).resolve()) + (f"#{key}" if key else "")
        own = {
            name: fixed(getattr(given, name))
            for name in ("margin", "dtype", "requires_grad", "domain", "distinct", "device")
        }
        return TensorRecipe(
            shape=None if draw in ("values", "file") else fixed(given.shape),
            draw=cast(DrawKind, draw),
            arguments=arguments,
            avoid=avoided(given),
            symmetric=given.symmetric or given.kind == "spd",
            layout=given.layout if "layout" in given.model_fields_set else None,
            sparse=None
            if form is None
            else Sparse(form.layout, form.density, fixed(form.blocksize), form.masked),
            nested=None if given.nested is None else fixed(given.nested.lengths),
            **own,
        )

    def fixed(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    def recipe(name: str | int | None, value: Json) -> InputRecipe:
        name = name if isinstance(name, str) else None
        if is_tensors(value):
            return InputRecipe(name, tensors=tuple(map(tensor, value)))
        if isinstance(value, Tensor):
            return InputRecipe(name, tensor(value))
        return InputRecipe(name, value=value)

    function, given = cast(str, target(check.function)), world.defaults.given() | check.given()
    name = check.name or own_name(function)
    keywords = {
        name: value
        for name, value in check.kwargs.items()
        if isinstance(value, Tensor) or is_tensors(value)
    }
    # All devices of the matrix are compared with the CPU if it is among them, else with the first
    devices = variant.axes.get("device", ())
    first = "cpu" if "cpu" in devices else next(iter(devices), None)
    case = Case(
        id=f"{world.file}::{name}{variant.part}",
        name=f"{name}{variant.part}",
        check=name,
        spec=SpecPlace(world.file, line),
        target=function,
        inputs=tuple(recipe(*member) for member in members(check)),
        inputs_from=target(check.inputs_from),
        init=check.init,
        kwargs={name: value for name, value in check.kwargs.items() if name not in keywords},
        keywords=tuple(recipe(*member) for member in keywords.items()),
        settings=settings,
        oracles=Oracles(
            target(check.reference),
            check.expected,
            check.grad_output,
            target(check.gradient),
            target(check.surrogate),
        ),
        expect=fixed(given.get("expect", "pass")),
        skip=given.get("skip"),
        search=world.search,
        layout=layout,
        gradients=check.gradients,
        other_device=first
        if first != settings.device and variant.values.get("device") == settings.device
        else None,
        **{name: tuple(given.get(name, ())) for name in ("tags", "requires", "sources")},
    )
    return Built(case, layers)
