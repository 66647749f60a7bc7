"""What is done on CUDA devices, as far as it is logic of ours: a stand-in for the device's error,
its switches and its memory. The device itself is asked where there is one."""

import pytest
import standin
import torch
from live import case, evidence, randn, subject, tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from gradverify.running.inline import run_case
from gradverify.subject.failure import UserCodeError
from gradverify.subject.on_cuda import after_a_check
from gradverify.subject.prepare import given as prepared
from gradverify.subject.rounding import Perturbed
from gradverify.verify import verify

GPU = torch.device("cuda", 0)
needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


@pytest.fixture
def waited(monkeypatch):
    """The devices that were waited for; `waited.fails`: from that wait on each raises what a kernel
    that ran on would."""

    class Waited(list):
        fails = None

    seen = Waited()

    def synchronize(device):
        seen.append(device)
        # And so does every later call: the context is lost
        if seen.fails and len(seen) >= seen.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    return seen


@pytest.mark.parametrize(
    "pulled",
    [
        lambda f, v: f.vjp(v),
        lambda f, v: f.once(v),
        lambda f, v: f.gradients(f.graph(f._subject.leaves()), v),
    ],
)
@pytest.mark.parametrize(("fails", "code"), [(1, "GV002"), (2, "GV003")])
def test_what_a_kernel_raises_later_is_blamed_on_the_call_that_launched_it(
    waited, fails, code, pulled
):
    found = evidence(Square, randn(3))
    assert found.function.inputs
    found.subject.on, waited.fails = (GPU,), fails
    with pytest.raises(UserCodeError) as raised:
        pulled(found.function, [torch.ones(3, dtype=torch.float64)])
    assert raised.value.code == code and "illegal memory access" in raised.value.message


@needs_a_gpu
def test_on_a_device_calls_are_waited_for_and_memory_is_measured():
    result = run_case(case("torch:sin", [tensor(64, name="x")], device="cuda", select=("GV101",)))
    assert result.verdict == "pass" and result.device_memory >= 64 * 8


class Running(Function):
    """Its kernels run on after forward and backward; each call notes whether those of the one
    before had been waited for."""

    launched, early = [], []

    @staticmethod
    def starts(what):
        Running.early += [(what, *Running.launched)] if Running.launched else []
        Running.launched[:] = [what]

    @staticmethod
    def forward(ctx, x):
        Running.starts("forward")
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors  # which raises where x was overwritten: nothing is launched then
        Running.starts("backward")
        return g * torch.cos(x)


def test_every_call_of_every_rule_is_waited_for_before_the_next(monkeypatch):
    monkeypatch.setattr(Running, "launched", [])
    monkeypatch.setattr(Running, "early", [])
    with standin.cuda():
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: Running.launched.clear())
        found = verify(
            subject(
                Running, randn(2, 3).to("cuda"), device="cuda", ignore=("GV214",), second_order=True
            )
        )
    assert found.verdict == "pass" and found.calls.forward > 30 and found.calls.backward > 20
    assert Running.early == []


def test_a_worker_whose_device_is_lost_takes_no_other_check_and_others_give_memory_back(
    waited, monkeypatch
):
    given = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append(True))
    assert not after_a_check("cpu") and waited == given == []
    assert not after_a_check("cuda:1") and waited == [torch.device("cuda", 1)] and given == [True]
    waited.fails = 1
    assert after_a_check("cuda:1") and given == [True] and not after_a_check("cpu")


class BadRead(Square):
    """Its backward reads where it must not, in one of a later rule's calls."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if not g.is_contiguous():
            BadRead.lost = True
        return 2 * g * x


def test_what_a_lost_device_answers_is_not_told_as_findings_of_further_rules(monkeypatch):
    def synchronize(device=None):
        if BadRead.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(BadRead, "lost", False, raising=False)
    with standin.cuda():
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        result = verify(subject(BadRead, randn(2, 3).to("cuda"), device="cuda", ignore=("GV214",)))
    assert {finding.code for finding in result.findings} == {"GV210"}, result.findings
    later = [
        run
        for run in result.rules
        if run.reason == "the check stopped at GV210, where the device was lost"
    ]
    assert len(later) > 5 and not any(run.calls.forward or run.calls.backward for run in later)


class Elsewhere(TorchFunctionMode):
    """All tensors say that they lie on a device that checks do not compute on."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (
            torch.device("mps", 0)
            if func == torch.Tensor.device.__get__
            else func(*args, **(kwargs or {}))
        )


def test_a_tensor_on_a_device_of_another_kind_is_refused_by_its_name():
    with (
        Elsewhere(),
        pytest.raises(UserCodeError, match="the call gives x: a tensor on mps:0") as raised,
    ):
        prepared({"x": torch.ones(2)}, {})
    assert raised.value.code == "GV001" and "CUDA" in raised.value.hint
    assert prepared({"x": torch.ones(2)}, {})[0][0].value.tolist() == [1, 1]


@needs_a_gpu
def test_rounding_at_random_leaves_a_copy_to_another_device_as_it_is():
    x = randn(8)
    with Perturbed(torch.Generator().manual_seed(0)):
        assert torch.equal(x.to(GPU).cpu(), x)
