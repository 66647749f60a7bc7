"""User code that prints, leaves, exits, closes what is not its own: it costs its own check at
most."""

import os
from pathlib import Path

import pytest
import torch
from commands import apart, codes, spec


@pytest.mark.parametrize(
    ("how", "said"), [("os.execlp('true', 'true')", "os.execv"), ("os._exit(7)", "os._exit(7)")]
)
def test_replacing_or_leaving_the_process_costs_its_own_check(verdict, how, said):
    code, check = verdict(f"def f(x): {how}", "inputs: {x: {shape: [4]}}", "--no-isolate")
    assert (
        code == 3
        and codes(check) == ["GV002"]
        and f"forward raised ProcessExit: {said}" in check["reason"]
    )


def test_os_exit_of_a_module_that_is_imported_costs_its_own_check(verdict):
    Path("leaves.py").write_text("import os\nos._exit(0)\n")
    code, check = verdict(
        "def f(x): return 2 * x", "inputs: {x: {shape: [4]}}, reference: 'leaves.py:f'"
    )
    assert code == 3 and codes(check) == ["GV001"] and "os._exit(0)" in check["reason"]


def test_the_child_of_a_fork_may_leave_and_so_may_anybody_after_the_check(verdict):
    leave = os._exit
    code, _ = verdict(
        "def f(x):\n    child = os.fork()\n    if child == 0: os._exit(5)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n    return 2 * x"
    )
    assert code == 0 and os._exit is leave


def test_a_segmentation_fault_leaves_the_line_it_came_from(folder):
    (folder / "op.py").write_text("import ctypes\ndef f(x):\n    ctypes.string_at(0)\n")
    (folder / "s.yaml").write_text(spec("function: 'op.py:f', inputs: {x: {shape: [2]}}"))
    done = apart("check", "s.yaml", "--no-isolate", cwd=folder)
    assert (
        done.returncode < 0
        and "Segmentation fault" in done.stderr
        and 'op.py", line 3 in f' in done.stderr
    )


def test_a_lazy_module_is_refused_in_a_sentence(verdict):
    code, check = verdict(
        "class f(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = torch.nn.LazyLinear(2)\n"
        "    def forward(self, x): return self.inner(x)"
    )
    assert (
        code == 3 and codes(check) == ["GV001"] and "inner.weight has no shape" in check["reason"]
    )


def test_of_what_was_printed_a_report_carries_the_end_only(verdict):
    _, check = verdict("def f(x):\n    print('z' * 300000)\n    print('the end')\n    return 2 * x")
    assert (
        len(check["captured"]) < 100_000
        and check["captured"].endswith("the end")
        and "cut to the end of" in check["captured"]
    )


def test_a_logger_may_keep_the_stream_of_an_earlier_check(verdict):
    code, check = verdict(
        "import logging\nlogger = logging.getLogger('op')\n"
        "logger.addHandler(logging.StreamHandler(sys.stdout))\n"
        "f = Square.apply\nclass Square(Square):\n    @staticmethod\n    def forward(ctx, x):\n    "
        "    logger.warning('again')\n"
        "        ctx.save_for_backward(x)\n        return x * x",
        "inputs: [{shape: [4]}]",
    )
    assert code == 0 and check["captured"] is None


@pytest.mark.parametrize("options", [(), ("--no-isolate",)])
@pytest.mark.parametrize(
    "code",
    [
        "os.chdir('/')\nclass f(Square):\n    @staticmethod\n    def backward(ctx, g): return 3 * "
        "ctx.saved_tensors[0] * g",
        "class f(Square):\n    @staticmethod\n    def backward(ctx, g):\n        os.chdir('/')\n  "
        "      return 3 * g",
    ],
)
def test_files_are_named_from_the_folder_of_the_run_wherever_the_code_goes(verdict, code, options):
    ended, check = verdict(code, "inputs: {x: {shape: [4]}}", *options)
    assert (ended, check["findings"][0]["file"], check["function"]["file"]) == (1, "op.py", "op.py")


@pytest.mark.parametrize(
    "body",
    [
        "torch.set_default_device('meta')",
        "torch.set_default_dtype(torch.float16)",
        "torch.autograd.set_detect_anomaly(True)",
        "torch.use_deterministic_algorithms(True)",
        "import warnings; warnings.simplefilter('error')",
        "sys.setrecursionlimit(150)",
        "sys.settrace(lambda *a: None)",
    ],
)
def test_global_state_that_a_forward_sets_stands_in_nobodys_way(verdict, body):
    code, check = verdict(f"def f(x):\n    {body}\n    return x.sin() * x")
    assert (
        code == 0
        and check["faults"] == []
        and not torch.is_anomaly_enabled()
        and torch.get_default_dtype() is torch.float32
    )


@pytest.mark.parametrize(
    "define",
    [
        "class f:\n    def __getattribute__(self, name): raise SystemExit(0)\nf = f()",
        "class Meta(type):\n    def __getattribute__(cls, name): raise SystemExit(0)\nclass "
        "f(metaclass=Meta): pass",
        "class f(torch.nn.Module):\n    def named_parameters(self, *a, **k): raise SystemExit(0)\n"
        "    def forward(self, x): return x",
        "def __getattr__(name): raise SystemExit(0)",
        "class K:\n    def __repr__(self): raise SystemExit(0)\ndef f(x): return {K(): x * 2}",
        "class f(torch.nn.Module):\n    def forward(self, x): return x * 2\n    def "
        "__call__(self, x): raise KeyboardInterrupt",
        "def f(x):\n    def hook(g): raise SystemExit(0)\n    y = x * 2\n    "
        "y.register_hook(hook)\n    return y",
        "def f(x):\n    y = [x]\n    y.append(y)\n    return y",
        "def f(x):\n    y = x\n    for _ in range(3000): y = [y]\n    return y",
    ],
)
def test_an_object_that_raises_when_it_is_looked_at_costs_its_own_check(verdict, define):
    code, check = verdict(define)
    assert code == 3 and check["verdict"] == "error" and check["faults"] == []


def test_a_gradient_that_cannot_be_shown_is_told(verdict):
    code, check = verdict(
        "class Odd:\n    def __repr__(self): raise SystemExit(0)\nclass f(Square):\n    "
        "@staticmethod\n"
        "    def backward(ctx, g): return Odd()"
    )
    assert (
        code == 1
        and codes(check) == ["GV212"]
        and "returns a Odd for x" in check["findings"][0]["message"]
    )
