"""From a validated check to the plain data of a Case."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from gradverify.model.case import DrawKind, InputRecipe, Json, Oracles, Sparse, TensorRecipe
from gradverify.spec.check_sense import is_tensors, members
from gradverify.spec.names import resolve
from gradverify.spec.schema import Check
from gradverify.spec.schema_inputs import Tensor
from gradverify.spec.tensor_sense import avoided, draw_of, split_key


def inputs_of(check: Check, folder: Path) -> tuple[InputRecipe, ...]:
    """The recipes of all inputs, in order; those of a plain list have no names."""
    return tuple(_input(name if isinstance(name, str) else None, value, folder) for name, value in members(check))


def keywords_of(check: Check, folder: Path) -> tuple[InputRecipe, ...]:
    """The recipes of the tensors among the keyword arguments; all others are plain values."""
    return tuple(_input(name, value, folder) for name, value in check.kwargs.items() if isinstance(value, Tensor) or is_tensors(value))


def _input(name: str | None, value: Json, folder: Path) -> InputRecipe:
    if is_tensors(value):
        return InputRecipe(name, tensors=tuple(_tensor(item, folder) for item in value))
    return InputRecipe(name, _tensor(value, folder)) if isinstance(value, Tensor) else InputRecipe(name, value=value)


def _tensor(tensor: Tensor, folder: Path) -> TensorRecipe:
    draw = draw_of(tensor)
    layout = tensor.layout if "layout" in tensor.model_fields_set else None
    return TensorRecipe(
        shape=None if tensor.shape is None or draw in ("values", "file") else tuple(tensor.shape), draw=cast(DrawKind, draw),
        arguments=_arguments(tensor, draw, folder), avoid=avoided(tensor), margin=tensor.margin, dtype=tensor.dtype,
        requires_grad=tensor.requires_grad, domain=None if tensor.domain is None else (tensor.domain[0], tensor.domain[1]),
        symmetric=bool(tensor.symmetric) or tensor.kind == "spd", distinct=tensor.distinct, device=tensor.device, layout=layout,
        sparse=_sparse(tensor), nested=None if tensor.nested is None else tuple(tensor.nested.lengths))


def _sparse(tensor: Tensor) -> Sparse | None:
    said = tensor.sparse
    if said is None:
        return None
    return Sparse(said.layout, said.density, None if said.blocksize is None else (said.blocksize[0], said.blocksize[1]), said.masked)


def _arguments(tensor: Tensor, draw: str, folder: Path) -> Json:
    if draw == "make":
        return _target(tensor.make, folder)
    if draw != "file":
        return getattr(tensor, draw)
    name, key = split_key(tensor.file)
    return str((folder / name).resolve()) + (f"#{key}" if key else "")


def oracles_of(check: Check, folder: Path) -> Oracles:
    """What the gradient is compared with; functions in files by their absolute path."""
    return Oracles(_target(check.reference, folder), check.expected, check.grad_output, _target(check.gradient, folder),
                   _target(check.surrogate, folder))


def _target(text: Any, folder: Path) -> str | None:
    return None if text is None else resolve(text, folder)[0]
