"""Triton's interpreter, without Triton: when it is asked for, how launches are told, what is said
where Triton is missing. With it: tests/gallery."""

import os
import sys
from types import ModuleType

import pytest
import torch
from live import Oracles, case, check, codes, randn, tensor

from gradverify.running.inline import run_case
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.interpreted import MODULE, TOO_LATE, VARIABLE, interpreting


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def kernel(monkeypatch):
    """Launches one: what Triton's interpreter does for `kernel[grid](x)`, without Triton."""

    class GridExecutor:
        def __call__(self, x, factor=2):
            return x * factor

    module = ModuleType(MODULE)
    module.GridExecutor = GridExecutor
    monkeypatch.setitem(sys.modules, MODULE, module)
    return GridExecutor()


@pytest.mark.parametrize(
    ("said", "gpu", "inside"),
    [(None, False, "1"), (None, True, None), ("0", False, "0"), ("1", True, "1")],
)
def test_it_is_asked_for_without_a_gpu_where_nobody_says_otherwise(monkeypatch, said, gpu, inside):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)
    with interpreting():
        assert os.environ.get(VARIABLE) == inside
    assert os.environ.get(VARIABLE) == said


@pytest.mark.parametrize("where", ["forward", "backward", "nowhere"])
def test_a_check_says_so_where_a_kernel_was_launched(kernel, where):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return kernel(x) if where == "forward" else 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return kernel(grad_output) if where == "backward" else 2 * grad_output

    result = check(Double, randn(2), select=("GV101", "GV214"))
    assert result.verdict == "pass"
    assert result.interpreter == (None if where == "nowhere" else "triton")
    (kept,) = (rule for rule in result.rules if rule.code == "GV214")
    assert kept.status == ("ran" if where == "nowhere" else "not_applicable")


@pytest.mark.parametrize("reference", [None, "torch:sin"])
def test_in_16_bits_interpreted_kernels_need_a_reference(kernel, reference):
    """What is not an operation of torch cannot be rounded after the fact: the cost of the dtype is
    that of the reference, or not known."""
    result = check(
        lambda x: torch.sin(x) + 0 * kernel(1),
        randn(4, 8).bfloat16(),
        oracles=Oracles(reference=reference),
        select=("GV112",),
    )
    assert result.verdict == ("undecided" if reference is None else "pass")
    assert (result.interpreter, codes(result)) == (
        "triton",
        {"GV007"} if reference is None else set(),
    )


@pytest.mark.parametrize(("dtype", "found"), [(torch.bfloat16, "GV007"), (torch.float16, "GV112")])
def test_what_differs_in_bfloat16_may_be_the_interpreters_fault(kernel, dtype, found):
    result = check(
        lambda x: torch.sin(x) * (3 if x.dtype == dtype else 1) + 0 * kernel(1),
        randn(4, 8).to(dtype),
        oracles=Oracles(reference="torch:sin"),
        select=("GV112",),
        dtype=str(dtype).removeprefix("torch."),
    )
    assert codes(result) == {found} and result.verdict == (
        "undecided" if found == "GV007" else "fail"
    )


@pytest.mark.parametrize("name", ["triton", "triton.language"])
def test_a_missing_triton_is_told_with_the_extra(tmp_path, name):
    file = tmp_path / f"needs_{name.replace('.', '_')}.py"
    file.write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n")
    for target in (f"{file}:f", f"{file.stem}:f"):
        result = run_case(
            case(target, [tensor(2, name="x")], search=case().search.__class__(str(tmp_path)))
        )
        (found,) = result.findings
        assert (result.verdict, found.code) == ("error", "GV001")
        assert "gradverify[triton]" in found.hint


def test_kernels_that_were_imported_before_are_told_with_the_variable():
    with pytest.raises(UserCodeError) as raised, blamed("GV002", "forward"):
        raise RuntimeError("0 active drivers ([]). There should only be one.")
    assert (
        raised.value.hint == TOO_LATE
        and f"{VARIABLE}=1" in TOO_LATE
        and "`device: cuda`" in TOO_LATE
    )
