"""A short list of common layouts of inputs, and what a refusal says should be otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gradverify.model.case import DrawKind, InputRecipe, Json, TensorRecipe
from gradverify.model.result import Frame
from gradverify.subject.failure import WANTS_MASK, WANTS_WHOLE
from gradverify.trial.wanted import TENSORS, UNSAID, Wanted

Shape = tuple[int, ...]
Assignment = Mapping[str, InputRecipe]
"""Argument → what it is given; an argument that is not in it keeps its default."""

BASES: tuple[Shape, ...] = (
    (2, 3),
    (2, 3, 4),
    (2, 4, 5, 6),
    (4, 4),
    (3,),
    (2, 4, 4),
    (2, 8),
    (1, 4, 8, 8),
    (2, 2, 4, 4, 4),
    (),
)
"""Shapes of the first tensor: sizes that differ first, so that no two dimensions can be mixed up.
Small, so that every element is compared."""
SHAPES: tuple[tuple[str, str], ...] = (
    (
        r"^(w\d?|weights?|kernels?|filters?|mat2|wt?|.*_weight|codebook|prototypes|table|embeddings?)$",
        "conv|4 -1|1|-1 4|-1|*",
    ),
    (r"^(b\d?|bias|.*_bias)$", "4|-1|1|*"),
    (r"^(cos|sin|.*_(cos|sin)|(cos|sin)_.*|freqs.*|rotary.*)$", "-2 -1|-1|*"),
    (r"^(gamma|beta|(running_)?(mean|var)|inv_?std|rstd|std|scale|shift|loc|slope|g)$", "-1|1|*|"),
    (
        r"^(alpha|temperature|temp|tau|t|lam|lambda_?|eps|step_size|threshold|logit_scale|curvature|c|clip.*|factor|n)$",
        "|-1|*",
    ),
    ("", "*|-1|-1 4|"),
)
"""Names → shapes beside a first tensor, the likeliest first: `*` is its own; `-1` the size of its
last dimension, `4` that size."""
INDICES = "0|column|*"
LARGEST = 16  # size that is taken from a comment
NUMBERS: Mapping[str, Json] = {
    "eps": 1e-5,
    "epsilon": 1e-5,
    "tol": 1e-6,
    "momentum": 0.9,
    "slope": 0.1,
    "negative_slope": 0.01,
    "min": -0.5,
    "low": -0.5,
    "lower": -0.5,
    "dim": -1,
    "axis": -1,
    "stride": 1,
    "padding": 0,
    "pad": 1,
    "dilation": 1,
    "kernel_size": 3,
    "world_size": 1,
    "reduction": "mean",
    "reduce": "sum",
    "mode": "bilinear",
    "padding_mode": "zeros",
    "approximate": "none",
    "activation": "relu",
    "act": "relu",
}
PLAIN: Mapping[str, Json] = {
    "float": 0.5,
    "int": 2,
    "bool": False,
    "word": "mean",
    "ints": [2, 2],
    "object": None,
}
DRAWS: Mapping[str, tuple[DrawKind, Json]] = {
    "index": ("integers", [0, 2]),
    "mask": ("kind", "mask"),
    "lower_triangular": ("kind", "lower_triangular"),
    "spd": ("kind", "spd"),
    "positive": ("uniform", [0.5, 1.5]),
    "fraction": ("uniform", [0.1, 0.9]),
    "tensor": ("normal", (0.0, 1.0)),
}
"""Kind → how it is drawn. Indices are 0 and 1, which are in every dimension."""


def layouts(wanted: Sequence[Wanted], rank: int | None = None) -> Iterator[Assignment]:
    """The likely values of all arguments, for one shape of the first tensor (of this rank) after
    the other."""
    first = next((each for each in wanted if each.kind in TENSORS - {"index", "mask"}), None)
    known = len(first.dims) if first is not None and first.dims and rank is None else rank
    for base in [base for base in BASES if known in (None, len(base))] or [(2,) * (known or 0)]:
        as_said = first is not None and len(first.dims or ()) == len(base)
        sizes = (
            dict(zip(first.dims or (), base, strict=True)) if first is not None and as_said else {}
        )
        for name in (name for each in wanted for name in each.dims or ()):
            if name.isdigit() and int(name) <= LARGEST:
                sizes[name] = int(name)
            sizes.setdefault(name, (4, 3, 5, 2)[len(sizes) % 4])
        given = {each.name: choices(each, base, sizes) for each in wanted}
        if first is not None and not (first.dims and as_said):
            given[first.name] = [make(first, first.kind, base)]
        likely = {name: recipes[0] for name, recipes in given.items() if recipes}
        yield likely
        yield {
            each.name: likely[each.name]
            for each in wanted
            if each.name in likely and each.default is UNSAID
        }


def choices(wanted: Wanted, base: Shape, sizes: Mapping[str, int]) -> list[InputRecipe]:
    """Values of one argument, the likeliest first; none where it keeps its default."""
    if wanted.kind in TENSORS:
        if wanted.dims is not None and sizes:
            return [make(wanted, wanted.kind, tuple(sizes[name] for name in wanted.dims))]
        return [
            make(wanted, wanted.kind, shape) for shape in beside(wanted.name, wanted.kind, base)
        ]
    if wanted.default is not UNSAID:
        return []
    if (
        wanted.init
        and wanted.kind == "int"
        and not re.search("head|group|layer|kernel", wanted.name)
    ):
        return [
            InputRecipe(wanted.name, value=value)
            for value in dict.fromkeys([*base[-1:], *base[1:2], 4])
        ]
    return [InputRecipe(wanted.name, value=value) for value in wanted.words] or [
        make(wanted, wanted.kind, base)
    ]


def beside(name: str, kind: str, base: Shape) -> Iterator[Shape]:
    """Shapes of a tensor of this name and kind, where the first tensor has the shape `base`."""
    text = (
        INDICES
        if kind == "index"
        else next(text for pattern, text in SHAPES if re.search(pattern, name))
    )
    for each in text.split("|"):
        sizes = [int(size) for size in each.split() if size.lstrip("-").isdigit()]
        if each == "*":
            yield base
        elif each == "conv" and len(base) > 3:
            yield 4, base[1], *(3 for _ in base[2:])
        elif each == "column" and len(base) > 1:
            yield base[0], 1, *base[2:]
        elif each not in ("conv", "column") and all(
            size == 4 or -len(base) <= size < len(base) for size in sizes
        ):
            yield tuple(size if size == 4 else base[size] for size in sizes)


def make(wanted: Wanted, kind: str, shape: Shape) -> InputRecipe:
    if kind in PLAIN:
        return InputRecipe(wanted.name, value=NUMBERS.get(wanted.name, PLAIN[kind]))
    if kind == "tensors":
        return InputRecipe(wanted.name, tensors=(TensorRecipe(shape),) * 2)
    if kind in ("spd", "lower_triangular") and shape[-1:] != shape[-2:-1]:
        shape = (*shape[:-2], 4, 4)
    draw, arguments = DRAWS[kind]
    return InputRecipe(wanted.name, TensorRecipe(shape, draw, arguments, symmetric=kind == "spd"))


def shape_of(recipe: InputRecipe) -> Shape | None:
    """Of a tensor, or of the first of a list; None of a plain value."""
    return next((each.shape for each in recipe.recipes if each.shape is not None), None)


# ---- what a refusal says
WANTS = (
    ("index", WANTS_WHOLE.pattern + "|int64|integer tensor"),
    ("mask", WANTS_MASK.pattern),
    (
        "tensor",
        r"'(?:float|int|bool|NoneType|str)' object (?:has no attribute|is not "
        r"(?:iterable|subscriptable))|must be Tensor|unsupported operand"
        r"|not (?:float|int|NoneType|bool|str)\b|only save variables",
    ),
    (
        "int",
        r"interpreted as an integer|converted to an index|must be int\b|single element can be "
        r"converted",
    ),
    ("bool", r"Boolean value of Tensor|must be bool"),
    ("word", r"must be str|unhashable"),
    ("tensors", r"must be (a |an )?(tuple|list|sequence)"),
    ("spd", r"square|positive.definite|symmetric"),
    ("positive", r"not finite|negative|positive|domain|greater than|nonzero"),
    ("fraction", r"between 0|\[0, 1\]"),
)
"""The kind that one of the arguments should be of → how torch and others say so."""
RANK = re.compile(
    r"or (\d)-?D|(\d)-?D|(\d)-dim|(\d) dimension|expected (\d)(?:,|\))|got (\d)\)|(a matri)"
)
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def otherwise(
    assignment: Assignment, wanted: Sequence[Wanted], error: str, frame: Frame | None
) -> Iterator[Assignment]:
    """What the error suggests: another kind of an argument, another number of dimensions, another
    size; or else another of its likely values. Those first that the failing line names."""
    called = [each for each in wanted if not each.init]
    place = re.search(
        r"(?:invalid gradient at index|gradient different than None at position) (\d+)(?: - got "
        r"\[([\d, ]*)\])?",
        error,
    )
    named = [
        each
        for each in called
        if frame is not None and re.search(rf"(?<![\w.]){re.escape(each.name)}(?!\w)", frame.text)
    ]
    if place is not None:
        named = [called[int(place[1]) - (place[2] is None)]]
    suspects = [*named, *(each for each in called if each not in named)] if place is None else named
    shapes = {
        each.name: shape
        for each in called
        if each.name in assignment and (shape := shape_of(assignment[each.name])) is not None
    }
    base = next(iter(shapes.values()), (2, 3))

    def given(each: Wanted, kind: str, shape: Shape) -> Assignment:
        return {**assignment, each.name: make(each, kind, shape)}

    if place is not None and place[2] is not None:
        yield given(named[0], named[0].kind, tuple(map(int, NUMBER.findall(place[2]))))
    kind = (
        "tensor"
        if place is not None
        else next((kind for kind, pattern in WANTS if re.search(pattern, error)), "")
    )
    for each in suspects if kind else ():
        own = shapes.get(each.name)
        if kind == "tensor" and own is None:
            yield from (
                given(each, "positive", shape) for shape in (*beside(each.name, kind, base), ())
            )
        elif (
            kind in DRAWS
            and kind != "tensor"
            and own is not None
            and assignment[each.name] == make(each, each.kind, own)
        ):
            yield from (
                given(each, kind, shape)
                for shape in (beside(each.name, kind, base) if kind == "index" else [own])
            )
        elif kind in (*PLAIN, "tensors") and own is not None:
            yield given(each, kind, own)
    ranks = next((next(filter(None, found)) for found in RANK.findall(error)), None)
    if ranks is not None:
        rank = int(ranks) + ("out of range" in error) if ranks.isdigit() else 2
        yield from list(layouts(wanted, rank))[:2]
        yield from (
            given(each, each.kind, (*shapes[each.name], 4, 4, 4)[:rank])
            for each in suspects
            if len(shapes.get(each.name, ())) not in (0, rank)
        )
    numbers = list(
        dict.fromkeys(int(number) for number in NUMBER.findall(error) if 1 < int(number) < 9)
    )
    for each in (
        reversed([each for each in suspects if each.name in shapes]) if len(numbers) > 1 else ()
    ):
        shape = shapes[each.name]
        yield from (
            {
                **assignment,
                each.name: _reshaped(assignment[each.name], (*shape[:at], other, *shape[at + 1 :])),
            }
            for at, size in enumerate(shape)
            for other in numbers
            if size in numbers and other != size
        )
    for each in named:
        yield from (
            {**assignment, each.name: recipe}
            for recipe in choices(each, base, {})
            if each.name in assignment
        )


def _reshaped(recipe: InputRecipe, shape: Shape) -> InputRecipe:
    """The same draw in another shape."""
    return replace(
        recipe,
        tensor=recipe.tensor and replace(recipe.tensor, shape=shape),
        tensors=tuple(replace(each, shape=shape) for each in recipe.tensors),
    )
