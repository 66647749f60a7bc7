"""What one forward does with gradients on, operation by operation: is the graph that torch builds all of it?

A forward leaves its graph where a number that depends on the inputs goes on without one: detached, read out, computed in NumPy, in integers, under
`no_grad`, in code that torch does not see. Wherever that number comes back, it is a *constant* of some operation of the graph. So all constants are
kept, of every such operation; where they are the same bits at inputs nearby, nothing was lost, and a mask or an index is one of these. Writes that
autograd does not see show in the numbers of a tensor that nobody else changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.subject.forms import is_plain
from gradverify.subject.own_code import FunctionMode, wrapped
from gradverify.subject.snapshot import same
from gradverify.torch_private import CPP_NODE, TENSOR_HOOKS, function_class, gradients, pytree, storage_key, transforms_active, version

# ---- The operations of one forward, with the constants that entered each, and the names of those
# that are no plain functions of tensors
READS = frozenset({"numpy", "__array__", "item", "tolist", "data_ptr", "untyped_storage", "storage", "__float__", "__int__", "__index__",
                   "__complex__", "__bool__", "__dlpack__"})
"""Ways to take numbers out of a tensor."""
STEPS = frozenset({"round", "round_", "floor", "floor_", "ceil", "ceil_", "trunc", "trunc_", "fix", "fix_", "sign", "sign_", "sgn", "sgn_",
                   "heaviside", "floor_divide", "__floordiv__", "div", "div_", "divide", "divide_"})
"""Operations that are, or may be, constant by steps: what they give is a constant of the graph, though torch gives it one (of zeros)."""
REFUSED = frozenset({"fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine", "gumbel_softmax", "frac", "frac_", "fmod", "remainder",
                     "__mod__", "register_hook", "register_post_accumulate_grad_hook", "__set__", "grad_fn", "set_", TENSOR_HOOKS[0]})
"""Whose derivative is torch's choice, or which change the graph or a gradient by hand."""
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
IN_PLACE = frozenset(f"__i{name}__" for name in OPERATORS)
Place = tuple[int, int]     # of a constant: its step, and its place in it


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of the graph: its name, and the constants that entered it, tensors as they were then and numbers."""

    name: str
    constants: tuple[Any, ...]
    origins: tuple[str, ...]


def differing(one: Sequence[Step], other: Sequence[Step], idle: frozenset[Place] = frozenset()) -> str | None:
    """Where the same call at other inputs had other constants, or did other things: what carried the dependence; None where nowhere.
    `idle`: constants that may differ."""
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a.name != b.name or len(a.constants) != len(b.constants):
            return f"a branch: {a.name} here, {b.name} beside"
        for place, (x, y, origin) in enumerate(zip(a.constants, b.constants, a.origins, strict=True)):
            if (step, place) not in idle and not (same(x, y) if isinstance(x, Tensor) and isinstance(y, Tensor) else x == y):
                return origin
    return None if len(one) == len(other) else "a loop of another length"


# ---- What one forward does with gradients on, operation by operation: is the graph that torch
# builds all of it?
UNSEEN = "code that torch does not see (C++, NumPy)"
APPLIED_BY_TORCH = "a Function that torch applied itself"
HIDDEN_WRITE = "a write that autograd does not see (.data, NumPy, C++)"
MOST = 1 << 22      # numbers that are kept: 32 MB in float64
ROUNDED_DIVISION = "rounding_mode"


@dataclass(slots=True)
class _Known:
    """A tensor as it was last seen."""

    tensor: Tensor
    node: Any
    version: int
    value: Tensor


@dataclass(frozen=True, slots=True)
class _Done:
    """One operation: its tensors, the constants that entered it, what it wrote into, and whether what it gives is constant by steps."""

    name: str
    operands: Sequence[Tensor]
    entered: tuple[tuple[Any, ...], tuple[str, ...]]
    target: Tensor | None
    steps: bool


@dataclass(slots=True)
class _Memory:
    """Which storages were there before the call (`outside`) and which came about in it; kept alive, so that no address is used twice."""

    inside: dict[int, Any] = field(default_factory=dict)
    outside: dict[int, Any] = field(default_factory=dict)

    def own(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self.inside[storage_key(tensor)] = storage

    def met(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage_key(tensor) not in self.inside:
            self.outside[storage_key(tensor)] = storage

    def made(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage_key(tensor) not in self.outside:
            self.inside[storage_key(tensor)] = storage

    def is_own(self, tensor: Tensor) -> bool:
        return tensor.layout is torch.strided and storage_key(tensor) in self.inside


class Tape(FunctionMode):
    """The steps of one call, and the first thing that cut its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.cut: str | None = None
        self.entering: list[Any] = []   # the constants of the operation that is called
        self._known: dict[int, _Known] = {}
        self._nodes = set[Any]()
        self._memory = _Memory()
        self._written = set[int]()      # storages written in place under autograd: their views have new nodes
        self._origin: dict[int, tuple[Tensor, str]] = {}
        self._read: str | None = None
        self._kept = 0

    # ---- what the caller says
    def give(self, inputs: Sequence[Any]) -> None:
        """The tensors that the call may write into, with the nodes that lead to them."""
        for x in inputs:
            if isinstance(x, Tensor):
                self._memory.own(x)
                if x.requires_grad:
                    self._walk(x)
                    self._remember(x)

    def cut_by(self, what: str) -> None:
        """The first one counts."""
        self.cut = self.cut or what

    def end(self, outputs: Sequence[Any]) -> None:
        """After the call: what it returned, and whether all tensors hold what they held."""
        if self.cut is not None:
            return
        for y in outputs:
            if isinstance(y, Tensor) and _is_followed(y):
                self._look_at(y)
        for known in list(self._known.values()):
            self._compare(known)

    def tensors(self) -> list[Tensor]:
        """Of the graph, all that were seen."""
        return [known.tensor for known in self._known.values() if known.tensor.requires_grad]

    def origin(self, y: Any) -> str:
        """What took a tensor out of the graph."""
        return self._origin[id(y)][1] if id(y) in self._origin else self._read or UNSEEN

    # ---- one operation
    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        name, leaves = _name(func), pytree.tree_leaves((args, named))
        operands = [x for x in leaves if isinstance(x, Tensor)]
        if transforms_active():
            self.cut_by(f"{name} under torch.func")
        if self.cut is None and not all(map(_is_followed, operands)):
            self.cut_by(f"{name} of a tensor of a kind of its own")
        target = _target(name, args, named)
        if target is not None and not target.requires_grad and not self._memory.is_own(target):
            self._met(name, operands)
            with torch.no_grad():       # as the forward of a Function writes into what it keeps elsewhere
                return wrapped(func, *args, **named)
        self._met(name, operands)
        if target is not None and target.requires_grad and not torch.is_grad_enabled():
            self.cut_by(f"{name} in place under no_grad")
        entered = self._constants(leaves) if self.cut is None else ((), ())
        returned = self._called(func, name, args, named, target)
        if self.cut is None:
            self._left(_Done(name, operands, entered, target, name in STEPS and ("div" not in name or bool(named.get(ROUNDED_DIVISION)))), returned)
        return returned

    def _called(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: Tensor | None) -> Any:
        """The operation itself; `target`: what it writes into."""
        return wrapped(func, *_readable(name, args), **kwargs)

    def _met(self, name: str, operands: Sequence[Tensor]) -> None:
        """Before an operation: its tensors."""
        for x in operands if self.cut is None else ():
            self._look_at(x)
        if name in REFUSED and any(x.requires_grad for x in operands):
            self.cut_by(name)

    def _left(self, done: _Done, returned: Any) -> None:
        """After an operation: what it gave, and wrote."""
        results = [y for y in pytree.tree_leaves(returned) if isinstance(y, Tensor)]
        results += [done.target] if done.target is not None and all(done.target is not y for y in results) else []
        depends = [x for x in done.operands if x.requires_grad or id(x) in self._origin]
        if done.name in READS and depends:
            self._read = self._source(depends) or f"{done.name.strip('_')}()"
        if not all(map(_is_followed, results)):
            self.cut_by(f"{done.name}, which gives a tensor of a kind of its own")
            return
        for y in results:
            self._memory.made(y)
            if y.requires_grad:
                self._grown(y, done.target)
            elif depends:
                self._origin[id(y)] = y, self._source(depends) or (done.name if torch.is_grad_enabled() else f"{done.name} under no_grad")
        graph = [y for y in results if y.requires_grad]
        if graph and done.name != "requires_grad_":
            self.steps.append(Step(done.name, *done.entered))
            if done.steps and depends:
                self.steps.append(Step(done.name, tuple(self._copy(y) for y in graph), (done.name,) * len(graph)))

    def _grown(self, y: Tensor, target: Tensor | None) -> None:
        """A tensor that is of the graph now."""
        if y is target:
            self._written.add(storage_key(y))
        self._walk(y)
        self._remember(y)

    def _source(self, depends: Sequence[Tensor]) -> str | None:
        return next((self._origin[id(x)][1] for x in depends if id(x) in self._origin), None)

    def _constants(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """What enters an operation without being of the graph, as it is now, and where it came from."""
        values, origins = list[Any](), list[str]()
        self.entering = []
        for x in leaves:
            found = self._constant(x)
            if found is not None:
                values.append(found)
                origins.append(self.origin(x))
                self.entering.append(x)
        return tuple(values), tuple(origins)

    def _constant(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            if x.requires_grad and x.grad_fn is not None:
                return None
            if id(x) not in self._known:
                self._remember(x)
            return self._copy(x)
        if isinstance(x, np.ndarray | np.generic):
            return x.dtype.str, x.shape, x.tobytes()
        if isinstance(x, slice):
            return tuple(self._constant(each) for each in (x.start, x.stop, x.step))
        return (type(x).__name__, repr(x)) if isinstance(x, bool | int | float | complex | str) else None

    # ---- tensors
    def _look_at(self, x: Tensor) -> None:
        """Before it is used: is it what it was, and did torch make it?"""
        known = self._known.get(id(x))
        self._memory.met(x)
        if known is not None:
            self._compare(known)
        elif x.requires_grad and x.grad_fn is not None:
            if x.grad_fn not in self._nodes and storage_key(x) not in self._written:
                self.cut_by(UNSEEN)
            self._walk(x)
            self._remember(x)

    def _compare(self, known: _Known) -> None:
        x = known.tensor
        if x.requires_grad and x.grad_fn is not known.node:
            if storage_key(x) not in self._written:
                self.cut_by(HIDDEN_WRITE)
            self._walk(x)
            self._remember(x)
        elif version(x) != known.version and not x.requires_grad:      # autograd knows of it, and refuses what it has spoilt
            self._remember(x)
        elif not same(known.value, x):
            self.cut_by(HIDDEN_WRITE)

    def _remember(self, x: Tensor) -> None:
        self._known[id(x)] = _Known(x, x.grad_fn, version(x), self._copy(x))

    def _copy(self, x: Tensor) -> Tensor:
        self._kept += x.numel()
        if self._kept > MOST:
            self.cut_by("more numbers than are kept")
            return x.detach()[..., :0] if x.dim() else x.detach()
        return x.detach().clone()

    def _walk(self, x: Tensor) -> None:
        """Takes the nodes that lead to x for known; those of a Function cut the graph."""
        stack = [x.grad_fn] if x.grad_fn is not None else []
        while stack:
            node = stack.pop()
            if node in self._nodes:
                continue
            self._nodes.add(node)
            cls = function_class(node)
            if cls is not None or type(node).__name__ == CPP_NODE:
                self.cut_by(f"{node.name()}, a Function that is not written in Python" if cls is None else f"{cls.__name__}, {APPLIED_BY_TORCH}")
            stack.extend(following for following, _ in node.next_functions if following is not None)


def _is_followed(x: Tensor) -> bool:
    """Can its numbers be read, and is it known how often it was written to? (In inference mode torch does not count that.)"""
    return is_plain(x) and not x.is_inference()


def _name(func: Any) -> str:
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":       # of a property
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _target(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The tensor that an operation writes into; None where there is none."""
    out = kwargs.get("out")
    if isinstance(out, Tensor):
        return out
    writes = name == "__setitem__" or name in IN_PLACE or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_")
    return args[0] if writes and args and isinstance(args[0], Tensor) else None


def _readable(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """NumPy takes no tensor of a graph; forward itself has none."""
    if name in ("numpy", "__array__") and args and isinstance(args[0], Tensor) and args[0].requires_grad:
        return (args[0].detach(), *args[1:])
    return args


# ---- Which constants of a graph move its outputs: log(exp(x − m)) + m is the same for every m,
# though m is the detached maximum of x
ROUNDINGS = 64.0        # of the sum of the absolute derivatives: what is left of those that cancel


class Probe(Tape):
    """A tape that lets torch differentiate by the constants too."""

    def __init__(self) -> None:
        super().__init__()
        self._uses: list[tuple[Place, tuple[int, int], Tensor]] = []      # where it entered, which tensor at which version, and its leaf

    def _called(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: Tensor | None) -> Any:
        if self.cut is not None or name in READS or not torch.is_grad_enabled() or not _in_graph(args, kwargs):
            return super()._called(func, name, args, kwargs, target)
        own = dict[int, Tensor]()
        for place, x in enumerate(self.entering):
            if isinstance(x, Tensor) and is_plain(x) and not x.requires_grad and x is not target and (x.is_floating_point() or x.is_complex()):
                leaf = own.setdefault(id(x), x.detach().requires_grad_())
                self._uses.append(((len(self.steps), place), (id(x), version(x)), leaf))
        args, kwargs = pytree.tree_map(lambda x: own.get(id(x), x) if isinstance(x, Tensor) else x, (tuple(args), dict(kwargs)))
        return super()._called(func, name, args, kwargs, target)

    def idle(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> frozenset[Place]:
        """The places of constants by which the derivative of the outputs is nothing but rounding."""
        if not self._uses:
            return frozenset()
        leaves = [leaf for *_, leaf in self._uses]
        found = gradients(outputs, leaves, cotangents)
        sums = dict[tuple[int, int], tuple[Tensor, Tensor]]()
        seen = set[int]()
        for (_, tensor, leaf), gradient in zip(self._uses, found, strict=True):
            if id(leaf) not in seen:        # a tensor that enters one operation twice has one leaf
                more = torch.zeros_like(leaf) if gradient is None else gradient
                total, size = sums.get(tensor, (torch.zeros_like(more), torch.zeros_like(more.abs())))
                sums[tensor] = total + more, size + more.abs()
                seen.add(id(leaf))
        rests = {tensor for tensor, (total, size) in sums.items()
                 if bool((total.abs() <= ROUNDINGS * torch.finfo(total.dtype).eps * size).all())}
        return frozenset(place for place, tensor, _ in self._uses if tensor in rests)


def _in_graph(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(x, Tensor) and x.requires_grad for x in pytree.tree_leaves((tuple(args), dict(kwargs))))
