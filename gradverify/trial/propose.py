"""Inputs that a function runs with, found in this process in few calls: what a worker of
`gradverify init` does."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Case, InputRecipe, Json, Settings, SpecPlace
from gradverify.model.fault import FAILED, ToolError, fault_of
from gradverify.model.interrupt import is_interrupt
from gradverify.model.proposal import Proposal, Sought
from gradverify.model.result import Frame
from gradverify.source.modules import shown
from gradverify.spec.names import own_name
from gradverify.subject.draw import DTYPES, generator, signed
from gradverify.subject.failure import (
    ON_CUDA,
    SINGLE_ONLY,
    TOO_LATE,
    UserCodeError,
    attempted,
    describe,
    is_users,
)
from gradverify.subject.find import importable
from gradverify.subject.machine import cuda_devices, seeded, undisturbed
from gradverify.subject.prepare import assemble, drawn_inputs
from gradverify.subject.target import Target, live, named
from gradverify.trial.layouts import Assignment, layouts, otherwise
from gradverify.trial.wanted import TENSORS, parameters_of, wanted

MOST, SPARED = 40, 10  # calls of one function; those of them that are left for what a check varies
MOST_CASES = 8  # of one matrix
OBJECT = re.compile(
    r"object is not callable|'(?:Tensor|float|int|bool|str|list|NoneType)' object has no "
    r"attribute '(\w+)'"
)
BY_HAND = (
    "which a spec cannot write: name a function of tensors around it, or one that makes the inputs "
    "(`inputs_from`)"
)


class Level(IntEnum):
    """How far a call came."""

    NONE, RAISED, NOT_DIFFERENTIABLE, NOT_FINITE, NO_BACKWARD, ZERO, WHOLE = range(7)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one call. `frame`: the user's line that the error came from; `nothing`: the arguments that
    backward gave no gradient for."""

    level: Level
    error: str = ""
    hint: str | None = None
    frame: Frame | None = None
    nothing: tuple[str, ...] = ()

    @property
    def reached(self) -> tuple[int, int]:
        """The further, the more a call did before it failed."""
        return self.level, self.frame.line if self.frame else 0


def propose(sought: Sought, loaded: Callable[[], None] = lambda: None) -> Proposal:
    """Whatever the user's code does, an answer; only Ctrl-C raises. `loaded` is called once the
    target is imported."""
    with undisturbed():
        try:
            with importable(sought.search):
                found = named(sought.target, "function")
                loaded()
                return Search(sought, found).proposal()
        except UserCodeError as error:
            return Proposal(
                sought.target, missing=f"{error.message}{f'; {error.hint}' if error.hint else ''}"
            )
        except BaseException as error:
            if is_interrupt(error):
                raise
            if is_users(error):
                return Proposal(sought.target, missing=f"trying it raised {describe(error)}")
            fault = fault_of(error, "trying calls")
            return Proposal(
                sought.target, missing=f"{FAILED} in {fault.during} ({fault.what})", fault=fault
            )


class Search:
    """Calls of one target. `best`: the furthest so far."""

    def __init__(self, sought: Sought, found: Any) -> None:
        self.sought, self.calls = sought, dict[str, Outcome]()
        self.dtype, self.device = "float64", "cpu"
        self.build = (
            found if inspect.isclass(found) and issubclass(found, torch.nn.Module) else None
        )
        if self.build is None:
            self.target = live(sought.target, found, None, torch.float64)
        else:
            parameters = parameters_of(found.forward)[1:]
            self.target = Target(sought.target, "module", found, found, parameters)
        self.wanted = wanted(self.target, self.build)
        self.best: tuple[Assignment, Outcome] = {}, Outcome(Level.NONE)

    def proposal(self) -> Proposal:
        """The check that the first whole call is, or what is missing, with the furthest call."""
        self._find()
        outcome = self.best[1]
        if outcome.level >= Level.NO_BACKWARD:
            return self._refined()
        at = (
            f" ({shown(Path(outcome.frame.file), Path.cwd())}:{outcome.frame.line})"
            if outcome.frame
            else ""
        )
        used = OBJECT.search(outcome.error)
        if self._elsewhere(outcome) == "cuda":
            self.device = "cuda"
            at += (
                "; it runs on a GPU only, and torch finds none here: run `init` where there is one"
            )
        elif used and not any(
            used[1] and hasattr(kind, used[1]) for kind in (Tensor, list, str, float, int)
        ):
            at += f"; an argument seems to be a function, a module or another object, {BY_HAND}"
        return self._as_it_is(missing=f"{outcome.error or 'it takes no arguments'}{at}")

    def _find(self) -> None:
        """Try common layouts, and after each refusal what it suggests, until there is a
        gradient."""
        common, suggested = layouts(self.wanted), list[Assignment]()
        while len(self.calls) < MOST - SPARED:
            assignment = suggested.pop(0) if suggested else next(common, None)
            if assignment is None:
                break
            before, outcome = len(self.calls), self._run(assignment)
            elsewhere = self._elsewhere(outcome)
            if elsewhere == "float32" and self.dtype == "float64":
                self.dtype = elsewhere
                outcome = self._run(assignment)
            if elsewhere == "cuda" and self.device == "cpu" and cuda_devices():
                self.device = elsewhere
                outcome = self._run(assignment)
            further = outcome.reached > self.best[1].reached
            if further:
                self.best = assignment, outcome
            if outcome.level == Level.WHOLE or self._elsewhere(outcome):
                break
            if len(self.calls) > before and (
                further or not suggested or outcome.level == Level.NO_BACKWARD
            ):
                more = otherwise(assignment, self.wanted, outcome.error, outcome.frame)
                suggested = [*islice(more, 9 if further else 3), *suggested]

    def _elsewhere(self, outcome: Outcome) -> str | None:
        """What it asked for in place of float64 on the CPU: a dtype, or `cuda`."""
        if outcome.level > Level.RAISED:
            return None
        single = outcome.hint == SINGLE_ONLY or re.search(
            r"(?i)float32|fp32|single precision", outcome.error
        )
        return "cuda" if outcome.hint in (ON_CUDA, TOO_LATE) else "float32" if single else None

    def _refined(self) -> Proposal:
        """Vary words and truth values, leave out optional tensors, mark what gets no gradient."""
        (assignment, outcome), varied, left_out = (
            self.best,
            dict[str, tuple[Json, ...]](),
            list[str](),
        )

        def runs(given: Assignment) -> bool:
            return (
                len(self.calls) < MOST and self._run({**assignment, **given}).level == Level.WHOLE
            )

        for each in self.wanted if outcome.level == Level.WHOLE else ():
            name, recipe = each.name, assignment.get(each.name)
            if each.default is None and each.kind in TENSORS and recipe is not None:
                left_out += [name] * runs({name: InputRecipe(name)})
            elif each.kind in ("word", "bool") and not each.init and name != "inplace":
                known = recipe.value if recipe is not None else each.default
                others = (
                    (not known,)
                    if isinstance(known, bool)
                    else each.words
                    if isinstance(known, str)
                    else ()
                )
                together = {**varied, name: tuple(dict.fromkeys([known, *others]))}
                if (
                    len(together[name]) > 1
                    and math.prod(map(len, together.values())) <= MOST_CASES
                    and all(
                        runs(
                            {
                                key: InputRecipe(key, value=value)
                                for key, value in zip(together, values, strict=True)
                            }
                        )
                        for values in product(*together.values())
                    )
                ):
                    varied = together
        found = {
            **assignment,
            **{name: InputRecipe(name, value=values[0]) for name, values in varied.items()},
        }
        remarks = dict[str, str]()
        for name, recipe in found.items():
            if name in outcome.nothing and recipe.tensor is not None:
                found[name] = replace(recipe, tensor=replace(recipe.tensor, requires_grad=False))
                remarks[name] = "backward gave no gradient for it"
        self.best = found, outcome
        note = (
            None
            if outcome.level == Level.WHOLE
            else f"Not quite: {outcome.error}. Other inputs may do better."
        )
        return self._as_it_is(remarks=remarks, varied=varied, left_out=tuple(left_out), note=note)

    def _case(self, assignment: Assignment) -> Case:
        """The case that a spec with these inputs would be."""
        name, own = self.sought.target, own_name(self.sought.target)
        given = [(each, assignment[each.name]) for each in self.wanted if each.name in assignment]
        return Case(
            own,
            own,
            own,
            SpecPlace("", 0),
            name,
            tuple(recipe for each, recipe in given if not each.init and not each.keyword),
            init=None
            if self.build is None
            else {each.name: recipe.value for each, recipe in given if each.init},
            kwargs={
                each.name: recipe.value
                for each, recipe in given
                if each.keyword and not recipe.recipes
            },
            keywords=tuple(recipe for each, recipe in given if each.keyword and recipe.recipes),
            settings=Settings(dtype=self.dtype, device=self.device),
            search=self.sought.search,
        )

    def _as_it_is(self, **said: Any) -> Proposal:
        case = self._case(self.best[0])
        keywords = (
            *case.keywords,
            *(InputRecipe(name, value=value) for name, value in case.kwargs.items()),
        )
        return Proposal(
            case.target,
            case.inputs,
            keywords,
            case.init,
            dtype=self.dtype,
            device=self.device,
            attempts=len(self.calls),
            **said,
        )

    def _run(self, assignment: Assignment) -> Outcome:
        """The same again is not tried again."""
        key = (
            f"{self.dtype} {self.device} "
            f"{sorted((name, repr(recipe)) for name, recipe in assignment.items())}"
        )
        if key not in self.calls:
            self.calls[key] = self._made(self._case(assignment))
        return self.calls[key]

    def _made(self, case: Case) -> Outcome:
        try:
            found = self.target
            if self.build is not None:
                with seeded(0):
                    found = live(case.target, self.build, case.init, DTYPES[self.dtype])
            subject = assemble(case, found, drawn_inputs(case))
            graph = subject.probed(subject.leaves())
            outputs = [y for y in graph.outputs if isinstance(y, Tensor) and y.requires_grad]
        except UserCodeError as error:
            return Outcome(
                Level.RAISED, error.message, error.hint, error.frames[-1] if error.frames else None
            )
        except BaseException as error:
            if is_interrupt(error) or isinstance(error, ToolError):
                raise
            return Outcome(Level.NONE, describe(error))
        if not graph.leaves or not outputs:
            return Outcome(
                Level.NOT_DIFFERENTIABLE,
                "no output depends on an input in a way that autograd knows of",
            )
        if not all(y.numel() and bool(torch.isfinite(y.to_dense()).all()) for y in outputs):
            return Outcome(Level.NOT_FINITE, "its outputs are empty, or not finite")
        source = generator(0, "trial", "grad_output")
        gradients = attempted(subject.pull, graph, outputs, [signed(y, source) for y in outputs])
        if isinstance(gradients, UserCodeError):
            return Outcome(Level.NO_BACKWARD, gradients.message)
        given = list(zip(subject.differentiable, gradients, strict=True))
        nothing = tuple(argument.name for argument, gradient in given if gradient is None)
        dense = [gradient.to_dense() for gradient in gradients if gradient is not None]
        if any(
            bool(torch.isfinite(gradient).all() and (gradient != 0).any()) for gradient in dense
        ):
            return Outcome(Level.WHOLE, nothing=nothing)
        return Outcome(Level.ZERO, "its gradients are zero", nothing=nothing)
