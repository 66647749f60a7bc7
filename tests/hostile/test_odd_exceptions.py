"""Exceptions of the checked code, of every type and whatever they do when they are asked, wherever they are raised: the check's own error, told in a
sentence that can be printed and written, and no more. Only a real Ctrl-C ends a run."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from .conftest import codes

ODD = '''
class Odd(Exception): pass
class Based(BaseException): pass
class Silent(Exception):
    def __str__(self): raise SystemExit(0)
    __repr__ = __str__
class Leaves(Exception):
    def __str__(self): sys.exit(0)
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
class Stops(StopIteration): pass
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
'''
RAISED = ["Odd('x')", "Based('x')", "Silent()", "Leaves()", "Interrupts()", "Numbered()", "Texted()", "Named()", "Posing()", "Traced()", "Unset()",
          "Stops()", "SystemExit(0)", "SystemExit()", "KeyboardInterrupt()", "GeneratorExit()", "StopIteration(1)", "StopAsyncIteration()",
          "MemoryError()", "RecursionError()", "BaseExceptionGroup('g', [SystemExit(0)])", "AssertionError", "odd_syntax()", "noted()", "circular()",
          "absent()", "compiled()", "deep()", "Odd('z' * 10**6)", "Odd('\\x1b[31m\\x00\\x07\\ud800\\u202e')", "Odd(b'\\xff')", "Odd(x)",
          "NotImplemented",          "UnicodeDecodeError('utf-8', b'a', 0, 1, 'r')", "OSError(0)", "KeyError('\\n')",
          "Warning()", "torch.cuda.OutOfMemoryError('o')",
          "type('\\ud800', (Exception,), {})()", "type('x' * 10**5, (Exception,), {})()", "asyncio.CancelledError()"]
SQUARE = """
import asyncio
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
    "forward": ("import asyncio\ndef f(x):\n    raise %s", "inputs: {x: {shape: [2]}}", "GV002"),
    "backward": (SQUARE % "raise %s", "inputs: {x: {shape: [2]}}", "GV003"),
    "make": ("import asyncio\ndef f(x): return x * x\ndef make(shape, dtype, device, generator):\n    x = 0\n    raise %s",
             "inputs: {x: {shape: [2], make: 'op.py:make'}}", "GV001"),
    "inputs_from": ("import asyncio\ndef f(x): return x * x\ndef make(seed, dtype, device):\n    x = 0\n    raise %s",
                    "inputs_from: 'op.py:make'", "GV001"),
    "reference": ("import asyncio\ndef f(x): return x * x\ndef r(x):\n    raise %s", "inputs: {x: {shape: [2]}}, reference: 'op.py:r'", "GV002"),
    "module": ("import asyncio\nclass f(torch.nn.Module):\n    def __init__(self):\n        x = 0\n        raise %s",
               "inputs: {x: {shape: [2]}}", "GV001")}


@pytest.mark.population(most=14)
@pytest.mark.parametrize("raised", RAISED)
def test_whatever_a_forward_raises_is_its_checks_own_error(verdict, raised):
    code, check = verdict(f"{ODD}\nimport asyncio\ndef f(x):\n    raise {raised}")
    assert code == 3 and codes(check) == ["GV002"] and check["faults"] == []
    assert check["reason"].startswith("forward raised ") and check["reason"].isprintable() and len(check["reason"]) < 3000


@pytest.mark.population(most=16)
@pytest.mark.parametrize("raised", ["Silent()", "Based('x')", "Named()", "Posing()", "Traced()", "Unset()", "KeyboardInterrupt()", "GeneratorExit()",
                                    "SystemExit(0)", "StopIteration()"])
@pytest.mark.parametrize("where", [where for where in WHERE if where != "forward"])
def test_wherever_it_is_raised_it_is_its_checks_own_error(verdict, where, raised):
    define, check, found = WHERE[where]
    code, check = verdict(ODD + define.replace("%s", raised), check)
    assert code == 3 and check["verdict"] == "error" and codes(check) == [found] and check["faults"] == []


@pytest.mark.population(most=8)
@pytest.mark.parametrize("raised", ["Based('x')", "SystemExit(0)", "KeyboardInterrupt()", "Silent()", "GeneratorExit()"])
@pytest.mark.parametrize("times", [1, 2, 5, 9, 20, 60])
def test_whenever_a_backward_begins_to_raise_the_others_run(verdict, times, raised):
    body = f"f.n = getattr(f, 'n', 0) + 1\n        if f.n > {times}: raise {raised}"
    code, check = verdict(ODD + SQUARE % body)
    assert code in (0, 1, 3) and check["faults"] == []


@pytest.mark.population(most=8)
@pytest.mark.parametrize("raised", ["Based('x')", "SystemExit(0)", "KeyboardInterrupt()", "GeneratorExit()"])
@pytest.mark.parametrize("times", [1, 2, 5, 9, 20, 60])
def test_whenever_a_forward_begins_to_raise_the_others_run(verdict, times, raised):
    code, check = verdict(f"{ODD}\nn = []\ndef f(x):\n    n.append(1)\n    if len(n) > {times}: raise {raised}\n    return x.sin() * x")
    assert code in (0, 1, 3) and check["faults"] == []


SPEC = "gradverify: 1\nchecks:\n  - {name: one, function: 'op.py:f', inputs: {x: {shape: [2]}}}\n"
SPEC += "  - {name: two, function: 'op.py:g', inputs: {x: {shape: [2]}}}\n"
BODIES = {"plain": "time.sleep(60)", "swallowed": "try: time.sleep(60)\n    except BaseException: pass",
          "turned": "try: time.sleep(60)\n    except BaseException: raise ValueError('turned')",
          "exits": "try: time.sleep(60)\n    except BaseException: sys.exit(0)"}


@pytest.mark.parametrize("body", BODIES)
def test_a_real_ctrl_c_ends_the_run_whatever_the_code_makes_of_it(tmp_path, body):
    waits = f"def f(x):\n    open('ready', 'w').close()\n    {BODIES[body]}\n    return x * x\n"
    (tmp_path / "op.py").write_text(f"import sys, time\n{waits}def g(x): return x * x\n")
    (tmp_path / "s.yaml").write_text(SPEC)
    run = subprocess.Popen([sys.executable, "-m", "gradverify", "check", "s.yaml", "--report", "json:r.json"], cwd=tmp_path, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 100
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=60)
    report = json.loads((tmp_path / "r.json").read_text())
    assert run.returncode == 130 and report["interrupted"] and "Traceback" not in stderr
    assert [check["verdict"] for check in report["checks"]] == ["not_run", "not_run"]
