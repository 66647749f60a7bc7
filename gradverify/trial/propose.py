"""Find inputs that a function runs with, in few calls in this process: the work of a worker of
`gradverify init`."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradverify.model.case import (
    Case,
    DrawKind,
    InputRecipe,
    Json,
    Settings,
    SpecPlace,
    TensorRecipe,
)
from gradverify.model.fault import FAILED, fault_of
from gradverify.model.interrupt import is_interrupt
from gradverify.model.proposal import Proposal, Sought
from gradverify.model.result import Frame
from gradverify.source.modules import shown
from gradverify.spec.names import own_name
from gradverify.subject.failure import (
    ON_CUDA,
    SINGLE_ONLY,
    TOO_LATE,
    WANTS_MASK,
    WANTS_WHOLE,
    UserCodeError,
    attempted,
    describe,
    is_users,
)
from gradverify.subject.find import importable, returning
from gradverify.subject.lines import source_of
from gradverify.subject.machine import cuda_devices, undisturbed
from gradverify.subject.target import Target, live, named, operator_parameters
from gradverify.torch_private import OverloadPacket, python_behind, schema
from gradverify.trial.call import Level, Outcome, called
from gradverify.trial.recorded import replayed

MISSING = inspect.Parameter.empty


class Wanted(NamedTuple):
    """One argument that the target takes. `kind`: the likeliest one, see ANNOTATED, DRAWN and
    BY_NAME; `default`: MISSING where the argument is required; `init`: whether it is one of a
    module's constructor; `dims`: names or sizes of its dimensions, where source or comments give
    them; `words`: strings that the source compares it with."""

    name: str
    kind: str = "tensor"
    default: Any = MISSING
    keyword: bool = False
    init: bool = False
    dims: tuple[str, ...] | None = None
    words: tuple[str | int, ...] = ()


def wanted(found: Target, build: type[torch.nn.Module] | None) -> list[Wanted]:
    """Return the arguments in the order of the signature, with two for `*arguments`; first those
    that the constructor of the module class `build` requires. Empty where the signature is not
    known."""
    subject: Any = found.subject
    parameters: Sequence[inspect.Parameter] = found.parameters or ()
    if found.kind == "operator":  # the first of its overloads that returns its result
        overload = (
            getattr(subject, returning(subject)[0])
            if isinstance(subject, OverloadPacket)
            else subject
        )
        types = {
            each.name: str(each.type).replace("number", "float")
            for each in schema(overload).arguments
        }
        parameters = [
            each.replace(annotation=types[each.name])
            for each in operator_parameters(overload) or ()
        ]
    parts = [
        getattr(subject, name) for name in ("forward", "setup_context") if hasattr(subject, name)
    ] or [python_behind(subject)]
    lines = [each for found in map(source_of, parts) if found is not None for each in found.lines]
    notes = [inspect.getdoc(each) or "" for each in (subject, *parts)]
    notes += [line.partition("#")[2] for line in lines]
    to_build = [
        each
        for each in (parameters_of(build) if build else ())
        if each.default is MISSING and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    given = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    return [
        *(one for each in to_build for one in _wanted(each, init=True)),
        *(one for each in given for one in _wanted(each, "\n".join(notes), "\n".join(lines))),
    ]


def parameters_of(function: Any) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a function, empty where they cannot be read."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()


# ---- what source and comments show
SIZE = r"(?:[A-Za-z_]\w{0,14}|\d+|\.\.\.)"
SIZES = rf"({SIZE}(?:\s*[,x]\s*{SIZE})*)\s*,?\s*"
NOTED = (
    r"(?<!\w)NAME(?!\w)(?:, \w+)*(?:\W{0,4}(?:\([\w. ]*\))?[^\n()\[\]]{0,50}\bshape\W{1,3}|\W{0,4})"
    rf"[(\[]\s*{SIZES}[)\]]"
)
"""Pattern of the sizes of an argument NAME in comments; in code those that follow."""
MATCHED = rf"(?<!\w)NAME\.(?:shape|size\(\)) [!=]= \({SIZES}\)"
UNPACKED = rf"(?m)^\s*{SIZES}= NAME\.(?:shape|size\(\))\s*$"
RANKED = r"(?<!\w)NAME\.(?:ndim|dim\(\)) \S+ (\d)(?!\d)"
COMPARED = r"(?<!\w)NAME (?:[!=]=|(?:not )?in) ([(\[{]?(?:['\"]\w+['\"](?:, )?)+)"
SAVED = r"save_for_backward\([^()]*(?<!\w)NAME(?!\w)"
NO_SIZE = re.compile(
    r"(?i)^(optional|.*tensor|int|float|bool|str|torch|default|or|list|tuple|none|e|i|a|self|ctx)$"
)


# ---- the kind of an argument
def _word(text: str, before: str = r"(^|_)", behind: str = r"(_|\d|$)") -> str:
    """Return a pattern for any of these words (separated by blanks) as a part of a name."""
    return f"{before}({'|'.join(text.split())}){behind}"


ANNOTATED = (
    ("object", r"Callable|Generator|^(\w+)?(dtype|device|Module|ProcessGroup|Group)$"),
    ("tensors", r"(?i)(list|sequence|iterable|tuple)\[.*tensor"),
    ("tensor", "Tensor"),
    ("word", r"Literal|\bstr\b"),
    ("ints", r"(?i)(list|sequence|tuple|size)\[?.*int|\bSize\b"),
    ("bool", r"\bbool\b"),
    ("int", r"\b(Sym)?[iI]nt\b"),
    ("float", r"\b([fF]loat|Scalar|Number)\b"),
)
DRAWN = (
    ("mask", _word("mask masks masked")),
    ("lower_triangular", _word(r"chol\w* tril lower")),
    ("spd", _word(r"covar\w* cov precision gram spd psd hessian")),
    (
        "index",
        _word(
            "index indices indexes idx ids? inds? classes tokens? segments? positions offsets "
            "lengths seqlens? perm argmax assignments? edges? neighbou?rs edge_index"
        ),
    ),
    (
        "positive",
        _word(
            r"p probs? probabilit.* var variance sigma std rstd inv_?std scale temperature tau",
            r"(^|\w_)",
            "$",
        ),
    ),
)
BY_NAME = (
    (
        "word",
        _word(
            "mode reduction reduce method type kind activation act norm_type padding_mode layout "
            "name fn_name approximate format",
            behind="$",
        ),
    ),
    (
        "bool",
        _word("is use has with return do should need ensure keep enable add no", "^", "_")
        + "|"
        + _word(
            "causal training train inplace keepdims? bidirectional align_corners interleaved "
            "affine normalized reverse transposed? upper flag largest sorted deterministic",
            behind="$",
        ),
    ),
    (
        "int",
        _word(
            r"dims? axis ndim num size stride padding pad dilation groups? heads? kernel_size k n "
            r"steps? iters? iterations? window block chunk channels? "
            r"features? hidden length seq_len depth order degree rank n_\w+ num_\w+ \w+_size "
            r"\w+_dim bits? rows cols level d_model "
            r"upscale_factor downscale_factor padding_idx \w*ignored?_(index|idx|id|label|class) "
            r"qmin qmax quant_min quant_max",
            behind="$",
        )
        + "|^(n|num|max_n|nb)_",
    ),
    (
        "float",
        _word(
            "eps epsilon alpha beta gamma lam lambd lambda_? slope negative_slope temperature "
            "temp tau t scale scaling factor coeffs? momentum p prob dropout dropout_p rate lr "
            "threshold thresh margin delta power exponent min max low high lower upper bound clip "
            "value weight_decay sigma std width sharpness strength smoothing eta tol constant "
            "const softcap logit_scale sm_scale",
            behind="$",
        )
        + "|"
        + _word("eps scale factor alpha value prob rate", "_", "$"),
    ),
)
TENSORS = frozenset({"tensor", "tensors", *(kind for kind, _ in DRAWN)})


def _wanted(
    parameter: inspect.Parameter, notes: str = "", code: str = "", init: bool = False
) -> list[Wanted]:
    """Return the argument, twice for `*arguments`, as its annotation, its default, its name, the
    `notes` (docstrings and comments) and the `code` of the function show it."""
    name, default, annotation = parameter.name, parameter.default, parameter.annotation
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    hint = "" if annotation is MISSING else annotation.__name__ if plain else str(annotation)

    def shown(pattern: str, text: str = code) -> list[str]:
        return re.findall(pattern.replace("NAME", re.escape(name)), text)

    words = re.findall(r"'([^']*)'", hint) if "Literal" in hint else []
    words += [word for each in shown(COMPARED) for word in re.findall(r"\w+", each)]
    sizes = [*re.findall(r'\[\w*Tensor, ?["\']([\w ]+)["\']\]', hint), *shown(NOTED, notes)]
    sizes += [*shown(UNPACKED), *shown(MATCHED)]
    sizes += [" ".join("_" * int(rank)) for rank in shown(RANKED)]
    dims = [
        tuple(f"_{at}" if size == "_" else size for at, size in enumerate(parts))
        for each in sizes
        if not any(map(NO_SIZE.match, parts := re.split(r"\s*[,x]\s*|\s+", each.strip())))
    ]
    saved = bool(dims or shown(SAVED))
    annotated = _kind_in(ANNOTATED, re.sub(r"\b(?:\w+\.)+(?=\w)", "", hint))
    drawn, named = (_kind_in(table, name.lower()) for table in (DRAWN, BY_NAME))
    if annotated is None and default is not None and default is not MISSING:
        annotated = {bool: "bool", int: "int", float: "float", str: "word"}.get(
            type(default), "ints"
        )
    if annotated is None and saved:
        annotated = "tensor"
    kind = (
        annotated or ("word" if words else None) or named or drawn or ("int" if init else "tensor")
    )
    if kind == "tensor":
        kind = drawn or kind
    if parameter.kind is parameter.VAR_POSITIONAL:
        return [Wanted(f"{name}{place}", kind) for place in range(2)]
    keyword, size = parameter.kind is parameter.KEYWORD_ONLY, dims[0] if dims else None
    return [Wanted(name, kind, default, keyword, init, size, tuple(dict.fromkeys(words)))]


def _kind_in(table: Sequence[tuple[str, str]], text: str) -> str | None:
    """Return the first kind whose pattern occurs in the text; None where none does."""
    return next((kind for kind, pattern in table if re.search(pattern, text)), None)


Shape = tuple[int, ...]
Assignment = Mapping[str, InputRecipe]
"""Argument → its value; an argument that is not in the mapping keeps its default."""

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
"""Shapes of the first tensor, small, so that every element is compared. Those with different sizes
come first, so that no two dimensions can be mixed up."""
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
"""Pattern of names → shapes of a tensor next to a first one, the likeliest first: `*` is the first
tensor's shape, `-1` the size of its last dimension, `4` that size."""
INDICES = "0|column|*"
IGNORED = re.compile(r"(^|_)ignored?_(index|idx|id|label|class)$")
"""Names of the number whose places among the integers of a tensor are left out."""
LARGEST = 16  # size that is taken over from a comment
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
    "qmin": -8,
    "qmax": 7,
    "quant_min": -8,
    "quant_max": 7,
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
"""Kind → how it is drawn. Indices are 0 and 1, which are valid in every dimension."""


def layouts(wanted: Sequence[Wanted], rank: int | None = None) -> Iterator[Assignment]:
    """Yield likely values of all arguments, for one shape of the first tensor (of this rank) after
    the other."""
    first = next((each for each in wanted if each.kind in TENSORS - {"index", "mask"}), None)
    known = len(first.dims) if first is not None and first.dims and rank is None else rank
    for base in [base for base in BASES if known in (None, len(base))] or [(2,) * (known or 0)]:
        dims = (first and first.dims) or ()
        as_found = first is not None and len(dims) == len(base)
        sizes = dict(zip(dims, base, strict=True)) if as_found else {}
        for name in (name for each in wanted for name in each.dims or ()):
            if name.isdigit() and int(name) <= LARGEST:
                sizes[name] = int(name)
            sizes.setdefault(name, (4, 3, 5, 2)[len(sizes) % 4])
        given = {each.name: choices(each, base, sizes) for each in wanted}
        if first is not None and not (dims and as_found):
            given[first.name] = [make(first, first.kind, base)]
        likely = {name: recipes[0] for name, recipes in given.items() if recipes}
        yield likely
        yield {
            each.name: likely[each.name]
            for each in wanted
            if each.name in likely and each.default is MISSING
        }


def choices(wanted: Wanted, base: Shape, sizes: Mapping[str, int]) -> list[InputRecipe]:
    """Return values of one argument, the likeliest first; empty where it keeps its default."""
    if wanted.kind in TENSORS:
        if wanted.dims is not None and sizes:
            return [make(wanted, wanted.kind, tuple(sizes[name] for name in wanted.dims))]
        return [
            make(wanted, wanted.kind, shape) for shape in shapes_for(wanted.name, wanted.kind, base)
        ]
    if wanted.default is not MISSING:
        return []
    name, values = wanted.name, wanted.words
    if wanted.init and wanted.kind == "int" and not re.search("head|group|layer|kernel", name):
        values = tuple(dict.fromkeys([*base[-1:], *base[1:2], 4]))
    return [InputRecipe(name, value=value) for value in values] or [make(wanted, wanted.kind, base)]


def shapes_for(name: str, kind: str, base: Shape) -> Iterator[Shape]:
    """Yield shapes of a tensor of this name and kind, where the first tensor has the shape
    `base`."""
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
    """Return the shape of a tensor, or of the first of a list; None for a plain value."""
    return next((each.shape for each in recipe.recipes if each.shape is not None), None)


# ---- what an error suggests
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
"""The kind that one of the arguments should be of, and the pattern of errors that suggest it."""
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def otherwise(
    assignment: Assignment, wanted: Sequence[Wanted], error: str, frame: Frame | None
) -> Iterator[Assignment]:
    """Yield what the error suggests: another kind of an argument, another number of dimensions,
    another size; or else another of its likely values. Arguments that the failing line names come
    first."""
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
    kind = (_kind_in(WANTS, error) or "") if place is None else "tensor"
    for each in suspects if kind else ():
        own = shapes.get(each.name)
        if kind == "tensor" and own is None:
            yield from (
                given(each, "positive", shape) for shape in (*shapes_for(each.name, kind, base), ())
            )
        elif (
            kind in DRAWS
            and kind != "tensor"
            and own is not None
            and assignment[each.name] == make(each, each.kind, own)
        ):
            yield from (
                given(each, kind, shape)
                for shape in (shapes_for(each.name, kind, base) if kind == "index" else [own])
            )
        elif kind in (*PLAIN, "tensors") and own is not None:
            yield given(each, kind, own)
    if rank := re.search(r"(\d)-?D", error):
        yield from (
            given(each, each.kind, (*shapes[each.name], 4, 4, 4)[: int(rank[1])])
            for each in suspects
            if each.name in shapes
        )
    for each in named:
        yield from (
            {**assignment, each.name: recipe}
            for recipe in choices(each, base, {})
            if each.name in assignment
        )


MOST, SPARED = 40, 10  # calls of one function; those among them reserved for `_refined`
MOST_CASES = 8  # combinations of one matrix
OBJECT = re.compile(
    r"object is not callable|'(?:Tensor|float|int|bool|str|list|NoneType)' object has no "
    r"attribute '(\w+)'"
)
BY_HAND = (
    "which a spec cannot write: name a function of tensors around it, or one that makes the inputs "
    "(`inputs_from`)"
)


def propose(sought: Sought, loaded: Callable[[], None] = lambda: None) -> Proposal:
    """Return a proposal, or why there is none, whatever the user's code raises; only an interrupt
    is raised again. `loaded` is called once the target is imported."""

    def searched() -> Proposal:
        with importable(sought.search):
            found = named(sought.target, "function")
            loaded()
            if sought.call is not None:
                return replayed(sought, live(sought.target, found, None, torch.float64))
            return Search(sought, found).proposal()

    with undisturbed():
        try:
            found = attempted(searched)
        except BaseException as error:
            if is_interrupt(error):
                raise
            if is_users(error):
                return Proposal(sought.target, missing=f"trying it raised {describe(error)}")
            fault = fault_of(error, "trying calls")
            return Proposal(
                sought.target, missing=f"{FAILED} in {fault.during} ({fault.what})", fault=fault
            )
    if isinstance(found, UserCodeError):
        return Proposal(
            sought.target, missing=f"{found.message}{f'; {found.hint}' if found.hint else ''}"
        )
    return found


class Search:
    """A search for inputs by calls of one target. `best`: the call that came furthest so far."""

    def __init__(self, sought: Sought, found: Any) -> None:
        self.sought, self.calls = sought, dict[str, Outcome]()
        self.dtype, self.device = "float64", "cpu"
        self.build = (
            found if inspect.isclass(found) and issubclass(found, torch.nn.Module) else None
        )
        if self.build is None:
            self.target = live(sought.target, found, None, torch.float64)
        else:
            parameters = parameters_of(found.forward)[1:]
            self.target = Target(sought.target, "module", found, found, parameters)
        self.wanted = wanted(self.target, self.build)
        self.best: tuple[Assignment, Outcome] = {}, Outcome(Level.NONE)

    def proposal(self) -> Proposal:
        """Return the check for the first call with a gradient; or the call that came furthest, with
        the reason why it failed."""
        self._find()
        outcome = self.best[1]
        if outcome.surrogate:
            return self._as_it_is(missing=outcome.surrogate, advised=True)
        if outcome.level >= Level.NO_BACKWARD:
            return self._refined()
        at = (
            f" ({shown(Path(outcome.frame.file), Path.cwd())}:{outcome.frame.line})"
            if outcome.frame
            else ""
        )
        used = OBJECT.search(outcome.error)
        if self._elsewhere(outcome) == "cuda":
            self.device = "cuda"
            at += (
                "; it runs on a GPU only, and torch finds none here: run `init` where there is one"
            )
        elif used and not any(
            used[1] and hasattr(kind, used[1]) for kind in (Tensor, list, str, float, int)
        ):
            at += f"; an argument seems to be a function, a module or another object, {BY_HAND}"
        return self._as_it_is(missing=f"{outcome.error or 'it takes no arguments'}{at}")

    def _find(self) -> None:
        """Try common layouts, and after each error what it suggests, until there is a gradient."""
        common, suggested = layouts(self.wanted), list[Assignment]()
        while len(self.calls) < MOST - SPARED:
            assignment = suggested.pop(0) if suggested else next(common, None)
            if assignment is None:
                break
            before, outcome = len(self.calls), self._run(assignment)
            elsewhere = self._elsewhere(outcome)
            if elsewhere == "float32" and self.dtype == "float64":
                self.dtype = elsewhere
                outcome = self._run(assignment)
            if elsewhere == "cuda" and self.device == "cpu" and cuda_devices():
                self.device = elsewhere
                outcome = self._run(assignment)
            further = outcome.reached > self.best[1].reached
            if further:
                self.best = assignment, outcome
            if outcome.level == Level.WHOLE or self._elsewhere(outcome):
                break
            if len(self.calls) > before and (
                further or not suggested or outcome.level == Level.NO_BACKWARD
            ):
                more = otherwise(assignment, self.wanted, outcome.error, outcome.frame)
                suggested = [*islice(more, 9 if further else 3), *suggested]

    def _elsewhere(self, outcome: Outcome) -> str | None:
        """Return what an error requires in place of float64 on the CPU: `float32` or `cuda`, else
        None."""
        if outcome.level > Level.RAISED:
            return None
        single = outcome.hint == SINGLE_ONLY or re.search(
            r"(?i)float32|fp32|single precision", outcome.error
        )
        return "cuda" if outcome.hint in (ON_CUDA, TOO_LATE) else "float32" if single else None

    def _ignoring(self) -> None:
        """Make a number that is to be ignored one of the integers of a tensor, next to others, in
        the best call, if it runs then."""
        ignored = next((each for each in self.wanted if IGNORED.search(each.name)), None)
        if ignored is None or ignored.kind != "int":
            return
        for each in self.wanted:
            recipe = self.best[0].get(each.name)
            if recipe is None or recipe.tensor is None or recipe.tensor.draw != "integers":
                continue
            shape = recipe.tensor.shape or ()
            numbers = (torch.arange(math.prod(shape)) % 2).reshape(shape)  # 0 and 1 in turn
            values = TensorRecipe(draw="values", arguments=numbers.tolist(), dtype="int64")
            given = {
                **self.best[0],
                each.name: InputRecipe(each.name, values),
                ignored.name: InputRecipe(ignored.name, value=1),
            }
            if numbers.numel() > 1 and len(self.calls) < MOST:
                outcome = self._run(given)
                if outcome.level == Level.WHOLE:
                    self.best = given, outcome
                    return

    def _refined(self) -> Proposal:
        """Return the proposal of the best call, with words and truth values varied, optional
        tensors left out, and tensors without a gradient marked."""
        if self.best[1].level == Level.WHOLE:
            self._ignoring()
        (assignment, outcome), varied, left_out = (
            self.best,
            dict[str, tuple[Json, ...]](),
            list[str](),
        )

        def runs(given: Assignment) -> bool:
            return (
                len(self.calls) < MOST and self._run({**assignment, **given}).level == Level.WHOLE
            )

        for each in self.wanted if outcome.level == Level.WHOLE else ():
            name, recipe = each.name, assignment.get(each.name)
            if each.default is None and each.kind in TENSORS and recipe is not None:
                left_out += [name] * runs({name: InputRecipe(name)})
            elif each.kind in ("word", "bool") and not each.init and name != "inplace":
                known = recipe.value if recipe is not None else each.default
                others = (not known,) if isinstance(known, bool) else each.words
                values = tuple(dict.fromkeys([known, *others]))
                together = {**varied, name: values}
                every = product(*together.values())
                if len(values) > 1 and math.prod(map(len, together.values())) <= MOST_CASES:
                    each_runs = (
                        runs(
                            {
                                key: InputRecipe(key, value=value)
                                for key, value in zip(together, given, strict=True)
                            }
                        )
                        for given in every
                    )
                    varied = together if all(each_runs) else varied
        found = dict(assignment)
        for name, values in varied.items():
            found[name] = InputRecipe(name, value=values[0])
        remarks = dict[str, str]()
        for name, recipe in found.items():
            if name in outcome.nothing and recipe.tensor is not None:
                found[name] = replace(recipe, tensor=replace(recipe.tensor, requires_grad=False))
                remarks[name] = "backward gave no gradient for it"
        self.best = found, outcome
        note = (
            None
            if outcome.level == Level.WHOLE
            else f"Not quite: {outcome.error}. Other inputs may do better."
        )
        return self._as_it_is(remarks=remarks, varied=varied, left_out=tuple(left_out), note=note)

    def _case(self, assignment: Assignment) -> Case:
        """Return the case of a spec with these inputs."""
        name, own = self.sought.target, own_name(self.sought.target)
        given = [(each, assignment[each.name]) for each in self.wanted if each.name in assignment]
        return Case(
            own,
            own,
            own,
            SpecPlace("", 0),
            name,
            tuple(recipe for each, recipe in given if not each.init and not each.keyword),
            init=None
            if self.build is None
            else {each.name: recipe.value for each, recipe in given if each.init},
            kwargs={
                each.name: recipe.value
                for each, recipe in given
                if each.keyword and not recipe.recipes
            },
            keywords=tuple(recipe for each, recipe in given if each.keyword and recipe.recipes),
            settings=Settings(dtype=self.dtype, device=self.device),
            search=self.sought.search,
        )

    def _as_it_is(self, **fields: Any) -> Proposal:
        case = self._case(self.best[0])
        keywords = (
            *case.keywords,
            *(InputRecipe(name, value=value) for name, value in case.kwargs.items()),
        )
        return Proposal(
            case.target,
            case.inputs,
            keywords,
            case.init,
            dtype=self.dtype,
            device=self.device,
            attempts=len(self.calls),
            **fields,
        )

    def _run(self, assignment: Assignment) -> Outcome:
        """Call the target with this assignment, unless that was done before."""
        key = (
            f"{self.dtype} {self.device} "
            f"{sorted((name, repr(recipe)) for name, recipe in assignment.items())}"
        )
        if key not in self.calls:
            self.calls[key] = called(self._case(assignment), self.target, self.build)
        return self.calls[key]
