"""Bad input, item by item: one clear message, the right exit code, no traceback; what only running
shows costs that check alone."""

import os
import re
import subprocess
import sys

import pytest
from own_fault import raising

HEAD = "gradverify: 1\nchecks:\n"
AFTER = "  - {name: after, function: 'op.py:double', inputs: {x: {shape: [2]}}}\n"
OPS = """from torch.autograd import Function
LIMIT = 7

def double(x): return 2 * x
def product(x, y): return x * y
def matmul(x, weight): return x @ weight
def picky(x): raise ValueError("the kernel wants 16 columns")

class TooFew(Function):
    @staticmethod
    def forward(ctx, x, y): return 2 * x + y
    @staticmethod
    def backward(ctx, grad_output): return 2 * grad_output

class TooMany(Function):
    @staticmethod
    def forward(ctx, x): return 2 * x
    @staticmethod
    def backward(ctx, grad_output): return 2 * grad_output, grad_output

class Cut(TooMany):
    @staticmethod
    def backward(ctx, grad_output): return 2 * grad_output[:1, :2]

class Turned(TooMany):
    @staticmethod
    def backward(ctx, grad_output): return 2 * grad_output.t()

class Raises(TooMany):
    @staticmethod
    def backward(ctx, grad_output): raise KeyError("scale")
"""


@pytest.fixture
def check(folder, gradverify):
    """`check(spec, *options)` writes s.yaml (text or bytes) beside op.py and checks it: (exit code,
    stdout, stderr), no traceback in them."""
    (folder / "op.py").write_text(OPS)

    def call(spec, *options, path="s.yaml"):
        if spec is not None:
            (folder / "s.yaml").write_bytes(spec if isinstance(spec, bytes) else spec.encode())
        code, out, err = gradverify("check", path, *options)
        assert not re.search(r"Traceback|gradverify/\w+/|gradverify itself", out + err)
        return code, out, err

    return call


def spec_of(body):
    """A spec with one check of its own and a right one after it."""
    return HEAD + f"  - {{name: first, {body}}}\n" + AFTER


# ---- found before anything runs: exit 2
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_exit_2(check, folder):
    (folder / "s.yaml").write_text(HEAD)
    (folder / "s.yaml").chmod(0)
    code, out, err = check(None)
    assert (code, out) == (2, "") and err == "s.yaml: cannot be read: Permission denied\n"


def test_a_file_that_cannot_be_read_is_exit_2(check, folder, monkeypatch):
    from pathlib import Path

    read = Path.read_bytes

    def refuse(path):
        if path.name == "s.yaml":
            raise PermissionError(13, "Permission denied")
        return read(path)

    (folder / "s.yaml").write_text(HEAD)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    code, out, err = check(None)
    assert (code, out) == (2, "") and err.startswith("s.yaml: cannot be read: Permission denied")


# ---- found only while running: that check alone
@pytest.mark.parametrize(
    "body, code, said",
    [
        (
            "function: 'nonesuch:f', inputs: {x: {shape: [2]}}",
            "GV001",
            "there is no module 'nonesuch'",
        ),
        (
            "function: 'op.py:duble', inputs: {x: {shape: [2]}}",
            "GV001",
            "'op.py' has no attribute 'duble'",
        ),
        (
            "function: 'op.py:LIMIT', inputs: {x: {shape: [2]}}",
            "GV001",
            "is of type int, not an autograd Function, a callable or a module",
        ),
        ("function: 'op.py:product', inputs: [{shape: [2]}]", "GV002", "takes (x, y), got 1"),
        (
            "function: 'op.py:product', inputs: [{shape: [2]}, {shape: [2]}, 3]",
            "GV002",
            "takes (x, y), got 3",
        ),
        (
            "function: 'op.py:product', inputs: {x: {shape: [2]}}",
            "GV002",
            "takes (x, y); 'y' is missing",
        ),
        (
            "function: 'op.py:product', inputs: {x: {shape: [2]}, why: {shape: [2]}}",
            "GV002",
            "inputs.why",
        ),
        (
            "function: 'op.py:double', inputs: {x: {shape: [1000000, 1000000, 1000]}}",
            "GV001",
            "inputs.x: making the tensor raised",
        ),
        (
            "function: 'op.py:matmul', inputs: {x: {shape: [2, 3]}, weight: {shape: [2, 3]}}",
            "GV002",
            "shapes cannot be multiplied (2x3 and 2x3)",
        ),
        (
            "function: 'op.py:picky', inputs: {x: {shape: [2]}}",
            "GV002",
            "forward raised ValueError: the kernel wants 16 columns",
        ),
        (
            "function: 'op.py:double', reference: 'op.py:picky', inputs: {x: {shape: [2]}}",
            "GV002",
            "picky raised ValueError: the kernel wants 16",
        ),
        (
            "function: 'op.py:Raises', inputs: {x: {shape: [2]}}",
            "GV003",
            "backward raised KeyError: 'scale'",
        ),
    ],
    ids=[
        "missing module",
        "missing attribute",
        "no function",
        "too few inputs",
        "too many inputs",
        "input missing",
        "input unknown",
        "shape too large",
        "shape mismatch",
        "forward raises",
        "reference raises",
        "backward raises",
    ],
)
def test_what_cannot_be_judged_costs_that_check_alone(check, body, code, said):
    exit_code, out, err = check(spec_of(body))
    verdicts = {
        line.split()[1]: line for line in out.splitlines() if line.startswith(("ERROR ", "PASS "))
    }
    assert exit_code == 3 and err == "" and set(verdicts) == {"first", "after"}
    assert verdicts["after"].startswith("PASS") and code in verdicts["first"]
    assert (
        said in out
        and "from s.yaml:3" in out
        and out.splitlines()[-1].startswith("1 could not be judged, 1 passed")
    )


@pytest.mark.parametrize(
    "name, inputs, said",
    [
        (
            "TooFew",
            "{x: {shape: [2]}, y: {shape: [2]}}",
            "backward of TooFew returns 1 gradient, but forward has 2 arguments",
        ),
        (
            "TooMany",
            "{x: {shape: [2]}}",
            "backward of TooMany returns 2 gradients, but forward has 1 argument",
        ),
        ("Cut", "{x: {shape: [2, 3]}}", "a gradient of shape [1, 2] for x, which has [2, 3]"),
        ("Turned", "{x: {shape: [2, 3]}}", "a gradient of shape [3, 2] for x, which has [2, 3]"),
    ],
)
def test_a_wrong_number_or_shape_from_backward_is_gv212_and_exit_1(check, name, inputs, said):
    code, out, err = check(spec_of(f"function: 'op.py:{name}', inputs: {inputs}"))
    assert code == 1 and err == "" and said in out and re.search(r"^PASS +after", out, re.M)
    assert (
        re.search(r"^FAIL +first .*GV212 gradient-metadata", out, re.M)
        and len(set(re.findall(r"GV\d{3}", out))) == 1
    )


@pytest.mark.parametrize("gate, code", [("warn", 0), ("fail", 3)])
def test_a_step_too_small_to_move_the_input_is_undecided(check, gate, code):
    exit_code, out, err = check(
        spec_of("function: 'op.py:double', inputs: {x: {values: [1.0, 2.0]}}, eps: 1e-20"),
        "--undecided",
        gate,
    )
    assert (
        exit_code == code
        and err == ""
        and re.search(r"^UNDECIDED +first", out, re.M)
        and re.search(r"^PASS +after", out, re.M)
    )
    assert "x[0] + 1e-20 = x[0] in float64" in out and "1 undecided" in out


@pytest.mark.parametrize("options, code", [([], 0), (["--require-device", "cuda"], 3)])
def test_without_cuda_a_check_that_wants_it_is_skipped_with_the_reason(
    check, monkeypatch, options, code
):
    monkeypatch.setattr("gradverify.subject.machine.cuda_devices", lambda: ())
    exit_code, out, err = check(
        spec_of("function: 'op.py:double', inputs: {x: {shape: [2]}}, device: cuda"),
        "--no-isolate",
        *options,
    )
    assert (
        exit_code == code
        and err == ""
        and re.search(r"^SKIP +first .*no CUDA device", out, re.M)
        and re.search(r"^PASS +after", out, re.M)
    )


def test_with_nothing_but_skips_nothing_was_checked(check, monkeypatch):
    monkeypatch.setattr("gradverify.subject.machine.cuda_devices", lambda: ())
    assert check(HEAD + AFTER, "--device", "cuda")[0] == 5


# ---- the program itself
def test_a_closed_pipe_is_silent_in_the_middle_of_a_run(folder):
    (folder / "op.py").write_text(OPS)
    (folder / "s.yaml").write_text(spec_of("function: 'op.py:double', inputs: {x: {shape: [2]}}"))
    program = f"{sys.executable} -m gradverify check s.yaml | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (
        done.returncode in (0, 141)
        and done.stderr == ""
        and done.stdout.startswith("PASS       first")
    )


def test_a_fault_of_our_own_is_exit_4_with_a_bug_report_and_what_there_is(
    folder, gradverify, monkeypatch
):
    import gradverify.rules.values as rule

    (folder / "op.py").write_text(OPS)
    (folder / "s.yaml").write_text(spec_of("function: 'op.py:picky', inputs: {x: {shape: [2]}}"))
    monkeypatch.setattr(rule, "gv101", raising(IndexError("planted")))
    code, out, err = gradverify("check", "s.yaml", "--report", "json:r.json", "--no-isolate")
    assert (
        code == 4
        and re.search(r"^ERROR +first", out, re.M)
        and "gradverify itself failed in 1 check" in out
        and "2 could not be judged" in out
    )
    assert (
        "this is a fault in gradverify" in err
        and "IndexError: planted" in err
        and '"exit_code": 4' in (folder / "r.json").read_text()
    )
