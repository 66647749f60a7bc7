"""Torch's switches by which products are computed in fewer bits than their numbers have: TF32, and
how products of 16 bits are summed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from gradverify.torch_private import (
    cudnn_tf32,
    fp32_precision,
    has_fp32_precision,
    set_cudnn_tf32,
    set_fp32_precision,
)

REDUCED = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Switches of products of 16 bits (`torch.backends.cuda.matmul`)."""
SPLIT = "_split_k"  # behind the name of one that has a second switch
PLACES = (
    ("generic", "all"),
    ("cuda", "all"),
    ("cuda", "matmul"),
    ("cuda", "conv"),
    ("cuda", "rnn"),
    ("mkldnn", "all"),
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
)
"""Of `fp32_precision`, since torch 2.9: each as the one around it where nothing is said of it,
outer ones first."""


@dataclass(frozen=True, slots=True)
class Float32:
    """How products of float32 are computed: by torch's older interface, and at each of `PLACES` by
    its newer one."""

    matmul: str
    cudnn: bool
    places: tuple[str, ...]


def float32_products() -> Float32:
    """As they are now."""
    return Float32(
        _older(torch.get_float32_matmul_precision, (("cuda", "matmul"), ("mkldnn", "matmul"))),
        _older(cudnn_tf32, (("cuda", "conv"), ("cuda", "rnn"))),
        tuple(fp32_precision(*place) for place in PLACES) if has_fp32_precision() else (),
    )


def set_float32_products(wanted: Float32) -> None:
    """As `float32_products` gave them."""
    torch.set_float32_matmul_precision(wanted.matmul)
    set_cudnn_tf32(wanted.cudnn)
    for place, precision in zip(PLACES, wanted.places, strict=False):
        _say(place, precision)


def _say(place: tuple[str, str], precision: str) -> None:
    """Nothing of its own where the one around it says the same."""
    for each in ("none", precision):
        if fp32_precision(*place) != precision:
            set_fp32_precision(*place, each)


def _older(read: Callable[[], Any], places: Sequence[tuple[str, str]]) -> Any:
    """What the older interface was told last. Where the newer one says something else at its places
    torch raises: these agree for a moment."""
    try:
        return read()
    except RuntimeError:
        before = [fp32_precision(*place) for place in places]
    try:
        for precision in ("ieee", "tf32"):
            for place in places:
                set_fp32_precision(*place, precision)
            with suppress(RuntimeError):
                return read()
    finally:
        for place, precision in zip(places, before, strict=True):
            _say(place, precision)


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Inside, products of float32 may be computed in TF32, or none of them is. Afterwards as
    before, unless what ran inside has set it itself."""
    before = float32_products()
    set_float32_products(
        Float32(
            "high" if on else "highest",
            on,
            before.places[:1] + ("tf32" if on else "ieee",) * len(before.places[1:]),
        )
    )
    inside = float32_products()
    try:
        yield
    finally:
        if float32_products() == inside:
            set_float32_products(before)


def reductions() -> dict[str, bool]:
    """The switches by which products of 16-bit numbers are summed in fewer bits, and whether they
    are on."""
    matmul = torch.backends.cuda.matmul
    names = (name for each in REDUCED for name in (each, each + SPLIT))
    return {name: bool(getattr(matmul, name)) for name in names if hasattr(matmul, name)}


def set_reductions(switches: dict[str, bool]) -> None:
    """As `reductions` gave them."""
    for name, on in switches.items():
        if not name.endswith(SPLIT):
            setattr(
                torch.backends.cuda.matmul,
                name,
                (on, switches[name + SPLIT]) if name + SPLIT in switches else on,
            )


@contextmanager
def reduced_sums(on: bool) -> Iterator[None]:
    """Inside, products of 16 bits may be summed in fewer bits, or none of them is. Afterwards as
    before."""
    before = reductions()
    try:
        # Splitting K rounds no sum
        set_reductions({name: on or (was and name.endswith(SPLIT)) for name, was in before.items()})
        yield
    finally:
        set_reductions(before)


@contextmanager
def in_all_bits() -> Iterator[None]:
    """Inside, neither TF32 nor sums in fewer bits."""
    with tf32(False), reduced_sums(False):
        yield


def in_fewer_bits() -> tuple[str, ...]:
    """What makes products on CUDA devices compute in fewer bits than their numbers have, in checks:
    TF32 is off there."""
    return tuple(f"matmul.{name}" for name, on in reductions().items() if on and name in REDUCED)
