"""The tests of `torch.library.opcheck` on a registered operator, one by one: on copies, quietly, with everything that is global put back."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gradverify.model.fault import ToolError
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Frame
from gradverify.subject.ambient import ambient, left_as_found
from gradverify.subject.failure import Spent
from gradverify.subject.find import returning
from gradverify.subject.machine import seeded
from gradverify.subject.subject import Subject
from gradverify.torch_private import (
    Overload,
    OverloadPacket,
    fake_function,
    import_compiler,
    overload_behind,
    pytree,
)

Test = Literal["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
TORCHS_OWN = ("aten", "prims", "prim")      # libraries that opcheck itself takes for built in
DEVICES = {"cpu", "cuda"}


@dataclass(frozen=True, slots=True)
class Operator:
    """One overload, with the inputs that it is tested on."""

    overload: Any
    subject: Subject

    @property
    def name(self) -> str:
        """`library::operator`."""
        return str(self.overload.name())

    def fails(self, test: Test) -> BaseException | None:
        """What one test raised; None where the operator passes it. Raises Spent, and ImportError where torch's compiler cannot be imported."""
        many = test == "test_aot_dispatch_dynamic"
        self.subject.count(forward=2 if many else 1, backward=2 if many else 0)
        try:
            with quiet(), left_as_found(ambient()), seeded(self.subject.case.settings.seed):
                given, named = pytree.tree_map_only(Tensor, _leaf, self.subject.given(self.subject.leaves()))
                import_compiler()       # an ImportError is not the operator's
                found: object = torch.library.opcheck(self.overload, given, named, test_utils=test, raise_exception=False)[test]
        except BaseException as error:
            if is_interrupt(error) or issubclass(type(error), Spent | ToolError | ImportError):
                raise
            found = error
        return found if isinstance(found, BaseException) else None

    @property
    def fake_kernel(self) -> Frame | None:
        """Where the function that was registered as the fake kernel is defined, if that can be read."""
        code = getattr(fake_function(self.name), "__code__", None)
        if code is None:
            return None
        return Frame(code.co_filename, code.co_firstlineno, code.co_name, linecache.getline(code.co_filename, code.co_firstlineno).strip())


def operator_of(subject: Subject) -> Operator | str:
    """The registered operator that a check is of; in words, why there is none that opcheck could look at."""
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
    tensors = [argument.value for argument in subject.arguments if argument.is_tensor]
    if not all(type(x) is Tensor and x.layout is torch.strided for x in tensors):
        return "opcheck takes plain, dense tensors only"
    if not {x.device.type for x in tensors} <= DEVICES:
        return "opcheck takes tensors on the CPU and on CUDA devices only"
    return Operator(found, subject)


@contextmanager
def quiet() -> Iterator[None]:
    """Neither warnings nor log lines nor anything printed; torch logs what it raises as well."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_(x.requires_grad)
