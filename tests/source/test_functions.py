"""Hand-written backwards are found by their syntax, however the base class is named, and nothing
else is taken for one."""

from pathlib import Path

import pytest

from gradverify.source.functions import functions
from gradverify.source.modules import Library, python_files

OP = """
class Op({base}):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, g):
        return g
"""


def found(folder: Path, **files: str):
    for name, text in files.items():
        path = folder / (
            name.replace("__", "/", 1) + ".py"
            if not name.endswith("init")
            else name.removesuffix("_init") + "/__init__.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    library = Library((folder,))
    return list(functions(library, list(python_files(folder)))), library


def names(folder, **files):
    return [function.full_name for function in found(folder, **files)[0]]


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("import torch", "torch.autograd.Function"),
        ("import torch", "torch.autograd.function.Function"),
        ("import torch as th", "th.autograd.Function"),
        ("import torch.autograd as ag", "ag.Function"),
        ("import torch.autograd.function as agf", "agf.InplaceFunction"),
        ("from torch import autograd", "autograd.Function"),
        ("from torch.autograd import Function", "Function"),
        ("from torch.autograd import Function as F", "F"),
        (
            "from torch.autograd.function import Function, InplaceFunction, once_differentiable",
            "InplaceFunction",
        ),
        ("from torch.autograd.function import *", "Function"),
        ("import torch\nBase = torch.autograd.Function", "Base"),
        (
            "try:\n    from torch.autograd import Function\nexcept ImportError:\n    Function = "
            "object",
            "Function",
        ),
        ("import torch\nclass Middle(torch.autograd.Function):\n    pass", "Middle"),
        ("import torch\nclass A(torch.autograd.Function):\n    pass\nclass B(A):\n    pass", "B"),
    ],
)
def test_whatever_the_base_is_called(tmp_path, imports, base):
    assert names(tmp_path, ops=imports + OP.format(base=base)) == ["ops.Op"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch" + OP.format(base="torch.nn.Module"),
        "from mine import Function" + OP.format(base="Function"),
        "class Function:\n    pass" + OP.format(base="Function"),
        "class A(B):\n    pass\nclass B(A):\n    pass" + OP.format(base="A"),
        "import torch\nclass Base(torch.autograd.Function):\n    @staticmethod\n    def "
        "forward(ctx, x):\n        raise NotImplementedError",
        "import torch\nclass Base(torch.autograd.Function):\n    def helper(self):\n        "
        "return 1",
    ],
)
def test_what_is_none_is_left_alone(tmp_path, text):
    assert names(tmp_path, ops=text) == []


def test_subclasses_of_bases_in_other_files(tmp_path):
    base = (
        "import torch\nclass Base(torch.autograd.Function):\n    @staticmethod\n    def "
        "backward(ctx, g):\n        return g, None\n"
    )
    child = (
        "class {name}({base}):\n    @staticmethod\n    def forward(ctx, x, n):\n        return x\n"
    )
    files = {
        "pkg_init": "from .base import Base",
        "pkg__base": base,
        "pkg__near": "from .base import Base as Root\n" + child.format(name="Near", base="Root"),
        "pkg__through": "from . import Base\n" + child.format(name="Through", base="Base"),
        "pkg__far": "from pkg import base\n" + child.format(name="Far", base="base.Base"),
    }
    got, _ = found(tmp_path, **files)
    assert sorted(each.full_name for each in got) == [
        "pkg.far.Far",
        "pkg.near.Near",
        "pkg.through.Through",
    ]
    assert all(each.backward is None for each in got)  # the backward stands in another file


def test_nested_classes_and_those_inside_functions(tmp_path):
    text = """
import torch
class Layer(torch.nn.Module):
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x
def make(n):
    class Local(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x
    return Local.apply
if True:
    class Conditional(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x
"""
    got, _ = found(tmp_path, ops=text)
    assert {each.name: each.inside for each in got} == {
        "Layer.Inner": None,
        "make.<locals>.Local": "make",
        "Conditional": None,
    }


def test_lines_arguments_and_both_styles(tmp_path):
    text = """import torch
from torch import Tensor
class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, n: int, *rest, eps=1e-5):
        return x
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g, None
class New(torch.autograd.Function):
    @staticmethod
    def forward(x, bias=None):
        return x
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
    vjp = None
    @staticmethod
    def backward(ctx, g):
        return g, g
"""
    functions, _ = found(tmp_path, ops=text)
    assert [(each.line, each.backward) for each in functions] == [(3, 9), (11, 20)]


def test_custom_operators_with_a_backward(tmp_path):
    text = """
import torch
from torch.library import custom_op, register_autograd

@custom_op("lib::one", mutates_args=())
def one(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n

def _backward(ctx, g):
    return g, None

one.register_autograd(_backward, setup_context=None)

@torch.library.custom_op("lib::two", mutates_args=())
def two(x: torch.Tensor) -> torch.Tensor:
    return x

torch.library.register_autograd("lib::two", _backward)
register_autograd("lib::compiled", _backward)

@custom_op("lib::without", mutates_args=())
def without(x: torch.Tensor) -> torch.Tensor:
    return x

@one.register_vmap
def _(info, in_dims, x, n):
    return x * n, in_dims[0]
"""
    got, _ = found(tmp_path, ops=text)
    assert [(each.name, each.symbol, each.backward) for each in got] == [
        ("torch.ops.lib.one", "one", 9),
        ("torch.ops.lib.two", "two", 9),
        ("torch.ops.lib.compiled", None, 9),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"def (:\n", "line 1"),
        (b"x = '\xff'\n", "utf-8"),
        (b"# coding: klingon\n", "klingon"),
        (b"x = 1\0\n", "null"),
        (b"print 'two'\n", "line 1"),
        (b"(" * 5000, ""),
    ],
)
def test_what_is_no_python_is_told_and_costs_nothing_else(tmp_path, text, why):
    (tmp_path / "broken.py").write_bytes(text)
    got, library = found(tmp_path, ops="import torch" + OP.format(base="torch.autograd.Function"))
    assert [each.name for each in got] == ["Op"]
    assert list(library.unreadable) == [(tmp_path / "broken.py").resolve()]
    assert why in library.unreadable[(tmp_path / "broken.py").resolve()]


def test_encodings_that_python_reads_are_read(tmp_path):
    text = "# coding: latin-1\nimport torch\nname = 'é'" + OP.format(base="torch.autograd.Function")
    (tmp_path / "ops.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(
        b"\xef\xbb\xbfimport torch" + OP.format(base="torch.autograd.Function").encode()
    )
    assert names(tmp_path) == ["bom.Op", "ops.Op"]


def test_hidden_folders_and_environments_are_left_out(tmp_path):
    for folder in (".tox", "venv", "env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ops.py").write_text(
            "import torch" + OP.format(base="torch.autograd.Function")
        )
    for folder in ("venv", "env"):
        (tmp_path / folder / "pyvenv.cfg").touch()
    assert names(tmp_path, ops="import torch" + OP.format(base="torch.autograd.Function")) == [
        "ops.Op"
    ]


def test_links_in_a_circle_are_unreadable_files(tmp_path):
    (tmp_path / "a.py").symlink_to(tmp_path / "b.py")
    (tmp_path / "b.py").symlink_to(tmp_path / "a.py")
    (own,), library = found(tmp_path, op="import torch" + OP.format(base="torch.autograd.Function"))
    assert own.name == "Op" and {file.name for file in library.unreadable} == {"a.py", "b.py"}


def test_a_chain_of_many_branches_hides_nothing(tmp_path):
    """Each `elif` is nested in the one before it."""
    chain = "if a == 0:\n    pass\n" + "".join(
        f"elif a == {number}:\n    b = {number}\n" for number in range(1, 2000)
    )
    last = (
        "else:\n    class Last(torch.autograd.Function):\n        def forward(ctx, x): return x\n"
    )
    functions, library = found(tmp_path, op=f"import torch\n{chain}{last}")
    assert [function.name for function in functions] == ["Last"] and not library.unreadable
