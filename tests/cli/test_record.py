"""`gradverify record`: calls of a command become checks; the command runs as without it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from commands import COMMAND, environment, process, pytest_run

from gradverify.spec.load import load

OPS = """
import torch
from torch.autograd import Function


class Take(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, g):
        return g.new_zeros(ctx.rows, g.shape[1]).index_add(0, ctx.saved_tensors[0], g), None


class Softmax(Function):
    @staticmethod
    def forward(ctx, x, mask):
        y = torch.softmax(x.masked_fill(~mask, float("-inf")), -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return y * (g - (g * y).sum(-1, keepdim=True)), None


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, relu):
        y = x @ weight.T if bias is None else x @ weight.T + bias
        y = y.clamp(min=0) if relu else y
        ctx.save_for_backward(x, weight, y)
        ctx.relu, ctx.biased = relu, bias is not None
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        g = g * (y > 0) if ctx.relu else g
        return g @ weight, g.T @ x, g.sum(0) if ctx.biased else None, None


class Split(Function):
    @staticmethod
    def forward(ctx, x, sizes):
        return tuple(part.clone() for part in x.split(list(sizes), 1))

    @staticmethod
    def backward(ctx, *gs):
        return torch.cat(gs, 1), None


class Turn(Function):
    @staticmethod
    def forward(ctx, z):
        return z * 1j

    @staticmethod
    def backward(ctx, g):
        return g * -1j


class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class LogDet(Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return 2 * torch.linalg.cholesky(a).diagonal().log().sum()

    @staticmethod
    def backward(ctx, g):
        return g * torch.linalg.inv(ctx.saved_tensors[0])


class Wrong(Function):
    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor * 1.02, None


class Call(Function):
    @staticmethod
    def forward(ctx, function, x):
        return function(x)

    @staticmethod
    def backward(ctx, g):
        return None, g


@torch.library.custom_op("recorded::cube", mutates_args=())
def cube(x: torch.Tensor, k: float) -> torch.Tensor:
    return k * x**3


def cube_backward(ctx, g):
    return g * 3 * ctx.k * ctx.saved_tensors[0] ** 2, None


def save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1]


torch.library.register_autograd("recorded::cube", cube_backward, setup_context=save)
linear = Linear.apply
"""
RUN = """
import torch
import ops
from torch.autograd import Function


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def run():
    for n in (60, 90):
        ops.Take.apply(rand(n, 30), torch.randint(n, (200,)))
    mask = torch.rand(6, 40) < 0.7
    mask[:, 0] = True
    ops.Softmax.apply(rand(6, 40), mask)
    for relu in (True, False):
        ops.linear(rand(30, 50), rand(70, 50), rand(70), relu)
        ops.linear(rand(30, 50), rand(70, 50), None, relu)
    ops.Split.apply(rand(50, 24), (16, 8))
    ops.Turn.apply(torch.randn(40, dtype=torch.complex128, requires_grad=True))
    ops.Twice.apply(rand(80).clone())
    a = rand(20, 20).detach()
    ops.LogDet.apply((a @ a.mT + torch.eye(20)).requires_grad_())
    ops.Wrong.apply(x=rand(7, 9), factor=3.0)
    with torch.no_grad():
        ops.Wrong.apply(rand(7, 9), 3.0)
        ops.Wrong.apply(rand(7, 9, 3), 3.0)
    ops.Call.apply(torch.sin, rand(3))
    torch.ops.recorded.cube(rand(6, 6), 2.0)

    class Local(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

    Local.apply(rand(2))


if __name__ == "__main__":
    torch.manual_seed(0)
    run()
    print(torch.rand(3).tolist())
"""
NOISY = """
import os
import signal
import sys

print("out")
print("err", file=sys.stderr, flush=True)
{end}
"""


def recorded(*command, cwd, **how):
    return process(*COMMAND, "record", "-o", "specs", "--", *command, cwd=cwd, **how)


def cases(folder):
    loaded = load(sorted((folder / "specs").glob("*.yaml")), builtins={}, codes=())
    assert loaded.problems == ()
    return {case.name: case for case in loaded.cases}


@pytest.fixture
def ops(folder):
    (folder / "ops.py").write_text(OPS)
    (folder / "run.py").write_text(RUN)
    return folder


def test_what_a_program_calls_is_checked_and_the_wrong_one_fails(ops, gradverify):
    plain = process(sys.executable, "run.py", cwd=ops)
    run = recorded(sys.executable, "run.py", cwd=ops)
    assert (run.returncode, run.stdout) == (0, plain.stdout), run.stderr
    found = cases(ops)
    assert sorted(found) == sorted(
        [
            *("Take", "Softmax", "Split", "Turn", "Twice", "LogDet", "Wrong", "Wrong 2", "cube"),
            *("Linear", "Linear 2", "Linear 3", "Linear 4"),
        ]
    )
    shapes = {
        name: [each.tensor.shape if each.tensor else each.value for each in case.inputs]
        for name, case in found.items()
    }
    assert shapes["Take"] == [(3, 2), (4,)] and shapes["Twice"] == [(2,)]
    assert shapes["Linear"] == [(2, 3), (4, 3), (4,), True] and shapes["Linear 4"][2:] == [None, 0]
    assert shapes["Split"] == [(3, 24), [16, 8]]  # no smaller width runs with these sizes
    assert found["Take"].inputs[1].tensor.arguments == [0, 3]
    kinds = [
        (name, found[name].inputs[at].tensor.arguments)
        for name, at in [("LogDet", 0), ("Softmax", 1)]
    ]
    assert kinds == [("LogDet", "spd"), ("Softmax", "mask")]
    assert "argument 1 is a function" in run.stderr and "inside run" in run.stderr
    assert "# TODO Call" in (ops / "specs" / "ops.yaml").read_text()
    code, out, _ = gradverify("check", "specs", "-q", "--format", "plain")
    assert code == 1 and "2 failed, 11 passed" in out
    assert "== FAIL  Wrong ==" in out and "the same in 1 more case: Wrong 2\n" in out
    before = (ops / "specs" / "ops.yaml").read_text()
    again = recorded(sys.executable, "run.py", cwd=ops)
    assert again.returncode == 0 and "is there already" in again.stderr
    assert (ops / "specs" / "ops.yaml").read_text() == before


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("print(1 / 0)", 1),
    ],
)
def test_exit_codes_and_output_are_those_of_the_command(folder, end, code):
    (folder / "noisy.py").write_text(NOISY.format(end=end))
    plain = process(sys.executable, "noisy.py", cwd=folder)
    run = recorded(sys.executable, "noisy.py", cwd=folder)
    assert (run.returncode, run.stdout) == (code, plain.stdout)
    assert run.stderr == (
        f"{plain.stderr}gradverify record: no autograd Function and no operator with a backward "
        "was called\n"
    )


def test_sigterm_is_passed_on(folder):
    (folder / "waits.py").write_text("import time\nprint(1, flush=True)\ntime.sleep(60)\n")
    run = subprocess.Popen(
        [*COMMAND, "record", "--", sys.executable, "waits.py"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert run.stdout is not None and run.stdout.readline() == b"1\n"
    run.send_signal(signal.SIGTERM)
    assert run.wait(20) == 128 + signal.SIGTERM
    run.stdout.close()


def test_a_command_without_python_and_one_that_is_not_there(folder, gradverify):
    run = recorded("sh", "-c", "exit 5", cwd=folder)
    assert run.returncode == 5 and "started no Python" in run.stderr
    code, _, err = gradverify("record", "--", "no-such-command")
    assert (code, err) == (2, "no-such-command: No such file or directory\n")
    code, _, err = gradverify("record")
    assert code == 2 and err.startswith("no command: ")


def test_a_python_without_gradverify_is_named(folder, gradverify):
    (folder / "7.unable").write_text("/their/python")
    code, _, err = gradverify("record", "--notes", ".")
    assert (code, err) == (
        0,
        "gradverify record: /their/python cannot import gradverify: install it there\n",
    )


def test_the_sitecustomize_of_the_command_runs_once(folder):
    (folder / "sitecustomize.py").write_text("print('theirs')\n")
    hide = "import sys; assert not any('recording' in each for each in sys.path)"
    run = recorded(sys.executable, "-c", hide, cwd=folder, env={"PYTHONPATH": str(folder)})
    assert (run.returncode, run.stdout) == (0, "theirs\ntheirs\n")  # gradverify itself, the command
    alone = recorded(sys.executable, "-S", "-c", "", cwd=folder)
    assert alone.returncode == 0 and "started no Python" in alone.stderr


def test_pytest_records_in_the_workers_of_xdist_too_and_says_the_same(ops):
    (ops / "test_it.py").write_text("from run import run\ndef test_it():\n    run()\n")
    run = pytest_run(
        *("-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "1"),
        *("--gradverify-record", "specs", "test_it.py"),
        cwd=ops,
    )
    assert run.returncode == 0
    assert "1 passed" in run.stdout and "gradverify" not in run.stdout
    assert "13 checks written" in run.stderr and "Take" in cases(ops)


def test_processes_and_the_ways_in_which_torch_calls_functions(ops):
    (ops / "ways.py").write_text(
        "import multiprocessing\nimport os\nimport torch\nimport gradverify\n"
        "from ops import Linear, LogDet, Take, Turn, Twice, linear\n\n\n"
        "def child():\n    Twice.apply(torch.ones(9, requires_grad=True).clone())\n"
        "    os._exit(0)\n\n\n"
        "def turned(z):\n    return Turn.apply(z)\n\n\n"
        "if __name__ == '__main__':\n"
        "    with gradverify.record('specs'):\n"
        "        process = multiprocessing.get_context('fork').Process(target=child)\n"
        "        process.start()\n        process.join()\n"
        "        linear(*(torch.ones(5, 5, requires_grad=True) for _ in range(2)), None, False)\n"
        "        a = torch.eye(7).requires_grad_()\n"
        "        torch.utils.checkpoint.checkpoint(LogDet.apply, a, use_reentrant=False).backward()\n"
        "        z = torch.ones(3, dtype=torch.complex64, requires_grad=True)\n"
        "        torch.compile(turned, backend='aot_eager', fullgraph=True)(z)\n"
        "    Take.apply(torch.ones(5, 5, requires_grad=True), torch.tensor([0]))\n"
        "    assert linear == Linear.apply and 'watch' not in Linear.apply.__qualname__\n"
    )
    run = process(sys.executable, "ways.py", cwd=ops)
    assert run.returncode == 0, run.stderr
    assert sorted(cases(ops)) == ["Linear", "LogDet", "Twice"]
    lines = [line.split(maxsplit=1) for line in run.stderr.splitlines()]
    assert ["ops:Turn", "not written: it was not called outside torch.compile"] in lines


def test_a_script_that_would_run_again_is_not_imported(folder):
    (folder / "script.py").write_text(
        f"{OPS.partition('class Softmax')[0]}\n"
        "open('runs', 'a').write('1')\n"
        "Take.apply(torch.ones(5, 5, requires_grad=True), torch.tensor([0]))\n"
    )
    run = recorded(sys.executable, "script.py", cwd=folder)
    assert run.returncode == 0 and "would run again" in run.stderr
    assert (folder / "runs").read_text() == "1" and not (folder / "specs").exists()
