"""The same function at the same numbers on another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.ambient import ambient, left_as_found
from gradverify.subject.arguments import Argument
from gradverify.subject.failure import CODE, UserCodeError, describe
from gradverify.subject.modules import copied
from gradverify.subject.opchecked import quiet
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.subject import Subject
from gradverify.torch_private import aot_eager, check_compiler, modules_untagged, reset_compiler


# ---- The same function at the same numbers on another device
def on_device(own: Subject, device: str) -> Subject:
    """The subject's function and inputs there, in its own dtype. Its calls are counted by `own`. Raises UserCodeError where that cannot be had."""
    case = replace(own.case, settings=replace(own.case.settings, device=device), beside=None)
    target = own.target
    if target.kind == "module":     # assembling moves it
        module = copied(target.subject)
        target = replace(target, subject=module, call=module)
    made = assemble(case, target, drawn_inputs(case, torch.device(device))).own
    if [a.name for a in made.arguments] != [a.name for a in own.arguments]:
        raise UserCodeError(CODE, f"the inputs are others on {device}")
    other = own.twin([_same(there, here) for there, here in zip(made.arguments, own.arguments, strict=True)], made.kwargs, target)
    other.case = case
    return other


def _same(there: Argument, here: Argument) -> Argument:
    """With the numbers of `here`: what a function of the user's draws on a device may be others."""
    if not (there.is_tensor and here.is_tensor) or there.form is not None:
        return there
    if there.value.shape != here.value.shape:
        raise UserCodeError(CODE, f"{here.name} has shape {list(there.value.shape)} there, and {list(here.value.shape)} here")
    moved = here.value.to(device=there.value.device)
    return there if torch.equal(there.value, moved) else replace(there, value=moved)


def back(x: Tensor, like: Tensor) -> Tensor:
    """A tensor of the other device where the one that it is compared with lies."""
    return x.detach().to(device=like.device)


# ---- A subject whose calls go through torch.compile, with the backend `aot_eager`: traced
# forward and backward, run by torch's own kernels
@dataclass
class Compiler:
    """`graphs`: how many were compiled so far."""

    graphs: int = 0

    def through(self, subject: Subject) -> Subject:
        """The same function at the same arguments, called through torch.compile."""
        target = subject.target
        if target.kind == "module":     # its forward is compiled, where `compiling` has put it
            return subject.twin(subject.arguments)
        return subject.twin(subject.arguments, target=replace(target, call=self._compiled(target.call)))

    def _compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:     # what lies in torch itself, as `apply` does, is not compiled by itself
            return call(*given, **named)

        def backend(graph: Any, inputs: Any) -> Any:
            self.graphs += 1
            return aot_eager(graph, inputs)

        made: Callable[..., Any] = torch.compile(called, backend=backend)
        return made

    @contextmanager
    def compiling(self, subject: Subject) -> Iterator[None]:
        """Quiet, from empty caches, which are empty again afterwards; a module's forward is compiled while this lasts."""
        module = subject.target.subject if subject.target.kind == "module" else None
        own = vars(module).get("forward") if module is not None else None
        with quiet(), left_as_found(ambient()), modules_untagged():
            reset_compiler()
            try:
                if module is not None:
                    module.forward = self._compiled(module.forward)
                yield
            finally:
                if module is not None:
                    del module.forward
                    if own is not None:
                        module.forward = own
                reset_compiler()


def no_compiler() -> str | None:
    """Why there is no torch.compile here; None where there is."""
    try:
        check_compiler()
    except (ImportError, RuntimeError) as error:
        return f"torch.compile does not run here ({describe(error)})"
    return None
