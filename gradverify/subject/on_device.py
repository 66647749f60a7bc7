"""The checked function at the same numbers on another device, through `torch.compile`, and under
the tests of `torch.library.opcheck`."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gradverify.model.fault import ToolError
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Frame
from gradverify.subject.ambient import left_as_found
from gradverify.subject.failure import Spent, describe, refuse
from gradverify.subject.find import returning
from gradverify.subject.forms import Argument
from gradverify.subject.machine import seeded
from gradverify.subject.modules import copied
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.subject import Subject
from gradverify.torch_private import (
    Overload,
    OverloadPacket,
    aot_eager,
    check_compiler,
    fake_function,
    import_compiler,
    modules_untagged,
    overload_behind,
    pytree,
    reset_compiler,
)


# ---- Another device
def on_device(own: Subject, device: str) -> Subject:
    """Return a twin of the subject on another device, in its own dtype. Its calls are counted by
    `own`. Raises UserCodeError where it cannot be made."""
    case = replace(own.case, settings=replace(own.case.settings, device=device), other_device=None)
    target = own.target
    if target.kind == "module":  # assembling moves it
        module = copied(target.subject)
        target = replace(target, subject=module, call=module)
    made = assemble(case, target, drawn_inputs(case)).own
    if [a.name for a in made.arguments] != [a.name for a in own.arguments]:
        refuse(f"the inputs are others on {device}")
    other = own.twin(
        [_same(there, here) for there, here in zip(made.arguments, own.arguments, strict=True)],
        made.kwargs,
        target,
    )
    other.case = case
    return other


def _same(there: Argument, here: Argument) -> Argument:
    """Return the argument `there` with the numbers of `here`, since a user's function may draw
    different ones on another device."""
    if not (there.is_tensor and here.is_tensor) or there.form is not None:
        return there
    if there.value.shape != here.value.shape:
        refuse(
            f"{here.name} has shape {list(there.value.shape)} there, and {list(here.value.shape)} "
            "here"
        )
    moved = here.value.to(device=there.value.device)
    return there if torch.equal(there.value, moved) else replace(there, value=moved)


def back(x: Tensor, like: Tensor) -> Tensor:
    """Return a tensor of the other device, moved to that of the tensor it is compared with."""
    return x.detach().to(device=like.device)


# ---- Calls through torch.compile with the backend `aot_eager`, which traces forward and backward,
# and runs them by torch's own kernels
@dataclass
class Compiler:
    """Calls through torch.compile. `graphs`: the number compiled so far."""

    graphs: int = 0

    def through(self, subject: Subject) -> Subject:
        """Return a twin of the subject that is called through torch.compile."""
        target = subject.target
        if target.kind == "module":  # its forward is compiled inside `compiling`
            return subject.twin()
        return subject.twin(target=replace(target, call=self._compiled(target.call)))

    def _compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        # A function of torch itself, such as `apply`, is compiled only inside another one
        def called(*given: Any, **named: Any) -> Any:
            return call(*given, **named)

        def backend(graph: Any, inputs: Any) -> Any:
            self.graphs += 1
            return aot_eager(graph, inputs)

        made: Callable[..., Any] = torch.compile(called, backend=backend)
        return made

    @contextmanager
    def compiling(self, subject: Subject) -> Iterator[None]:
        """Context for compiled calls: without output, and with empty caches before and after; a
        module's forward is compiled inside."""
        module = subject.target.subject if subject.target.kind == "module" else None
        own = vars(module).get("forward") if module is not None else None
        with quiet(), left_as_found(), modules_untagged():
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
    """Return the reason why torch.compile does not run here; None where it does."""
    try:
        check_compiler()
    except (ImportError, RuntimeError) as error:
        return f"torch.compile does not run here ({describe(error)})"
    return None


# ---- The tests of `torch.library.opcheck` on a registered operator, one by one: on copies, without
# output, and with global state restored
Test = Literal[
    "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"
]
TORCHS_OWN = ("aten", "prims", "prim")  # libraries that opcheck regards as built in
DEVICES = {"cpu", "cuda"}


class Operator(NamedTuple):
    """One overload, with the inputs that it is tested on."""

    overload: Any
    subject: Subject

    @property
    def name(self) -> str:
        """`library::operator`."""
        return str(self.overload.name())

    def fails(self, test: Test) -> BaseException | None:
        """Run one test; return the exception that it raised, None where the operator passes. Raises
        Spent, and ImportError where torch's compiler cannot be imported."""
        many = test == "test_aot_dispatch_dynamic"
        self.subject.count(forward=2 if many else 1, backward=2 if many else 0)
        try:
            with quiet(), left_as_found(), seeded(self.subject.case.settings.seed):
                given, named = pytree.tree_map_only(
                    Tensor,
                    lambda x: x.detach().clone().requires_grad_(x.requires_grad),
                    self.subject.given(self.subject.leaves()),
                )
                import_compiler()  # its ImportError is not a failure of the operator
                found: object = torch.library.opcheck(
                    self.overload, tuple(given), named, test_utils=test, raise_exception=False
                )[test]
        except BaseException as error:
            if is_interrupt(error) or issubclass(type(error), Spent | ToolError | ImportError):
                raise
            found = error
        return found if isinstance(found, BaseException) else None

    @property
    def fake_kernel(self) -> Frame | None:
        """The definition of the function registered as the fake kernel; None where it cannot be
        read."""
        code = getattr(fake_function(self.name), "__code__", None)
        if code is None:
            return None
        return Frame(
            code.co_filename,
            code.co_firstlineno,
            code.co_name,
            linecache.getline(code.co_filename, code.co_firstlineno).strip(),
        )


def operator_of(subject: Subject) -> Operator | str:
    """Return the registered operator of a check, or a text on why opcheck cannot be applied."""
    found = overload_behind(subject.target.subject)
    if isinstance(found, OverloadPacket):
        overloads = returning(found)
        if len(overloads) != 1:
            return f"{subject.target.name} has several overloads: name one"
        found = getattr(found, overloads[0])
    if not isinstance(found, Overload):
        return "it is no registered operator"
    if found.namespace in TORCHS_OWN:
        return "it is an operator of torch's own"
    tensors = [argument.value for argument in subject.tensors]
    if not all(type(x) is Tensor and x.layout is torch.strided for x in tensors):
        return "opcheck takes plain, dense tensors only"
    if not {x.device.type for x in tensors} <= DEVICES:
        return "opcheck takes tensors on the CPU and on CUDA devices only"
    return Operator(found, subject)


@contextmanager
def quiet() -> Iterator[None]:
    """Context without warnings, log messages and output; torch also logs the errors that it
    raises."""
    before = logging.root.manager.disable
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
