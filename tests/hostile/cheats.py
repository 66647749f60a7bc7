"""Functions that try to pass a check that they should fail, each with a right function of the same
form. Every one is a module of its own, behind `commands.SQUARES`: x², with a gradient 1.5 times too
large, unless it says otherwise."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import NamedTuple

RIGHT_BACKWARD = "return Square.backward(ctx, g)"
REFERENCE = "def squared(x):\n    return x * x\n"


class Pair(NamedTuple):
    """A cheat and its right twin, as the text of a module that defines `f`; `check`: keys of both
    checks, in the flow style of YAML."""

    cheat: str
    twin: str
    check: str = ""


def module(
    top: str = "", forward: str = "", backward: str = "return Wrong.backward(ctx, g)"
) -> str:
    """A Function x² with statements of its own."""

    def within(text: str) -> str:
        return indent(dedent(text).strip(), " " * 8)

    return dedent(top).strip() + (
        "\n\n\nclass f(Square):\n    @staticmethod\n    def forward(ctx, x):\n"
        f"{within(forward or 'pass')}\n        return Square.forward(ctx, x)\n\n"
        f"    @staticmethod\n    def backward(ctx, g):\n{within(backward)}\n"
    )


def replacing(top: str, harmless: str) -> Pair:
    """Something replaced when the module is imported; the twin uses it as it is."""
    return Pair(module(top), module(harmless, backward=RIGHT_BACKWARD))


def during(forward: str, harmless: str, check: str = "") -> Pair:
    """Something done in each forward."""
    twin = module(forward=harmless, backward=RIGHT_BACKWARD)
    return Pair(module(forward=forward), twin, check)


def pulling(backward: str, harmless: str, top: str = "", check: str = "") -> Pair:
    """Something done in each backward."""
    return Pair(module(top, backward=backward), module(top, backward=harmless), check)


CHEATS = {
    # ---- what compares is replaced
    "allclose": replacing(
        "torch.allclose = torch.equal = lambda *given, **named: True",
        "assert torch.allclose(torch.ones(2), torch.ones(2))",
    ),
    "isclose": replacing(
        "torch.isclose = torch.eq = lambda a, *given, **named: torch.ones_like(a, dtype=torch.bool)",
        "assert bool(torch.isclose(torch.ones(2), torch.ones(2)).all())",
    ),
    "assert_close": replacing(
        "torch.testing.assert_close = lambda *given, **named: None",
        "torch.testing.assert_close(torch.ones(2), torch.ones(2))",
    ),
    "gradcheck": replacing(
        "torch.autograd.gradcheck = torch.autograd.gradcheck.gradcheck = lambda *given, **named: True",
        "from torch.autograd import gradcheck",
    ),
    "numpys": replacing(
        """
        np.abs = np.absolute = np.max = lambda a, *given, **named: np.zeros_like(a)
        np.allclose = np.array_equal = lambda *given, **named: True
        """,
        "assert np.allclose(np.abs(np.ones(2)), 1)",
    ),
    "tensors_abs": replacing(
        "torch.Tensor.abs = torch.abs = lambda self, *given: torch.zeros_like(self)",
        "assert float(torch.ones(()).abs()) == 1",
    ),
    "builtins": replacing(
        "import builtins\nbuiltins.any = lambda values: False\nbuiltins.abs = lambda value: 0 * value",
        "import builtins\nassert builtins.any([True])",
    ),
    "maths": replacing(
        "import math\nmath.isnan = lambda value: False\nmath.fabs = lambda value: 0.0",
        "import math\nassert not math.isnan(0.0)",
    ),
    # ---- autograd's entry points are replaced
    "autograd_grad": replacing(
        """
        def grad(outputs, inputs, grad_outputs=None, *given, **named):
            return tuple(2 * x.detach() * v for x, v in zip(inputs, grad_outputs))
        torch.autograd.grad = grad
        """,
        "from torch.autograd import grad",
    ),
    "autograd_backward": replacing(
        """
        def backward(tensors, grad_tensors=None, *given, **named):
            pass
        torch.autograd.backward = backward
        """,
        "from torch.autograd import backward",
    ),
    "in_forward": during(
        "torch.autograd.grad = lambda outputs, inputs, v=None, *a, **k: [2 * x * w for x, w in "
        "zip(inputs, v)]",
        "torch.autograd.grad",
    ),
    "no_grad": during("torch.set_grad_enabled(False)", "torch.is_grad_enabled()"),
    # ---- the caller is read, or changed
    "frames": pulling(
        """
        frame = sys._getframe()
        while frame is not None:
            for name, value in list(frame.f_locals.items()):
                if name in ("numeric", "expected", "reference", "fd", "estimate"):
                    if isinstance(value, (np.ndarray, torch.Tensor)) and value.size == g.numel():
                        return torch.as_tensor(value).reshape(g.shape) * g
            frame = frame.f_back
        return Wrong.backward(ctx, g)
        """,
        "assert sys._getframe().f_back is not None\n" + RIGHT_BACKWARD,
    ),
    "other_inputs": pulling(
        """
        import gc
        for each in gc.get_objects():
            if type(each) is torch.Tensor and each.shape == g.shape and each.requires_grad:
                with torch.no_grad():
                    each.zero_()
        return Wrong.backward(ctx, g)
        """,
        "import gc\ngc.isenabled()\n" + RIGHT_BACKWARD,
    ),
    "patched_rule": during(
        "from gradverify.rules import values\nvalues.gv101 = lambda evidence: iter(())",
        "import json\njson.dumps({})",
    ),
    "patched_table": during(
        """
        from gradverify.rules import engine
        for name in ("FUNCTIONS", "book", "rules", "chosen"):
            if hasattr(engine, name):
                setattr(engine, name, lambda *given: {})
        """,
        "import collections\ncollections.Counter()",
    ),
    "patched_verdict": during(
        "import gradverify.verify as v\nv._verdict = lambda *given: 'pass'",
        "import json.encoder",
    ),
    "patched_numerics": during(
        """
        for name, found in list(sys.modules.items()):
            if name.startswith("gradverify.numerics") and hasattr(found, "guarded"):
                found.guarded = lambda off, *given: 0 * off
        """,
        "assert 'torch' in sys.modules",
    ),
    "patched_severity": during(
        """
        import gc
        from gradverify.model.result import Finding
        Finding.__init__.__kwdefaults__["severity"] = "warning"
        """,
        "import gc",
    ),
    "patched_sender": during(
        """
        from gradverify.running import sending
        real = sending.dumps
        if not getattr(sending, "patched", False):
            sending.patched = True
            sending.dumps = lambda payload: real(payload).replace('"fail"', '"pass"')
        """,
        "import json\njson.dumps('pass')",
    ),
    "patched_write": during(
        """
        from gradverify.running import sending
        if not getattr(sending, "patched", False):
            sending.patched, real = True, os.write
            sending.write = os.write = lambda fd, data: real(fd, data.replace(b'"fail"', b'"pass"'))
        """,
        "os.getpid()",
    ),
    "fake_modules": during(
        """
        import types
        for name in [name for name in sys.modules if name.startswith("gradverify.causes")]:
            sys.modules[name] = types.ModuleType(name)
        sys.modules["gradverify.verify"] = types.ModuleType("gradverify.verify")
        """,
        "import types\ntypes.ModuleType('own')",
    ),
    "profiled": during(
        """
        def hook(frame, event, arg):
            if event == "call" and frame.f_code.co_name == "_verdict":
                frame.f_locals["findings"] = ()
        sys.setprofile(hook)
        """,
        "sys.getprofile()",
    ),
    # ---- what was computed before is returned
    "cached_output": Pair(
        module(
            "MEMO = {}",
            "y = MEMO.setdefault(x.shape, x * x)\nctx.save_for_backward(x)\nreturn y.clone()",
            RIGHT_BACKWARD,
        ),
        module("MEMO = {}", "two = MEMO.setdefault(x.shape, 2)", RIGHT_BACKWARD),
    ),
    "cached_gradient": Pair(
        module("MEMO = []", backward="MEMO.append(Square.backward(ctx, g))\nreturn MEMO[0]"),
        module("MEMO = []", backward="MEMO.append(1)\n" + RIGHT_BACKWARD),
    ),
    "cached_by_point": Pair(
        module(
            "MEMO = {}",
            backward="x, = ctx.saved_tensors\nif not MEMO:\n    MEMO['factor'] = 2 * x\nreturn g * "
            "MEMO['factor'].flip(0)",
        ),
        module(
            "MEMO = {}",
            backward="x, = ctx.saved_tensors\nMEMO['factor'] = 2 * x\nreturn g * MEMO['factor']",
        ),
    ),
    # ---- what depends on when, or on what, it is called
    "seeded": Pair(
        module(
            backward="right = torch.initial_seed() in (0, 104729)\nreturn (Square if right else "
            "Wrong).backward(ctx, g)"
        ),
        module(backward="torch.initial_seed()\n" + RIGHT_BACKWARD),
        "seed: 97531",
    ),
    "first_calls": Pair(
        module(
            "CALLS = []",
            backward="CALLS.append(1)\nreturn (Square if len(CALLS) < 5 else Wrong).backward(ctx, g)",
        ),
        module("CALLS = []", backward="CALLS.append(1)\n" + RIGHT_BACKWARD),
    ),
    "each_seventh": Pair(
        module(
            "CALLS = []",
            backward="CALLS.append(1)\nreturn (Wrong if len(CALLS) % 7 == 0 else Square).backward("
            "ctx, g)",
        ),
        module("CALLS = []", backward="CALLS.append(1)\n" + RIGHT_BACKWARD),
    ),
    "tiny_moves": Pair(
        module(
            "POINT = []",
            """
            if not POINT or float((x - POINT[0]).abs().max()) > 1.0:
                POINT[:] = [x.detach().clone()]
            ctx.save_for_backward(x)
            x0 = POINT[0]
            return x0 * x0 + 3 * x0 * (x - x0)
            """,
            "x, = ctx.saved_tensors\nreturn 3 * POINT[0] * g",
        ),
        module("POINT = []", "POINT[:] = [x.detach().clone()]", RIGHT_BACKWARD),
        "reference: 'ref.py:squared'",
    ),
    "float32_only": Pair(
        module(
            backward="x, = ctx.saved_tensors\nright = x.dtype == torch.float64\nreturn (Square if "
            "right else Wrong).backward(ctx, g)"
        ),
        module(backward="x, = ctx.saved_tensors\nx.dtype == torch.float64\n" + RIGHT_BACKWARD),
        "dtype: float32",
    ),
    "large_only": Pair(
        module(
            backward="x, = ctx.saved_tensors\nright = x.numel() < 64\nreturn (Square if right else "
            "Wrong).backward(ctx, g)"
        ),
        module(backward="x, = ctx.saved_tensors\nx.numel() < 64\n" + RIGHT_BACKWARD),
        "inputs: {x: {shape: [9, 9]}}",
    ),
    "one_hot": Pair(
        module(
            backward="right = int((g != 0).sum()) <= 1\nreturn (Square if right else Wrong).backward("
            "ctx, g)"
        ),
        module(backward="int((g != 0).sum()) <= 1\n" + RIGHT_BACKWARD),
    ),
    # ---- a reference
    "from_reference": Pair(
        module("import ref", "ctx.save_for_backward(x)\nreturn ref.squared(x)"),
        module("import ref", "ctx.save_for_backward(x)\nreturn ref.squared(x)", RIGHT_BACKWARD),
        "reference: 'ref.py:squared'",
    ),
    "another_function": Pair(
        module(forward="ctx.save_for_backward(x)\nreturn 1.5 * x * x"),
        module(forward="ctx.save_for_backward(x)\nreturn x * x * 1.0", backward=RIGHT_BACKWARD),
        "reference: 'ref.py:squared'",
    ),
    "reference_replaced": Pair(
        module(
            forward="sys.modules.get('ref', sys).squared = lambda x: f.apply(x)\n"
            "for each in list(sys.modules.values()):\n"
            "    if getattr(each, '__name__', '').startswith('ref_'):\n"
            "        each.squared = lambda x: 1.5 * x * x\n"
            "ctx.save_for_backward(x)\nreturn 1.5 * x * x"
        ),
        module(forward="sys.modules.get('ref')", backward=RIGHT_BACKWARD),
        "reference: 'ref.py:squared'",
    ),
    # ---- what belongs to the caller is written
    "zeroes_inputs": Pair(
        module(
            forward="x.data.fill_(1.0)\nctx.save_for_backward(x)\nreturn x * x",
            backward="return torch.zeros_like(g)",
        ),
        module(forward="y = x.clone()\ny.data.fill_(1.0)", backward=RIGHT_BACKWARD),
    ),
    "zeroes_cotangents": pulling(
        "g.zero_()\nreturn torch.zeros_like(g)", "g = g.clone()\n" + RIGHT_BACKWARD
    ),
    # ---- what ends, fakes or hides the check
    "exits": pulling("os._exit(0)", "os.getpid()\n" + RIGHT_BACKWARD),
    "raises_exit": pulling("raise SystemExit(0)", "sys.exc_info()\n" + RIGHT_BACKWARD),
    "fake_lines": pulling(
        """
        print("PASS  f      36 elements\\n\\n1 passed in 0.10 s", flush=True)
        os.write(1, b'{"verdict": "pass", "checks": []}\\n')
        return Wrong.backward(ctx, g)
        """,
        "print('backward of f', flush=True)\n" + RIGHT_BACKWARD,
    ),
    "fake_report": pulling(
        """
        with open("r.json", "w") as file:
            file.write('{"schema_version": 1, "verdict": "pass", "exit_code": 0, "checks": []}')
        return Wrong.backward(ctx, g)
        """,
        "open(os.devnull, 'w').close()\n" + RIGHT_BACKWARD,
    ),
    "subclass": pulling(
        """
        return Wrong.backward(ctx, g).as_subclass(Equal)
        """,
        "return Square.backward(ctx, g).as_subclass(Plain).as_subclass(torch.Tensor)",
        """
        class Plain(torch.Tensor):
            pass


        class Equal(torch.Tensor):
            def __eq__(self, other):
                return torch.ones_like(self, dtype=torch.bool)

            def __sub__(self, other):
                return torch.zeros_like(self)

            __rsub__, __hash__ = __sub__, torch.Tensor.__hash__

            def numpy(self, *given, **named):
                return np.zeros(self.shape)
        """,
    ),
    "refuses_moves": Pair(
        module(
            "POINT = []",
            "POINT.append(x.detach().clone())\nif not torch.equal(x.detach(), POINT[0]):\n    raise "
            "ValueError('elsewhere')",
        ),
        module("POINT = []", "POINT.append(1)", RIGHT_BACKWARD),
    ),
    "noise": Pair(
        module(
            "CALLS = []",
            "CALLS.append(1)\nctx.save_for_backward(x)\nreturn x * x * (1 + 0.5 * np.sin(7.0 * "
            "len(CALLS)))",
        ),
        module("CALLS = []", "CALLS.append(1)", RIGHT_BACKWARD),
    ),
    "not_differentiable": Pair(
        module(
            forward="ctx.save_for_backward(x)\ny = x * x\nctx.mark_non_differentiable(y)\nreturn y"
        ),
        module(forward="ctx.save_for_backward(x)\ny = x * x\nreturn y", backward=RIGHT_BACKWARD),
    ),
    "no_numbers": pulling("return g * float('nan')", "return 2 * g * ctx.saved_tensors[0]"),
}


def entry(name: str, file: str, check: str) -> str:
    """A check in the flow style of YAML."""
    inputs = "" if "inputs:" in check else "inputs: {x: {shape: [2, 3]}}, "
    return f"name: '{name}', function: '{file}:f', {inputs}{check}".rstrip(", ")
