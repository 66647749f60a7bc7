"""Inspection of autograd graphs: the custom Functions in a graph, the values that their `backward`
returns before the engine casts and sums them, and the arguments that their `forward` writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from gradverify.subject.forms import is_plain
from gradverify.subject.own_code import FunctionMode, Keywords, own_code, wrapped
from gradverify.subject.snapshot import Change, Named, Shared, Snapshot, attributes, copied, shared
from gradverify.torch_private import (
    CPP_FUNCTION,
    CPP_NODE,
    added_arguments,
    apply,
    every_apply,
    expected_gradients,
    function_class,
    function_modes,
    generated_for,
    has_kernel,
    pytree,
    transforms_active,
    without_function_modes,
)

# ---- Capabilities that the custom Functions of a graph declare
BATCHED = "FuncTorchBatched"  # the dispatch key of register_vmap


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """Return the name of the first of these Functions that defines none of `names` (jvp; vmap,
    generate_vmap_rule). The Function of a registered operator has a vmap rule if the operator
    does."""
    plain = torch.autograd.Function
    return next(
        (
            shown_name(cls)
            for cls in classes
            if all(getattr(cls, name) is getattr(plain, name) for name in names)
            and not (
                "vmap" in names
                and (generated := generated_for(cls))
                and has_kernel(generated[0], BATCHED)
            )
        ),
        None,
    )


def registered_backward(cls: type) -> Any:
    """Return the function passed to `register_autograd`, for a Function that torch generated from
    it; None for any other."""
    generated = generated_for(cls)
    return generated[1] if generated else None


def shown_name(cls: type) -> str:
    """Return the name of a Function, or of the operator that torch generated it for."""
    generated = generated_for(cls)
    return generated[0] if generated else cls.__name__


# ---- The custom Functions in a graph, the values that their `backward` returns, and the arguments
# that their `forward` writes
Kept = Callable[[Any], Sequence[Named]]


class Edge(NamedTuple):
    """The gradient that the engine expects for one tensor argument of a Function. `leaf`: the id of
    the argument if it is a leaf."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    leaf: int | None = None


class RawReturn(NamedTuple):
    """One call of a `backward`: its result, `needs` (ctx.needs_input_grad), an edge per *tensor*
    argument of forward (None where no gradient is needed), and the gradients that share memory with
    other tensors. `cls`: the class, or the name of a Function written in C++. For the Function that
    torch generates for an operator, the arguments that torch adds are left out."""

    cls: type | str
    returned: tuple[Any, ...]
    needs: tuple[bool, ...]
    edges: tuple[Edge | None, ...]
    shares: tuple[Shared, ...] = ()

    @property
    def name(self) -> str:
        return self.cls if isinstance(self.cls, str) else shown_name(self.cls)


class Wrote(NamedTuple):
    """A tensor argument that one call of a `forward` changed without returning it. `place`: its
    index among all arguments without ctx."""

    cls: type
    place: int
    differentiable: bool
    change: Change | None


def function_classes(nodes: Sequence[Any]) -> tuple[type, ...]:
    """Return the torch.autograd.Function classes of nodes."""
    return tuple(dict.fromkeys(cls for node in nodes if (cls := function_class(node)) is not None))


def function_nodes(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return the nodes of custom Functions in the graph of the outputs, written in Python (where
    the node is the ctx) or in C++."""
    return tuple(
        node
        for node in every_node(outputs)
        if function_class(node) is not None or type(node).__name__ == CPP_NODE
    )


def every_node(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return all nodes of the graph of the outputs, once each."""
    return nodes_below([output.grad_fn for output in outputs if output.grad_fn is not None])


def nodes_below(roots: Sequence[Any]) -> tuple[Any, ...]:
    """Return the nodes and all that backward reaches from them, once each."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(seen)


@contextmanager
def tapped(classes: Sequence[type], sink: list[RawReturn], kept: Kept) -> Iterator[None]:
    """Context in which the result of every `backward` (or `vjp`) of these classes is added to
    `sink`.

    `kept` lists the tensors whose memory a ctx must not return, in addition to its attributes.
    """

    def recording(cls: type, original: Callable[..., Any]) -> Callable[..., Any]:
        added = added_arguments(cls)

        @own_code
        def recorded(ctx: Any, *cotangents: Any) -> Any:
            returned = wrapped(original, ctx, *cotangents)
            # Autograd takes a list for one gradient, and refuses it
            as_tuple = returned if isinstance(returned, tuple) else (returned,)
            # A subclass that inherits or calls this backward is recorded itself
            if (function_class(ctx) or cls) is cls:
                shares = shared(as_tuple, cotangents, [*kept(ctx), *attributes(ctx)])
                theirs, needs = as_tuple[: len(as_tuple) - added], tuple(ctx.needs_input_grad)
                sink.append(
                    RawReturn(
                        cls,
                        theirs,
                        needs[: len(needs) - added],
                        tuple(edge_of(*edge) for edge in ctx.next_functions),
                        shares,
                    )
                )
            return returned

        return recorded

    names = [
        (cls, "vjp" if getattr(cls, "vjp", None) is not torch.autograd.Function.vjp else "backward")
        for cls in classes
    ]
    with _patched(names, recording):
        yield


@contextmanager
def watched(classes: Sequence[type]) -> Iterator[list[Wrote]]:
    """Context in which the arguments changed by every `forward` of these classes are added to the
    yielded list."""
    sink = list[Wrote]()

    def watching(cls: type, original: Callable[..., Any]) -> Callable[..., Any]:
        takes_ctx = cls.setup_context is torch.autograd.Function.setup_context  # type: ignore[attr-defined]

        @own_code
        def recorded(*arguments: Any) -> Any:
            places = [
                (place, tensor)
                for place, tensor in enumerate(arguments[takes_ctx:])
                if isinstance(tensor, Tensor) and is_plain(tensor)
            ]
            before = Snapshot([tensor for _, tensor in places])
            returned = wrapped(original, *arguments)
            outputs = [id(output) for output in pytree.tree_leaves(returned)]
            for i in before.changed():
                place, tensor = places[i]
                # An argument that is returned was written in place on purpose
                if id(tensor) not in outputs:
                    sink.append(Wrote(cls, place, tensor.requires_grad, before.difference(i)))
            return returned

        return recorded

    with _patched([(cls, "forward") for cls in classes], watching):
        yield sink


@contextmanager
def _patched(
    names: Sequence[tuple[type, str]],
    wrapper: Callable[[type, Callable[..., Any]], Callable[..., Any]],
) -> Iterator[None]:
    restore: list[Callable[[], None]] = []
    try:
        for cls, name in names:
            own, instead = vars(cls).get(name), wrapper(cls, getattr(cls, name))
            restore.append(
                partial(delattr, cls, name) if own is None else partial(setattr, cls, name, own)
            )
            setattr(cls, name, staticmethod(instead))
        yield
    finally:
        for undo in reversed(restore):
            undo()


def edge_of(node: Any, number: int) -> Edge | None:
    """Return the gradient that a node expects at one of its inputs."""
    if node is None:
        return None
    metadata = expected_gradients(node)[number]
    leaf = getattr(node, "variable", None)
    return Edge(
        tuple(metadata.shape), metadata.dtype, metadata.device, None if leaf is None else id(leaf)
    )


# ---- Functions written in C++: the values that their backward returns
WRONG_NUMBER = re.compile(
    r"(function|backward formula for) (.+) returned an incorrect number of gradients \(expected "
    r"(\d+), got (\d+)\)"
)
"""Torch's error message, for a C++ node and, from 2.14 on, for a registered operator."""
Given = tuple[Tensor | None, ...]


@contextmanager
def called_again(
    nodes: Sequence[Any],
    sink: list[RawReturn],
    kept: Callable[[], Sequence[Named]],
    count: Callable[[], None],
) -> Iterator[None]:
    """Context after which every C++ node that a backward inside has reached is called again with
    the same cotangents, and its result added to `sink`.

    `kept` lists, at that time, the tensors whose memory must not be returned; `count` is called
    before each call. Nodes that can be called only once are skipped.
    """
    taken: dict[Any, Given] = {}

    @own_code
    def take(node: Any, cotangents: Given) -> None:
        taken.setdefault(node, copied(cotangents))

    handles = [node.register_prehook(partial(take, node)) for node in nodes if is_native(node)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for node, cotangents in taken.items():
        count()
        with torch.no_grad():
            try:
                returned = node(*cotangents)
            except Exception:  # the first call's error was reported by the engine
                continue
            returned = returned if isinstance(returned, tuple) else (returned,)
            # The engine requests gradients of tensor arguments only
            edges = tuple(edge_of(*following) for following in node.next_functions)
            sink.append(
                RawReturn(
                    native_name(node.name()),
                    returned,
                    tuple(edge is not None for edge in edges),
                    edges,
                    shared(returned, cotangents, kept()),
                )
            )


def is_native(node: Any) -> bool:
    return CPP_FUNCTION in node.name()


def native_name(node: str) -> str:
    """Return the Function's name, `Linear` for a node named
    `torch::autograd::CppNode<(anonymous namespace)::Linear>`."""
    inner = node.partition(CPP_FUNCTION)[2].rstrip().removesuffix(">").rstrip()
    return inner.replace("(anonymous namespace)::", "").replace(" >", ">")


def wrong_number(message: str) -> tuple[str, int, int] | None:
    """Return (name, gradients expected, gradients returned) if the message is a C++ node's or a
    registered operator's refusal of what backward returned; None otherwise."""
    found = WRONG_NUMBER.search(message)
    if found is None or (found[1] == "function" and CPP_FUNCTION not in found[2]):
        return None
    name = native_name(found[2]) if found[1] == "function" else "::".join(found[2].split(".")[:2])
    return name, int(found[3]), int(found[4])


# ---- A Function replaced by its forward: with a stand-in `ctx`, and `apply` replaced by `forward`
# under autograd
class StandIn(FunctionCtx):
    """A ctx for `forward` and `setup_context`: marks and saved tensors are stored without effect.
    Unknown attributes raise AttributeError, as of a real ctx."""

    saved_for_forward: tuple[Any, ...] = ()
    materialize_grads = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        """`needs_input_grad`: per argument of forward, as of a real ctx."""
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors saved so far; as in torch those for forward mode, if there are any."""
        return tuple(self.saved_for_forward or getattr(self, "to_save", ()))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors


def by_forward(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result of `cls.forward` for the arguments of `apply`; `setup_context` is called if
    the class defines it."""
    ctx = StandIn(tuple(isinstance(x, Tensor) and x.requires_grad for x in arguments))
    if cls.setup_context is Function.setup_context:
        return wrapped(cls.forward, ctx, *arguments)
    returned = wrapped(cls.forward, *arguments)
    wrapped(cls.setup_context, ctx, arguments, returned)
    return returned


class Graphs(FunctionMode):
    """Mode that replaces the plain tensors that torch returns from `apply`, wherever an operation
    takes one, by those that the Function's forward computed, with their graphs. Both share
    memory."""

    def __init__(self) -> None:
        super().__init__()
        # By the id of the plain tensor, which is kept alive
        self._of: dict[int, tuple[Tensor, Tensor]] = {}

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if not self._of:
            return wrapped(func, *args, **named)
        args, named = self.put_back((tuple(args), named))
        return self.put_back(wrapped(func, *args, **named))

    def put_back(self, values: Any) -> Any:
        """Return the values with each plain tensor replaced by the one with its graph."""
        if self._of:
            return pytree.tree_map(lambda x: self._of[id(x)][1] if id(x) in self._of else x, values)
        return values

    def plain(self, y: Any) -> Any:
        """Return a plain tensor for one with a graph."""
        if not isinstance(y, Tensor):
            return y
        with without_function_modes():
            plain = y.detach()
        self._of[id(plain)] = plain, y
        return plain


@contextmanager
def forward_of(cls: type, graphs: Graphs) -> Iterator[None]:
    """Context in which `apply` of this Function, in this thread, runs its forward under autograd,
    without a node of its own. Other Functions are applied as usual, to tensors with their graphs.
    Tensors that leave this context get their graphs by `graphs.put_back`."""
    applying = list[type]()  # Functions whose next `apply` is torch's own

    def instead(applied: Any) -> Callable[..., Any] | None:
        if applying and applying[-1] is applied:
            applying.pop()
            return None
        if all(mode is not graphs for mode in function_modes()) or transforms_active():
            return None
        with_gradients = torch.is_grad_enabled()

        @own_code
        def forward(*arguments: Any) -> Any:
            given = graphs.put_back(arguments)
            with torch.set_grad_enabled(with_gradients):
                if applied is cls:
                    returned = by_forward(cls, given)
                else:
                    applying.append(applied)
                    returned = wrapped(apply, applied, given)
            if isinstance(returned, tuple):
                return tuple(map(graphs.plain, returned))
            return graphs.plain(returned)

        return forward

    with graphs, every_apply(instead):
        yield
