"""A fault at a path inside a document, before its line and column are known; and phrases for the
messages of faults."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from gradverify.model.case import Json

Path = tuple[str | int, ...]
"""The path to a value inside a document: ("checks", 0, "inputs", "x", "shape", 1)."""

MAX_SHOWN = 60  # characters of a quoted value: enough to recognise it, short enough for one line
EXPONENT = re.compile(r"(?<=\d)(e[-+])0+(\d)")
PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")

RETIRED = {
    "GV120": "the rule on CUDA streams was retired",
    "witness": "it was retired, as checks rest on finite differences alone: remove it",
}
"""Retired codes and keys, which an old spec or command may name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a path. `key`: the key itself is at fault, not its value."""

    path: Path
    message: str
    key: bool = False


def dotted(path: Path) -> str:
    """Return a path as `checks[0].inputs.x.shape[1]`; a key that is no plain word is quoted:
    `inputs['a b']`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


def shown(value: Json) -> str:
    """Return a value in the notation of YAML, on one line, and cut if it is long."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, str):
        return _cut(repr(value))
    if isinstance(value, float):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(str(value), flow(value))
    return _cut(flow(value))


def flow(value: Json) -> str:
    """Return a value on one line, as short as YAML allows: `1e-6`, not `1e-06`."""
    return EXPONENT.sub(r"\1\2", json.dumps(value, ensure_ascii=False, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


SYNONYMS = {
    "size": "shape",
    "dims": "shape",
    "op": "function",
    "target": "function",
    "callable": "function",
    "args": "inputs",
    "arguments": "inputs",
    "parametrize": "matrix",
    "params": "matrix",
    "epsilon": "eps",
    "step": "eps",
    "random_seed": "seed",
    "marks": "tags",
    "xfail": "expect",
    "files": "sources",
    "randn": "normal",
    "gaussian": "normal",
    "rand": "uniform",
    "range": "uniform",
    "randint": "integers",
    "zeros": "fill",
    "ones": "fill",
    "constant": "fill",
    "data": "values",
    "reproducible": "deterministic",
    # gradcheck's own
    "nondet_tol": "nondeterminism",
    "check_forward_ad": "forward_ad",
    "check_batched_grad": "vmap",
    "fast_mode": "mode",
    "gradgradcheck": "second_order",
    "double": "float64",
    "f64": "float64",
    "float": "float32",
    "single": "float32",
    "f32": "float32",
    "half": "float16",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "long": "int64",
    "int": "int64",
    "gpu": "cuda",
}
"""Names of other programs → the corresponding names of the format."""


def nearest(word: str, names: Collection[str]) -> str | None:
    """Return the name that `word` most likely means: by SYNONYMS, then as a misspelling, with case
    (`linear` before `Linear`) and then without."""
    known = SYNONYMS.get(word.casefold())
    if known in names:
        return known
    as_written = difflib.get_close_matches(word, list(names), n=1, cutoff=0.6)
    if as_written:
        return as_written[0]
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def allowed(word: str, names: Collection[str], kind: str = "allowed") -> str:
    """Return `did you mean 'shape'?`, or the list of all allowed names if none is near."""
    if word in RETIRED:
        return RETIRED[word]
    near = nearest(word, names)
    return f"did you mean {near!r}?" if near else f"{kind}: {', '.join(names)}" if names else ""
