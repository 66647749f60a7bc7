"""What a module sets while it is imported, as scripts do that only infer, makes no right function look wrong, whichever check is the first."""

import json
from io import StringIO

import pytest

from gradverify.cli.boundary import run
from gradverify.cli.output import Output

SETS = {
    "gradient mode": "torch.set_grad_enabled(False)",
    "inference mode": "kept = torch.inference_mode()\nkept.__enter__()",
    "saved tensors hooks": "kept = torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t)\nkept.__enter__()",
    "default device": "torch.set_default_device('meta')",
    "autocast on cpu": "kept = torch.autocast('cpu')\nkept.__enter__()",
    "anomaly mode": "torch.autograd.set_detect_anomaly(True)",
    "NumPy's errors": "import numpy\nnumpy.seterr(all='raise')",
    "backward's threads": "torch.autograd.set_multithreading_enabled(False)",
    "default dtype": "torch.set_default_dtype(torch.float16)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "": "import warnings\nwarnings.simplefilter('error')",
}
LEFT_ON = {"default dtype", "deterministic algorithms"}     # what the module's functions may count on, and no measurement minds
MODULE = """import torch
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

class Faulty(Square):
    @staticmethod
    def backward(ctx, g):
        return 1.5 * Square.backward(ctx, g)

def plain(x):
    return x * x
"""
TWICE = """gradverify: 1
checks:
  - {name: first, function: 'op:Square', inputs: {x: {shape: [2, 2]}}}
  - {name: again, function: 'op:Square', inputs: {x: {shape: [2, 2]}}}
  - {name: wrong, function: 'op:Faulty', inputs: {x: {shape: [2, 2]}}}
"""
OTHERS = """gradverify: 1
import: op
checks:
  - {name: reference, function: 'torch:square', reference: 'op:plain', inputs: {x: {shape: [2, 2]}}}
  - {name: built, function: 'op:Net', inputs: {x: {shape: [2]}}}
  - {name: made, function: 'op:plain', inputs_from: 'op:made'}
"""


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """`checked(module, spec, *options)`: the checks of the report."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)

    def call(module, spec, *options):
        (tmp_path / "op.py").write_text(module)
        (tmp_path / "s.yaml").write_text(spec)
        out = Output(["check", "s.yaml", "--report", "json:r.json", *options], StringIO(), StringIO())
        run(out)
        assert out.stderr.getvalue() == ""
        return json.loads((tmp_path / "r.json").read_text())["checks"]

    return call


@pytest.mark.population(most=8)
@pytest.mark.parametrize("options", [(), ("--no-isolate",)], ids=["in workers", "in this process"])
@pytest.mark.parametrize("name", SETS)
def test_a_right_function_passes_and_a_wrong_one_fails_and_it_is_told(checked, name, options):
    first, again, wrong = checked(f"{MODULE}\n{SETS[name]}\n", TWICE, *options)
    assert [first["verdict"], again["verdict"], wrong["verdict"]] == ["pass", "pass", "fail"]
    assert {finding["code"] for finding in [*first["findings"], *again["findings"], *wrong["findings"]]} == {"GV101"}
    if name and name not in LEFT_ON:
        assert f"changed {name} while it was imported" in first["changed"]


@pytest.mark.parametrize("name", ["gradient mode", "inference mode", "default device"])
def test_neither_does_what_is_set_where_a_reference_is_imported_a_module_built_or_inputs_made(checked, name):
    sets = SETS[name].replace("\n", "\n        ")
    module = (f"{MODULE}\n{SETS[name]}\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        {sets}\n"
              f"    def forward(self, x):\n        return x * x\ndef made(seed, dtype, device):\n    x = torch.ones(2, dtype=dtype, device=device)\n"
              f"    global kept\n    {SETS[name].replace(chr(10), chr(10) + '    ')}\n    return (x,)\n")
    assert [check["verdict"] for check in checked(module, OTHERS)] == ["pass"] * 3


def test_what_its_functions_count_on_is_there_in_every_check(checked):
    module = "import torch\ntorch.set_default_dtype(torch.float64)\ndef f(x):\n    y = torch.zeros(2)\n    y[:] = x\n    return (y.dot(x),)\n"
    spec = "gradverify: 1\nchecks:\n" + "".join(f"  - {{name: c{n}, function: 'op:f', inputs: {{x: {{shape: [2]}}}}}}\n" for n in range(3))
    assert [check["verdict"] for check in checked(module, spec)] == ["pass"] * 3
