"""Exceptions of the checked code, of every type and whatever they do when they are asked, wherever
they are raised: the check's own error, told in a sentence that can be printed and written, and no
more."""

import pytest
from commands import codes

ODD = """
import asyncio
class Odd(Exception): pass
class Based(BaseException): pass
class Silent(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
class Interrupts(Exception):
    def __str__(self): raise KeyboardInterrupt
class Numbered(Exception):
    def __str__(self): return 7
class Texted(Exception):
    class S(str):
        def split(self, *a): raise SystemExit(0)
        def __str__(self): raise SystemExit(0)
        def __format__(self, *a): raise SystemExit(0)
    def __str__(self): return self.S("texted")
class Meta(type):
    @property
    def __name__(cls): raise SystemExit(0)
    def __instancecheck__(cls, other): raise SystemExit(0)
    def __subclasscheck__(cls, other): raise SystemExit(0)
    def __str__(cls): raise SystemExit(0)
    __repr__ = __str__
class Named(Exception, metaclass=Meta): pass
class Posing(Exception):
    @property
    def __class__(self): raise SystemExit(0)
class Traced(Exception):
    @property
    def __traceback__(self): raise SystemExit(0)
    @property
    def __cause__(self): raise SystemExit(0)
    @property
    def __context__(self): raise SystemExit(0)
    @property
    def __notes__(self): raise SystemExit(0)
class Unset(Exception):
    def __setattr__(self, *a): raise SystemExit(0)
    def __getattribute__(self, name): raise SystemExit(0)
def odd_syntax():
    error = SyntaxError("odd"); error.filename, error.lineno, error.text = "a\\ud800b", "x", 5
    return error
def noted():
    error = ValueError("noted"); error.__notes__ = 5
    return error
def circular():
    a, b = ValueError("a"), ValueError("b"); a.__cause__, b.__cause__ = b, a
    return a
def absent():
    error = ModuleNotFoundError("absent"); error.name = 5
    return error
def compiled():
    try: exec(compile("raise ValueError('c')", "\\ud800\\x1b[31m\\n", "exec"))
    except ValueError as error: return error
def deep():
    try: return deep()
    except RecursionError as error: return error
"""
RAISED = [
    "Based('x')",
    "Silent()",
    "Interrupts()",
    "Numbered()",
    "Texted()",
    "Named()",
    "Posing()",
    "Traced()",
    "Unset()",
    "SystemExit(0)",
    "KeyboardInterrupt()",
    "GeneratorExit()",
    "StopIteration(1)",
    "BaseExceptionGroup('g', [SystemExit(0)])",
    "odd_syntax()",
    "noted()",
    "circular()",
    "absent()",
    "compiled()",
    "deep()",
    "Odd('z' * 10**6)",
    "Odd('\\x1b[31m\\x00\\x07\\ud800\\u202e')",
    "NotImplemented",
    "type('\\ud800', (Exception,), {})()",
    "type('x' * 10**5, (Exception,), {})()",
    "asyncio.CancelledError()",
]
SQUARE = """
class f(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        %s
        return 2 * x * grad_output
"""
WHERE = {
    "backward": (SQUARE % "raise %s", "inputs: {x: {shape: [2]}}", "GV003"),
    "make": (
        "def f(x): return x * x\ndef make(shape, dtype, device, generator):\n    x = 0\n    raise "
        "%s",
        "inputs: {x: {shape: [2], make: 'op.py:make'}}",
        "GV001",
    ),
    "inputs_from": (
        "def f(x): return x * x\ndef make(seed, dtype, device):\n    x = 0\n    raise %s",
        "inputs_from: 'op.py:make'",
        "GV001",
    ),
    "reference": (
        "def f(x): return x * x\ndef r(x):\n    raise %s",
        "inputs: {x: {shape: [2]}}, reference: 'op.py:r'",
        "GV002",
    ),
    "module": (
        "class f(torch.nn.Module):\n    def __init__(self):\n        x = 0\n        raise %s",
        "inputs: {x: {shape: [2]}}",
        "GV001",
    ),
}


@pytest.mark.parametrize("raised", RAISED)
def test_whatever_a_forward_raises_is_its_checks_own_error(verdict, raised):
    code, check = verdict(f"{ODD}\ndef f(x):\n    raise {raised}")
    assert code == 3 and codes(check) == ["GV002"] and check["faults"] == []
    assert (
        check["reason"].startswith("forward raised ")
        and check["reason"].isprintable()
        and len(check["reason"]) < 3000
    )


@pytest.mark.parametrize(
    ("where", "raised"),
    [
        ("backward", "Silent()"),
        ("backward", "KeyboardInterrupt()"),
        ("make", "Based('x')"),
        ("make", "Unset()"),
        ("inputs_from", "Named()"),
        ("inputs_from", "GeneratorExit()"),
        ("reference", "Posing()"),
        ("reference", "SystemExit(0)"),
        ("module", "Traced()"),
        ("module", "StopIteration()"),
    ],
)
def test_wherever_it_is_raised_it_is_its_checks_own_error(verdict, where, raised):
    define, check, found = WHERE[where]
    code, check = verdict(ODD + define.replace("%s", raised), check)
    assert (
        code == 3
        and check["verdict"] == "error"
        and codes(check) == [found]
        and check["faults"] == []
    )


@pytest.mark.parametrize(
    ("times", "raised"),
    [
        (1, "KeyboardInterrupt()"),
        (2, "SystemExit(0)"),
        (5, "Based('x')"),
        (9, "GeneratorExit()"),
        (20, "SystemExit(0)"),
        (60, "Based('x')"),
    ],
)
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_whenever_it_begins_to_raise_the_others_run(verdict, where, times, raised):
    body = f"f.n = getattr(f, 'n', 0) + 1\n        if f.n > {times}: raise {raised}"
    forward = (
        f"n = []\ndef f(x):\n    n.append(1)\n    if len(n) > {times}: raise {raised}\n    return "
        "x.sin() * x"
    )
    code, check = verdict(ODD + (SQUARE % body if where == "backward" else forward))
    assert code in (0, 1, 3) and check["faults"] == []
