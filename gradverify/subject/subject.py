"""The live function of a check, called through this module only, so that every call is counted and
every error attributed to the right code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import groupby
from math import inf
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Case
from gradverify.model.interrupt import raise_if_interrupted
from gradverify.model.result import Calls
from gradverify.numerics.function.coordinates import SIXTEEN
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

# Timed backwards needed for an estimate; the cost of one in forward calls until then
TIMED, PER_BACKWARD = 3, 2.0
# Added to the seed (forwards add 0); a backward is unlikely to set the first of these itself
BACKWARD, ELSEWHERE = 104_729, 2
# The cycle is broken as soon as `.grad` is reset
REFERENCE_CYCLE = r"Using backward\(\) with create_graph=True"
# Part of torch's error for an in-place write into an input
LEAF_WRITTEN = "a leaf Variable that requires grad"


Gradients = tuple[Tensor | None, ...]
Tensors = Sequence[Tensor]
Cotangents = Sequence[Tensor | None]


def filled(gradients: Iterable[Tensor | None], inputs: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradients of these inputs, zeros in place of None."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True)]


def as_leaves(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return copies without history that require grad."""
    return [x.detach().clone().requires_grad_() for x in tensors]


class Way(Enum):
    """How a function can be differentiated."""

    REUSED = auto()  # one graph serves any number of `torch.autograd.grad`
    FRESH = auto()  # a second backward of a graph is refused: each needs a forward of its own
    # `torch.autograd.grad` is refused, or gradients arrive in `.grad` only: `.backward()` on leaves
    # of a forward of its own
    LEAVES = auto()


@dataclass(frozen=True, slots=True)
class Graph:
    """One forward, with its graph: `leaves`, the tensors that gradients are requested for;
    `arguments` as the function received them; `lent`, the tensors that replaced a module's
    parameters and buffers, by name, as they were at the end of the forward (they are put in again
    while a backward of the graph runs); the flattened `outputs` (pytree leaves)."""

    leaves: Tensors
    arguments: tuple[Any, ...]
    lent: dict[str, Tensor]
    outputs: tuple[Any, ...]


class Subject:
    """The checked function at its arguments; counts its calls, and those of its twins (a twin's
    `_original` is the subject that it was made from). `before_call` may raise Spent.

    `positions`: the arguments as the function takes them, the elements of a container grouped;
    `kwargs`: plain values passed by name; `output_names`: of the flattened outputs, known after the
    first forward; `tensors`: the tensor arguments; `parameter_names`: of those that are a module's
    parameters; `writes`: set once the function has written into an input, after which every call
    gets fresh, non-leaf clones; `way`: how its backward can be called, which every backward
    follows; `around`: makes the context that every forward runs in, if there is one; `lent`: maps
    each of a module's buffers to the tensor that replaces it in a call.
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
        # Whether a forward has set global state that our own computations need
        self.meddles = False
        self.disables = False  # whether the last forward left gradients disabled
        self.output_names: tuple[str, ...] = ()
        self.around: Callable[[], AbstractContextManager[Any]] | None = None
        self.lent: Callable[[Tensor], Tensor] = lambda buffer: buffer
        self._fence: Callable[[Tensor, str], Tensor] | None = None
        # Makes the mode of poisoned memory that every compared call runs in (`poison: true`)
        self.poison: Callable[[bool], Any] | None = None
        self._odd_output: str | None = None
        # The subject in 16 bits, if this one represents it in float64
        self.narrow: Subject | None = None
        self._rest: State | None = None
        self._looked = False  # whether buffers at rest were searched for
        # Whether a module's buffers and outputs converge too slowly to reach a fixed point
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
        # Whether all arguments are differentiable inputs, passed by position without conversion
        self._bare = (
            not is_module
            and not self.kwargs
            and not self._held
            and all(
                a.differentiable and not a.keyword and not a.of and not a.form and a.layout in LAID
                for a in self.arguments
            )
        )
        self.tensors = tuple(argument for argument in self.arguments if argument.is_tensor)
        self.differentiable = tuple(a for a in self.arguments if a.differentiable)
        # In order; read-only
        self.inputs: Tensors = tuple(a.value for a in self.differentiable)
        # CUDA devices, which are synchronised after each call
        self.on = devices_of(argument.value for argument in self.tensors)
        self.on_cuda, self._quiet = bool(self.on), False
        self.calls = Calls()  # so far
        self._original: Subject | None = None
        self.before_call: Callable[[], None] | None = None
        self.clock = Clock()

    # ---- calls: counted, timed, and refused beyond the budget
    def count(self, forward: int = 0, backward: int = 0, batched: int = 0) -> None:
        """Add calls that are about to be made, or that were made as one batch. Raises Interrupted
        if an earlier call swallowed Ctrl-C, and Spent if the budget is used up."""
        raise_if_interrupted()
        if self.before_call is not None:
            self.before_call()
        self.calls += Calls(forward, backward, batched)
        if self._original is not None:
            self._original.count(forward, backward, batched)

    def count_for(self, other: Subject) -> None:
        """Count the calls of `other` here too from now on, and those of this subject no longer by
        `other`."""
        self._original, other._original = None, self

    @property
    def clock(self) -> Clock:
        """The clock of the stopwatches `watches`, of forward and of backward."""
        return self.watches[0].clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.watches = Stopwatch(clock), Stopwatch(clock)

    @property
    def fastest(self) -> tuple[float, float]:
        """Seconds of the fastest forward and of the fastest backward (estimated from forward where
        few backwards were timed); 0 where no call was timed."""
        watch, pulls = self.watches
        forward = 0.0 if watch.fastest == inf else watch.fastest
        return forward, pulls.fastest if pulls.calls >= TIMED else PER_BACKWARD * forward

    # ---- random numbers: with the setting `reseed` the same for every forward, and others for
    # every backward
    def generator(self, purpose: str) -> torch.Generator:
        """Return a generator of its own for each purpose."""
        return generator(self.case.settings.seed, self.case.check, purpose)

    @property
    def _is_quiet(self) -> bool:
        """Whether seeding is switched off here or in the original of this twin."""
        return self._quiet or (self._original is not None and self._original._is_quiet)

    def reseed(self, offset: int = 0) -> None:
        """Seed the generators of torch, NumPy and Python, so that every forward draws the same
        random numbers (dropout, samplers), and every backward others."""
        if self.case.settings.reseed and not self._is_quiet:
            seed_all(self.case.settings.seed + offset, self.on_cuda)

    def fresh_states(self, offset: int = 0) -> tuple[object, ...]:
        """Seed the generators, and return what they would draw next."""
        self.reseed(offset)
        found = self.states()
        self.reseed(offset)
        return found

    def states(self) -> tuple[object, ...]:
        """Return what the generators would draw next, which code that draws nothing does not
        change. The numbers are actually drawn if every call seeds the generators anew."""
        if self.case.settings.reseed:
            return next_draws(self.on_cuda)
        return random_states(self.on_cuda)

    def seldom_seeded(self, measure: Callable[[], Value]) -> Value:
        """Return the result of `measure`, seeded once; if it drew random numbers, measure again
        with a seed before every call.

        To seed three generators that are not used costs as much as a small forward.
        """
        before, self._quiet = self.fresh_states(), True
        try:
            found = measure()
        finally:
            self._quiet = False
        return found if self.states() == before else measure()

    def seeded_elsewhere(self, measure: Callable[[], Value], number: int = 0) -> Value:
        """Return the result of `measure` with generators seeded differently from all other calls,
        and differently for each `number`."""
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
        """The subject in the dtype of the spec."""
        return self.narrow or self

    @property
    def size(self) -> int:
        """The total number of elements of all tensor arguments."""
        return sum(argument.value.numel() for argument in self.tensors)

    @property
    def odd(self) -> str | None:
        """The first argument or output that is sparse or nested, so that strides and modes of torch
        cannot be tried, as a clause: "a is a sparse CSR tensor"; None where all are dense."""
        found = (f"{a.name} is {a.form.kind}" for a in self.arguments if a.form is not None)
        return next(found, self._odd_output)

    def name_of(self, place: int) -> str:
        """Return an output's name, its path: `y0`, or `y.loss` of a dict."""
        return self.output_names[place] if place < len(self.output_names) else f"y{place}"

    def leaves(self) -> list[Tensor]:
        """Return fresh copies of the differentiable inputs that require grad, in the memory layouts
        of the spec."""
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
        arguments: Sequence[Argument] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        target: Target | None = None,
    ) -> Subject:
        """Return a subject of the same function, with other arguments, keyword arguments or another
        target if given. Its calls are counted here too."""
        arguments = self.arguments if arguments is None else arguments
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
        other.poison = self.poison
        # A module's buffers depend on its inputs and parameters at most
        if target is None and self._looked:
            other._rest = self._rest
            other._looked = self._rest is None or all(
                same(a.value, b.value)
                if a.is_tensor and b.is_tensor
                else a.value is b.value or bool(a.value == b.value)
                for a, b in zip(self.arguments, arguments, strict=True)
            )
        return other

    def mapped(self, change: Callable[[Argument], Tensor]) -> Subject:
        """Return a twin whose tensor arguments have the values that `change` returns."""
        return self.twin(
            [replace(a, value=change(a)) if a.is_tensor else a for a in self.arguments]
        )

    def called(
        self, inputs: Tensors, mode: Callable[[], AbstractContextManager[Any]] = torch.enable_grad
    ) -> Graph:
        """Run one forward under a grad mode, with inputs in the memory layouts of the spec. Raises
        UserCodeError (GV002)."""
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
        """Run `called`; if the function refuses leaves because it writes into its inputs, set
        `writes` and run it again."""
        before, found = copied(inputs), attempted(self.called, inputs)
        if not isinstance(found, UserCodeError):
            return found
        if self.writes or LEAF_WRITTEN not in found.message:
            raise found
        self.writes = True
        with torch.no_grad():
            for x, value in zip(inputs, before, strict=True):
                x.copy_(value)  # may have been written before the refusal
        return self.called(inputs)

    def counted_backward(self) -> None:
        """Count a backward that is about to run, and seed the generators for it."""
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
        """Run one backward of a graph; return a gradient per leaf, None for a leaf that needs or
        gets none.

        `leaves`: instead of the graph's own. `batch`: the number of cotangents that come as one
        batch. `way`: instead of the subject's own. `under_modes`: active function modes see the
        calls of backward. `accumulate`: add to `.grad`, and leave the sum there. Raises
        UserCodeError with the given `code`.
        """
        leaves = graph.leaves if leaves is None else leaves
        requested = [leaf for leaf in leaves if leaf.requires_grad]
        anew = () if accumulate else requested
        for leaf in anew:
            leaf.grad = None
        attributes = self._attributes(graph) if leaves is graph.leaves else {}
        if attributes and batch:
            raise UserCodeError(code, f"{what} adds to an attribute, which no batch can")
        for place, (tensor, name) in attributes.items():
            if not accumulate or leaves[place].grad is None:
                # A kernel of 16 bits adds up in float32
                wide = torch.float32 if tensor.dtype in SIXTEEN else tensor.dtype
                setattr(tensor, name, torch.zeros_like(tensor, dtype=wide, requires_grad=False))
        # A batch is counted afterwards: a refused one runs nothing
        self.count(backward=int(not batch))
        self.reseed(BACKWARD)
        with blamed(code, what), self.reinstated(graph):
            self.watches[1].start()
            found: Sequence[Tensor | None]
            if (way or self.way) is Way.LEAVES:
                # A leaf that is not our own (a closure's parameter) keeps the `.grad` it holds
                others = [
                    node.variable
                    for node in every_node(outputs)
                    if type(node).__name__ == "AccumulateGrad"
                    and all(node.variable is not leaf for leaf in requested)
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
                found = [leaf.grad for leaf in requested]
            elif under_modes:
                found = gradients(outputs, requested, cotangents)
            else:
                found = pulled(outputs, requested, cotangents, retain or create, create, batch > 0)
                if any(leaf.grad is not None for leaf in requested):
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
        returned = [next(each) if leaf.requires_grad else None for leaf in leaves]
        for place, (tensor, name) in attributes.items():
            returned[place] = getattr(tensor, name).to(tensor.dtype)
            if accumulate:
                leaves[place].grad = returned[place]
        return tuple(returned)

    def _attributes(self, graph: Graph) -> dict[int, tuple[Tensor, str]]:
        """Return the tensors that backward adds a gradient to an attribute of, as the function
        received them, each with the attribute's name, by differentiable input."""
        return {
            place: (graph.lent.get(argument.name, leaf), self.case.gradients[argument.name])
            for place, (argument, leaf) in enumerate(
                zip(self.differentiable, graph.leaves, strict=True)
            )
            if argument.name in self.case.gradients
        }

    def reinstated(self, graph: Graph) -> AbstractContextManager[None]:
        """Context in which a module has the parameters of that forward again, and copies of its
        buffers, which backward may change by running the forward once more (checkpointing)."""
        return self._held.lent(
            graph.lent | {name: buffer.clone() for name, buffer in self.buffers(graph).items()}
        )

    def buffers(self, graph: Graph) -> dict[str, Tensor]:
        """Return a module's buffers at the end of the forward, by name."""
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
        """Context in which tensor arguments that are not differentiated are replaced by
        `fence(tensor, name)`."""
        self._fence = fence
        try:
            yield
        finally:
            self._fence = None

    @contextmanager
    def poisoned(
        self, tensors: Iterable[Tensor], who: str, name: str = "", loud: bool = True
    ) -> Iterator[list[Tensor]]:
        """Context of a call of `who` with copies of its tensors, which it yields, between guard
        bytes, and with poisoned memory; with the tensors themselves where calls are not poisoned.
        `name`: of the tensors, else those of the inputs; `loud`: memory holds NaN. Raises
        UserCodeError (GV232) at the end for a write beside a tensor."""
        given = list(tensors)
        if self.poison is None:
            yield given
            return
        mode = self.poison(loud)
        names = [name] * len(given) if name else [a.name for a in self.differentiable]
        given = [mode.guarded(x.detach(), each) for x, each in zip(given, names, strict=True)]
        with self.fenced(mode.guarded), mode.numpys(), mode:
            yield given
        if written := mode.out_of_bounds():
            raise written.raised(who)

    def _buffers(self) -> dict[str, Tensor]:
        """Return fresh clones of a module's buffers, or of those of the modules that a callable
        holds."""
        tensors = self._held.tensors
        own = self._rest or {n: x for n, x in tensors.items() if n not in self.parameter_names}
        if not self._looked:
            self._looked = True
            if rest := self._at_rest(own):
                own = self._rest = rest
        return {name: self.lent(buffer.clone()) for name, buffer in own.items()}

    def _at_rest(self, start: State) -> State | None:
        """Return the fixed point of the buffers of a module in training under its forward; None
        where there is none, or where the module has no such buffers."""
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
        # An error of the user's code is reported for the base call
        except Exception as error:
            self.restless |= type(error) is Restless
        return None

    def _outputs(self, values: Sequence[Any], lent: dict[str, Tensor]) -> list[Any]:
        """Call the function and return its flattened outputs. Raises UserCodeError (GV002)."""
        self.reseed()
        try:  # not `with blamed`, which takes a tenth of a small call
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
            # Wait for kernels launched before the error, so that the next call is not blamed
            with suppress(RuntimeError):
                finished(self.on)
            blame(error, "GV002", "forward")
            raise

    def given(self, inputs: Tensors) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of one call of a function that is not a module: by position, and by
        name."""
        return self.arranged(self._arguments(inputs))

    def _compared(self, outputs: Sequence[Any]) -> list[Any]:
        """Return the tensors to compare for outputs of which some are sparse or nested."""
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
        """Return the values of all arguments as the function takes them, elements put together to
        their containers: by position, and by name; without a module's parameters."""
        each, given, named = iter(values), list[Any](), _own(self.kwargs)
        for members in self.positions:
            # NumPy arrays stay dense
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
        """Return the values that are a module's parameters, by name."""
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
    """Run `torch.autograd.grad` on any graph; return None for a leaf that gets no gradient."""
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
    """Return copies of the lists and dicts of a spec, so that no call sees another's changes;
    tensors detached."""
    if isinstance(value, Tensor):
        # A tensor that a function writes its result into becomes part of its graph
        return value.detach()
    if type(value) is list:
        return [_own(item) for item in value]
    return {key: _own(item) for key, item in value.items()} if type(value) is dict else value
