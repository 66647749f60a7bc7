"""The linear layer as a C++ Function behind a registered operator: built by this file, checked
through `torch.ops`, its faulty twin caught."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import here
from live import check, codes, message, randn

from gradverify.rules.catalogue import codes as every_code

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "specs" / "extensions" / "linear.yaml"
FAULTS = Path(__file__).with_name("cpp_faults.cpp")
COMMAND = (
    "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import build; "
    "build.build(*map(pathlib.Path, sys.argv[2:]))"
)
CONTIGUITY = {"GV210", "GV211"} & set(every_code())  # the rules that vary the layout themselves
# Torch says so too
UNREGISTERED = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
X, W, B = randn(3, 4), randn(2, 4, seed=1), randn(2, seed=2)


def builder():
    """specs/extensions/build.py as a module."""
    spec = importlib.util.spec_from_file_location("build_gallery_cpp", SPEC.with_name("build.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`gradverify …` in the project's root, with the compiled module of a folder in reach."""
    environment = {
        **os.environ,
        "CI": "",
        "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT))),
    }
    return subprocess.run(
        [sys.executable, "-m", "gradverify", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the compiled module lies: the gallery's operators and this folder's faults, compiled in
    a process of their own, as setuptools changes more than it says. Skips with its reason where
    nothing can be compiled."""
    reason = builder().lack()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cpp")
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(SPEC.parent), str(folder), str(FAULTS)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def operators(folder):
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module("gradverify_gallery_cpp")
    finally:
        sys.path.remove(str(folder))
    return torch.ops.gradverify_gallery


@pytest.fixture(scope="module")
def faults(operators):
    return torch.ops.gradverify_cpp_faults


# ---- as a user runs it
def test_the_spec_comes_out_as_it_expects(folder, tmp_path):
    """Some of its combinations of dtype and layout."""
    names = (
        "linear in C++[dtype=float64,layout=transposed]",
        "linear in C++[dtype=complex128,layout=offset]",
        "linear in C++ without bias",
        "linear in C++ that takes its input for contiguous",
    )
    done = run(
        "check",
        *(f"{SPEC}::{name}" for name in names),
        "--report",
        f"json:{tmp_path / 'r.json'}",
        folder=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert len(checks) == len(names) and {each["function"]["kind"] for each in checks} == {
        "operator"
    }
    right = [each for each in checks if each["expect"] == "pass"]
    assert [(each["verdict"], each["findings"]) for each in right] == [("pass", [])] * (
        len(checks) - 1
    )
    (faulty,) = (each for each in checks if each["expect"] == "fail")
    assert (faulty["function"]["target"], faulty["verdict"]) == (
        "torch.ops.gradverify_gallery.linear_assumes_contiguous",
        "fail",
    )
    assert "GV101" in {finding["code"] for finding in faulty["findings"]} | {
        code for finding in faulty["findings"] for code in finding["also"]
    }


def test_without_the_module_every_check_is_skipped_with_the_reason(monkeypatch):
    monkeypatch.chdir(ROOT)
    code, out, _ = here("check", str(SPEC))
    assert code == 5 and "no module 'gradverify_gallery_cpp'" in out
    assert "PASS" not in out


def test_without_a_compiler_the_reason_is_plain(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert builder().lack() == "no C++ compiler: there is no 'no-such-compiler' on the PATH"


def test_the_cuda_kernel_is_right(folder):
    reason = builder().lack_of_cuda()
    if reason is not None:
        pytest.skip(reason)
    done = run("check", str(SPEC), "-k", "CUDA", "--require-device", "cuda", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the twins
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_right_twin_is_torchs_linear_to_second_order(operators, dtype):
    given = tuple(
        randn(*t.shape, seed=seed, dtype=dtype).requires_grad_() for seed, t in enumerate((X, W, B))
    )
    for each in (given, given[:2]):
        torch.testing.assert_close(
            operators.linear(*each), torch.nn.functional.linear(*each), rtol=1e-14, atol=1e-14
        )
        assert torch.autograd.gradcheck(operators.linear, each) and torch.autograd.gradgradcheck(
            operators.linear, each
        )


def test_what_does_not_fit_is_refused_in_a_sentence(operators):
    for given, said in (
        ((X, W[:, :2]), "do not fit"),
        ((X, W, B[:1]), "do not fit"),
        ((X, W, B.float()), "bias is Float"),
    ):
        assert said in message(check(operators.linear, *given), "GV002")


def test_the_faulty_twin_passes_gradcheck_and_is_caught_by_every_rule_that_varies_the_layout(
    operators,
):
    assert torch.autograd.gradcheck(
        operators.linear_assumes_contiguous, [t.clone().requires_grad_() for t in (X, W, B)]
    )
    result = check(operators.linear_assumes_contiguous, X, W, B)
    assert {code for code in codes(result) if code != "GV009"} == CONTIGUITY


# ---- what rules see of a backward that is written in C++
def test_a_right_backward_is_spared(faults):
    result = check(faults.is_right, X)
    assert (result.verdict, codes(result)) == ("pass", set())
    ran = {run.code for run in result.rules if run.status == "ran"}
    assert {"GV202", "GV204", "GV207", "GV212", "GV213", "GV214", "GV215", "GV219", "GV220"} <= ran


@pytest.mark.parametrize(
    ("name", "verdict", "code", "said"),
    [
        (
            "returns_float32",
            "fail",
            "GV212",
            "backward of Square<ReturnsFloat32> returns a float32 gradient for x, which is float64",
        ),
        (
            "returns_two",
            "fail",
            "GV212",
            "backward of Square<ReturnsTwo> returns 2 gradients, but forward has 1 argument",
        ),
        (
            "returns_wrong_shape",
            "fail",
            "GV212",
            "a gradient of shape [4, 3] for x, which has [3, 4]",
        ),
        ("returns_unsummed", "pass", "GV212", "autograd sums it down"),
        ("writes_into_grad_output", "fail", "GV202", "backward writes into grad_output"),
        ("writes_into_saved", "fail", "GV213", "returns for x shares memory with a saved tensor"),
        (
            "returns_saved_for_ones",
            "fail",
            "GV213",
            "shares memory with a saved tensor for a grad_output of ones",
        ),
        (
            "returns_one_buffer",
            "fail",
            "GV213",
            "shares memory with the gradient of an earlier call",
        ),
        ("has_no_autograd", "fail", "GV102", "the gradient of x is None"),
    ],
)
@UNREGISTERED
def test_a_fault_of_a_backward_in_cpp_is_named(faults, name, verdict, code, said):
    result = check(getattr(faults, name), X)
    assert result.verdict == verdict and said in message(result, code)
    if name == "has_no_autograd":
        (finding,) = (each for each in result.findings if each.code == code)
        assert finding.hint == (
            "the operator has no autograd: register one for the dispatch key Autograd, or with "
            "torch.library.register_autograd"
        )


def test_a_cpp_function_inside_a_callable_is_seen_and_its_argument_counted(faults):
    result = check(lambda x: faults.returns_float32(x.sin()).exp(), X)
    assert (
        "backward of Square<ReturnsFloat32> returns a float32 gradient for argument 0"
        in message(result, "GV212")
    )
