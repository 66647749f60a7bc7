"""The arguments that a target wants: what its signature, its source, its comments and their names
say of each."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.find import returning
from gradverify.subject.lines import source_of
from gradverify.subject.target import Target, operator_parameters
from gradverify.torch_private import OverloadPacket, python_behind, schema

UNSAID = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Wanted:
    """One argument. `kind`: the likeliest, see NAMED; `default` UNSAID where it must be given;
    `init`: of a module's constructor; `dims`: names or sizes of its dimensions, where something
    says them; `words`: what it is compared with."""

    name: str
    kind: str = "tensor"
    annotation: str = ""
    default: Any = UNSAID
    keyword: bool = False
    init: bool = False
    dims: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()


def wanted(found: Target, build: type[torch.nn.Module] | None) -> list[Wanted]:
    """In the order of the signature, two of `*arguments`; first what the module class `build` has
    to be built with. None where nothing says what the target takes."""
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
    ]
    parts = parts or [python_behind(subject)]
    sources = [source for source in map(source_of, parts) if source is not None]
    texts = [inspect.getdoc(each) or "" for each in (subject, *parts)]
    texts += [line.partition("#")[2] for each in sources for line in each.lines]
    said = [each for source in sources for node in ast.walk(source.tree) for each in _said(node)]
    given = [
        _wanted(each, said, "\n".join(texts))
        for each in parameters
        if each.kind is not each.VAR_KEYWORD
    ]
    needed = parameters_of(build) if build else ()
    to_build = [
        _wanted(each, [], "", init=True)
        for each in needed
        if each.default is UNSAID and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return [each for several in (*to_build, *given) for each in several]


def parameters_of(function: Any) -> tuple[inspect.Parameter, ...]:
    """None at all where they cannot be read."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()


# ---- what source and comments say
SIZE = r"(?:[A-Za-z]\w{0,14}|\d+|\.\.\.)"
SIZES = (
    r"(?:\W{0,4}(?:\([\w. ]*\))?[^\n()\[\]]{0,50}\bshape\W{1,3}|\W{0,4})"
    rf"[(\[]\s*({SIZE}(?:\s*[,x]\s*{SIZE})*)\s*,?\s*[)\]]"
)
NO_SIZE = re.compile(
    r"(?i)^(optional|.*tensor|int|float|bool|str|torch|default|or|list|tuple|none|e|i|a|self|ctx)$"
)


def _said(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...] | None, list[str]]]:
    """(argument, a name or size for each of its dimensions, what it is compared with); a tensor,
    where there is neither."""
    match node:
        case ast.Assign([ast.Tuple(parts)], value) | ast.Compare(
            value, [ast.Eq() | ast.NotEq()], [ast.Tuple(parts)]
        ) if name := _shape_of(value):
            starred = any(isinstance(part, ast.Starred) for part in parts)
            yield name, None if starred else _dims(parts), []
        case ast.Compare(
            ast.Attribute(ast.Name(name), "ndim") | ast.Call(ast.Attribute(ast.Name(name), "dim")),
            [_],
            [ast.Constant(int(rank))],
        ):
            yield name, _dims([None] * rank), []
        case ast.Compare(ast.Name(name), [_], [right]):
            words = [
                each.value
                for each in (
                    right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
                )
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            yield from [(name, None, words)] if words else []
        case ast.Attribute(ast.Name(name), attribute) if hasattr(Tensor, attribute):
            yield name, None, []
        case ast.Call(ast.Attribute(_, "save_for_backward"), saved):
            yield from ((each.id, None, []) for each in saved if isinstance(each, ast.Name))


def _dims(parts: Sequence[ast.AST | None]) -> tuple[str, ...]:
    """A name or a number for each."""
    named = [isinstance(each, ast.Constant | ast.Name) and ast.unparse(each) for each in parts]
    return tuple(text if text and text != "_" else f"_{at}" for at, text in enumerate(named))


def _shape_of(node: ast.AST) -> str | None:
    """The name whose `.shape` or `.size()` it is."""
    match node:
        case ast.Attribute(ast.Name(name), "shape") | ast.Call(
            ast.Attribute(ast.Name(name), "size"), []
        ):
            return name
    return None


# ---- what an argument is
def _word(text: str, before: str = r"(^|_)", behind: str = r"(_|\d|$)") -> str:
    """Any of these words (separated by blanks) as a part of a name."""
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
PLAIN = (
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
            r"upscale_factor downscale_factor padding_idx ignore_index",
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
    parameter: inspect.Parameter,
    said: Sequence[tuple[str, tuple[str, ...] | None, list[str]]],
    comments: str,
    init: bool = False,
) -> list[Wanted]:
    name, default = parameter.name, parameter.default
    plain = isinstance(parameter.annotation, type) and not hasattr(parameter.annotation, "__args__")
    text = (
        ""
        if parameter.annotation is UNSAID
        else parameter.annotation.__name__
        if plain
        else str(parameter.annotation)
    )
    own = [(dims, words) for of, dims, words in said if of == name]
    words = [
        *(re.findall(r"'([^']*)'", text) if "Literal" in text else []),
        *(word for _, words in own for word in words),
    ]
    commented = re.findall(rf"(?<!\w){re.escape(name)}(?!\w){SIZES}", comments) + re.findall(
        r'\[\w*Tensor, ?["\']([\w ]+)["\']\]', text
    )
    dims = [
        sizes
        for each in commented
        if not any(map(NO_SIZE.match, sizes := tuple(re.split(r"\s*[,x]\s*|\s+", each))))
    ]
    dims += [each for each, _ in own if each is not None]
    annotated = next(
        (
            kind
            for kind, pattern in ANNOTATED
            if re.search(pattern, re.sub(r"\b(?:\w+\.)+(?=\w)", "", text))
        ),
        None,
    )
    drawn, named = (
        next((kind for kind, pattern in table if re.search(pattern, name.lower())), None)
        for table in (DRAWN, PLAIN)
    )
    if annotated is None and default is not None and default is not UNSAID:
        annotated = {bool: "bool", int: "int", float: "float", str: "word"}.get(
            type(default), "ints"
        )
    if annotated is None and (dims or any(not words for _, words in own)):
        annotated = "tensor"
    kind = (
        annotated or ("word" if words else None) or named or drawn or ("int" if init else "tensor")
    )
    if kind == "tensor":
        kind = drawn or kind
    keyword, variadic = (
        parameter.kind is each for each in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
    )
    found = Wanted(
        name,
        kind,
        text,
        default,
        keyword,
        init,
        dims[0] if dims else None,
        tuple(dict.fromkeys(words)),
    )
    return [Wanted(f"{name}{place}", kind, text) for place in range(2)] if variadic else [found]
