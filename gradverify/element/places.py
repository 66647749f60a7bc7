"""Elements of inputs and outputs by their names, as `--element` writes them; what is no such
element is refused in a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.element import Part, Place
from gradverify.model.problem import Problem, ProblemsError
from gradverify.numerics.function.coordinates import mirror_of, place
from gradverify.report.names import element as named
from gradverify.spec.fault import allowed
from gradverify.subject.forms import Argument

SUFFIXES: dict[str, Part] = {".real": "re", ".imag": "im"}
INDEX = re.compile(r"(?P<name>.+?)\[(?P<index>-?\d+(?:,-?\d+)*)?\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor among the differentiable inputs or the compared outputs, a real coordinate of it,
    and its name as it is shown."""

    name: str
    tensor: int
    coordinate: int
    value: Tensor

    @property
    def place(self) -> Place:
        index, part = place(self.value.shape, self.value.is_complex(), self.coordinate)
        return Place(self.name, index, part)


def input_element(evidence: Evidence, text: str) -> Found:
    """An element of a differentiable input. Raises ProblemsError."""
    tensors = {
        argument.name: argument for argument in evidence.subject.arguments if argument.is_tensor
    }
    name, index, part = _taken_apart(text, tuple(tensors))
    argument = tensors.get(name)
    if argument is None:
        raise _refused(f"no input {name!r}; {allowed(name, tuple(tensors), 'inputs')}")
    if not argument.differentiable:
        why = (
            "`requires_grad: false`"
            if argument.value.is_floating_point() or argument.value.is_complex()
            else str(argument.value.dtype)[6:]
        )
        others = [each.name for each in evidence.inputs]
        raise _refused(
            f"{name} is not differentiated "
            f"({why}){'; inputs that are: ' + ', '.join(others) if others else ''}"
        )
    found = Found(
        name,
        evidence.inputs.index(argument),
        _coordinate(name, argument.value, index, part),
        argument.value,
    )
    if argument.symmetric and evidence.settings.eps == "auto":
        _refuse_mirror_image(found)
    _refuse_unspecified(found, argument)
    return found


def _refuse_unspecified(found: Found, argument: Argument) -> None:
    """Only the elements that a sparse input holds are moved."""
    held = None if argument.form is None else argument.form.specified
    if held is None or bool(
        held.reshape(-1)[found.coordinate // (2 if found.value.is_complex() else 1)]
    ):
        return
    first = named(found.name, tuple(held.nonzero()[0].tolist()), found.place.part)
    raise _refused(
        f"{_shown(found.place)} is not held by the sparse tensor, so it is not moved: ask for one "
        f"of its {int(held.sum())} elements, such as {first}"
    )


def output_element(evidence: Evidence, text: str) -> Found:
    """An element of a compared output, by its path or its number: `y.loss` of a dict is `y0` too,
    and so is `y`. Raises ProblemsError."""
    outputs = [n for n, value in enumerate(evidence.forward.outputs) if isinstance(value, Tensor)]
    named = {evidence.name_of(n): n for n in outputs}
    places = {f"y{n}": n for n in outputs} | named
    name, index, part = _taken_apart(text, tuple(places))
    name = "y0" if name == "y" and "y" not in places else name
    if name not in places:
        raise _refused(f"no output {name!r}; {allowed(name, tuple(named), 'outputs')}")
    name = evidence.name_of(places[name])
    value = evidence.forward.outputs[places[name]]
    if places[name] not in evidence.forward.checked:
        raise _refused(f"{name} is not compared: {_why_left_out(evidence, places[name], value)}")
    return Found(
        name,
        evidence.forward.checked.index(places[name]),
        _coordinate(name, value, index, part),
        value,
    )


def _why_left_out(evidence: Evidence, output: int, value: Tensor) -> str:
    if not (value.is_floating_point() or value.is_complex()):
        return f"it is {str(value.dtype)[6:]}"
    return "it has no graph" if output in evidence.forward.detached else "`outputs` leaves it out"


def _taken_apart(text: str, names: tuple[str, ...]) -> tuple[str, tuple[int, ...], Part | None]:
    """Name, index and part of `z[2,0].imag`; a name may itself end in brackets or a suffix. Raises
    ProblemsError."""
    whole, part = text.strip(), None
    if whole not in names and whole[-5:] in SUFFIXES:
        whole, part = whole[:-5], SUFFIXES[whole[-5:]]
    matched = None if whole in names else INDEX.fullmatch(re.sub(r"\s", "", whole))
    if matched is None:
        if whole not in names and "[" in whole:
            raise _refused(
                f"{text.strip()!r}: an index is whole numbers in brackets, such as [3,1]"
            )
        return whole, (), part
    index = tuple(int(number) for number in (matched["index"] or "").split(",") if number)
    return matched["name"], index, part


def _coordinate(name: str, value: Tensor, index: tuple[int, ...], part: Part | None) -> int:
    """The real coordinate of an element. Raises ProblemsError where the tensor has no such
    element."""
    shape, shown = tuple(value.shape), f"{name}[{','.join(map(str, index))}]" if index else name
    if len(index) != len(shape) or not all(
        0 <= i < size for i, size in zip(index, shape, strict=True)
    ):
        raise _refused(
            f"{shown} is no element: {name} has shape {list(shape)}{_which(name, shape)}"
        )
    if value.is_complex() and part is None:
        raise _refused(f"{shown} is complex: say {shown}.real or {shown}.imag")
    if not value.is_complex() and part is not None:
        raise _refused(f"{shown} is real: leave out {'.real' if part == 're' else '.imag'}")
    flat = int(np.ravel_multi_index(index, shape)) if shape else 0
    return 2 * flat + (part == "im") if value.is_complex() else flat


def _which(name: str, shape: tuple[int, ...]) -> str:
    if not shape:
        return f", so it is {name} without an index"
    if 0 in shape:
        return ", and no elements"
    first, last = ",".join("0" for _ in shape), ",".join(str(size - 1) for size in shape)
    return f", from {name}[{first}] to {name}[{last}]"


def _mirrored(found: Found) -> Found | None:
    """The (conjugate) transpose's place of this coordinate; None where it may not move at all."""
    mirror, sign = mirror_of(found.value)
    other = int(mirror[found.coordinate])
    return (
        None if other == found.coordinate and sign[other] < 0 else replace(found, coordinate=other)
    )


def _refuse_mirror_image(found: Found) -> None:
    """Of each pair of a symmetric input one element is moved, and the other with it."""
    mirror = _mirrored(found)
    if mirror is None:
        raise _refused(f"{_shown(found.place)} is 0 in a Hermitian matrix: it does not move")
    if found.coordinate > mirror.coordinate:
        raise _refused(
            f"{found.name} is `symmetric`: {_shown(found.place)} moves together with "
            f"{_shown(mirror.place)}; ask for that one"
        )


def pair_of(evidence: Evidence, found: Found) -> Place | None:
    """The element of a symmetric input that moves with this one."""
    symmetric = evidence.inputs[found.tensor].symmetric and evidence.settings.eps == "auto"
    mirror = _mirrored(found) if symmetric else None
    return None if mirror is None or mirror.coordinate == found.coordinate else mirror.place


def _shown(element: Place) -> str:
    return named(element.name, element.index, element.part)


def _refused(message: str) -> ProblemsError:
    return ProblemsError([Problem(f"--element: {message}")])
