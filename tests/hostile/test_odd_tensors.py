"""Every kind of tensor that torch has, by every way into a check: as an input, a parameter, an output, an oracle's output. What cannot be moved or
compared element by element is told in a sentence (exit 3); what merely is no plain float64 tensor goes on working. Never a fault of ours."""

import pytest
import torch

from .conftest import codes

KINDS = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor
from torch.utils import _pytree as pytree

class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)
    def __init__(self, inner): self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = pytree.tree_map(lambda x: x.inner if isinstance(x, Wrapper) else x, (args, kwargs or {}))
        return func(*plain[0], **plain[1])

class Refusing(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): raise SystemExit(0)

class Plain(torch.Tensor): pass

class Counting(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): return super().__torch_function__(func, types, args, kwargs or {})

def faked(x):
    with FakeTensorMode() as mode: return mode.from_tensor(x)

def two(x): return x.reshape(-1)[:4].reshape(2, 2)
"""
CAST = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
ODD = {
    "COO": ("two(x).to_sparse()", "sparse COO"), "CSR": ("two(x).to_sparse_csr()", "sparse CSR"), "CSC": ("two(x).to_sparse_csc()", "sparse CSC"),
    "BSR": ("two(x).to_sparse_bsr(2)", "sparse BSR"), "BSC": ("two(x).to_sparse_bsc(2)", "sparse BSC"),
    "MKLDNN": ("x.float().to_mkldnn()", "MKLDNN"), "nested": ("torch.nested.as_nested_tensor([x, x])", "nested"),
    "jagged": ("torch.nested.as_nested_tensor([x, x], layout=torch.jagged)", "nested"), "meta": ("x.to('meta')", "meta tensor"),
    "complex32": ("x.half().to(torch.complex32)", "complex32"), "quantized": ("torch.quantize_per_tensor(x.detach().float(), 0.1, 0, torch.qint8)",
                                                                             "quantized"),
    "fake": ("faked(x)", "fake tensor"), "wrapper": ("Wrapper(x)", "Wrapper"), "refusing": ("x.as_subclass(Refusing)", "Refusing"),
    "masked": ("masked_tensor(x.detach(), x > 0)", "masked tensor"), **{name: (f"x.to(torch.{name})", name) for name in CAST if hasattr(torch, name)}}
HELD = ("COO", "CSR", "CSC", "BSR", "BSC", "jagged")       # compared by their numbers
ANY = "x = torch.tensor([0.5, -1.0, 2.0, 1.5], dtype=torch.float64)"
HEAD = f"import warnings\nwarnings.simplefilter('ignore')\n{KINDS}\n"


def told(outcome, said, found):
    code, check = outcome
    assert code == 3 and check["verdict"] == "error" and check["faults"] == [] and codes(check) == [found], check["reason"]
    assert said in check["reason"] and len(check["reason"]) < 300 and check["findings"][0]["hint"]


@pytest.mark.population("kind")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("body", ["return {}", "return x * 2, {}", "return {{'a': {}, 'b': 2 * x}}"])
def test_as_an_output(verdict, kind, body):
    made, said = ODD[kind]
    code, check = outcome = verdict(f"{HEAD}def f(x):\n    {body.format(made)}\n")
    if kind in HELD:
        assert code == 0 and check["verdict"] == "pass", check["reason"]
    elif body != "return {}" and code == 0:       # beside a plain output, it has no graph that could be checked
        assert check["verdict"] == "pass" and all(comparison["output"] == (1 if "dict" in body or "'b'" in body else 0)
                                                  for comparison in check["comparisons"])
    else:
        told(outcome, said, "GV008")


@pytest.mark.population(most=5)
@pytest.mark.parametrize("kind", ODD)
def test_as_an_output_of_a_function_class(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(f"{HEAD}class f(Function):\n    @staticmethod\n    def forward(ctx, x): return {made}\n"
                          "    @staticmethod\n    def backward(ctx, g): return g.to_dense().double().reshape(-1)[:4]\n")
    held = kind in HELD and kind != "jagged"        # whose gradient has no `.to_dense()`
    assert (code, check["verdict"], check["faults"]) == ((0, "pass", []) if held else (3, "error", [])), check["reason"]


@pytest.mark.population(most=20)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("returned", ["({},)", "{{'x': {}}}", "([{}, x],)", "({{'k': {}}},)"])
def test_as_an_input_of_inputs_from(verdict, kind, returned):
    made, said = ODD[kind]
    make = f"def make(seed, dtype, device):\n    {ANY}\n    return {returned.format(made)}\n"
    code, check = outcome = verdict(f"{HEAD}def f(x): return [2 * each for each in pytree.tree_leaves(x)]\n{make}", "inputs_from: 'op.py:make'")
    if kind in HELD:
        assert code == 0 and check["verdict"] == "pass", check["reason"]
    else:
        told(outcome, said, "GV001")


@pytest.mark.population(most=5)
@pytest.mark.parametrize("kind", ODD)
def test_as_an_input_of_make(verdict, kind):
    made, said = ODD[kind]
    outcome = verdict(f"{HEAD}def f(x): return x * 2\ndef make(shape, dtype, device, generator):\n    {ANY}\n    return {made}\n",
                      "inputs: {x: {shape: [4], make: 'op.py:make'}}")
    told(outcome, said, "GV001")


@pytest.mark.parametrize("kind", ["COO", "CSR", "quantized", "complex32", "float8_e5m2", "nested"])
def test_as_an_input_of_a_file(verdict, tmp_path, kind):
    made, said = ODD[kind]
    scope = {}
    exec(f"import torch\n{HEAD}{ANY}\nmade = {made}", scope)
    torch.save(scope["made"], tmp_path / "x.pt")
    code, check = verdict("def f(x): return x * 2", "inputs: {x: {file: x.pt}}")
    assert code == 3 and codes(check) == ["GV001"] and check["faults"] == [] and ("x.pt" in check["reason"] or said in check["reason"])


@pytest.mark.population(most=10)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("wanted", [True, False])
def test_as_a_parameter(verdict, kind, wanted):
    made, said = ODD[kind]
    code, check = verdict(f"{HEAD}class f(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        {ANY}\n"
                          f"        self.odd = torch.nn.Parameter({made}, requires_grad={wanted})\n    def forward(self, x): return x * 2\n")
    assert code == 3 and codes(check) == ["GV001"] and check["faults"] == []
    assert said in check["reason"] or "raised" in check["reason"]       # torch itself makes no such parameter


@pytest.mark.population(most=5)
@pytest.mark.parametrize("kind", ODD)
def test_as_a_buffer_or_an_attribute_it_is_the_modules_own_affair(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(f"{HEAD}class f(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        {ANY}\n"
                          f"        self.register_buffer('odd', {made})\n        self.also = {made}\n    def forward(self, x): return x * 2\n")
    assert check["faults"] == [] and (code == 0 or (code == 3 and codes(check)[0] in ("GV001", "GV002")))


@pytest.mark.population(most=10)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", ["reference", "surrogate"])
def test_as_an_oracles_output(verdict, kind, key):
    made, said = ODD[kind]
    code, check = verdict(f"{HEAD}def f(x): return x * 2\ndef r(x): return {made}\n", f"inputs: {{x: {{shape: [4]}}}}, {key}: 'op.py:r'")
    if kind in HELD:        # of another shape than what it is to be
        assert code in (1, 3) and check["faults"] == [] and codes(check)[0] in ("GV105", "GV002"), check["reason"]
    else:
        assert code == 3 and codes(check) == ["GV002"] and check["faults"] == [] and said in check["reason"]


@pytest.mark.population(most=5)
@pytest.mark.parametrize("kind", ODD)
def test_as_what_backward_returns(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(f"{HEAD}class f(Function):\n    @staticmethod\n    def forward(ctx, x): return x * 2\n"
                          f"    @staticmethod\n    def backward(ctx, x): return {made}\n")
    assert code in (1, 3) and check["faults"] == [] and check["verdict"] in ("fail", "error")


@pytest.mark.population(most=5)
@pytest.mark.parametrize("kind", ODD)
def test_as_what_a_hand_written_gradient_returns(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(f"{HEAD}def f(x): return x * 2\ndef g(y, x): return {made}\n", "inputs: {x: {shape: [4]}}, gradient: 'op.py:g'")
    assert code in (1, 3) and check["faults"] == [] and check["verdict"] in ("fail", "error")


@pytest.mark.parametrize("made", ["x.as_subclass(Plain)", "x.as_subclass(Counting)", "torch.nn.Parameter(x)", "torch.nn.Buffer(x)",
                                  "x.conj()", "torch._neg_view(x)", "x[:]", "x.requires_grad_()", "x.expand(4)"])
def test_harmless_kinds_are_inputs_like_any(verdict, made):
    make = f"def make(seed, dtype, device):\n    {ANY}\n    return ({made},)\n"
    code, check = verdict(f"{HEAD}def f(x): return x.sin()\n{make}", "inputs_from: 'op.py:make'")
    assert code == 0 and check["comparisons"][0]["elements"] == 16


@pytest.mark.parametrize("made", ["x.as_subclass(Plain)", "x.as_subclass(Counting)", "x.conj()", "torch._neg_view(x)", "x[:]", "x.expand(4)"])
def test_harmless_kinds_are_outputs_like_any(verdict, made):
    code, check = verdict(f"{HEAD}def f(x):\n    x = x.sin()\n    return {made}")
    assert code == 0 and check["comparisons"][0]["elements"] == 16


WHOLE = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]


@pytest.mark.population("dtype")
@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("body", ["x * k.double()", "x[k.long() % 4] * 2", "Indexed.apply(x, k)"])
def test_whole_numbers_of_any_size_are_inputs_that_are_not_differentiated(verdict, dtype, body):
    cls = ("class Indexed(Function):\n    @staticmethod\n    def forward(ctx, x, k):\n        ctx.save_for_backward(k)\n"
           "        return x * k.double()\n    @staticmethod\n    def backward(ctx, g): return g * ctx.saved_tensors[0].double(), None\n")
    make = f"def make(seed, dtype, device):\n    {ANY}\n    return x, torch.tensor([1, 0, 1, 1], dtype=torch.{dtype})\n"
    code, check = verdict(f"{cls}def f(x, k): return {body}\n{make}", "inputs_from: 'op.py:make'")
    assert check["faults"] == [] and code == 0, check["reason"]


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_of_any_size_are_outputs_beside_others(verdict, dtype):
    code, check = verdict(f"def f(x): return x * 2, torch.ones(3, dtype=torch.{dtype})")
    assert code == 0 and check["faults"] == []


@pytest.mark.parametrize("kind", ["COO", "CSR", "MKLDNN"])
def test_inside_the_function_any_kind_may_be_used(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(f"{HEAD}def f(x): return ({made}).to_dense().double() * 2", "inputs: {x: {shape: [4]}}, rules: {select: [GV1]}")
    assert check["faults"] == [] and (code == 0 or kind == "MKLDNN")
