"""The live function of a check: called through here only, so that every call is counted and blamed
on the right code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from math import inf
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Case
from gradverify.model.interrupt import raise_if_interrupted
from gradverify.model.result import Calls
from gradverify.numerics.function.point import Clock, Stopwatch
from gradverify.subject.ambient import OURS, left_as_found
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError, Value, attempted, blame, blamed
from gradverify.subject.forms import Argument as Argument
from gradverify.subject.forms import Members, compared, is_dense, named, names
from gradverify.subject.forms import leaves as flattened
from gradverify.subject.graph import every_node
from gradverify.subject.layout import LAID, laid, relaid, with_surroundings
from gradverify.subject.machine import next_draws, random_states, seed_all, seeded
from gradverify.subject.modules import Held, Restless, State, at_rest, hooked, hooks_of, reached
from gradverify.subject.on_cuda import devices_of, finished
from gradverify.subject.snapshot import copied, same
from gradverify.subject.target import Target
from gradverify.torch_private import gradients

# Backwards that must have been timed; forward calls that one takes else
TIMED, PER_BACKWARD = 3, 2.0
# Added to the seed, beside 0 of forwards; the first is no seed that a backward is likely to set
# itself
BACKWARD, ELSEWHERE = 104_729, 2
# Which ends as soon as `.grad` is taken
REFERENCE_CYCLE = r"Using backward\(\) with create_graph=True"
# torch's refusal of an in-place write into an input
LEAF_WRITTEN = "a leaf Variable that requires grad"


Gradients = tuple[Tensor | None, ...]
Tensors = Sequence[Tensor]
Cotangents = Sequence[Tensor | None]


def filled(gradients: Iterable[Tensor | None], inputs: Iterable[Tensor]) -> list[Tensor]:
    """Gradients of these inputs, zeros where there is none."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]


def as_leaves(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Copies without history that require grad."""
    return [x.detach().clone().requires_grad_() for x in tensors]


class Way(Enum):
    """How a function lets itself be differentiated."""

    REUSED = auto()  # one graph serves any number of `torch.autograd.grad`
    FRESH = auto()  # a second backward of a graph is refused: each gets a forward of its own
    # `torch.autograd.grad` is refused, or gradients arrive in `.grad` only: `.backward()` on leaves
    # of a forward of its own
    LEAVES = auto()


@dataclass(frozen=True, slots=True)
class Graph:
    """One forward, with its graph: the tensors that gradients are asked for, the arguments as the
    function got them, the flattened outputs (pytree leaves), and `lent`: what stood in the place of
    a module's parameters and buffers when it was over, by name. It stands there again while a
    backward of the graph runs."""

    leaves: Tensors
    arguments: tuple[Any, ...]
    lent: dict[str, Tensor]
    outputs: tuple[Any, ...]


class Subject:
    """Counts its calls, and those of its twins: `_original` is whose twin this is; `before_call`
    may raise Spent.

    `positions`: the arguments as the function takes them, one each, but the elements of a list or
    the like together; `kwargs`: the plain ones by name; `output_names`: of the flattened outputs,
    known after the first forward; `tensors`: the arguments that are; `parameter_names`: of those
    that are a module's; `writes` is set once the function was seen to write into an
    input: from then on every call gets fresh, non-leaf clones; `way`: how its backward was found to
    be callable, which every backward follows; `around` makes the context that every forward runs
    in, where there is one, `lent` what each of a module's buffers becomes.
    """

    def __init__(
        self, case: Case, target: Target, arguments: Sequence[Argument], kwargs: Mapping[str, Any]
    ) -> None:
        self.case, self.target = case, target
        self.arguments, self.kwargs = tuple(arguments), dict(kwargs)
        grouped = groupby(
            enumerate(self.arguments), key=lambda each: each[1].of.name if each[1].of else each[0]
        )
        self.positions: tuple[Members, ...] = tuple(
            tuple(argument for _, argument in members) for _, members in grouped
        )
        self.writes = False
        self.way = Way.REUSED
        # A forward was seen to set global state that our own computing needs
        self.meddles = False
        self.disables = False  # the last one that was `called` with gradients on left them off
        self.output_names: tuple[str, ...] = ()
        self.around: Callable[[], AbstractContextManager[Any]] | None = None
        self.lent: Callable[[Tensor], Tensor] = lambda buffer: buffer
        self._fence: Callable[[Tensor, str], Tensor] | None = None
        self._odd_output: str | None = None
        # The same in 16 bits, where this one stands in for it in float64
        self.narrow: Subject | None = None
        self._rest: State | None = None
        self._looked = False  # for buffers at rest
        # A module's buffers follow its parameters too slowly to come to rest, and so do its outputs
        self.restless = False
        self._hooks = hooks_of(target.subject) if target.kind == "module" else {}
        plain = [argument.value for argument in arguments if not argument.is_tensor]
        is_module = target.kind == "module"
        self._held = (
            Held(target.subject, parameters=True)
            if is_module
            else Held(*reached(target.subject, *plain, *kwargs.values()))
        )
        self.parameter_names = {argument.name for argument in self.arguments if argument.parameter}
        # All that it gets are differentiable inputs, handed over by position as they lie
        self._bare = (
            not is_module
            and not self.kwargs
            and not self._held
            and all(
                a.differentiable and not a.keyword and not a.of and not a.form and a.layout in LAID
                for a in self.arguments
            )
        )
        # Of CUDA; each call is waited for
        self.tensors = tuple(argument for argument in self.arguments if argument.is_tensor)
        self.differentiable = tuple(a for a in self.arguments if a.differentiable)
        # In order; never written to
        self.inputs: Tensors = tuple(a.value for a in self.differentiable)
        self.on = devices_of(argument.value for argument in self.tensors)
        self.on_cuda, self._quiet = bool(self.on), False
        self._forward = self._backward = self._batched = 0
        self._original: Subject | None = None
        self.before_call: Callable[[], None] | None = None
        self.clock = Clock()

    # ---- calls: counted, timed, and refused where no more are afforded
    @property
    def calls(self) -> Calls:
        """All calls so far."""
        return Calls(self._forward, self._backward, self._batched)

    def count(self, forward: int = 0, backward: int = 0, batched: int = 0) -> None:
        """Adds calls that are about to be made, or that one call stood for. Raises Interrupted
        where an earlier one swallowed Ctrl-C, and Spent where no more are afforded."""
        raise_if_interrupted()
        if self.before_call is not None:
            self.before_call()
        self._forward += forward
        self._backward += backward
        self._batched += batched
        if self._original is not None:
            self._original.count(forward, backward, batched)

    def count_for(self, other: Subject) -> None:
        """From now on the calls of `other` are counted here too, and those here no longer there."""
        self._original, other._original = None, self

    @property
    def clock(self) -> Clock:
        """What calls are timed by: `watches` of forward and of backward."""
        return self.watches[0].clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.watches = Stopwatch(clock), Stopwatch(clock)

    @property
    def fastest(self) -> tuple[float, float]:
        """Seconds of the fastest forward and of the fastest backward, which is a guess where few
        were timed; 0 where none was."""
        watch, pulls = self.watches
        forward = 0.0 if watch.fastest == inf else watch.fastest
        return forward, pulls.fastest if pulls.calls >= TIMED else PER_BACKWARD * forward

    # ---- random numbers: the same for every forward, others for every backward, as the settings
    # say (`reseed`)
    def generator(self, purpose: str) -> torch.Generator:
        """One of its own for each purpose."""
        return generator(self.case.settings.seed, self.case.check, purpose)

    @property
    def _is_quiet(self) -> bool:
        """Is nothing seeded, as nothing is drawn, by this one or whose twin it is?"""
        return self._quiet or (self._original is not None and self._original._is_quiet)

    def reseed(self, offset: int = 0) -> None:
        """Every forward draws the same random numbers (dropout, samplers), from torch, NumPy and
        Python; every backward others."""
        if self.case.settings.reseed and not self._is_quiet:
            seed_all(self.case.settings.seed + offset, self.on_cuda)

    def fresh_states(self, offset: int = 0) -> tuple[object, ...]:
        """Seeds, and says what the generators would draw next: always the same, where the check
        seeds them at all."""
        self.reseed(offset)
        found = self.states()
        self.reseed(offset)
        return found

    def states(self) -> tuple[object, ...]:
        """What the generators would draw next: equal before and after code that drew nothing. Draws
        it, where every call seeds them anew."""
        if self.case.settings.reseed:
            return next_draws(self.on_cuda)
        return random_states(self.on_cuda)

    def seldom_seeded(self, measure: Callable[[], Value]) -> Value:
        """What is measured, seeded once: if anything was drawn meanwhile, it is measured again with
        a seed before every call.

        Three generators that nobody draws from cost as much to seed as a small forward takes.
        """
        before, self._quiet = self.fresh_states(), True
        try:
            found = measure()
        finally:
            self._quiet = False
        return found if self.states() == before else measure()

    def seeded_elsewhere(self, measure: Callable[[], Value], number: int = 0) -> Value:
        """What is measured where the generators start elsewhere than for every other call, for each
        `number` at another place."""
        if self.case.settings.reseed:
            seed_all(self.case.settings.seed + ELSEWHERE + number, self.on_cuda)
        self._quiet = True
        try:
            return measure()
        finally:
            self._quiet = False

    # ---- arguments
    @property
    def own(self) -> Subject:
        """In the dtype that the spec says."""
        return self.narrow or self

    @property
    def size(self) -> int:
        """Elements of all tensor arguments together."""
        return sum(argument.value.numel() for argument in self.tensors)

    @property
    def odd(self) -> str | None:
        """What has neither strides nor another mode of torch to be tried, in a sentence: "a is a
        sparse CSR tensor"; None where all is dense."""
        found = (f"{a.name} is {a.form.kind}" for a in self.arguments if a.form is not None)
        return next(found, self._odd_output)

    def name_of(self, place: int) -> str:
        """An output by its path: `y0`, or `y.loss` of a dict."""
        return self.output_names[place] if place < len(self.output_names) else f"y{place}"

    def leaves(self) -> list[Tensor]:
        """Fresh copies of the differentiable inputs that require grad, laid out as the spec
        says."""
        plain = torch.contiguous_format
        values = (
            with_surroundings(a.value)
            if a.layout is None
            else laid(a.value.detach().clone(memory_format=plain), a.layout)
            for a in self.differentiable
        )
        return [value.requires_grad_() for value in values]

    def twin(
        self,
        arguments: Sequence[Argument],
        kwargs: Mapping[str, Any] | None = None,
        target: Target | None = None,
    ) -> Subject:
        """The same function at other arguments; with other keyword arguments, or built anew, where
        they are given. Its calls are counted here too."""
        other = Subject(
            self.case, target or self.target, arguments, self.kwargs if kwargs is None else kwargs
        )
        other.way = self.way
        other.writes = self.writes
        other._original = self
        other.watches = self.watches
        other.meddles = self.meddles
        other.restless = self.restless
        other.around, other.lent = self.around, self.lent
        # A module's buffers follow its inputs and parameters, if they do so at all
        if target is None and self._looked:
            other._rest = self._rest
            other._looked = self._rest is None or all(
                same(a.value, b.value)
                if a.is_tensor and b.is_tensor
                else a.value is b.value or bool(a.value == b.value)
                for a, b in zip(self.arguments, arguments, strict=True)
            )
        return other

    def called(
        self, inputs: Tensors, mode: Callable[[], AbstractContextManager[Any]] = torch.enable_grad
    ) -> Graph:
        """One forward under a grad mode, the inputs laid out as the spec says. Raises UserCodeError
        (GV002)."""
        self.count(forward=1)
        with mode():
            values = inputs if self._bare and not self.writes else self._arguments(inputs)
            lent = {} if self._bare else self.parameters(values) | self._buffers()
            if self.meddles:
                with left_as_found(OURS):
                    outputs = self._outputs(values, lent)
            else:
                outputs = self._outputs(values, lent)
            self.disables = mode is torch.enable_grad and not torch.is_grad_enabled()
        return Graph(tuple(inputs), tuple(values), lent, tuple(outputs))

    def probed(self, inputs: Tensors) -> Graph:
        """`called`, and notices a function that refuses leaves because it writes into its
        inputs."""
        before, found = copied(inputs), attempted(self.called, inputs)
        if not isinstance(found, UserCodeError):
            return found
        if self.writes or LEAF_WRITTEN not in found.message:
            raise found
        self.writes = True
        with torch.no_grad():
            for x, value in zip(inputs, before, strict=True):
                x.copy_(value)  # it had written before it was refused
        return self.called(inputs)

    def counted_backward(self) -> None:
        """Called before every backward."""
        self.count(backward=1)
        self.reseed(BACKWARD)

    def pull(
        self,
        graph: Graph,
        outputs: Tensors,
        cotangents: Cotangents,
        leaves: Tensors | None = None,
        *,
        retain: bool = False,
        create: bool = False,
        batch: int = 0,
        way: Way | None = None,
        under_modes: bool = False,
        accumulate: bool = False,
        code: str = "GV003",
        what: str = "backward",
    ) -> Gradients:
        """One backward of a graph: the gradient per leaf, None for one that needs or gets none.

        `leaves`: instead of the graph's own. `batch`: how many cotangents come as one. `way`:
        instead of the subject's own. `under_modes`: the function modes that are on see what
        backward calls. `accumulate`: on top of what `.grad` holds, where it stays. Raises
        UserCodeError of that `code`.
        """
        leaves = graph.leaves if leaves is None else leaves
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        anew = () if accumulate else asked
        for leaf in anew:
            leaf.grad = None
        # A batch is counted when it is made: of one that is refused nothing was
        self.count(backward=int(not batch))
        self.reseed(BACKWARD)
        with blamed(code, what), self.standing(graph):
            self.watches[1].start()
            found: Sequence[Tensor | None]
            if (way or self.way) is Way.LEAVES:
                # A leaf that is not our own (a closure's parameter) keeps the `.grad` it holds
                others = [
                    node.variable
                    for node in every_node(outputs)
                    if type(node).__name__ == "AccumulateGrad"
                    and all(node.variable is not leaf for leaf in asked)
                ]
                before = [leaf.grad for leaf in others]
                try:
                    for leaf in others:
                        leaf.grad = None
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", REFERENCE_CYCLE)
                        torch.autograd.backward(
                            outputs, cotangents, retain_graph=retain or create, create_graph=create
                        )
                finally:
                    for leaf, gradient in zip(others, before, strict=True):
                        leaf.grad = gradient
                found = [leaf.grad for leaf in asked]
            elif under_modes:
                found = gradients(outputs, asked, cotangents)
            else:
                found = pulled(outputs, asked, cotangents, retain or create, create, batch > 0)
                if any(leaf.grad is not None for leaf in asked):
                    raise UserCodeError(
                        code,
                        f"{what} calls `.backward()` itself, and gradients arrive in `.grad` "
                        "without torch.autograd.grad",
                    )
            finished(self.on)
            self.watches[1].stop()
        if batch:
            self.count(backward=batch, batched=batch)
        for leaf in anew:
            leaf.grad = None
        each = iter(found)
        return tuple(next(each) if leaf.requires_grad else None for leaf in leaves)

    def standing(self, graph: Graph) -> AbstractContextManager[None]:
        """Inside, what stood in the place of a module's parameters during that forward stands there
        again, and copies of its buffers: a forward that backward runs once more may move them."""
        return self._held.lent(
            graph.lent | {name: buffer.clone() for name, buffer in self.buffers(graph).items()}
        )

    def buffers(self, graph: Graph) -> dict[str, Tensor]:
        """Those that stood in a module when the forward was over."""
        return {
            name: tensor for name, tensor in graph.lent.items() if name not in self.parameter_names
        }

    def _arguments(self, inputs: Tensors) -> Sequence[Any]:
        moved = iter(inputs)
        values = list[Any]()
        for argument in self.arguments:
            value = next(moved) if argument.differentiable else _own(argument.value)
            if isinstance(value, Tensor):
                if self._fence is not None and not argument.differentiable:
                    value = self._fence(value, argument.name)
                if self.writes:
                    value = relaid(value) if argument.layout is None else value.clone()
            values.append(laid(value, argument.layout) if argument.is_tensor else value)
        return values

    @contextmanager
    def fenced(self, fence: Callable[[Tensor, str], Tensor]) -> Iterator[None]:
        """Inside, the function gets what `fence` makes of its tensors that are not
        differentiated."""
        self._fence = fence
        try:
            yield
        finally:
            self._fence = None

    def _buffers(self) -> dict[str, Tensor]:
        """Fresh clones of a module's buffers, or of those of the modules that a callable holds."""
        tensors = self._held.tensors
        own = self._rest or {n: x for n, x in tensors.items() if n not in self.parameter_names}
        if not self._looked:
            self._looked = True
            if rest := self._at_rest(own):
                own = self._rest = rest
        return {name: self.lent(buffer.clone()) for name, buffer in own.items()}

    def _at_rest(self, start: State) -> State | None:
        """The buffers of a module in training where its forward, which updates them, lets them come
        to rest; None where it does not matter."""
        if (
            self.target.kind != "module"
            or not start
            or not any(part.training for part in self.target.subject.modules())
        ):
            return None

        def forward(buffers: State) -> tuple[list[Tensor], State]:
            self.count(forward=1)
            self.reseed()
            values = self._arguments(self.leaves())
            lent = self.parameters(values) | {n: buffer.clone() for n, buffer in buffers.items()}
            outputs = [
                y.detach()
                for y in flattened(self._call(values, lent))
                if isinstance(y, Tensor) and (y.is_floating_point() or y.is_complex())
            ]
            return outputs, {name: lent[name].detach() for name in buffers}

        try:
            with seeded(self.case.settings.seed):
                return at_rest(forward, start)
        # Of the user's code: it will be said of the base call, if it is to be said
        except Exception as error:
            self.restless |= type(error) is Restless
        return None

    def _outputs(self, values: Sequence[Any], lent: dict[str, Tensor]) -> list[Any]:
        """The flattened outputs. Raises UserCodeError (GV002)."""
        self.reseed()
        try:  # no `with blamed`: that takes a tenth of a small call
            if self.around is None:
                self.watches[0].start()
                returned = self._call(values, lent)
                finished(self.on)
                self.watches[0].stop()
            else:
                with self.around():
                    returned = self._call(values, lent)
                    finished(self.on)
            self.output_names = self.output_names or names(returned)
            flat = flattened(returned)
            return flat if all(map(is_dense, flat)) else self._compared(flat)
        except BaseException as error:
            # What it launched before it raised is not the next call's
            with suppress(RuntimeError):
                finished(self.on)
            blame(error, "GV002", "forward")
            raise

    def given(self, inputs: Tensors) -> tuple[list[Any], dict[str, Any]]:
        """What one call of a function that is no module gets: by position, and by name."""
        return self.arranged(self._arguments(inputs))

    def _compared(self, outputs: Sequence[Any]) -> list[Any]:
        """What of them is compared, some being sparse or nested."""
        masked = all(a.form is None or a.form.masked for a in self.arguments)
        found = [compared(y, masked) for y in outputs]
        odd = (named(y) for y, x in zip(outputs, found, strict=True) if x is not y)
        self._odd_output = next((f"an output is {kind}" for kind in odd), None)
        return found

    def _call(self, values: Sequence[Any], lent: dict[str, Tensor]) -> Any:
        if self._bare:
            return self.target.call(*values)
        given, named = self.arranged(values)
        if self._hooks:
            lent.update(hooked(lent, self._hooks))
        with self._held.lent(lent):
            return self.target.call(*given, **named)

    def arranged(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Values of all arguments [one each] as the function takes them, lists as lists: by
        position, and by name; without a module's parameters."""
        each, given, named = iter(values), list[Any](), _own(self.kwargs)
        for members in self.positions:
            # An array stays dense
            parts = [
                member.form.built(value)
                if member.form is not None and isinstance(value, Tensor)
                else value
                for member, value in zip(members, each, strict=False)
            ]
            first = members[0]
            value = first.of.built(parts) if first.of else parts[0]
            if first.keyword:
                named[first.whole] = value
            elif not first.parameter:
                given.append(value)
        return given, named

    def parameters(self, values: Sequence[Any]) -> dict[str, Any]:
        """Those of them that are a module's parameters, by name."""
        return {
            argument.name: value
            for argument, value in zip(self.arguments, values, strict=True)
            if argument.parameter
        }


def pulled(
    outputs: Tensors,
    leaves: Tensors,
    cotangents: Cotangents,
    retain: bool = True,
    create: bool = False,
    batched: bool = False,
) -> Gradients:
    """One backward by autograd, of whosever graph it is; None where nothing arrives."""
    return torch.autograd.grad(
        outputs,
        leaves,
        cotangents,
        retain_graph=retain,
        create_graph=create,
        allow_unused=True,
        is_grads_batched=batched,
    )


def _own(value: Any) -> Any:
    """Lists and mappings of a spec anew for each call, so that none sees what another one did to
    them; tensors without a call's graph."""
    if isinstance(value, Tensor):
        # One that a function writes its result into becomes part of its graph
        return value.detach()
    if type(value) is list:
        return [_own(item) for item in value]
    return {key: _own(item) for key, item in value.items()} if type(value) is dict else value
