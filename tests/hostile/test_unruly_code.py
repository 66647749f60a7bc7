"""User code that prints, leaves, exits, closes what is not its own: it costs its own check at most."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .conftest import AFTER, PRELUDE, codes


@pytest.mark.parametrize("body", ["sys.exit(0)", "raise BaseException('odd')", "raise Mute()"])
def test_whatever_a_forward_raises_costs_its_own_check(verdict, body):
    code, check = verdict(f"class Mute(Exception):\n    def __str__(self): raise ValueError\ndef f(x): {body}")
    assert code == 3 and codes(check) == ["GV002"] and check["reason"].startswith("forward raised ")


@pytest.mark.parametrize("status", [0, 7])
def test_os_exit_costs_its_own_check(verdict, status):
    code, check = verdict(f"def f(x): os._exit({status})")
    assert code == 3 and codes(check) == ["GV002"] and check["reason"] == f"forward raised ProcessExit: os._exit({status})"


@pytest.mark.parametrize("how", ["os.execv('/bin/true', ['true'])", "os.execlp('true', 'true')", "os.execve('/bin/true', ['true'], {})"])
@pytest.mark.parametrize("options", [(), ("--no-isolate",)])
def test_replacing_the_process_costs_its_own_check(verdict, how, options):
    code, check = verdict(f"def f(x): {how}", "inputs: {x: {shape: [4]}}", *options)
    assert code == 3 and codes(check) == ["GV002"] and "true)" in check["reason"] and "raised ProcessExit: os.execv" in check["reason"]


@pytest.mark.parametrize("status", [0, 7])
def test_os_exit_of_a_module_that_is_imported_costs_its_own_check(verdict, status):
    Path("leaves.py").write_text(f"import os\nos._exit({status})\n")
    code, check = verdict("def f(x): return 2 * x", "inputs: {x: {shape: [4]}}, reference: 'leaves.py:f'")
    assert code == 3 and codes(check) == ["GV001"] and f"os._exit({status})" in check["reason"]


def test_the_child_of_a_fork_may_leave_and_so_may_anybody_after_the_check(verdict):
    leave = os._exit
    code, _ = verdict("def f(x):\n    child = os.fork()\n    if child == 0: os._exit(5)\n"
                      "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5\n    return 2 * x")
    assert code == 0 and os._exit is leave


def test_a_segmentation_fault_leaves_the_line_it_came_from(tmp_path):
    (tmp_path / "op.py").write_text("import ctypes\ndef f(x):\n    ctypes.string_at(0)\n")
    (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n  - {function: 'op.py:f', inputs: {x: {shape: [2]}}}\n")
    done = subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml", "--no-isolate"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode < 0 and "Segmentation fault" in done.stderr and 'op.py", line 3 in f' in done.stderr


@pytest.mark.parametrize("body", ["torch.empty(4, device='meta') + x.to('meta')", "torch.nested.as_nested_tensor([x, x])"])
def test_outputs_without_elements_are_refused_in_a_sentence(verdict, body):
    code, check = verdict(f"def f(x): return {body}")
    assert code == 3 and codes(check) == ["GV008"] and "cannot be compared" in check["reason"]


@pytest.mark.parametrize("made, said", [("torch.ones(2).to(torch.float8_e4m3fn)", "float8_e4m3fn"), ("torch.ones(2, device='meta')", "meta tensor"),
                                        ("torch.ones(2).to_mkldnn()", "inputs_from")])
def test_inputs_that_cannot_be_moved_are_refused_in_a_sentence(verdict, made, said):
    code, check = verdict(f"def f(x): return 2 * x\ndef make(seed, dtype, device): return ({made},)", "inputs_from: 'op.py:make'")
    assert code == 3 and codes(check) == ["GV001"] and said in check["reason"]


def test_a_lazy_module_is_refused_in_a_sentence(verdict):
    code, check = verdict("class f(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                          "        self.inner = torch.nn.LazyLinear(2)\n"
                          "    def forward(self, x): return self.inner(x)")
    assert code == 3 and codes(check) == ["GV001"] and "inner.weight has no shape" in check["reason"]


@pytest.mark.parametrize("body", ["sys.stdout.close()", "sys.stdout = open(os.devnull, 'w')",
                                  "sys.stdout.buffer.write(b'x')", "os.write(sys.stdout.fileno(), b'x')"])
def test_what_is_done_to_stdout_ends_with_the_check(verdict, body):
    assert verdict(f"def f(x):\n    {body}\n    return 2 * x")[0] == 0


def test_of_what_was_printed_a_report_carries_the_end_only(verdict):
    _, check = verdict("def f(x):\n    print('z' * 300000)\n    print('the end')\n    return 2 * x")
    assert len(check["captured"]) < 100_000 and check["captured"].endswith("the end") and "cut to the end of" in check["captured"]


def test_little_that_was_printed_is_kept_whole(verdict):
    _, check = verdict("said = []\ndef f(x):\n    said or said.append(print('at first'))\n    return 2 * x")
    assert check["captured"] == "at first"


def test_a_logger_may_keep_the_stream_of_an_earlier_check(verdict):
    code, check = verdict("import logging\nlogger = logging.getLogger('op')\nlogger.addHandler(logging.StreamHandler(sys.stdout))\n"
                          "f = Square.apply\nclass Square(Square):\n    @staticmethod\n    def forward(ctx, x):\n        logger.warning('again')\n"
                          "        ctx.save_for_backward(x)\n        return x * x", "inputs: [{shape: [4]}]")
    assert code == 0 and check["captured"] is None


def test_the_report_goes_where_it_was_asked_for_wherever_the_code_goes(verdict, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    code, _ = verdict("os.chdir('elsewhere')\ndef f(x): return 2 * x")
    assert code == 0 and [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("r.json")] == ["r.json"] and Path.cwd() == tmp_path


@pytest.mark.parametrize("options", [(), ("--no-isolate",)])
@pytest.mark.parametrize("code", ["os.chdir('/')\nclass f(Square):\n    @staticmethod\n    def backward(ctx, g): return 3 * ctx.saved_tensors[0] * g",
                                  "class f(Square):\n    @staticmethod\n    def backward(ctx, g):\n        os.chdir('/')\n        return 3 * g"])
def test_files_are_named_from_the_folder_of_the_run_wherever_the_code_goes(verdict, code, options):
    ended, check = verdict(code, "inputs: {x: {shape: [4]}}", *options)
    assert (ended, check["findings"][0]["file"], check["function"]["file"]) == (1, "op.py", "op.py")


def test_stdout_is_json_alone_though_threads_and_exit_handlers_print(tmp_path):
    (tmp_path / "op.py").write_text(PRELUDE + "import atexit, threading\natexit.register(print, 'AT EXIT')\n"
                                    "threading.Timer(0.5, lambda: os.write(1, b'LATE')).start()\n")
    (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n" + AFTER)
    done = subprocess.run([sys.executable, "-m", "gradverify", "check", "s.yaml", "--format", "json", "--no-isolate"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["summary"]["pass"] == 1 and "AT EXIT" in done.stderr


@pytest.mark.parametrize("body", ["torch.set_default_device('meta')", "np.seterr(all='raise')", "torch.set_default_dtype(torch.float16)",
                                  "torch.autograd.set_detect_anomaly(True)", "torch.use_deterministic_algorithms(True)",
                                  "import warnings; warnings.simplefilter('error')", "sys.setrecursionlimit(150)", "sys.path.clear()",
                                  "torch.inference_mode", "sys.argv = None", "sys.settrace(lambda *a: None)"])
def test_global_state_that_a_forward_sets_stands_in_nobodys_way(verdict, body):
    code, check = verdict(f"def f(x):\n    {body}\n    return x.sin() * x")
    assert code == 0 and check["faults"] == [] and not torch.is_anomaly_enabled() and torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("define", [
    "class f:\n    def __getattribute__(self, name): raise SystemExit(0)\nf = f()",
    "class Meta(type):\n    def __getattribute__(cls, name): raise SystemExit(0)\nclass f(metaclass=Meta): pass",
    "class f(torch.nn.Module):\n    def named_parameters(self, *a, **k): raise SystemExit(0)\n    def forward(self, x): return x",
    "def __getattr__(name): raise SystemExit(0)",
    "class K:\n    def __repr__(self): raise SystemExit(0)\ndef f(x): return {K(): x * 2}",
    "class f(torch.nn.Module):\n    def forward(self, x): return x * 2\n    def __call__(self, x): raise KeyboardInterrupt",
    "def f(x):\n    def hook(g): raise SystemExit(0)\n    y = x * 2\n    y.register_hook(hook)\n    return y",
    "def f(x):\n    y = [x]\n    y.append(y)\n    return y",
    "def f(x):\n    y = x\n    for _ in range(3000): y = [y]\n    return y"])
def test_an_object_that_raises_when_it_is_looked_at_costs_its_own_check(verdict, define):
    code, check = verdict(define)
    assert code == 3 and check["verdict"] == "error" and check["faults"] == []


def test_a_gradient_that_cannot_be_shown_is_told(verdict):
    code, check = verdict("class Odd:\n    def __repr__(self): raise SystemExit(0)\nclass f(Square):\n    @staticmethod\n"
                          "    def backward(ctx, g): return Odd()")
    assert code == 1 and codes(check) == ["GV212"] and "returns a Odd for x" in check["findings"][0]["message"]
