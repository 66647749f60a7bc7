"""One call of a target with inputs that were guessed: how far it came."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Case, Json, Search, Settings, SpecPlace
from gradverify.model.fault import ToolError
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Frame
from gradverify.spec.names import own_name
from gradverify.subject.draw import DTYPES, generator, signed
from gradverify.subject.failure import ON_CUDA, SINGLE_ONLY, TOO_LATE, UserCodeError, describe
from gradverify.subject.machine import seeded
from gradverify.subject.own_code import FunctionMode, wrapped
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target, live
from gradverify.trial.choices import Assignment
from gradverify.trial.wanted import Wanted

OBJECT_TOLD = re.compile(r"object is not callable|'(?:Tensor|float|int|bool|str|list|NoneType)' object has no attribute '(\w+)'")
LONGEST = 5.0       # seconds for one call: tiny inputs take milliseconds, compiling on the first call a few seconds


class Level(IntEnum):
    """How far a call came."""

    LEFT_OUT, NOT_BUILT, RAISED, NOT_DIFFERENTIABLE, NOT_FINITE, NO_BACKWARD, ZERO, WHOLE = range(8)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`progress`: calls of torch that forward made before it raised; `error`: in one line, `frame` the user's line it came from; `nothing`: the
    differentiable arguments that backward gave no gradient for."""

    level: Level
    progress: int = 0
    error: str | None = None
    hint: str | None = None
    frame: Frame | None = None
    nothing: tuple[str, ...] = ()

    @property
    def wants_object(self) -> bool:
        """Did forward fail because an argument is a function, a module or another object to it?"""
        return self.level == Level.RAISED and _used_as_object(self.error or "")

    @property
    def elsewhere(self) -> str | None:
        """What it asked for in place of float64 on the CPU: a dtype, or `cuda`."""
        if self.level > Level.RAISED:
            return None
        single = self.hint == SINGLE_ONLY or re.search(r"float32|fp32|single precision", self.error or "", re.IGNORECASE)
        return "cuda" if self.hint in (ON_CUDA, TOO_LATE) else "float32" if single else None


def _used_as_object(error: str) -> bool:
    """Does it say that something was called, or has no attribute of a name that tensors and plain values do not have either?"""
    told = OBJECT_TOLD.search(error)
    return told is not None and not any(told[1] and hasattr(kind, told[1]) for kind in (Tensor, list, str, float, int))


class _TooLong(BaseException):
    """A call took longer than LONGEST. No Exception: the user's code is not to catch it."""


class _Counting(FunctionMode):
    """Counts the calls of torch that return."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        result = wrapped(func, *args, **named)
        self.made += 1
        return result


@dataclass
class Attempts:
    """Calls of one target. `build`: the module class to build, where it is one; `crashed`: numbers of attempts that ended a process; `begun` is told
    the number of each before it is made."""

    name: str
    search: Search
    found: Target
    wanted: Sequence[Wanted]
    build: type[torch.nn.Module] | None = None
    crashed: frozenset[int] = frozenset()
    begun: Callable[[int], None] = lambda number: None
    dtype: str = "float64"
    device: str = "cpu"
    made: int = 0
    _known: dict[str, Outcome] = field(default_factory=dict)
    _modules: dict[str, Target | UserCodeError] = field(default_factory=dict)

    def case(self, assignment: Assignment) -> Case:
        """The case that a spec with these inputs would be."""
        given = [assignment[each.name] for each in self.wanted if each.name in assignment and not each.init and not each.keyword]
        named = [assignment[each.name] for each in self.wanted if each.name in assignment and each.keyword]
        own = own_name(self.name)
        return Case(own, own, own, SpecPlace("", 0), self.name, tuple(given), init=self.init(assignment),
                    kwargs={str(each.name): each.value for each in named if not each.recipes}, keywords=tuple(each for each in named if each.recipes),
                    settings=Settings(dtype=self.dtype, device=self.device), search=self.search)

    def init(self, assignment: Assignment) -> Mapping[str, Json] | None:
        if self.build is None:
            return None
        return {each.name: assignment[each.name].value for each in self.wanted if each.init and each.name in assignment}

    def run(self, assignment: Assignment) -> Outcome:
        """The same again is not tried again."""
        key = f"{self.dtype} {self.device} {sorted((name, repr(recipe)) for name, recipe in assignment.items())}"
        if key not in self._known:
            self.made += 1
            self.begun(self.made)
            self._known[key] = Outcome(Level.LEFT_OUT, error="it ended the process") if self.made in self.crashed else self._made(assignment)
        return self._known[key]

    def _made(self, assignment: Assignment) -> Outcome:
        counting = _Counting()
        try:
            with _limited():
                case = self.case(assignment)
                subject = assemble(case, self._target(case), drawn_inputs(case, torch.device(self.device)))
                leaves = subject.leaves()
                with counting:
                    outputs = subject.probe(leaves)
                return _judged(subject, leaves, outputs, counting.made)
        except UserCodeError as error:
            level = Level.NOT_BUILT if error.code == "GV001" else Level.RAISED
            return Outcome(level, counting.made, error.message, error.hint, error.frames[-1] if error.frames else None)
        except BaseException as error:
            if is_interrupt(error) or isinstance(error, ToolError):
                raise
            return Outcome(Level.LEFT_OUT, 0, f"it took longer than {LONGEST:g} s" if isinstance(error, _TooLong) else describe(error))

    def _target(self, case: Case) -> Target:
        """The target, a module built with what is given. Raises UserCodeError."""
        if self.build is None:
            return self.found
        key = f"{self.dtype} {case.init}"
        if key not in self._modules:
            try:
                with seeded(0):
                    self._modules[key] = live(self.name, self.build, case.init, DTYPES[self.dtype])
            except UserCodeError as error:
                self._modules[key] = error
        built = self._modules[key]
        if isinstance(built, UserCodeError):
            raise built
        return built


def _judged(subject: Subject, leaves: Sequence[Tensor], outputs: Sequence[Any], progress: int) -> Outcome:
    differentiable = [y for y in outputs if isinstance(y, Tensor) and y.requires_grad and (y.is_floating_point() or y.is_complex())]
    if not leaves:
        return Outcome(Level.NOT_BUILT, 0, "no argument is a tensor that could be differentiated")
    if not differentiable:
        return Outcome(Level.NOT_DIFFERENTIABLE, progress, "no output depends on an input in a way that autograd knows of")
    if not all(y.numel() and bool(torch.isfinite(y).all()) for y in differentiable):
        return Outcome(Level.NOT_FINITE, progress, "its outputs are empty, or not finite")
    source = generator(0, "trial", "grad_output")
    try:
        gradients = torch.autograd.grad(differentiable, leaves, [signed(y, source) for y in differentiable], allow_unused=True)
    except Exception as error:
        return Outcome(Level.NO_BACKWARD, progress, f"backward raised {describe(error)}")
    nothing = tuple(argument.name for argument, gradient in zip(subject.differentiable, gradients, strict=True) if gradient is None)
    moved = [gradient for gradient in gradients if gradient is not None and bool(torch.isfinite(gradient).all()) and bool((gradient != 0).any())]
    return Outcome(Level.WHOLE if moved else Level.ZERO, progress, None if moved else "its gradients are zero", nothing=nothing)


@contextmanager
def _limited() -> Iterator[None]:
    """Python code that does not come back is interrupted; native code only by whoever supervises this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
