"""Inputs that a function runs with, searched in this process: what a worker of `gradverify init` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gradverify.model.case import InputRecipe, Json
from gradverify.model.fault import FAILED, fault_of
from gradverify.model.interrupt import is_interrupt
from gradverify.model.proposal import Proposal, Sought
from gradverify.source.modules import shown
from gradverify.subject.failure import UserCodeError, describe, is_users
from gradverify.subject.find import importable
from gradverify.subject.machine import cuda_devices, undisturbed
from gradverify.subject.target import Target, live, named
from gradverify.trial.attempt import Attempts, Level, Outcome
from gradverify.trial.choices import Assignment
from gradverify.trial.example import exemplified
from gradverify.trial.refine import shortened, varied, with_optional, within_range, without_gradients
from gradverify.trial.search import Search, seeds
from gradverify.trial.wanted import COUNTS, Wanted, kinds, takes_any_number, wanted, wanted_to_build

Begun = Callable[[int], None]

OBJECT = "a function, a module or another object"
BY_HAND = "which a spec cannot write: name a function of tensors around it, or one that makes the inputs (`inputs_from`)"


def propose(sought: Sought, loaded: Callable[[], None] = lambda: None, begun: Begun = lambda number: None) -> Proposal:
    """Whatever the user's code does, an answer; only Ctrl-C raises. `loaded` is called once the target is imported, `begun` before each attempt."""
    with undisturbed():
        try:
            with importable(sought.search):
                found = named(sought.target, "function")
                loaded()
                return _proposed(sought, found, begun)
        except UserCodeError as error:
            return Proposal(sought.target, missing=f"{error.message}{f'; {error.hint}' if error.hint else ''}")
        except BaseException as error:
            if is_interrupt(error):
                raise
            if not is_users(error):
                fault = fault_of(error, "trying calls")
                return Proposal(sought.target, missing=f"{FAILED} in {fault.during} ({fault.what})", fault=fault)
            return Proposal(sought.target, missing=f"trying it raised {describe(error)}")


def _proposed(sought: Sought, found: Any, begun: Begun) -> Proposal:
    build = found if inspect.isclass(found) and issubclass(found, torch.nn.Module) else None
    target = Target(sought.target, "module", found, found, _forward_of(found)) if build else live(sought.target, found, None, torch.float64)
    if sought.example is not None:
        attempts = Attempts(sought.target, sought.search, target, (), build, frozenset(sought.crashed), begun)
        return exemplified(sought.example, attempts, found)
    best: Proposal | None = None
    made = 0
    for count in COUNTS if takes_any_number(target) else (0,):
        asked = wanted(target, count)
        if asked is None:
            return Proposal(sought.target, missing="nothing says what arguments it takes (compiled code without a signature): give an example call, "
                                                   "`--example`")
        asked = [*(wanted_to_build(build) if build else ()), *asked]
        attempts = Attempts(sought.target, sought.search, target, asked, build, frozenset(sought.crashed), begun, made=made)
        proposal = _searched(attempts)
        made = attempts.made
        if proposal.missing is None:
            return proposal
        best = best or proposal
    return best or Proposal(sought.target, missing="it takes no arguments")


def _forward_of(module: type[torch.nn.Module]) -> tuple[inspect.Parameter, ...] | None:
    """The parameters of a module's forward, without `self`."""
    try:
        return tuple(inspect.signature(module.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return None


def _searched(attempts: Attempts) -> Proposal:
    unwritable = next((each for each in attempts.wanted if kinds(each)[0] == "unwritable"), None)
    if unwritable is not None:
        return Proposal(attempts.name, _to_be_filled_in(attempts.wanted), remarks={unwritable.name: "to be filled in"},
                        missing=f"its argument {unwritable.name!r} is {_what(unwritable)}, {BY_HAND}")
    assignment, outcome = Search(attempts).run()
    if outcome.elsewhere == "float32":
        attempts.dtype = "float32"
        assignment, outcome = Search(attempts).run()
    if outcome.elsewhere == "cuda" and cuda_devices():
        attempts.device = "cuda"
        assignment, outcome = Search(attempts).run()
    if outcome.level < Level.NO_BACKWARD:
        return _nothing_runs(attempts, assignment, outcome)
    return _refined(attempts, assignment, outcome)


def _to_be_filled_in(wanted: Sequence[Wanted]) -> tuple[InputRecipe, ...]:
    """The likeliest value of every argument, null for one that a spec cannot write."""
    likely: Assignment = next(seeds([each for each in wanted if kinds(each)[0] != "unwritable"]), {})
    return tuple(likely.get(each.name, InputRecipe(each.name)) for each in wanted if not each.keyword and not each.init)


def _what(wanted: Wanted) -> str:
    return "called as a function" if wanted.clues.called or "Callable" in wanted.annotation else f"a {wanted.annotation}"


def _nothing_runs(attempts: Attempts, assignment: Assignment, outcome: Outcome) -> Proposal:
    """What is missing, with the furthest call as a place to go on from."""
    if outcome.elsewhere == "cuda":
        missing = "it runs on a GPU only, and torch finds none here: run `init` where there is one, or complete this there"
        attempts.device = "cuda"
    else:
        at = f" ({shown(Path(outcome.frame.file), Path.cwd())}:{outcome.frame.line})" if outcome.frame else ""
        function = f"; an argument seems to be {OBJECT}, {BY_HAND}" if outcome.wants_object else ""
        missing = f"none of {attempts.made:,} calls came to a gradient; the furthest: {outcome.error or 'nothing could be tried'}{at}{function}"
    return _as_it_is(attempts, assignment, missing=missing)


def _as_it_is(attempts: Attempts, assignment: Assignment, **said: Any) -> Proposal:
    case = attempts.case(assignment)
    keywords = (*case.keywords, *(InputRecipe(name, value=value) for name, value in case.kwargs.items()))
    return Proposal(attempts.name, case.inputs, keywords, case.init, dtype=attempts.dtype, device=attempts.device, attempts=attempts.made, **said)


def _refined(attempts: Attempts, assignment: Assignment, outcome: Outcome) -> Proposal:
    """The check, with all that more attempts can say of it."""
    note: str | None = None
    matrix: dict[str, tuple[Json, ...]] = {}
    left_out: tuple[str, ...] = ()
    assignment = within_range(assignment, attempts)
    if outcome.level == Level.WHOLE:
        assignment, left_out = with_optional(assignment, attempts)
        matrix = dict(varied(assignment, attempts))
        outcome = attempts.run(assignment)
    else:
        note = f"Not quite: {outcome.error}. Other inputs may do better."
    assignment, remarks = without_gradients(assignment, outcome.nothing, attempts.found)
    assignment = shortened(assignment, attempts.wanted, matrix, attempts.found.kind == "autograd.Function")
    proposal = _as_it_is(attempts, assignment, note=note)
    return replace(proposal, remarks=remarks, varied=matrix, left_out=left_out)
