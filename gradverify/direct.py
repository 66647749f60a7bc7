"""Check a live function in the calling process: for test suites, notebooks and debuggers."""

from __future__ import annotations

import os
import reprlib
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from gradverify.model.case import Case, InputRecipe, Settings, SpecPlace
from gradverify.model.interrupt import interruptible
from gradverify.model.paths import shown_path
from gradverify.model.problem import Problem, ProblemsError
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult

if TYPE_CHECKING:
    from torch import Tensor

    from gradverify.subject.subject import Subject
    from gradverify.subject.target import Target

Inputs = Sequence[Any] | Mapping[str, Any]
Given: TypeAlias = "Sequence[Any] | Mapping[str, Any] | Tensor"
Undecided = Literal["warn", "fail"]
PACKAGE = str(Path(__file__).parent) + os.sep
ORIGIN = "check()"
ONE_AT_A_TIME = threading.RLock()
"""The lock of all checks: random generators, warning filters and forward mode are global to the
process, so checks of several threads would disturb each other."""


@dataclass(frozen=True)
class Result(CaseResult):
    """The result of one check: the fields of an entry of `checks` in the JSON report. `ok`: whether
    nothing is wrong, and everything could be judged."""

    def to_json(self) -> str:
        """Return the JSON text of this entry."""
        from gradverify.model.codec import as_text

        return as_text(self)

    def __str__(self) -> str:
        """Return the text that a terminal would show, without formatting."""
        from gradverify.report.plain import check_text

        return check_text(self)

    def _repr_html_(self) -> str:
        """Return the entry of the HTML report, for notebooks."""
        from gradverify.report.html import cell

        return cell(self)


class GradientError(AssertionError):
    """Raised if a gradient is wrong, or could not be judged. The message is the text that a
    terminal would show; `result`: the Result."""

    __module__ = "gradverify"  # as it is imported, and short in pytest's summary

    def __init__(self, result: Result, message: str) -> None:
        super().__init__(message)
        self.result = result


def _one_argument(result: CaseResult, inputs: tuple[Any, ...]) -> str | None:
    """Return a hint for the user who passes a tuple of all inputs, as for gradcheck, if forward
    raised; else None."""
    if (
        len(inputs) != 1
        or not isinstance(inputs[0], (list, tuple, Mapping))
        or all(finding.code != "GV002" for finding in result.findings)
    ):
        return None
    kind = "dict" if isinstance(inputs[0], Mapping) else type(inputs[0]).__name__
    return (
        f"forward got one argument, a {kind}: if it holds all the inputs, write "
        "assert_gradients(function, *inputs), or check(function, inputs)"
    )


def headline(result: CaseResult) -> str:
    """Return the deciding finding in a line: `GV101 jacobian: 3 of 16 elements …`; without
    findings, the verdict and its reason."""
    found = next(iter((*result.errors, *result.findings)), None)
    head, text = (
        (f"{found.code} {found.name}", found.message)
        if found
        else (result.verdict, result.reason or "")
    )
    return f"{head}: {text.splitlines()[0]}" if text.strip() else head


def warned(result: CaseResult) -> Iterator[str]:
    """Yield a line for each warning of a rule: `GV224 saved-unused: …`, with its place."""
    for each in result.warnings:
        place = f" ({each.file}:{each.line})" if each.file is not None else ""
        yield f"{each.code} {each.name}: {each.message.splitlines()[0]}{place}"


class GradverifyWarning(UserWarning):
    """Warning of a rule, for what does not make a check fail."""

    __module__ = "gradverify"


class UndecidedWarning(GradverifyWarning):
    """Warning for a check that `assert_gradients(..., undecided="warn")` could not decide."""

    __module__ = "gradverify"


def check(
    function: Callable[..., Any],
    inputs: Given,
    *,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    undecided: Undecided = "fail",
    **settings: Any,
) -> Result:
    """Check the gradients of an autograd Function, a module or any callable at `inputs`, by all
    rules.

    `inputs`: the arguments in order, or by name; a tensor is a single argument. If any tensor among
    them requires grad, those that do are differentiated, else all floating and complex ones. They
    are copied, and never changed. `kwargs`: arguments by keyword; tensors among them are treated in
    the same way. `settings`: those of a spec (`eps`, `atol`, `rtol`, `seed`, `mode`, `budget`,
    `select=["GV1"]`, `ignore`, `strict`, …); dtype and device are the inputs'.

    Nothing is printed, an exception of the function becomes a finding of the Result, and no global
    state is changed. Checks of several threads run one after the other. Raises ProblemsError for an
    invalid setting, TypeError for inputs that are neither a list nor a dict.
    """
    several = _several(inputs)
    values = [
        *(several.values() if isinstance(several, Mapping) else several),
        *(kwargs or {}).values(),
    ]
    placed = _settings(settings, values, undecided)
    found = _judge(function, several, kwargs or {}, name or _name(function), placed)
    result = judged(found, Gate(undecided=undecided))
    return Result(**{field.name: getattr(result, field.name) for field in fields(CaseResult)})


def assert_gradients(
    function: Callable[..., Any],
    /,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    msg: str | None = None,
    undecided: Undecided = "fail",
    **settings: Any,
) -> None:
    """Raise GradientError, an AssertionError, unless the gradients of `function` at `inputs` are
    right. Arguments as in `check`.

    `undecided`: "fail" raises also if neither right nor wrong could be shown, "warn" warns
    (UndecidedWarning). The first line of the message is the finding, which pytest's summary shows;
    `msg` is put before it. Warnings of rules are Python warnings (GradverifyWarning).
    """
    from gradverify.report.names import inert

    __tracebackhide__ = True  # pytest shows the line of the test, and not this frame
    result = check(function, inputs, kwargs=kwargs, undecided=undecided, **settings)
    if not result.ok:
        raise GradientError(
            result,
            inert(
                "\n".join(
                    filter(
                        None, (msg, headline(result), str(result), _one_argument(result, inputs))
                    )
                )
            ),
        )
    for text in warned(result):
        warnings.warn(text, GradverifyWarning, stacklevel=2)
    if result.verdict == "undecided":
        warnings.warn(f"{headline(result)}\n{result}", UndecidedWarning, stacklevel=2)


# ---- Implementation
def _judge(
    function: Callable[..., Any],
    inputs: Inputs,
    kwargs: Mapping[str, Any],
    name: str,
    settings: Settings,
) -> CaseResult:
    from gradverify.subject.machine import compute_on_one_thread
    from gradverify.verify import broken, verify

    place = SpecPlace(*_caller())
    case = Case(
        id=f"{place.path}:{place.line}",
        name=name,
        check=name,
        spec=place,
        target=name,
        settings=settings,
    )
    started = time.perf_counter()
    with ONE_AT_A_TIME, interruptible(), _ours() as default_device:
        try:
            subject = _subject(function, inputs, kwargs, case, default_device)
            compute_on_one_thread(subject.size)
            result = verify(subject)
        except BaseException as error:
            result = broken(case, error)
    return replace(result, seconds=time.perf_counter() - started)


@contextmanager
def _ours() -> Iterator[Any]:
    """Reset global settings of the caller inside: inference mode, no_grad, the default device
    (which is yielded), errors of NumPy and warnings."""
    import numpy as np
    import torch

    from gradverify.running.inline import staying
    from gradverify.subject.machine import undisturbed

    device = torch.get_default_device()
    # Set only if needed: with a default device every call of torch goes through Python
    ours = torch.device("cpu") if device.type != "cpu" else nullcontext()
    with torch.inference_mode(False), undisturbed(), staying(), ours:
        torch.set_grad_enabled(True)
        np.seterr(all="ignore")
        warnings.simplefilter("ignore")
        yield device


def _subject(
    function: Callable[..., Any],
    inputs: Inputs,
    kwargs: Mapping[str, Any],
    case: Case,
    default_device: Any,
) -> Subject:
    from gradverify.subject.draw import DTYPES
    from gradverify.subject.prepare import assemble, given
    from gradverify.subject.target import live

    arguments, plain = given(inputs, kwargs)
    named = tuple(InputRecipe(argument.name) for argument in arguments if argument.keyword)
    target = _called_under(
        default_device, live(case.target, function, None, DTYPES[case.settings.dtype])
    )
    return assemble(replace(case, kwargs=plain, keywords=named), target, arguments)


def _called_under(device: Any, target: Target) -> Target:
    """Return the target with its calls made under the caller's default device."""
    if device.type == "cpu":
        return target

    def call(*args: Any, **kwargs: Any) -> Any:
        with device:
            return target.call(*args, **kwargs)

    return replace(target, call=call)


def _several(inputs: Any) -> Inputs:
    import torch

    if isinstance(inputs, torch.Tensor):
        return [inputs]
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, (Sequence, Mapping)):
        raise TypeError(
            f"inputs: a list of the arguments, or a dict by name, not {type(inputs).__name__}"
        )
    return inputs


def _settings(given: Mapping[str, Any], values: Sequence[Any], undecided: str) -> Settings:
    """Return the settings, with dtype and device of the tensors. Raises ProblemsError, also for an
    invalid `undecided`."""
    from gradverify.rules.catalogue import codes
    from gradverify.spec.load import vetted
    from gradverify.spec.settings import Layer, settle
    from gradverify.subject.prepare import computed_in

    layer, problems = vetted(Layer(ORIGIN, given), codes())
    meant, no_end = get_args(Undecided), "a check in the calling process cannot be ended"
    wrong = [
        f"{name}: {no_end if name == 'timeout' else 'it is that of the inputs'}"
        for name in ("dtype", "device", "timeout")
        if name in given
    ]
    if undecided not in meant:
        wrong.append(f"undecided: must be {' or '.join(map(repr, meant))}, got {undecided!r}")
    if problems or wrong:
        raise ProblemsError([*problems, *(Problem(each, ORIGIN) for each in wrong)])
    dtype, device = computed_in(values)
    return settle(Layer("the inputs", {"dtype": dtype, "device": device}), layer)


def _name(function: Any) -> str:
    if not callable(function):
        return reprlib.repr(function)
    owner = getattr(function, "__self__", None)
    named = owner if isinstance(owner, type) else function
    return str(getattr(named, "__name__", None) or type(named).__name__)


def _caller() -> tuple[str, int]:
    """Return file and line of the call from outside gradverify."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return shown_path(frame.f_code.co_filename), line
    return "?", 1
