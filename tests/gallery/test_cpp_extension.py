"""The linear layer as a C++ Function behind a registered operator: built by this file, checked through `torch.ops`, its faulty twin caught."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
import torch
from live import case, check, codes, message, randn, tensor

from gallery.cpp import SPEC, builder, compiled, gradverify
from gradverify.rules.catalogue import codes as every_code
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

CONTIGUITY = {"GV210", "GV211"} & set(every_code())     # the rules that vary the layout themselves
UNREGISTERED = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")      # torch says so too
X, W, B = randn(3, 4), randn(2, 4, seed=1), randn(2, seed=2)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the compiled module lies. Skips with its reason where nothing can be compiled."""
    reason = builder().lack()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cpp")
    compiled(folder)
    return folder


@pytest.fixture(scope="session")
def operators(folder):
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module("gradverify_gallery_cpp")
    finally:
        sys.path.remove(str(folder))
    return torch.ops.gradverify_gallery


@pytest.fixture(scope="session")
def faults(operators):
    return torch.ops.gradverify_cpp_faults


# ---- as a user runs it
def test_the_spec_comes_out_as_it_expects(folder, tmp_path):
    done = gradverify("check", str(SPEC), "--report", f"json:{tmp_path / 'r.json'}", module_folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    on_cpu = [each for each in checks if each["device"] == "cpu"]
    assert len(on_cpu) >= 14 and {each["function"]["kind"] for each in on_cpu} == {"operator"}
    right = [each for each in on_cpu if each["function"]["target"].startswith("torch.ops.gradverify_gallery.linear") and each["expect"] == "pass"]
    assert [each["verdict"] for each in right] == ["pass"] * (len(on_cpu) - 1) and all(each["findings"] == [] for each in right)
    faulty, = (each for each in on_cpu if each["expect"] == "fail")
    assert (faulty["function"]["target"], faulty["verdict"]) == ("torch.ops.gradverify_gallery.linear_assumes_contiguous", "fail")
    assert "GV101" in {finding["code"] for finding in faulty["findings"]} | {code for finding in faulty["findings"] for code in finding["also"]}


def test_without_the_module_every_check_is_skipped_with_the_reason():
    done = gradverify("check", str(SPEC))
    assert done.returncode == 5 and "no module 'gradverify_gallery_cpp'" in done.stdout
    assert "PASS" not in done.stdout


def test_without_a_compiler_the_reason_is_plain(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert builder().lack() == "no C++ compiler: there is no 'no-such-compiler' on the PATH"


def test_the_cuda_kernel_is_right(folder):
    reason = builder().lack_of_cuda()
    if reason is not None:
        pytest.skip(reason)
    done = gradverify("check", str(SPEC), "-k", "CUDA", "--require-device", "cuda", module_folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the twins
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("bias", [True, False])
def test_the_right_twin_is_torchs_linear_to_second_order(operators, dtype, bias):
    x, w, b = (randn(*t.shape, seed=seed, dtype=dtype).requires_grad_() for seed, t in enumerate((X, W, B)))
    given = (x, w, b) if bias else (x, w)
    torch.testing.assert_close(operators.linear(*given), torch.nn.functional.linear(*given), rtol=1e-14, atol=1e-14)
    assert torch.autograd.gradcheck(operators.linear, given) and torch.autograd.gradgradcheck(operators.linear, given)


def test_the_right_twin_passes_in_every_form(operators):
    for given in ((X, W, B), (X, W, None), (X, W), (X[:0], W, B), (X[:, :0], W[:, :0], B)):
        result = check(operators.linear, *given)
        assert (result.verdict, codes(result)) == ("pass", set()), given


@pytest.mark.parametrize("mode", ["entries", "rows", "blocks"])
def test_the_right_twin_passes_in_every_mode(operators, mode):
    assert check(operators.linear, X, W, B, mode=mode).verdict == "pass"


def test_what_does_not_fit_is_refused_in_a_sentence(operators):
    for given, said in (((X, W[:, :2]), "do not fit"), ((X, W, B[:1]), "do not fit"), ((X, W, B.float()), "bias is Float")):
        assert said in message(check(operators.linear, *given), "GV002")


def test_gradcheck_takes_the_faulty_twin_for_right(operators):
    assert torch.autograd.gradcheck(operators.linear_assumes_contiguous, [t.clone().requires_grad_() for t in (X, W, B)])


def test_the_faulty_twin_is_caught_by_every_rule_that_varies_the_layout(operators):
    result = check(operators.linear_assumes_contiguous, X, W, B)
    assert {code for code in codes(result) if code != "GV009"} == CONTIGUITY


@pytest.mark.parametrize(("name", "verdict"), [("linear", "pass"), ("linear_assumes_contiguous", "fail")])
@pytest.mark.parametrize("layout", ["transposed", "strided"])
def test_the_twins_part_where_the_spec_names_a_layout(operators, name, verdict, layout):
    inputs = [tensor(3, 4, name="input", layout=layout), tensor(2, 4, name="weight"), tensor(2, name="bias")]
    result = verify(prepare(case(f"torch.ops.gradverify_gallery.{name}", inputs)))
    assert (result.function.target, result.verdict) == (f"torch.ops.gradverify_gallery.{name}", verdict)
    assert ("GV101" in codes(result)) == (verdict == "fail")


# ---- what rules see of a backward that is written in C++
def test_a_right_backward_is_spared(faults):
    result = check(faults.is_right, X)
    assert (result.verdict, codes(result)) == ("pass", set())
    ran = {run.code for run in result.rules if run.status == "ran"}
    assert {"GV202", "GV204", "GV207", "GV212", "GV213", "GV214", "GV215", "GV219", "GV220"} <= ran


@pytest.mark.parametrize(("name", "code", "said"), [
    ("returns_float32", "GV212", "backward of Square<ReturnsFloat32> returns a float32 gradient for x, which is float64"),
    ("returns_two", "GV212", "backward of Square<ReturnsTwo> returns 2 gradients, but forward has 1 argument"),
    ("returns_wrong_shape", "GV212", "a gradient of shape [4, 3] for x, which has [3, 4]"),
    ("writes_into_grad_output", "GV202", "backward writes into grad_output"),
    ("writes_into_saved", "GV213", "returns for x shares memory with a saved tensor"),
    ("returns_saved_for_ones", "GV213", "shares memory with a saved tensor for a grad_output of ones"),
    ("returns_one_buffer", "GV213", "shares memory with the gradient of an earlier call"),
    ("has_no_autograd", "GV102", "the gradient of x is None"),
])
@UNREGISTERED
def test_a_fault_of_a_backward_in_cpp_is_named(faults, name, code, said):
    result = check(getattr(faults, name), X)
    assert result.verdict == "fail" and said in message(result, code)


def test_a_gradient_that_autograd_sums_down_is_a_warning_in_cpp_too(faults):
    result = check(faults.returns_unsummed, X)
    assert result.verdict == "pass" and "autograd sums it down" in message(result, "GV212")


@UNREGISTERED
def test_an_operator_without_autograd_is_told_how_to_get_one(faults):
    finding, = (each for each in check(faults.has_no_autograd, X).findings if each.code == "GV102")
    assert finding.hint == "the operator has no autograd: register one for the dispatch key Autograd, or with torch.library.register_autograd"


def test_a_cpp_function_inside_a_callable_is_seen_and_its_argument_counted(faults):
    result = check(lambda x: faults.returns_float32(x.sin()).exp(), X)
    assert "backward of Square<ReturnsFloat32> returns a float32 gradient for argument 0" in message(result, "GV212")


def test_init_writes_a_spec_for_an_operator_in_cpp_that_passes(folder, tmp_path):
    spec = tmp_path / "cpp.yaml"
    done = gradverify("init", "torch.ops.gradverify_gallery.linear", "--import", "gradverify_gallery_cpp", "-o", str(spec), module_folder=folder)
    assert done.returncode == 0 and "linear: runs" in done.stdout, done.stdout + done.stderr
    done = gradverify("check", str(spec), module_folder=folder)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout     # with a bias and without
