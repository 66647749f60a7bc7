"""The arguments that a target wants: what its signature, its docstring, its comments and their names say of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gradverify.subject.find import returning
from gradverify.subject.lines import source_of
from gradverify.subject.target import Target, operator_parameters
from gradverify.torch_private import OverloadPacket, python_behind, schema

UNSAID = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Wanted:
    """One argument. `kind`: the likeliest, a name of ANNOTATED, DRAWN or PLAIN; `default` UNSAID where it must be given; `init`: of a module's
    constructor; `dims`: names or sizes of its dimensions, where something says them; `words`: what it is compared with."""

    name: str
    kind: str = "tensor"
    default: Any = UNSAID
    keyword: bool = False
    init: bool = False
    dims: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def wanted(found: Target, build: type[torch.nn.Module] | None) -> list[Wanted]:
    """In the order of the signature, two of `*arguments`; first what the module class `build` has to be built with."""
    subject: Any = found.subject
    parameters: Sequence[inspect.Parameter] = found.parameters or ()
    if found.kind == "operator":  # the first of its overloads that returns its result
        overload = getattr(subject, returning(subject)[0]) if isinstance(subject, OverloadPacket) else subject
        types = {each.name: str(each.type).replace("number", "float") for each in schema(overload).arguments}
        parameters = [each.replace(annotation=types[each.name]) for each in operator_parameters(overload) or ()]
    parts = [getattr(subject, name) for name in ("forward", "setup_context") if hasattr(subject, name)] or [python_behind(subject)]
    sources = [source for source in map(source_of, parts) if source is not None]
    texts = [inspect.getdoc(each) or "" for each in (subject, *parts)]
    texts += [line.partition("#")[2] for each in sources for line in each.lines]
    needed = [each for each in parameters_of(build) if each.default is UNSAID and each.kind is not each.VAR_POSITIONAL] if build else []
    said, code = "\n".join(texts), "\n".join(line for each in sources for line in each.lines)
    several = [_wanted(each, "", "", init=True) for each in needed] + [_wanted(each, said, code) for each in parameters]
    return [each for some in several for each in some]


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
UNPACKED = r"(\w+(?:, *\w+)+) = {0}\.(?:shape|size\(\))(?!\[)|{0}\.(?:shape|size\(\)) [!=]= \((\w+(?:, *\w+)+)\)"
COMPARED = r"(?<![\w.]){0} (?:[!=]=|(?:not )?in) ((?:[(\[{{]? *[\"']\w*[\"'],? *)+)"
NO_SIZE = re.compile(
    r"(?i)^(optional|.*tensor|int|float|bool|str|torch|default|or|list|tuple|none|e|i|a|self|ctx)$"
)


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
            "lengths seqlens? perm argmax assignments? "
            "edges? neighbou?rs edge_index"
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
            "affine normalized reverse transposed? upper flag largest "
            "sorted deterministic",
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
            "temp tau t scale scaling factor coeffs? momentum p prob "
            "dropout dropout_p rate lr threshold thresh margin power exponent min max low "
            "high lower upper bound clip value weight_decay sigma "
            "std width sharpness strength smoothing eta tol constant const softcap logit_scale "
            "sm_scale",
            behind="$",
        )
        + "|"
        + _word("eps scale factor alpha value prob rate", "_", "$"),
    ),
)
TENSORS = frozenset({"tensor", "tensors", *(kind for kind, _ in DRAWN)})


def _wanted(parameter: inspect.Parameter, comments: str, code: str, init: bool = False) -> list[Wanted]:
    name, default = parameter.name, parameter.default
    if parameter.kind is parameter.VAR_KEYWORD:
        return []
    text = "" if parameter.annotation is UNSAID else inspect.formatannotation(parameter.annotation)
    said = " ".join([*re.findall(COMPARED.format(re.escape(name)), code), text if "Literal" in text else ""])
    commented = re.findall(rf"(?<!\w){re.escape(name)}(?!\w){SIZES}", comments) + re.findall(r'\[\w*Tensor, ?["\']([\w ]+)["\']\]', text)
    commented += map("".join, re.findall(UNPACKED.format(re.escape(name)), code))
    dims = [tuple(f"_{n}" if size == "_" else size for n, size in enumerate(re.split(r"\s*[,x]\s*|\s+", each))) for each in commented]
    dims = [sizes for sizes in dims if not any(map(NO_SIZE.match, sizes))]
    words = re.findall(r"[\"'](\w*)[\"']", said)

    def first(table: Sequence[tuple[str, str]], text: str) -> str | None:
        return next((kind for kind, pattern in table if re.search(pattern, text)), None)

    annotated, drawn = first(ANNOTATED, re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)), first(DRAWN, name.lower())
    if annotated is None and default is not None and default is not UNSAID:
        annotated = {bool: "bool", int: "int", float: "float", str: "word"}.get(type(default), "ints")
    kind = annotated or ("tensor" if dims else "word" if words else None) or first(PLAIN, name.lower()) or drawn or ("int" if init else "tensor")
    kind = drawn or kind if kind == "tensor" else kind
    if parameter.kind is parameter.VAR_POSITIONAL:
        return [Wanted(f"{name}{place}", kind) for place in range(2)]
    keyword = parameter.kind is parameter.KEYWORD_ONLY
    return [Wanted(name, kind, default, keyword, init, dims[0] if dims else (), tuple(dict.fromkeys(words)))]
