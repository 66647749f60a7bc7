"""Notes of the calls of Functions in this process: one for each signature, with the arguments of
its first call. The run is left as it is: no random number is drawn, no mode of torch sees it."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from gradverify.model.dtypes import TABLE
from gradverify.model.proposal import SMALL_SIZE
from gradverify.torch_private import (
    GENERATED,
    generated_for,
    graphs_compiled,
    operator_arguments,
    transforms_active,
    without_function_modes,
    without_modes,
)

TENSORS = (Tensor, nn.Parameter)
PLAIN = (bool, int, float, str, type(None))
DTYPES = frozenset(getattr(torch, name) for name in TABLE)
MOST = 16  # signatures of one function
ALIKE = 4  # of them those that differ in plain numbers only
KEYS = 4096  # calls of one function that are looked at, each with other sizes or values
OFTEN, RARELY = 1000, 16  # calls of one function that are all looked at; of later ones, each 16th
LONG = 64  # elements of a list whose values distinguish calls
KEPT = 1 << 20  # elements that are kept of a tensor, evenly spaced ones of a larger one


class Refused(Exception):  # noqa: N818 - the text is the reason why a call is not noted
    """Raised for a call that no spec can write."""


class Notes:
    """The notes of this process, in files of a folder. `calls`: by class, how many there were;
    `keys`: those looked at;
    `noted`: by class, its signatures, each also without its numbers; `lines`: those written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines, self.calls = folder, set[str](), dict[type, int]()
        self.keys, self.noted = dict[type, set[Any]](), dict[type, list[tuple[str, str]]]()

    def look(self, cls: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Look at a call, which is noted if it is the first one of its signature."""
        self.calls[cls] = count = self.calls.get(cls, 0) + 1
        if count > OFTEN and count % RARELY:
            return
        keys = self.keys.setdefault(cls, set())
        if len(keys) > KEYS:
            return
        # The run goes on whatever fails here
        with without_function_modes(), suppress(Exception):
            graded = torch.is_grad_enabled()
            key = (graded, *map(_key, arguments), *map(_key, keywords.values()))
            if key in keys:
                return
            keys.add(key)
            if not cls.__module__.startswith("torch.") or cls.__name__.startswith(GENERATED):
                with without_modes(), torch.no_grad():
                    self._note(cls, lambda: self._call(cls, arguments, keywords, graded))

    def end(self) -> None:
        """Note the Functions that were not called, in a process that used torch.compile."""
        for cls in _subclasses(Function) if graphs_compiled() else ():
            if cls not in self.keys and not cls.__module__.startswith("torch."):
                self._note(cls, lambda: {"hidden": "it was not called outside torch.compile"})

    def _note(self, cls: Any, call: Callable[[], dict[str, Any]]) -> None:
        entry: dict[str, Any] = {"module": cls.__module__, "name": cls.__qualname__}
        try:
            entry |= _identity(cls)
            entry |= call()
        except Refused as refused:
            entry["why"] = str(refused)
        except Exception as error:  # the run goes on
            entry["why"] = f"gradverify could not note it: {type(error).__name__}: {error}"
        line = json.dumps(entry)
        if line not in self.lines and entry.keys() & {"call", "why", "hidden"}:
            self.lines.add(line)
            file = self.folder / f"{os.getpid()}.jsonl"
            with suppress(OSError), file.open("a", encoding="utf-8") as stream:  # it may be gone
                stream.write(f"{line}\n")

    def _call(
        self, cls: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], graded: bool
    ) -> dict[str, Any]:
        """Save a call of a new signature and describe it; empty if the signature is known."""
        if transforms_active():
            return {"hidden": "it was called under transforms of torch.func"}
        if cls.__name__.startswith(GENERATED):
            arguments, keywords = operator_arguments(arguments)
        elif keywords:
            bound = inspect.signature(cls.forward).bind(*arguments, **keywords)
            bound.apply_defaults()
            arguments, keywords = bound.args, {}
        given = [*arguments, *keywords.values()]
        for place, value in enumerate(given, start=1):
            if reason := _unwritable(value):
                raise Refused(f"its argument {place} is {reason}, which a spec cannot write")
        tensors = [
            each
            for value in given
            for each in (value if isinstance(value, (list, tuple)) else [value])
            if isinstance(each, Tensor)
        ]
        if not all(each.numel() for each in tensors):
            raise Refused("it was called with empty tensors")
        graded = graded and any(each.requires_grad for each in tensors)
        sizes = {size for each in tensors for size in each.shape if size > SMALL_SIZE}

        def described(graded: bool, numbers: bool) -> str:
            every = [_described(each, sizes, graded, numbers) for each in given]
            return json.dumps([every, list(keywords)])

        signature, alike = described(graded, True), described(graded, False)
        noted = self.noted.setdefault(cls, [])
        if signature in [each for each, _ in noted]:
            return {}
        if len(noted) >= MOST or [each for _, each in noted].count(alike) >= ALIKE:
            raise Refused("it was called in more ways: those of the first calls are written")
        noted.append((signature, alike))
        path = self.folder / f"{os.getpid()}-{len(self.lines)}.pt"
        kept = {
            "arguments": [_kept(value) for value in arguments],
            "keywords": {name: _kept(value) for name, value in keywords.items()},
            "graded": graded,
        }
        torch.save(kept, path)
        form = described(False, True)
        return {"signature": signature, "form": form, "graded": graded, "call": str(path)}


def _subclasses(cls: Any) -> Iterator[Any]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _identity(cls: Any) -> dict[str, Any]:
    """Return the name of a Function, or of the operator that torch generated it for, and its place
    in the source; of an operator, that of the backward. Raises Refused for what has no name."""
    generated = generated_for(cls)
    if generated is not None:
        library, _, operator = generated[0].partition("::")
        backward = inspect.unwrap(generated[1])
        name, module = f"torch.ops.{library}.{operator}", backward.__module__
        line = backward.__code__.co_firstlineno
    else:
        name, module = cls.__qualname__, cls.__module__
        line = getattr(getattr(cls.forward, "__code__", None), "co_firstlineno", 1)
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        outer, local, _ = name.rpartition(".<locals>.")
        if local:
            raise Refused(f"it is defined inside {outer}, where no spec can name it")
        if found is not cls:
            raise Refused(f"{module} has another object, or none, of this name")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise Refused(f"{module} has no file")
    kind = "operator" if generated else "autograd.Function"
    return {"kind": kind, "name": name, "module": module, "file": file, "line": line}


def _key(value: Any) -> Any:
    """Return what is cheap to see of an argument: exact sizes and plain values."""
    kind = type(value)
    if kind in TENSORS and not value.is_nested:
        dense = value.layout is torch.strided and value.is_contiguous()
        return value.shape, value.dtype, value.requires_grad, dense, value.is_cuda
    if kind in PLAIN:
        return kind, value
    if kind in (list, tuple) and len(value) < LONG:
        return kind, *map(_key, value)
    return kind


def _unwritable(value: Any) -> str | None:
    """Return what an argument is if a spec cannot write it, else None."""
    if isinstance(value, Tensor):
        if type(value) not in TENSORS:
            return f"a {type(value).__name__}"
        if value.is_nested:
            return "a nested tensor"
        if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda"):
            return f"a tensor of {value.layout} on {value.device.type}"
        return None if value.dtype in DTYPES else f"a tensor of {value.dtype}"
    if type(value) in PLAIN:
        return None
    if isinstance(value, (list, tuple)):
        if len({isinstance(each, Tensor) for each in value}) > 1:
            return "a list of tensors and other objects"
        return next(filter(None, map(_unwritable, value)), None)
    if isinstance(value, nn.Module) or not callable(value):
        return f"of type {type(value).__name__}"
    return "a function"


def _described(value: Any, sizes: set[int], graded: bool, numbers: bool) -> Any:
    """Return what of an argument distinguishes signatures: of a tensor all but its sizes, of a
    number that equals one of the sizes, or without `numbers`, its type."""
    if isinstance(value, Tensor):
        ones = [place for place, size in enumerate(value.shape) if size == 1]
        needs = graded and value.requires_grad
        return [str(value.dtype), value.dim(), ones, _layout(value), value.is_cuda, needs]
    if isinstance(value, (list, tuple)):
        return [_described(each, sizes, graded, numbers) for each in value]
    if type(value) in (int, float) and (value in sizes or not numbers):
        return "a number"
    return repr(value)


def _layout(x: Tensor) -> str | None:
    """Return the layout in memory by its name in a spec; None for a contiguous tensor."""
    if x.is_contiguous():
        return None
    if x.dim() in (4, 5) and x.movedim(1, -1).is_contiguous():
        return "channels_last"
    if x.dim() > 1 and x.mT.is_contiguous():
        return "transposed"
    return "expanded" if x.stride(0) == 0 and x[0].is_contiguous() else "strided"


def _kept(value: Any) -> Any:
    """Return an argument as `torch.load(weights_only=True)` reads it."""
    if isinstance(value, (list, tuple)):
        return [_kept(each) for each in value]
    if not isinstance(value, Tensor):
        return value
    whole = value.numel() <= KEPT
    numbers = value.detach().resolve_conj().resolve_neg()
    if not whole:
        numbers = numbers.reshape(-1)[:: -(-value.numel() // KEPT)]
    return {
        "numbers": numbers.cpu().clone(memory_format=torch.contiguous_format),
        "shape": list(value.shape),
        "whole": whole,
        "layout": _layout(value),
        "device": value.device.type,
        "requires_grad": value.requires_grad,
    }
