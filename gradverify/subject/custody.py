"""What backward must leave as it found it: the arguments, the outputs, a module's buffers, the tensors that forward saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gradverify.subject.alias import Named, overlaps
from gradverify.subject.guard import is_plain
from gradverify.subject.snapshot import Change, Snapshot, change, freed, same
from gradverify.subject.subject import Called, Subject
from gradverify.torch_private import function_class

Saves = Mapping[Any, tuple[Tensor, ...]]
Kind = Literal["argument", "output", "buffer", "saved"]


@dataclass(frozen=True, slots=True)
class Held:
    """One such tensor. `place`: of an output, among all outputs."""

    kind: Kind
    name: str
    tensor: Tensor
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that was changed, and how its first changed element did (None where it is complex)."""

    held: Held
    change: Change | None


class Custody:
    """The tensors of one graph, remembered by value. Memory that two of them share is told under the first one's name."""

    def __init__(self, held: Sequence[Held]) -> None:
        self._held = tuple(held)
        self._before = Snapshot([each.tensor for each in self._held])

    def broken(self) -> tuple[Written, ...]:
        """What was changed since."""
        found: list[Written] = []
        for i in self._before.changed():
            held = self._held[i]
            if not any(overlaps(held.tensor, other.held.tensor) for other in found):
                found.append(Written(held, self._before.difference(i)))
        return tuple(found)

    def gone(self) -> tuple[Held, ...]:
        """What gave its memory back since."""
        return tuple(self._held[i] for i in self._before.freed())

    def refill(self) -> None:
        """Gives what gave its memory back its numbers again, which rules read later."""
        for i in self._before.freed():
            with torch.no_grad():
                self._before.refill(i)

    def restore(self) -> None:
        """Puts back what was changed, so that the graph can be used again."""
        for i in self._before.changed():
            with torch.no_grad(), suppress(RuntimeError):       # an expanded tensor takes no copy
                self._held[i].tensor.detach().copy_(self._before.value(i))


def written(subject: Subject, called: Called) -> tuple[Written, ...]:
    """The arguments that a forward changed and did not return: one that it returns was written in place on purpose."""
    changed = ((argument, now) for argument, now in zip(subject.arguments, called.arguments, strict=True)
               if argument.is_tensor and is_plain(now) and not freed(now, argument.value) and not same(argument.value, now))
    return tuple(Written(Held("argument", argument.name, now), change(argument.value, now)) for argument, now in changed
                 if not any(output is now for output in called.outputs))


def given_back(subject: Subject, called: Called) -> tuple[str, ...]:
    """The arguments whose memory a forward gave back."""
    pairs = zip(subject.arguments, called.arguments, strict=True)
    return tuple(argument.name for argument, now in pairs if argument.is_tensor and freed(now, argument.value))


def held(subject: Subject, called: Called, saved: Saves) -> list[Held]:
    """The tensors of one forward whose numbers can be read. `saved`: what each custom node saved."""
    return [each for each in _held(subject, called, saved) if is_plain(each.tensor)]


def _held(subject: Subject, called: Called, saved: Saves) -> Iterator[Held]:
    for name, value in arguments(subject, called):
        yield Held("argument", name, value)
    for place, output in enumerate(called.outputs):
        if isinstance(output, Tensor):
            yield Held("output", f"y{place}", output, place)
    for name, buffer in subject.buffers(called).items():
        yield Held("buffer", name, buffer)
    for node, tensors in saved.items():
        owner = function_class(node)
        for place, tensor in enumerate(tensors):
            yield Held("saved", f"saved tensor {place} of {owner.__name__ if owner else node.name()}", tensor)


def arguments(subject: Subject, called: Called) -> list[Named]:
    """The tensor arguments as the function got them, by name."""
    return [(argument.name, value) for argument, value in zip(subject.arguments, called.arguments, strict=True) if isinstance(value, Tensor)]


def saved_tensors(nodes: Sequence[Any]) -> Saves:
    """What each Python node saved; nothing where it can no longer be read."""
    result: dict[Any, tuple[Tensor, ...]] = {}
    for node in nodes:
        try:
            result[node] = tuple(tensor for tensor in getattr(node, "saved_tensors", ()) if tensor is not None)
        except RuntimeError:        # freed, or changed since
            result[node] = ()
    return result
