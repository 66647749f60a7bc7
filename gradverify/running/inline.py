"""Checks in this process: what a case needs of the machine, and why it cannot run here; then torch
is imported, what is printed is kept for the report, and what would end the process raises."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

from gradverify.model.case import Case, InputRecipe, Search
from gradverify.model.element import Element
from gradverify.model.event import Planned
from gradverify.model.fault import UserCodeError
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.mutation import MutatedCheck
from gradverify.model.result import CaseResult
from gradverify.running.lost import undecided, without_running
from gradverify.running.supervisor import MOST_PRINTED, cut, end_of, high, opened

MODULE = "module:"


@dataclass(frozen=True, slots=True)
class Devices:
    """What there is to compute on; `cuda` are the names of the CUDA devices, `reduced` the switches
    of fewer bits that are on there."""

    cuda: tuple[str, ...]
    threads: int
    reduced: tuple[str, ...] = ()


def skipped(case: Case, machine: Devices | None) -> CaseResult | None:
    """The result of a case that is not to run here, with the reason; None where it can run."""
    if case.skip is not None:
        return without_running(case, "skip", case.skip)
    for requirement in case.requires:
        name = requirement.removeprefix(MODULE)
        if name != requirement and not installed(name, case.search):
            return without_running(case, "skip", f"no module {name!r}")
    missing = _missing_device(case, machine) if machine is not None else None
    return None if missing is None else without_running(case, "skip", missing, "cuda")


def cuda_of(case: Case) -> frozenset[str]:
    """The CUDA devices that it runs on, each by its number."""
    return frozenset(
        "cuda:0" if device == "cuda" else device
        for device in _devices(case)
        if device.startswith("cuda")
    )


def _missing_device(case: Case, machine: Devices) -> str | None:
    wanted = [device for device in _devices(case) if device.startswith("cuda")]
    absent = next(
        (device for device in wanted if int(device.partition(":")[2] or 0) >= len(machine.cuda)),
        None,
    )
    if absent is None:
        return None
    seen = (
        f"there is no {absent}: {len(machine.cuda)} CUDA device(s) seen"
        if machine.cuda
        else "no CUDA device"
    )
    return f"{seen}, and no comparison with {case.beside}" if case.beside else seen


def _devices(case: Case) -> Iterator[str]:
    yield case.settings.device
    yield from () if case.beside is None else (case.beside,)
    yield from (requirement for requirement in case.requires if not requirement.startswith(MODULE))
    yield from (
        recipe.device
        for argument in (*case.inputs, *case.keywords)
        for recipe in argument.recipes
        if recipe.device is not None
    )


def placed(case: Case, machine: Devices | None) -> Case:
    """`device: auto`, of the check or of an input, is the first CUDA device where there is one."""
    if "auto" not in set(_devices(case)):
        return case
    found = "cuda" if machine and machine.cuda else "cpu"
    settings = case.settings
    if settings.device == "auto":
        settings = replace(settings, device=found)
    return replace(
        case,
        settings=settings,
        inputs=tuple(_moved(argument, found) for argument in case.inputs),
        keywords=tuple(_moved(argument, found) for argument in case.keywords),
        beside=found if case.beside == "auto" else case.beside,
    )


def _moved(argument: InputRecipe, device: str) -> InputRecipe:
    recipes = tuple(
        replace(recipe, device=device) if recipe.device == "auto" else recipe
        for recipe in argument.recipes
    )
    if argument.tensor is None:
        return replace(argument, tensors=recipes)
    return replace(argument, tensor=recipes[0])


def installed(name: str, search: Search) -> bool:
    """Could the module be imported while the case runs, by what lies in its folders and in the
    interpreter's?"""
    places, parts = [*search.path, search.folder, str(Path.cwd()), *sys.path], name.split(".")
    if parts[0] in sys.builtin_module_names:
        return len(parts) == 1
    for depth in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:depth]), places)
        if found is None:
            return False
        places = list(found.submodule_search_locations or ())
    return True


ENDS = ("_exit", "execv", "execve")  # through the last two go all of the kind


class ProcessExit(BaseException):
    """The user's code called os._exit, or replaces the process: with status 0 the whole run would
    have ended as if all had passed."""


@contextmanager
def staying() -> Iterator[None]:
    """What ends this process raises ProcessExit in it and while this lasts; in a child of fork, and
    afterwards, it is itself."""
    originals = {name: getattr(os, name) for name in ENDS if hasattr(os, name)}
    here = os.getpid()
    lasting = True

    def staying_at(name: str) -> Callable[..., NoReturn]:
        def stay(*given: Any) -> NoReturn:
            if lasting and os.getpid() == here:
                raise ProcessExit(f"os.{name}({_shown(given[0]) if given else ''})")
            originals[name](*given)
            raise AssertionError(name)  # it does not return

        return stay

    for name in originals:
        setattr(os, name, staying_at(name))
    try:
        yield
    finally:
        lasting = False
        for name, original in originals.items():
            setattr(os, name, original)


def _shown(argument: Any) -> Any:
    return os.fsdecode(argument) if isinstance(argument, bytes) else argument


@contextmanager
def stack_on_crash(stderr: int) -> Iterator[None]:
    """A segmentation fault writes the Python stack to this descriptor, unless somebody else looks
    after that already."""
    if faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(stderr)
    try:
        yield
    finally:
        faulthandler.disable()


STDOUT, STDERR = 1, 2  # the descriptors that native code writes to


def devices() -> Devices:
    """Asks torch. Imports it."""
    from gradverify.subject.fewer_bits import in_fewer_bits
    from gradverify.subject.machine import cuda_devices, threads

    found = cuda_devices()
    return Devices(found, threads(), in_fewer_bits() if found else ())


def run_case(
    case: Case,
    planned: Planned | None = None,
    so_far: Callable[[CaseResult], None] | None = None,
    *,
    prepared: Callable[[], None] = lambda: None,
    changed: tuple[str, ...] = (),
    into: Path | None = None,
    own_process: bool = False,
) -> CaseResult:
    """Prepares and verifies one case. Only Ctrl-C raises. `planned` and `so_far` as in `verify`.

    `prepared` is called once everything is imported and made; `changed`: what the modules of the
    check did to the process that imported them.
    `into`: the file for what is printed, which another process reads if this one ends.
    `own_process`: this one ends with the check, and began as `machine.imports` has it; in any other
    one, torch's and NumPy's settings and random generators are put back, and nothing else.
    """
    from gradverify.subject.find import importable
    from gradverify.subject.instruments import replaced
    from gradverify.subject.machine import as_torch_starts, compute_on_one_thread, undisturbed
    from gradverify.subject.on_cuda import most_memory, start_of_memory
    from gradverify.subject.prepare import prepare
    from gradverify.verify import broken, verify

    started, put_back, before = time.perf_counter(), list[str](), replaced()
    with captured(into) as printed, ExitStack() as stack:
        if not own_process:
            stack.enter_context(undisturbed())
            stack.enter_context(as_torch_starts())
        stack.enter_context(staying())
        try:
            with importable(case.search, printed.only_if_raised) as put_back:
                start_of_memory(case.settings.device)
                subject = prepare(case)
                prepared()
                compute_on_one_thread(subject.size)
                result = replace(
                    verify(subject, planned, so_far),
                    device_memory=most_memory(case.settings.device),
                )
        except BaseException as error:
            result = broken(case, error)
    changed = tuple(
        dict.fromkeys((*changed, *(f"changed {name} while it was imported" for name in put_back)))
    )
    result = undecided(result, replaced(), () if own_process else before)
    return replace(
        result, seconds=time.perf_counter() - started, captured=printed.text, changed=changed
    )


@contextmanager
def _called_here(case: Case, printed: _Printed) -> Iterator[None]:
    """Inside, the function of a case is called in this process, which is left as it was. Raises
    UserCodeError for whatever the user's code raises."""
    from gradverify.subject.failure import is_users, unnamed
    from gradverify.subject.find import importable
    from gradverify.subject.machine import undisturbed

    with undisturbed(), staying():
        try:
            with importable(case.search, printed.only_if_raised):
                yield
        except BaseException as error:
            if isinstance(error, UserCodeError) or is_interrupt(error) or not is_users(error):
                raise
            raise unnamed(error) from None


def explain_case(case: Case, element: tuple[str, str] | None) -> Element | CaseResult:
    """Prepares one case and measures one element: names of the input's and the output's, or the
    worst. What the user's code raises is a result.

    Raises ProblemsError where there is no such element.
    """
    from gradverify.element.explain import Requested, explain
    from gradverify.subject.machine import compute_on_one_thread
    from gradverify.subject.prepare import prepare
    from gradverify.verify import broken

    with captured() as printed:
        try:
            with _called_here(case, printed):
                subject = prepare(case)
                compute_on_one_thread(subject.size)
                return explain(subject, Requested(*element) if element else None)
        except UserCodeError as error:
            result = broken(case, error)
    return replace(result, captured=printed.text)


def mutated(cases: Sequence[Case], began: Callable[[Case], None]) -> Iterator[MutatedCheck]:
    """Each case under all damage that can be done to it, as it ends; `began` is told before it
    begins. Imports torch."""
    machine = devices() if any(case.skip is None for case in cases) else None
    for case in cases:
        if (skip := skipped(case, machine)) is not None:
            yield MutatedCheck(case.id, case.name, case.target, left_out=f"skipped: {skip.reason}")
            continue
        began(case)
        with interruptible():
            found = mutate_case(placed(case, machine))
        yield found


def mutate_case(case: Case) -> MutatedCheck:
    """What the user's code raises leaves the case out; only a fault of gradverify itself raises."""
    from gradverify.mutation.mutate import mutate

    started = time.perf_counter()
    with captured() as printed:
        try:
            with _called_here(case, printed):
                result = mutate(case)
        except UserCodeError as error:
            why = f"it does not pass undamaged: {error.message}"
            result = MutatedCheck(case.id, case.name, case.target, left_out=why, broken=True)
    return replace(result, seconds=time.perf_counter() - started)


@dataclass(slots=True)
class _Printed:
    """The end of what was written to stdout and stderr, complete once the capture has ended.
    `file`: as much of it as is kept, until then."""

    file: io.FileIO
    text: str | None = None

    @contextmanager
    def only_if_raised(self) -> Iterator[None]:
        """What is printed inside is taken out again, unless something is raised."""
        _flush_native()
        before = self.file.tell()  # of the descriptors 1 and 2 as well
        yield
        _flush_native()
        self.file.truncate(min(before, os.fstat(self.file.fileno()).st_size))
        # A file without a name has no mode that always writes there
        self.file.seek(0, os.SEEK_END)


class _Sink(io.RawIOBase):
    """Writes to a file while a check runs, nowhere afterwards: a logger or thread of the user's may
    keep it for longer."""

    def __init__(self, file: io.FileIO) -> None:
        self.file: io.FileIO | None = file

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STDOUT  # which leads to the same file as long as the check runs

    def write(self, data: Any) -> int:
        if self.file is not None:
            self.file.write(bytes(data[-2 * MOST_PRINTED :]))
            if self.file.tell() > MOST_PRINTED:
                cut(self.file)
        return len(data)


@contextmanager
def captured(into: Path | None = None) -> Iterator[_Printed]:
    """Nothing that a check prints reaches stdout, which may carry a format, or mixes with the
    progress on stderr; native writes included.

    `into`: the file that holds it meanwhile, in place of one without a name.
    """
    _flush_native()
    with opened(into) as file:
        printed = _Printed(file)
        sink = _Sink(file)
        stream = io.TextIOWrapper(
            sink, encoding="utf-8", errors="backslashreplace", write_through=True
        )  # type: ignore[type-var]
        saved = [(fd, high(fd)) for fd in (STDOUT, STDERR)]
        for fd, _ in saved:
            os.dup2(file.fileno(), fd)
        try:
            with redirect_stdout(stream), redirect_stderr(stream), stack_on_crash(saved[-1][1]):
                yield printed
        finally:
            _flush_native()
            for fd, copy in saved:
                with suppress(OSError):  # closed by what ran
                    os.dup2(copy, fd)
                    os.close(copy)
            sink.file = None
            printed.text = end_of(file)


def _flush_native() -> None:
    """What C code printed may still be in libc's buffer, and Python's own streams buffer too: later
    they would reach the real stdout."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # Closed, detached, or replaced by something that is no stream
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    # A platform whose C library cannot be named so
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
