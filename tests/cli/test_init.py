"""`gradverify init` as a command: specs written beside nobody's work, for functions, files, folders
and packages; the parent imports nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import pytest
from trial import ops as every_shape

from gradverify.running.signals import Stopped
from gradverify.spec.load import load

OPS = """
import torch
from torch.autograd import Function


class Scale(Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, g):
        return g * ctx.by, None


class Run(Function):
    @staticmethod
    def forward(ctx, function, x):
        return function(x)

    @staticmethod
    def backward(ctx, g):
        return None, g


def twice(x):
    return Scale.apply(x, 2.0)


def make():
    class Hidden(Function):
        @staticmethod
        def forward(ctx, x):
            return x
    return Hidden.apply
"""
ENTROPY = """
import torch
from torch.autograd import Function


class Entropy(Function):
    @staticmethod
    def forward(ctx, x, target, ignore_index=-100):
        kept = target != ignore_index
        index = target.masked_fill(~kept, 0).unsqueeze(-1)
        ctx.save_for_backward(x, index, kept)
        return -(x.log_softmax(-1).gather(-1, index)[..., 0] * kept).sum() / kept.sum()

    @staticmethod
    def backward(ctx, g):
        x, index, kept = ctx.saved_tensors
        grad = x.softmax(-1).scatter_add(-1, index, x.new_full(index.shape, -1.0))
        return grad * kept[..., None] * g / kept.COUNT(), None, None
"""
CRASHES = """
import os
import torch


def fine(x):
    return x * 2


def hopeless(x):
    os._exit(7)
"""


def cases(*files):
    loaded = load(files, builtins={}, codes=())
    assert loaded.problems == ()
    return loaded.cases


@pytest.fixture
def ops(folder):
    (folder / "ops.py").write_text(OPS)
    return folder


def test_a_file_gets_one_spec_with_all_its_functions_and_the_spec_passes(ops, gradverify):
    code, out, err = gradverify("init", "ops.py")
    assert code == 0 and err == ""
    lines = out.splitlines()
    assert lines[:3] == [
        "wrote specs/ops.yaml",
        "  Scale: runs",
        "  Run: TODO: " + lines[2].partition("TODO: ")[2],
    ]
    assert "an argument seems to be a function" in lines[2] and "defined inside make" in lines[3]
    assert lines[-1] == "next: gradverify check specs/ops.yaml"
    assert {case.check for case in cases(ops / "specs" / "ops.yaml")} == {"Scale"}
    schema = json.loads((ops / "specs" / "gradverify.schema.json").read_text())
    assert schema == json.loads(gradverify("schema")[1])
    code, out, _ = gradverify("check", "specs")
    assert code == 0 and "passed" in out


@pytest.mark.parametrize(("count", "exit_code"), [("sum", 0), ("numel", 1)])
def test_a_mean_over_ignored_targets_fails(folder, gradverify, count, exit_code):
    (folder / "ops.py").write_text(ENTROPY.replace("COUNT", count))
    assert gradverify("init", "ops.py")[0] == 0
    assert gradverify("check", "specs", "-q")[0] == exit_code


def test_a_spec_that_is_there_stays(ops, gradverify):
    (ops / "specs").mkdir()
    mine = ops / "specs" / "ops.yaml"
    mine.write_text("gradverify: 1\nchecks:\n  - {function: ops:Run, inputs: {x: {shape: [2]}}}\n")
    code, out, err = gradverify("init", "ops.py")
    assert (code, out) == (0, "") and err == (
        "specs/ops.yaml is there already and stays as it is: --force overwrites it, -o names "
        "another file\n"
    )
    assert [case.target for case in cases(mine)] == ["ops:Run"]
    assert gradverify("init", "ops.py", "--force")[0] == 0 and [
        case.target for case in cases(mine)
    ] == ["ops:Scale"]


@pytest.mark.parametrize(
    "made",
    [
        "globals()['New'] = Scale",
        "New = Scale",
        "if True:\n    from math import pi as New",
        "from torch import *",
    ],
)
def test_a_name_that_the_source_may_make_is_left_to_python(ops, gradverify, made):
    (ops / "ops.py").write_text(f"{OPS}\n{made}\n")
    code, _, err = gradverify("init", "ops.py:New")
    assert code in (0, 3) and err == ""


def test_a_dry_run_prints_the_spec_and_writes_nothing(ops, gradverify):
    code, out, _ = gradverify("init", "ops:Scale", "-n")
    assert code == 0 and not (ops / "specs").exists()
    (ops / "s.yaml").write_text(out)
    assert {case.target for case in cases(ops / "s.yaml")} == {"ops:Scale"}


def test_a_package_in_src_gets_a_spec_for_each_module(folder, gradverify):
    package = folder / "src" / "mine"
    (package / "deep").mkdir(parents=True)
    for place in (package, package / "deep"):
        (place / "__init__.py").write_text("")
    (package / "a.py").write_text(OPS)
    (package / "deep" / "b.py").write_text(
        "from ..a import Scale\n\n\nclass Mine(Scale):\n    pass\n"
    )
    (package / "none.py").write_text("x = 1\n")
    assert gradverify("init", "src", "-o", "checks")[0] == 0
    assert sorted(path.name for path in (folder / "checks").iterdir()) == [
        "gradverify.schema.json",
        "mine.a.yaml",
        "mine.deep.b.yaml",
    ]
    found = cases(folder / "checks" / "mine.a.yaml", folder / "checks" / "mine.deep.b.yaml")
    assert {case.target for case in found} == {"mine.a:Scale", "mine.deep.b:Mine"}
    assert gradverify("check", "checks")[0] == 0


@pytest.mark.parametrize(
    ("target", "function"),
    [
        ("ops:twice", "ops:twice"),
        ("ops.py:twice", "ops:twice"),
        ("lib/plain.py:twice", "../lib/plain.py:twice"),
    ],
)
def test_a_callable_is_named_as_a_spec_names_it(ops, gradverify, target, function):
    (ops / "lib").mkdir()
    (ops / "lib" / "plain.py").write_text(OPS)
    assert gradverify("init", target, "-o", "specs/one.yaml")[0] == 0
    assert f"function: {function}" in (ops / "specs" / "one.yaml").read_text()
    assert gradverify("check", "specs/one.yaml")[0] == 0


def test_of_a_folder_what_could_not_be_read_is_said_and_the_rest_is_written(ops, gradverify):
    (ops / "broken.py").write_text("def f(:\n")
    code, out, err = gradverify("init", ".", "-n")
    assert (
        code == 0
        and "ops:Scale" in out
        and "broken.py: was not read: SyntaxError: invalid syntax (line 1)\n" in err
    )


def test_what_ends_its_process_costs_its_own_check_alone(folder, gradverify):
    (folder / "bad.py").write_text(CRASHES)
    code, out, _ = gradverify("init", "bad:hopeless", "bad:fine", "-o", "h.yaml")
    assert (
        code == 0 and "hopeless: TODO: its process ended while inputs were tried (status 7)" in out
    )
    assert [case.target for case in cases(folder / "h.yaml")] == ["bad:fine"]


def test_where_there_is_nothing_to_find(folder, gradverify):
    (folder / "plain.py").write_text("def f(x):\n    return x\n")
    code, _, err = gradverify("init", "plain.py")
    assert code == 5 and "no autograd Function" in err
    (folder / "broken.py").write_text("import torch\n\n\ndef f(:\n")
    for target in ("broken.py", "."):
        (folder / "plain.py").unlink(missing_ok=True)
        code, out, err = gradverify("init", target)
        assert (code, out) == (
            2,
            "",
        ) and err == "broken.py: was not read: SyntaxError: invalid syntax (line 4)\n", target
    code, _, err = gradverify("init", "gone.py:F", "gone")
    assert (
        code == 2
        and "gone.py: no such file" in err
        and "gone: no such file, folder or package" in err
    )
    code, _, err = gradverify("init", "torch.ops.x")
    assert code == 2 and "torch.ops.library.operator" in err


def test_the_command_itself_imports_neither_torch_nor_the_code(ops):
    (ops / "ops.py").write_text(
        OPS + "\nimport os\nopen('imported.' + str(os.getpid()), 'w').close()\n"
    )
    code = """
import os, sys
sys.argv = ["gradverify", "init", "ops:Scale", "-n"]
from gradverify.__main__ import main
if __name__ == "__main__":
    try:
        main()
    except SystemExit as leaving:
        assert leaving.code == 0, leaving.code
    assert not {"torch", "numpy", "ops"} & set(sys.modules)
    assert not os.path.exists(f"imported.{os.getpid()}")
"""
    (ops / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        cwd=ops,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(ops.glob("imported.*"))) == 1


def test_the_specs_of_ops_of_every_shape_pass(folder, gradverify):
    """Pointwise, linear, convolution, loss, attention, rotary, scatter, several outputs, words,
    lists, an operator …: all of them are right."""
    shutil.copy(every_shape.__file__, folder / "of_every_shape.py")
    targets = [
        "of_every_shape.py",
        *(f"of_every_shape:{name}" for name in ("RMSNorm", "weighted_sum", "modulated")),
    ]
    code, out, _ = gradverify("init", *targets, "-o", "specs/all.yaml")
    told = [line.strip().partition(": ") for line in out.splitlines() if line.startswith("  ")]
    assert code == 0 and len(told) == 25
    assert [name for name, _, words in told if words != "runs"] == ["Checkpoint"]
    found = cases(folder / "specs" / "all.yaml")
    assert len({case.target for case in found}) == 24
    code, out, _ = gradverify("check", "specs/all.yaml", "-j", "2")
    assert code == 0 and out.splitlines()[-1].startswith(f"{len(found)} passed"), out


def test_backwards_that_raise_are_told_apart_from_those_that_run(folder, gradverify):
    (folder / "raises.py").write_text(
        OPS.replace("        return g * ctx.by, None", "        raise ValueError('not yet')")
    )
    code, out, _ = gradverify("init", "raises:Scale")
    assert (
        code == 0 and "  Scale: forward runs. Not quite: backward raised ValueError: not yet" in out
    )


@pytest.mark.parametrize("work", ["work", "."])
def test_an_installed_package_without_an_init_file_is_named_by_its_module(
    folder, gradverify, monkeypatch, work
):
    """A namespace package: what lies on sys.path is imported from there, also in an environment
    below the current folder."""
    (folder / "installed" / "spaced").mkdir(parents=True)
    (folder / "installed" / "spaced" / "ops.py").write_text(OPS)
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / work)
    monkeypatch.syspath_prepend(str(folder / "installed"))
    assert gradverify("init", "spaced")[0] == 0
    assert {case.target for case in cases(folder / work / "specs" / "spaced.ops.yaml")} == {
        "spaced.ops:Scale"
    }


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_the_exit_code(gradverify, folder, monkeypatch, number, expected):
    def stopped(sought, jobs, began, signals):
        raise Stopped(number)
        yield

    monkeypatch.setattr("gradverify.running.schedule.proposals", stopped)
    assert gradverify("init", "gradverify.functions.products:add", "-n")[0] == expected
