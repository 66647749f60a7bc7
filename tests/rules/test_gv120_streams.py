"""Work that goes around the current stream, and work that is in order with it. The streams are stand-ins, but for the tests that want a GPU."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import standin
import torch
from gallery.twins import GALLERY, twins
from live import case, codes, message, randn, subject, tensor
from torch import Tensor
from torch.autograd import Function
from torch.utils import cpp_extension

from gradverify.running.inline import run_case
from gradverify.verify import verify

Faulty, Right = twins("squares_on_the_default_stream")
GPU = torch.device("cuda", 0)
KERNELS = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
__global__ void kernel(const double* x, double* y, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * x[i];
}
torch::Tensor square(torch::Tensor x, bool current) {
  auto y = torch::empty_like(x);
  kernel<<<1, 64, 0, current ? c10::cuda::getCurrentCUDAStream().stream() : 0>>>(x.data_ptr<double>(), y.data_ptr<double>(), x.numel());
  return y;
}
"""


def ran(result: Any) -> Any:
    return next(run for run in result.rules if run.code == "GV120")


def on_the_stand_in(function: Any, *values: Tensor, seed: int = 0, **settings: Any) -> Any:
    with standin.cuda():
        return verify(subject(function, *(x.to("cuda") for x in values), device="cuda", streams=True, ignore=("GV214",), seed=seed, **settings))


def launched(stream: Any, operation: Any, x: Tensor, *others: Any) -> Tensor:
    """A kernel that writes into memory which is the current stream's."""
    y = torch.empty_like(x)
    with torch.cuda.stream(stream):
        operation(x, *others, out=y)
    return y


def default(x: Tensor) -> Any:
    return torch.cuda.default_stream(x.device)


def waiting(x: Tensor, operation: Any, *others: Any, before: bool = True, after: bool = True, stream: Any = None) -> Tensor:
    """A kernel on another stream, or on a new one."""
    here, there = torch.cuda.current_stream(x.device), stream or torch.cuda.Stream(x.device)
    if before:
        there.wait_stream(here)
    y = launched(there, operation, x, *others)
    if after:
        here.wait_stream(there)
    return y


def squared(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor] = torch.mul) -> Any:
    """`x²`, and `backward(g, 2 x)`."""
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return backward(g.contiguous(), 2 * ctx.saved_tensors[0])

    return Square


def after_a_number(x: Tensor) -> Tensor:
    """The host needs a number first, which makes it wait for the current stream."""
    return launched(default(x), torch.mul, x, x) if float(x.sum()) > -1e9 else x


def by_address(x: Tensor) -> Tensor:
    """Read by the host, which waits for nothing."""
    number = ctypes.c_double if x.dtype is torch.float64 else ctypes.c_float
    numbers = (number * x.numel()).from_address(x.contiguous().data_ptr())
    y = torch.tensor(list(numbers), dtype=x.dtype).reshape(x.shape).to(x.device)
    return y * y


WRONG = {
    "the kernel of forward runs on the default stream": squared(lambda x: launched(default(x), torch.mul, x, x)),
    "and that of backward alone": squared(lambda x: x * x, lambda g, x: launched(default(g), torch.mul, g, x)),
    "backward on a stream of its own that waits for nobody": squared(lambda x: x * x, lambda g, x: waiting(g, torch.mul, x, before=False)),
    "on the default stream, which waits and is not waited for": squared(lambda x: waiting(x, torch.square, after=False, stream=default(x))),
    "backward so": squared(lambda x: x * x, lambda g, x: waiting(g, torch.mul, x, after=False, stream=default(g))),
    "on the default stream, after a number that the host needs": squared(after_a_number),
    "by address": squared(by_address),
}
RIGHT = {
    "torch's operators": squared(lambda x: x * x),
    "a kernel on the current stream": squared(lambda x: launched(torch.cuda.current_stream(x.device), torch.mul, x, x)),
    "a stream of its own that waits and is waited for": squared(lambda x: waiting(x, torch.square), lambda g, x: waiting(g, torch.mul, x)),
    "the default stream so": squared(lambda x: waiting(x, torch.square, stream=default(x)), lambda g, x: waiting(g, torch.mul, x, stream=default(g))),
    "a number that the host needs": squared(lambda x: x * x if float(x.sum()) > -1e9 else x),
    "a wait for the whole device": squared(lambda x: (torch.cuda.synchronize(), launched(default(x), torch.mul, x, x), torch.cuda.synchronize())[1]),
}


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_work_that_goes_around_the_current_stream_is_found(name: str, seed: int) -> None:
    result = on_the_stand_in(WRONG[name], randn(2, 3, seed=seed), seed=seed)
    assert codes(result) == {"GV120"}, result.findings
    assert all(finding.message.startswith("on another stream, ") and "on the default stream" in finding.message for finding in result.findings)


@pytest.mark.population(most=6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", RIGHT)
def test_work_in_its_turn_is_left_alone(name: str, seed: int) -> None:
    result = on_the_stand_in(RIGHT[name], randn(2, 3, seed=seed), seed=seed)
    assert (result.verdict, codes(result)) == ("pass", set()), result.findings
    assert ran(result).status == "ran" and ran(result).reason.endswith("compared with another stream")
    assert ("forward waited for the own stream" in ran(result).reason) == (name in ("a number that the host needs", "a wait for the whole device"))


def test_which_stream_was_busy_is_told_and_what_is_wrong() -> None:
    x = randn(2, 3)
    early = message(on_the_stand_in(WRONG["the kernel of forward runs on the default stream"], x), "GV120")
    late = message(on_the_stand_in(WRONG["on the default stream, after a number that the host needs"], x), "GV120")
    assert early.startswith("on another stream, which is busy, y0[") and late.startswith("on another stream, while the default one is busy, y0[")
    gradient = message(on_the_stand_in(WRONG["and that of backward alone"], x), "GV120")
    assert "the gradient at " in gradient and float(gradient.partition("] is ")[2].partition(",")[0]) != 0


class Noisy(Function):
    """Sums in an order that comes out otherwise each time, as atomic adds do."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Noisy.calls += 1
        ctx.save_for_backward(x)
        return x * x * (1 + 2.0**-51 * (Noisy.calls % 3))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * ctx.saved_tensors[0]


class InPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * g


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("function", [Noisy, InPlace, torch.nn.Dropout(0.4), torch.nn.BatchNorm1d(3)])
def test_noise_writes_draws_and_buffers_are_left_alone(function: Any, seed: int) -> None:
    result = on_the_stand_in(function, randn(4, 3, seed=seed), seed=seed, select=("GV120",))
    assert codes(result) == set() and ran(result).status == "ran", ran(result)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_several_inputs_and_float32(dtype: torch.dtype) -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            there = default(g) if ctx.needs_input_grad[1] and Product.faulty else torch.cuda.current_stream(g.device)
            with torch.cuda.stream(there):
                return g @ w.T, x.T @ g

    for Product.faulty in (True, False):
        result = on_the_stand_in(Product, randn(2, 3, dtype=dtype), randn(3, 2, seed=1, dtype=dtype), dtype=str(dtype).removeprefix("torch."))
        assert codes(result) == ({"GV120"} if Product.faulty else set()), result.findings


def test_what_a_call_at_other_inputs_leaves_behind_is_no_matter_of_streams() -> None:
    class AfterAnother(Faulty):
        totals: ClassVar = set[float]()

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            AfterAnother.totals.add(float(x.sum()))
            return x * x * len(AfterAnother.totals)

    result = on_the_stand_in(AfterAnother, randn(2, 3), select=("GV120",))
    assert "GV120" not in codes(result) and ran(result).reason == "after a call at other inputs it gives other numbers on the default stream too"


def test_what_does_not_come_again_is_not_told() -> None:
    class Once(Faulty):
        busy = 0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            busy = x.is_cuda and not torch.cuda.current_stream(x.device).query()
            Once.busy += busy
            return x * x + 1.0 * (busy and Once.busy == 1)

    result = on_the_stand_in(Once, randn(2, 3), select=("GV120",))
    assert codes(result) == set() and Once.busy == 2


def test_a_device_on_which_no_stream_runs_ahead_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with standin.cuda():
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
        made = subject(Faulty, randn(2, 3).to("cuda"), device="cuda", streams=True, select=("GV120",))
        result = verify(made)
        assert codes(result) == set() and "CUDA_LAUNCH_BLOCKING" in ran(result).reason
        assert made.on == (GPU,)


def test_what_raises_there_alone_is_told_and_calls_are_waited_for_again() -> None:
    class Refuses(Faulty):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            if x.is_cuda and not torch.cuda.current_stream(x.device).query():
                raise RuntimeError("not while it is busy")
            return x * x

    with standin.cuda():
        made = subject(Refuses, randn(2, 3).to("cuda"), device="cuda", streams=True, ignore=("GV214",))
        result = verify(made)
        assert codes(result) == {"GV120"} and "not while it is busy" in message(result, "GV120") and made.on == (GPU,)


def test_it_says_why_it_does_not_run() -> None:
    target = f"{GALLERY}/squares_on_the_default_stream.py:Faulty"
    said = {on: ran(run_case(case(target, [tensor(2, name="x")], streams=on, select=("GV120",)))).reason for on in (False, True)}
    assert said == {False: "the spec does not say `streams: true`", True: "no tensor of it lies on a CUDA device"}


# ---- on a GPU
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["faulty", "right", *(name for name in (*WRONG, *RIGHT) if name != "by address")])
def test_on_a_gpu(name: str) -> None:
    function = {"faulty": Faulty, "right": Right, **WRONG, **RIGHT}[name]
    result = verify(subject(function, randn(64, 3).to("cuda"), device="cuda", streams=True))
    assert codes(result) == ({"GV120"} if name in ("faulty", *WRONG) else set()), result.findings


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.skipif(shutil.which("nvcc", path=str(Path(cpp_extension.CUDA_HOME or "/none", "bin"))) is None, reason="no nvcc")
@pytest.mark.parametrize("current", [True, False])
def test_on_a_gpu_a_kernel_of_ones_own(current: bool) -> None:
    module = cpp_extension.load_inline("gradverify_streams", cpp_sources="torch::Tensor square(torch::Tensor x, bool current);", cuda_sources=KERNELS,
                                       functions=["square"])
    result = verify(subject(squared(lambda x: module.square(x.contiguous(), current)), randn(64, 3).to("cuda"), device="cuda", streams=True))
    assert codes(result) == (set() if current else {"GV120"}), result.findings
