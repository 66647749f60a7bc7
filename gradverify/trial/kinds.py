"""What an argument may be, the likeliest first: by annotation, default, the forward's code, and its name."""

from __future__ import annotations

import re
from typing import Any, Literal

from gradverify.trial.wanted import Wanted

Kind = Literal["default", "tensor", "index", "mask", "tensors", "float", "int", "bool", "word", "ints", "none", "unwritable"]


def _word(text: str, before: str = r"(^|_)", behind: str = r"(_|\d|$)") -> re.Pattern[str]:
    """Any of these words (separated by blanks) as a part of a name."""
    return re.compile(f"{before}({'|'.join(text.split())}){behind}")


GOAL = _word("labels? targets? tgt")
INDEX = _word("index indices indexes idx ids? inds? classes tokens? segments? positions offsets lengths seqlens? perm argmax assignments? edges? "
              "neighbou?rs batch edge_index")
MASK = _word("mask masks masked")
TRUTH = re.compile(_word("is use has with return do should need ensure keep enable add no", "^", "_").pattern + "|" + _word(
    "causal training train inplace keepdims? bidirectional align_corners interleaved affine normalized reverse transposed? upper flag largest sorted "
    "deterministic", behind="$").pattern)
COUNT = re.compile(_word(
    r"dims? axis ndim num size stride padding pad dilation groups? heads? kernel_size k n steps? iters? iterations? window block chunk channels? "
    r"features? hidden length seq_len depth width height order degree rank n_\w+ num_\w+ \w+_size \w+_dim bits? rows cols level offset d_model "
    r"padding_idx ignore_index", behind="$").pattern + "|^(n|num|max_n|nb)_")
NUMBER = re.compile(_word(
    "eps epsilon alpha beta gamma lam lambd lambda_? slope negative_slope temperature temp tau t scale scaling factor coeffs? momentum p prob "
    "dropout dropout_p rate lr threshold thresh margin delta power exponent min max low high lower upper bound clip value weight_decay sigma std "
    "width "
    "sharpness strength smoothing eta tol constant const softcap logit_scale sm_scale", behind="$").pattern + "|" + _word(
    "eps scale factor alpha value prob rate", "_", "$").pattern)
TENSOR = re.compile(_word(
    r"[a-z] inputs? input_ inputs_ output logits? weights? bias src data feat(ure)?s? grad\w* query key value cos sin embeddings? images? "
    r"hidden_states? states? memory mem mat matrix theta points? values? kernel filters? residual gate up params?", "^", r"\d*$").pattern
    + "|_(weight|bias|tensor|states?|input|logits|proj|emb)$|tensor")
WORD = _word("mode reduction reduce method type kind activation act norm_type padding_mode layout name fn_name approximate format", behind="$")


def kinds(wanted: Wanted) -> list[Kind]:
    """At least one, without repeats."""
    found = [*_by_annotation(wanted), *_by_default(wanted)] or [*_by_code(wanted), *_by_name(wanted)]
    left_out: list[Kind] = ["none"] if wanted.default is None and "none" in found else []     # first without: optional ones are given later
    return list(dict.fromkeys([*left_out, *found]))


def _by_annotation(wanted: Wanted) -> list[Kind]:
    text = wanted.annotation
    optional: list[Kind] = ["none"] if re.search(r"Optional|None", text) else []
    if "Callable" in text or "Generator" in text or re.fullmatch(r"(\w+)?(dtype|device|Module|ProcessGroup|Group)", text):
        return ["default"] if not wanted.required else ["unwritable"]
    if "Tensor" in text:
        many = re.search(r"(?i)(list|sequence|iterable|tuple)\[.*Tensor", text) and not wanted.variadic
        numbers: list[Kind] = ["float", "int"] if _scalar_too(text) else []
        return ["tensors", *optional] if many else [*_tensors(wanted), *numbers, *optional]
    if re.search(r"Literal|\bstr\b", text):
        return _with_default(wanted, ["word", *optional])
    if re.search(r"(?i)(list|sequence|tuple|size)\[?.*int|\bSize\b|torch.Size", text) and not text.startswith(("Union[int", "int |")):
        return _with_default(wanted, ["ints", *optional])
    for name, kind in (("bool", "bool"), ("int", "int"), ("SymInt", "int"), ("float", "float"), ("Scalar", "float")):
        if re.search(rf"\b{name}\b", text):
            return _with_default(wanted, [kind, *(["float"] if kind == "int" else []), *optional])       # type: ignore[list-item]
    return []


def _scalar_too(text: str) -> bool:
    return bool(re.search(r"\b(float|int|Number|Scalar)\b", text))


def _with_default(wanted: Wanted, given: list[Kind]) -> list[Kind]:
    return given if wanted.required else ["default", *given]


def _tensors(wanted: Wanted) -> list[Kind]:
    """What a tensor holds: by its name and by what it is used for."""
    if wanted.clues.index:
        return ["index", "mask", "tensor"]
    if MASK.search(wanted.name):
        return ["mask", "tensor"]
    if GOAL.search(wanted.name):
        return ["tensor", "index"]
    if INDEX.search(wanted.name):
        return ["index", "tensor"]
    return ["tensor", "index", "mask"]


def _by_default(wanted: Wanted) -> list[Kind]:
    if wanted.required:
        return []
    value: Any = wanted.default
    if value is None:
        if wanted.clues.words or WORD.search(wanted.name):
            return ["none", "word"]
        if TRUTH.search(wanted.name):
            return ["none", "bool"]
        by_name = any(pattern.search(wanted.name) for pattern in (TENSOR, MASK, INDEX)) and not COUNT.search(wanted.name)
        like_tensor = wanted.clues.tensor or by_name
        return [*_tensors(wanted), "none"] if like_tensor else ["none", *_by_name(wanted)]
    if isinstance(value, bool):
        return ["default", "bool"]
    if isinstance(value, (int, float)):
        return ["default", "int" if isinstance(value, int) else "float"]
    return ["default", "word"] if isinstance(value, str) else ["default", "ints"]


def _by_code(wanted: Wanted) -> list[Kind]:
    clues = wanted.clues
    if clues.called:
        return ["unwritable"]
    if clues.words:
        return ["word"]
    if clues.index:
        return ["index", "int", "mask"]
    if clues.ranks or clues.least or (clues.tensor and not clues.sequence):
        return _tensors(wanted)
    if clues.whole:
        return ["int"]
    if clues.sequence:
        return ["tensors", "tensor", "ints"]
    if clues.truth and not clues.optional and not TENSOR.search(wanted.name):
        return ["bool", "tensor"]
    return []


def _by_name(wanted: Wanted) -> list[Kind]:
    name = wanted.name.lower()
    optional: list[Kind] = ["none"] if wanted.clues.optional else []
    many: list[Kind] = ["tensors"] if wanted.clues.sequence else []
    if MASK.search(name):
        return ["mask", "tensor", *optional]
    if GOAL.search(name):
        return ["tensor", "index", *optional]
    if INDEX.search(name) and not COUNT.search(name):
        return ["index", "tensor", "int", *optional]
    if TRUTH.search(name):
        return ["bool", "tensor", "float"]
    if WORD.search(name):
        return ["word", *optional]
    if wanted.variadic or TENSOR.search(name):
        return ["tensor", *optional, "float", "index", "int", *many]
    if COUNT.search(name):
        return ["int", "tensor", "ints", "float", *optional]
    if NUMBER.search(name):
        return ["float", "tensor", "int", *optional]
    return ["tensor", "float", "int", "index", "bool", *optional, *many, "mask"]
