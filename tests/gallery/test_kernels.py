"""The kernels in Triton, on the CPU, against torch's own gradients; the faults on the sizes that
show them, and the sizes that do not.

They are skipped where Triton is not installed (`pip install -e '.[triton]'`), and under a GPU, for
which specs/kernels/triton.yaml is run.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch.nn.functional import rms_norm

from gallery.twins import GALLERY, draw, gradients, load
from gradverify.rules.catalogue import codes
from gradverify.running.inline import placed, run_case
from gradverify.spec.load import load as read
from gradverify.subject.interpreted import interpreting
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

SPEC = Path(__file__).parents[2] / "specs" / "kernels" / "triton.yaml"
MISSING = importlib.util.find_spec("triton") is None
pytestmark = [
    pytest.mark.skipif(MISSING, reason="Triton is not installed"),
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="there is a GPU, on which these kernels run natively"
    ),
]

TRUTH = {
    "softmax_sums_over_its_tile": lambda x: x.softmax(-1),
    "rmsnorm_divides_by_its_block": lambda x, gain: rms_norm(x, x.shape[-1:], gain, eps=1e-6),
    "matmul_drops_its_tail": lambda a, b: a @ b,
}
SHOWS = {
    "softmax_sums_over_its_tile": [(5, 3)],
    "rmsnorm_divides_by_its_block": [(3, 5), (5,)],
    "matmul_drops_its_tail": [(18, 5), (5, 17)],
}
HIDES = {
    "softmax_sums_over_its_tile": [(1, 3)],
    "rmsnorm_divides_by_its_block": [(3, 8), (8,)],
    "matmul_drops_its_tail": [(16, 5), (5, 17)],
}


CASES = sorted(read([SPEC], builtins={}, codes=codes()).cases, key=lambda case: case.name)


@pytest.fixture(autouse=True)
def under_the_interpreter():
    with interpreting():
        yield


def apart(name: str, twin: str, shapes: list[tuple[int, ...]]) -> tuple[float, float]:
    """By how much the values, and the gradients, are off torch's own in float64."""
    inputs = tuple(
        draw(*shape, seed=place).detach().requires_grad_() for place, shape in enumerate(shapes)
    )
    exact = tuple(x.detach().double().requires_grad_() for x in inputs)
    function, wanted = getattr(load(f"kernels/{name}"), twin), TRUTH[name](*exact)
    cotangent = draw(*wanted.shape, seed=9).detach()
    values = float((function.apply(*inputs).detach().double() - wanted.detach()).abs().max())
    pairs = zip(
        gradients(function, inputs, cotangent),
        torch.autograd.grad(wanted, exact, cotangent),
        strict=True,
    )
    return values, max(float((a.double() - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_the_fault_is_in_the_gradient_and_hides_where_the_text_says(name):
    assert max(apart(name, "Right", SHOWS[name])) < 1e-14
    values, gradient = apart(name, "Faulty", SHOWS[name])
    assert values < 1e-14 and gradient > 0.01
    assert max(apart(name, "Faulty", HIDES[name])) < 1e-14


def test_every_kernel_stands_in_the_spec_both_faulty_and_right():
    stems = {path.stem for path in (GALLERY / "kernels").glob("*.py")}
    named = {
        check["function"].rpartition("/")[2]: check.get("expect")
        for check in yaml.safe_load(SPEC.read_text())["checks"]
    }
    assert named == {
        f"{stem}.py:{twin}": ["GV101"] if twin == "Faulty" else None
        for stem in stems
        for twin in ("Faulty", "Right")
    }
    assert stems == set(TRUTH)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.expect == "pass"], ids=lambda case: case.name
)
def test_the_right_ones_pass_and_say_what_computed(case):
    """By a few rules: an interpreted call takes 10 ms."""
    result = run_case(
        placed(
            replace(case, settings=replace(case.settings, select=("GV101", "GV201", "GV214"))), None
        )
    )
    assert (result.verdict, result.interpreter, result.findings) == ("pass", "triton", ())
    assert [rule.status for rule in result.rules if rule.code == "GV214"] == ["not_applicable"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.expect != "pass"], ids=lambda case: case.name
)
def test_the_faulty_ones_are_caught(case):
    result = verify(prepare(placed(case, None)), briefly=True)
    assert ({finding.code for finding in result.findings}, result.verdict) == (
        set(case.expect),
        "fail",
    )
