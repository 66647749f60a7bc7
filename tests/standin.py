"""A CUDA device that is not there: CPU tensors that say they lie on it, and refuse what tensors on
a real one refuse.

Inside `cuda()` whatever is put on the device "cuda" computes as on the CPU. Torch's own rules on
devices are held: operations that mix it with tensors of the CPU (of more than one number), a CPU
generator that draws there, and `.numpy()` raise what torch raises. Streams, kernels, memory and 16
bits (whose modes hide this one) are not imitated, nor is forward mode with tangents of some inputs
only, where torch makes zeros on the CPU. `is_cuda` and `device` say what they would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.subject import graph

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
CROSSING = (
    "aten::copy_",
    "aten::_to_copy",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
)
MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
NO_NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
    "memory first."
)


class Device:
    """What lies on it: storages, which are kept, so that no other one gets their address."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.wanted: list[bool] = []  # by the calls under way: does `device=` name this one?
        self.engine = False  # does the engine run, and no call of Python's inside it?

    def holds(self, x: Tensor) -> bool:
        return any(part.untyped_storage()._cdata in self.held for part in parts(x))

    def take(self, x: Any, on: bool = True) -> Any:
        for part in parts(x) if isinstance(x, Tensor) and on else ():
            storage = part.untyped_storage()
            self.held[storage._cdata] = storage
        return x


def parts(x: Tensor) -> Sequence[Tensor]:
    """The tensors with memory of their own that it is made of."""
    if x.is_nested:
        return [x._values] if hasattr(x, "_values") else []
    if x.layout is torch.sparse_coo:
        return [x._values()]
    if x.layout is not torch.strided:
        return [x.values()]
    return [x] if torch._C._has_storage(x) else []


class Moved(torch.autograd.Function):
    """A copy on the other device; its gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Device, on: bool) -> Tensor:
        ctx.device, ctx.on = device, on
        return moved(x, device, on)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return moved(g, ctx.device, not ctx.on), None, None


def moved(x: Tensor, device: Device, on: bool) -> Tensor:
    device.wanted.append(on)
    try:
        return device.take(x.detach().clone(), on)
    finally:
        device.wanted.pop()


class Functions(TorchFunctionMode):
    """What Python asks of a tensor, and where it puts new ones."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        engine, self.device.engine = self.device.engine, False
        try:
            return self._called(func, args, kwargs or {})
        finally:
            self.device.engine = engine

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        x = args[0] if args and isinstance(args[0], Tensor) else None
        here = (
            x is not None and func not in (torch.Tensor.untyped_storage,) and self.device.holds(x)
        )
        if func == Tensor.device.__get__:
            return GPU if here else CPU
        if func == Tensor.is_cuda.__get__:
            return here
        if func is Tensor.get_device:
            return 0 if here else -1
        if here and func in (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__):
            raise TypeError(NO_NUMPY)
        if func is Tensor.__deepcopy__:
            return self.device.take(func(*args, **kwargs), here)
        if func in (Tensor.cpu, Tensor.cuda):
            return self._to(x, here, func is Tensor.cuda)
        if func is Tensor.to:
            wanted, dtype, copied, memory = self._parsed(args[1:], kwargs)
            given = self._to(x, here, here if wanted is None else wanted)
            return Tensor.to(given, dtype or given.dtype, copy=copied, memory_format=memory)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        on = torch.device(kwargs["device"]).type == "cuda"
        if on and kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if func in (torch.as_tensor, torch.asarray) and isinstance(args[0], Tensor):
            return Tensor.to(self._to(x, here, on), kwargs.get("dtype", args[0].dtype))
        self.device.wanted.append(on)
        try:
            return self.device.take(func(*args, **{**kwargs, "device": "cpu"}), on)
        finally:
            self.device.wanted.pop()

    def _to(self, x: Tensor, here: bool, on: bool) -> Tensor:
        return x if here is on else Moved.apply(x, self.device, on)

    def _parsed(self, args: Any, kwargs: Any) -> tuple[bool | None, torch.dtype | None, bool, Any]:
        """Of `Tensor.to`."""
        kwargs = dict(kwargs)
        copied, memory = bool(kwargs.pop("copy", False)), kwargs.pop("memory_format", None)
        other = args[0] if args and isinstance(args[0], Tensor) else kwargs.pop("other", None)
        if other is not None:
            return self.device.holds(other), other.dtype, copied, memory or torch.preserve_format
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        return (
            None if device is None else device.type == "cuda",
            dtype,
            copied,
            memory or torch.preserve_format,
        )


class Operations(TorchDispatchMode):
    """What an operation makes of tensors there lies there; those of both devices together are
    refused."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        there = [self.device.holds(x) for x in given]
        wanted = self.device.wanted[-1] if self.device.wanted else None
        crossing = func._schema.name in CROSSING or wanted is not None
        if (
            any(there)
            and not crossing
            and any(
                x.dim() and not on and not x._is_zerotensor()
                for x, on in zip(given, there, strict=True)
            )
        ):
            raise RuntimeError(f"{MIXED} (in {func})")
        if (
            there
            and func._schema.name.startswith("aten::index")
            and crossing
            and not there[0]
            and any(there)
        ):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        if any(there) and kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        made = not given and self.device.engine  # zeros in the place of an undefined gradient
        on = made or (
            wanted
            if wanted is not None
            else there[0]
            if func._schema.name == "aten::copy_"
            else any(there)
        )
        returned = func(*args, **kwargs)
        if on:
            pytree.tree_map_only(Tensor, self.device.take, returned)
        return returned


@contextmanager
def cuda() -> Iterator[Device]:
    """Inside, one CUDA device seems to be there."""
    device = Device()
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda index=0: "a stand-in",
        "manual_seed_all": lambda seed: None,
        "init": lambda: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "max_memory_allocated": lambda device=None: 0,
        "get_rng_state_all": list,
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(patch.object(torch.random, "fork_rng", forked(torch.random.fork_rng)))
        stack.enter_context(
            patch.object(
                torch.autograd,
                "_engine_run_backward",
                within(device, torch.autograd._engine_run_backward),
            )
        )
        edge = graph.Edge
        stack.enter_context(
            patch.object(
                graph, "Edge", lambda shape, dtype, device, leaf: edge(shape, dtype, GPU, leaf)
            )
        )
        stack.enter_context(Functions(device))
        stack.enter_context(Operations(device))
        yield device


def within(device: Device, run: Any) -> Any:
    """The engine, which a function mode does not see into, as `torch.autograd.grad` is one of
    torch's functions itself."""

    def ran(*args: Any, **kwargs: Any) -> Any:
        engine, device.engine = device.engine, True
        try:
            with Functions(device):
                return run(*args, **kwargs)
        finally:
            device.engine = engine

    return ran


def forked(fork_rng: Any) -> Any:
    """Without the generators of a device that is not there."""
    return lambda devices=None, enabled=True, **other: fork_rng(devices=[], enabled=enabled)
