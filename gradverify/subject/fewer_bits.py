"""Torch's switches for products in lower precision than their factors: TF32, and the accumulation
of products of 16 bits."""

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
SPLIT = "_split_k"  # suffix of the second switch, where there is one
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
"""The settings of `fp32_precision`, since torch 2.9, outer ones first; an inner one that is not set
follows its outer one."""


@dataclass(frozen=True, slots=True)
class Float32:
    """The settings for products of float32: of torch's older interface, and of the newer one for
    each of `PLACES`."""

    matmul: str
    cudnn: bool
    places: tuple[str, ...]


def float32_products() -> Float32:
    """Return the current settings for products of float32."""
    return Float32(
        _older(torch.get_float32_matmul_precision, (("cuda", "matmul"), ("mkldnn", "matmul"))),
        _older(cudnn_tf32, (("cuda", "conv"), ("cuda", "rnn"))),
        tuple(fp32_precision(*place) for place in PLACES) if has_fp32_precision() else (),
    )


def set_float32_products(wanted: Float32) -> None:
    """Set the settings returned by `float32_products`."""
    torch.set_float32_matmul_precision(wanted.matmul)
    set_cudnn_tf32(wanted.cudnn)
    for place, precision in zip(PLACES, wanted.places, strict=False):
        _set_precision(place, precision)


def _set_precision(place: tuple[str, str], precision: str) -> None:
    """Set the precision at a place; leave it unset if its outer one has the same."""
    for each in ("none", precision):
        if fp32_precision(*place) != precision:
            set_fp32_precision(*place, each)


def _older(read: Callable[[], Any], places: Sequence[tuple[str, str]]) -> Any:
    """Return the value last set by the older interface. Torch raises if the newer one's settings
    differ, so they are made to agree temporarily."""
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
            _set_precision(place, precision)


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Context in which TF32 is allowed, or not, for products of float32. Restored afterwards,
    unless the code inside has changed the setting."""
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
    """Return the switches that allow lower precision in sums of products of 16 bits, and whether
    they are on."""
    matmul = torch.backends.cuda.matmul
    names = (name for each in REDUCED for name in (each, each + SPLIT))
    return {name: bool(getattr(matmul, name)) for name in names if hasattr(matmul, name)}


def set_reductions(switches: dict[str, bool]) -> None:
    """Set the switches returned by `reductions`."""
    for name, on in switches.items():
        if not name.endswith(SPLIT):
            setattr(
                torch.backends.cuda.matmul,
                name,
                (on, switches[name + SPLIT]) if name + SPLIT in switches else on,
            )


@contextmanager
def reduced_sums(on: bool) -> Iterator[None]:
    """Context in which lower precision is allowed, or not, in sums of products of 16 bits. Restored
    afterwards."""
    before = reductions()
    try:
        # Split-K does not round the sums
        set_reductions({name: on or (was and name.endswith(SPLIT)) for name, was in before.items()})
        yield
    finally:
        set_reductions(before)


@contextmanager
def in_all_bits() -> Iterator[None]:
    """Context without TF32 and without sums in lower precision."""
    with tf32(False), reduced_sums(False):
        yield


def in_fewer_bits() -> tuple[str, ...]:
    """Return the names of switches that lower the precision of products on CUDA devices in checks
    (where TF32 is off)."""
    return tuple(f"matmul.{name}" for name, on in reductions().items() if on and name in REDUCED)
