"""Run checks in this process: decide whether the machine has what a case needs, import torch,
capture the output for the report, and raise instead of ending the process."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

from gradverify.model.case import Case, InputRecipe, Search
from gradverify.model.element import Element
from gradverify.model.event import Planned
from gradverify.model.fault import UserCodeError, attempted
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.mutation import MutatedCheck
from gradverify.model.result import CaseResult
from gradverify.running.lost import undecided, without_running
from gradverify.running.supervisor import MOST_PRINTED, cut, end_of, high, opened

MODULE = "module:"


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of the machine. `cuda`: the names of the CUDA devices; `threads`: of torch on the
    CPU; `reduced`: the switches for reduced precision that are on."""

    cuda: tuple[str, ...]
    threads: int
    reduced: tuple[str, ...] = ()


def skipped(case: Case, machine: Devices | None) -> CaseResult | None:
    """Return the result, with its reason, of a case that cannot run here; None if it can."""
    if case.skip is not None:
        return without_running(case, "skip", case.skip)
    for requirement in case.requires:
        name = requirement.removeprefix(MODULE)
        if name != requirement and not installed(name, case.search):
            return without_running(case, "skip", f"no module {name!r}")
    missing = _missing_device(case, machine) if machine is not None else None
    return None if missing is None else without_running(case, "skip", missing, "cuda")


def cuda_of(case: Case) -> frozenset[str]:
    """Return the CUDA devices that a case runs on, each with its number ("cuda:0")."""
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
    return f"{seen}, and no comparison with {case.other_device}" if case.other_device else seen


def _devices(case: Case) -> Iterator[str]:
    yield case.settings.device
    yield from () if case.other_device is None else (case.other_device,)
    yield from (requirement for requirement in case.requires if not requirement.startswith(MODULE))
    yield from (
        recipe.device
        for argument in (*case.inputs, *case.keywords)
        for recipe in argument.recipes
        if recipe.device is not None
    )


def placed(case: Case, machine: Devices | None) -> Case:
    """Return the case with every `device: auto` replaced: by the first CUDA device if there is one,
    else by the CPU."""
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
        other_device=found if case.other_device == "auto" else case.other_device,
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
    """Return whether a module can be found in the import folders of the case or on `sys.path`.
    Nothing is imported."""
    places, parts = [*search.path, search.folder, str(Path.cwd()), *sys.path], name.split(".")
    if parts[0] in sys.builtin_module_names:
        return len(parts) == 1
    for depth in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:depth]), places)
        if found is None:
            return False
        places = list(found.submodule_search_locations or ())
    return True


ENDS = ("_exit", "execv", "execve")  # the other exec functions call the last two


class ProcessExit(BaseException):
    """Raised where the user's code calls os._exit or replaces the process: with status 0 the whole
    run would otherwise end as if all checks had passed."""


@contextmanager
def staying() -> Iterator[None]:
    """Make the functions in ENDS raise ProcessExit inside, in this process; in a forked child, and
    afterwards, they work as usual."""
    originals = {name: getattr(os, name) for name in ENDS if hasattr(os, name)}
    here = os.getpid()
    lasting = True

    def staying_at(name: str) -> Callable[..., NoReturn]:
        def stay(*given: Any) -> NoReturn:
            if lasting and os.getpid() == here:
                raise ProcessExit(f"os.{name}({_shown(given[0]) if given else ''})")
            originals[name](*given)
            raise AssertionError(name)  # the original does not return

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
    """Have faulthandler write the Python stack to this descriptor in a crash, unless it is enabled
    already."""
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
    """Return the devices that torch finds. Imports torch."""
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
    own: Mapping[str, tuple[Any, ...]] | None = None,
) -> CaseResult:
    """Prepare and verify one case, and return its result. Only Ctrl-C raises.

    `planned` and `so_far`: as in `verify`. `prepared` is called once everything is imported and the
    inputs are made. `changed`: changes that the modules of the check made to this process when they
    were imported. `into`: the file for the output, which another process reads if this one ends.
    `own_process`: this process ends with the check, and was set up by `machine.imports`; otherwise
    torch's and NumPy's settings and random generators are restored, and nothing else. `own`: the
    parts of gradverify before the user's code was imported; None: those of now.
    """
    from gradverify.subject.find import importable
    from gradverify.subject.instruments import changed_parts, own_parts, parts_of, replaced
    from gradverify.subject.machine import as_torch_starts, compute_on_one_thread, undisturbed
    from gradverify.subject.on_cuda import most_memory, start_of_memory
    from gradverify.subject.prepare import prepare
    from gradverify.subject.target import load
    from gradverify.verify import broken, verify

    started, put_back, before = time.perf_counter(), list[str](), replaced()
    own = own_parts() if own is None else own
    now: Mapping[str, tuple[Any, ...]] = {}
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
                oracles = parts_of(load(case))
                result = replace(
                    verify(subject, planned, so_far),
                    device_memory=most_memory(case.settings.device),
                )
                own, now = {**own, **oracles}, parts_of(load(case))
        except BaseException as error:
            result = broken(case, error)
    changed = tuple(
        dict.fromkeys((*changed, *(f"changed {name} while it was imported" for name in put_back)))
    )
    result = undecided(result, replaced(), () if own_process else before)
    if result.verdict == "pass" or result.faults:
        result = undecided(result, changed_parts(own, {**own_parts(), **now}))
    return replace(
        result, seconds=time.perf_counter() - started, captured=printed.text, changed=changed
    )


@contextmanager
def _called_here(case: Case, printed: _Printed) -> Iterator[None]:
    """Prepare this process for calls of a case's function inside, and restore it afterwards. An
    exception of the user's code is raised as UserCodeError."""
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
    """Prepare one case and measure one element: the one with these names of input and output
    elements, or the worst. An exception of the user's code gives an error result.

    Raises ProblemsError if there is no such element.
    """
    from gradverify.element.explain import Requested, explain
    from gradverify.subject.machine import compute_on_one_thread
    from gradverify.subject.prepare import prepare
    from gradverify.verify import broken

    with captured() as printed:

        def explained() -> Element | CaseResult:
            with _called_here(case, printed):
                subject = prepare(case)
                compute_on_one_thread(subject.size)
                return explain(subject, Requested(*element) if element else None)

        found = attempted(explained)
    if isinstance(found, UserCodeError):
        return replace(broken(case, found), captured=printed.text)
    return found


def mutated(cases: Sequence[Case], began: Callable[[Case], None]) -> Iterator[MutatedCheck]:
    """Yield the result of each case with every applicable mutation of its backward, as it ends;
    `began` is called before a case begins. Imports torch."""
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
    """Return the result of one case with every applicable mutation. A case whose own code raises is
    left out; only a fault of gradverify itself raises."""
    from gradverify.mutation.mutate import mutate

    started = time.perf_counter()
    with captured() as printed:

        def mutated_here() -> MutatedCheck:
            with _called_here(case, printed):
                return mutate(case)

        result = attempted(mutated_here)
    if isinstance(result, UserCodeError):
        why = f"it does not pass undamaged: {result.message}"
        result = MutatedCheck(case.id, case.name, case.target, left_out=why, broken=True)
    return replace(result, seconds=time.perf_counter() - started)


@dataclass(slots=True)
class _Printed:
    """Captured output: `text` is the end of it, set once the capture has ended; `file` holds it
    until then."""

    file: io.FileIO
    text: str | None = None

    @contextmanager
    def only_if_raised(self) -> Iterator[None]:
        """Remove the output printed inside, unless an exception is raised."""
        _flush_native()
        before = self.file.tell()  # the position that descriptors 1 and 2 share
        yield
        _flush_native()
        self.file.truncate(min(before, os.fstat(self.file.fileno()).st_size))
        # A file without a name cannot be opened for appending
        self.file.seek(0, os.SEEK_END)


class _Sink(io.RawIOBase):
    """A stream that writes to a file while a check runs, and discards afterwards: a logger or
    thread of the user may keep the stream for longer."""

    def __init__(self, file: io.FileIO) -> None:
        self.file: io.FileIO | None = file

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STDOUT  # redirected to the same file while the check runs

    def write(self, data: Any) -> int:
        if self.file is not None:
            self.file.write(bytes(data[-2 * MOST_PRINTED :]))
            if self.file.tell() > MOST_PRINTED:
                cut(self.file)
        return len(data)


@contextmanager
def captured(into: Path | None = None) -> Iterator[_Printed]:
    """Capture the output of a check, native writes included: stdout may carry a report, and stderr
    the progress display.

    `into`: the file for the output, instead of one without a name.
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
    """Flush libc's buffers and Python's streams, whose contents would otherwise be written later,
    to another destination."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # Closed, detached, or replaced by an object that is no stream
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    # Platforms where the C library cannot be opened by None
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
