"""Every kind of tensor that torch has, by every way into a check: as an input, a parameter, an
output, an oracle's output. What cannot be moved or compared element by element is told in a
sentence (exit 3); what merely is no plain float64 tensor goes on working. Never a fault of ours."""

import pytest
import torch
from commands import codes

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
CAST = ["float8_e4m3fn", "float8_e8m0fnu"]
ODD = {
    "COO": ("two(x).to_sparse()", "sparse COO"),
    "CSR": ("two(x).to_sparse_csr()", "sparse CSR"),
    "CSC": ("two(x).to_sparse_csc()", "sparse CSC"),
    "BSR": ("two(x).to_sparse_bsr(2)", "sparse BSR"),
    "BSC": ("two(x).to_sparse_bsc(2)", "sparse BSC"),
    "MKLDNN": ("x.float().to_mkldnn()", "MKLDNN"),
    "nested": ("torch.nested.as_nested_tensor([x, x])", "nested"),
    "jagged": ("torch.nested.as_nested_tensor([x, x], layout=torch.jagged)", "nested"),
    "meta": ("x.to('meta')", "meta tensor"),
    "complex32": ("x.half().to(torch.complex32)", "complex32"),
    "quantized": (
        "torch.quantize_per_tensor(x.detach().float(), 0.1, 0, torch.qint8)",
        "quantized",
    ),
    "fake": ("faked(x)", "fake tensor"),
    "wrapper": ("Wrapper(x)", "Wrapper"),
    "refusing": ("x.as_subclass(Refusing)", "Refusing"),
    "masked": ("masked_tensor(x.detach(), x > 0)", "masked tensor"),
    **{name: (f"x.to(torch.{name})", name) for name in CAST if hasattr(torch, name)},
}
HELD = ("COO", "CSR", "CSC", "BSR", "BSC", "jagged")  # compared by their numbers
ANY = "x = torch.tensor([0.5, -1.0, 2.0, 1.5], dtype=torch.float64)"
HEAD = f"import warnings\nwarnings.simplefilter('ignore')\n{KINDS}\n"


def held_or_told(found, code):
    """By their kinds: those that are compared pass, and a sentence says what the others are."""
    for kind, check in found.items():
        if kind in HELD:
            assert check["verdict"] == "pass", (kind, check["reason"])
        else:
            assert (
                check["verdict"] == "error" and check["faults"] == [] and codes(check) == [code]
            ), (kind, check["reason"])
            assert (
                ODD[kind][1] in check["reason"]
                and len(check["reason"]) < 300
                and check["findings"][0]["hint"]
            ), kind


def test_as_an_output(verdicts):
    cases = {
        kind: (f"{HEAD}def f(x):\n    return {made}\n", "inputs: {x: {shape: [4]}}")
        for kind, (made, _) in ODD.items()
    }
    held_or_told(verdicts(cases), "GV008")


def test_as_an_input_of_inputs_from(verdicts):
    cases = {}
    for number, (kind, (made, _)) in enumerate(ODD.items()):
        returned = f"({{'k': {made}}},)" if number % 2 else f"({made},)"
        make = f"def make(seed, dtype, device):\n    {ANY}\n    return {returned}\n"
        doubles = f"{HEAD}def f(x): return [2 * each for each in pytree.tree_leaves(x)]\n{make}"
        cases[kind] = doubles, f"inputs_from: 'op{number}.py:make'"
    held_or_told(verdicts(cases), "GV001")


MODULE = (
    "class f(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        "
    f"{ANY}\n        "
)
CLASS = (
    "class f(Function):\n    @staticmethod\n    def forward(ctx, x): return {}\n    @staticmethod\n"
    "    def backward(ctx, g): return {}\n"
)
DOUBLED = "def f(x): return x * 2\n"
# The code with `{}` for the tensor, what the check says beside it, and the codes that may come of
# it
PLACES = {
    "make": (
        DOUBLED + f"def make(shape, dtype, device, generator):\n    {ANY}\n    return {{}}\n",
        "inputs: {x: {shape: [4], make: 'op.py:make'}}",
        {"GV001"},
    ),
    "a parameter": (
        MODULE
        + (
            "self.odd = torch.nn.Parameter({}, requires_grad=False)\n    def forward(self, x): "
            "return x * 2\n"
        ),
        "",
        {"GV001"},
    ),
    "a buffer": (
        MODULE + "self.register_buffer('odd', {})\n    def forward(self, x): return x * 2\n",
        "",
        {None, "GV001", "GV002"},
    ),
    "a reference": (
        DOUBLED + "def r(x): return {}\n",
        "inputs: {x: {shape: [4]}}, reference: 'op.py:r'",
        {"GV002", "GV105"},
    ),
    "a surrogate": (
        DOUBLED + "def r(x): return {}\n",
        "inputs: {x: {shape: [4]}}, surrogate: 'op.py:r'",
        {"GV002", "GV105"},
    ),
    "a gradient": (
        DOUBLED + "def g(y, x): return {}\n",
        "inputs: {x: {shape: [4]}}, gradient: 'op.py:g'",
        {"GV002", "GV003", "GV107"},
    ),
    "what backward returns": (
        CLASS.format("x * 2", "{}").replace("(ctx, g)", "(ctx, x)"),
        "",
        None,
    ),
    "an output of a Function": (
        CLASS.format("{}", "g.to_dense().double().reshape(-1)[:4]"),
        "",
        None,
    ),
}


@pytest.mark.parametrize(
    "kinds",
    [("COO", "quantized", "wrapper"), ("BSR", "jagged", "meta"), ("MKLDNN", "fake", "refusing")],
    ids="-".join,
)
def test_at_any_other_place(verdicts, kinds):
    cases, at = {}, {}
    for number, (place, (code, inputs, _)) in enumerate(PLACES.items()):
        at[place] = kinds[number % 3]
        written = code.replace("{}", ODD[at[place]][0])
        cases[place] = (
            HEAD + written,
            (inputs or "inputs: {x: {shape: [4]}}").replace("op.py", f"op{number}.py"),
        )
    for place, check in verdicts(cases).items():
        wanted, found = PLACES[place][2], next(iter(codes(check)), None)
        assert check["faults"] == [] and check["verdict"] != "undecided", place
        if wanted is not None:
            assert found in wanted, (place, check["reason"])
        elif place == "an output of a Function":
            assert check["verdict"] == (
                "pass" if at[place] in HELD and at[place] != "jagged" else "error"
            ), check["reason"]
        else:
            assert check["verdict"] in ("fail", "error"), place


@pytest.mark.parametrize("kind", ["CSR", "quantized", "nested"])
def test_as_an_input_of_a_file(verdict, tmp_path, kind):
    made, said = ODD[kind]
    scope = {}
    exec(f"import torch\n{HEAD}{ANY}\nmade = {made}", scope)
    torch.save(scope["made"], tmp_path / "x.pt")
    code, check = verdict("def f(x): return x * 2", "inputs: {x: {file: x.pt}}")
    assert (
        code == 3
        and codes(check) == ["GV001"]
        and check["faults"] == []
        and ("x.pt" in check["reason"] or said in check["reason"])
    )


HARMLESS = [
    "x.as_subclass(Plain)",
    "x.as_subclass(Counting)",
    "torch.nn.Parameter(x)",
    "torch.nn.Buffer(x)",
    "x.conj()",
    "torch._neg_view(x)",
    "x[:]",
    "x.requires_grad_()",
    "x.expand(4)",
]


def test_harmless_kinds_are_inputs_and_outputs_like_any(verdicts):
    cases = {}
    for number, made in enumerate(HARMLESS):
        make = f"def make(seed, dtype, device):\n    {ANY}\n    return ({made},)\n"
        output = made if "nn." not in made and "requires" not in made else "x"
        cases[made] = (
            f"{HEAD}def f(x):\n    x = x.sin()\n    return {output}\n{make}",
            f"inputs_from: 'op{number}.py:make'",
        )
    for made, check in verdicts(cases).items():
        assert check["verdict"] == "pass" and check["comparisons"][0]["elements"] == 16, made


def test_whole_numbers_of_any_size_are_inputs_and_outputs_that_are_not_differentiated(verdicts):
    cls = (
        CLASS.replace("class f", "class Indexed")
        .replace("ctx, x", "ctx, x, k")
        .format(
            "ctx.save_for_backward(k) or x * k.double()",
            "(g * ctx.saved_tensors[0].double(), None)",
        )
    )
    cases = {}
    for dtype in ("bool", "uint8", "int64", "uint16"):
        for body in ("x * k.double()", "x[k.long() % 4] * 2", "Indexed.apply(x, k)"):
            make = (
                f"def make(seed, dtype, device):\n    {ANY}\n    return x, torch.tensor([1, 0, 1, "
                f"1], dtype=torch.{dtype})\n"
            )
            returned = (
                f"{cls}def f(x, k): return {body}, torch.ones(3, dtype=torch.{dtype})\n{make}"
            )
            cases[f"{dtype} {body}"] = returned, f"inputs_from: 'op{len(cases)}.py:make'"
    for name, check in verdicts(cases).items():
        assert check["faults"] == [] and check["verdict"] == "pass", (name, check["reason"])


@pytest.mark.parametrize("kind", ["COO", "CSR", "MKLDNN"])
def test_inside_the_function_any_kind_may_be_used(verdict, kind):
    made, _ = ODD[kind]
    code, check = verdict(
        f"{HEAD}def f(x): return ({made}).to_dense().double() * 2",
        "inputs: {x: {shape: [4]}}, rules: {select: [GV1]}",
    )
    assert check["faults"] == [] and (code == 0 or kind == "MKLDNN")
