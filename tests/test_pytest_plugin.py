"""The pytest plugin in runs of its own: a folder with specs and tests, collected, selected, failed
and skipped as pytest does it."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from commands import PLUGIN, process
from commands import pytest_run as run

OPS = """
import ctypes
import torch


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 0.5 * g * x.cos()


def crash(x):
    ctypes.string_at(0)
"""

SPEC = """
gradverify: 1
checks:
  - {name: right, function: sigmoid, inputs: {input: {shape: [2]}}, tags: [fast, slow-gpu]}
  - {name: wrong, function: "ops:Half", inputs: {x: {shape: [2]}}}
  - {name: wrong as expected, function: "ops:Half", inputs: {x: {shape: [2]}}, expect: [GV101]}
  - {name: expected to fail, function: sigmoid, inputs: {input: {shape: [2]}}, expect: fail}
  - {name: many, function: sigmoid, inputs: {input: {shape: [$n]}}, matrix: {n: [1, 2]}, tags: [fast]}
  - {name: on a GPU, function: sigmoid, inputs: {input: {shape: [2]}}, device: "cuda:77"}
  - {name: not now, function: sigmoid, inputs: {input: {shape: [2]}}, skip: waits for a fix}
  - {name: does not move, function: sigmoid, inputs: {input: {shape: [2]}}, eps: 1e-30}
"""


OPEN = "a.gradverify.yaml::does not move"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "a.gradverify.yaml").write_text(SPEC)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/b.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {name: named, function: sigmoid, inputs: {input: {shape: "
        "[2]}}}\n"
    )
    (tmp_path / "other.yaml").write_text("not: a spec\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -ra --strict-markers -p no:cacheprovider\n"
    )
    return tmp_path


def pytest_run(folder, *arguments, **environment):
    done = run(*arguments, cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


MESS = """
import os, tempfile
import numpy as np
import torch

def test_leaves_a_mess():
    os.chdir(tempfile.mkdtemp())
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    np.seterr(all="raise")
"""
TAGGED = """gradverify: 1
checks:
  - {name: tagged, function: "ops:Half", inputs: {x: {shape: [2]}}, tags: [xfail, skip, skipif, _private]}
"""


def test_checks_pass_fail_skip_and_fail_as_expected(folder):
    """Whatever other tests left behind, and whatever tags say to pytest."""
    (folder / "test_mess.py").write_text(MESS)
    (folder / "tagged.gradverify.yaml").write_text(TAGGED)
    code, text = pytest_run(
        folder,
        "--junitxml=j.xml",
        "-p",
        "no:randomly",
        "test_mess.py",
        "a.gradverify.yaml",
        "tagged.gradverify.yaml",
    )
    assert code == 1 and "3 failed, 5 passed, 2 skipped, 1 xfailed" in text, text
    assert re.search(r"FAILED a\.gradverify\.yaml::wrong - GV101 jacobian: 2 of 4", text)
    assert "FAILED tagged.gradverify.yaml::tagged - GV101" in text
    assert (
        "analytic = 0.5000 × numeric" in text
        and "return 0.5 * g * x.cos()" in text
        and "gradverify check a.gradverify.yaml::wrong" in text
    )
    assert (
        "expected to fail, but passed" in text
        and "XFAIL a.gradverify.yaml::wrong as expected - as expected: GV101" in text
    )
    assert (
        re.search(r"SKIPPED \[1\] a\.gradverify\.yaml:\d+: waits for a fix", text)
        and "no CUDA device" in text
    )
    assert "Traceback" not in text and "NotDecided: a.gradverify.yaml::does not move" in text
    properties = {node.get("name") for node in ElementTree.parse(folder / "j.xml").iter("property")}
    assert {"verdict", "elements", "calls", "max_abs_error"} <= properties


def test_tags_are_marks_and_names_are_node_ids(folder):
    code, text = pytest_run(folder, "-m", "fast", "--collect-only", "-q")
    assert code == 0 and re.findall(r"^a.gradverify.yaml::(.*)$", text, re.MULTILINE) == [
        "right",
        "many[n=1]",
        "many[n=2]",
    ], text
    (folder / "pyproject.toml").write_text('[tool.gradverify]\nundecided = "fail"\n')
    nodes = ("a.gradverify.yaml::many[n=2]", "specs/b.yaml", OPEN)
    # pytest's own goes before the project's
    code, text = pytest_run(folder, *nodes, "-o", "gradverify_undecided=warn", CI="true")
    assert code == 0 and "3 passed" in text, text


ANOTHER = """
import os, signal, time

def test_another():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
    raise AssertionError("Ctrl-C was not heard")
"""
CRASHES = """gradverify: 1
checks:
  - {name: crashes, function: "ops:crash", inputs: {x: {shape: [2]}}}
  - {name: right, function: sigmoid, inputs: {input: {shape: [2]}}}
"""


def test_where_checks_are_isolated_a_crash_costs_its_check_alone_and_ctrl_c_is_pytests_own(folder):
    (folder / "test_another.py").write_text(ANOTHER)
    (folder / "a.gradverify.yaml").write_text(CRASHES)
    code, text = pytest_run(folder, "--gradverify-isolate", "a.gradverify.yaml", "test_another.py")
    assert code == 2 and "1 failed, 1 passed" in text and "SIGSEGV" in text, text
    assert "KeyboardInterrupt" in text and "not heard" not in text, text


def test_what_the_project_lets_fail_fails(folder):
    nodes = [OPEN, "a.gradverify.yaml::not now", "a.gradverify.yaml::on a GPU"]
    (folder / "pyproject.toml").write_text(
        '[tool.gradverify]\nundecided = "fail"\nfail-on-skip = true\nrequire-device = ["cuda"]\n'
    )
    code, text = pytest_run(folder, *nodes)
    assert (
        code == 1
        and "3 failed" in text
        and all(word in text for word in ("GV007", "waits for a fix", "cuda"))
    ), text


def test_a_faulty_spec_is_told_at_its_line(folder):
    (folder / "a.gradverify.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {function: sigmoid, inptus: {}}\n"
    )
    code, text = pytest_run(folder)
    assert (
        code == 2
        and "a.gradverify.yaml:3:" in text
        and "did you mean 'inputs'?" in text
        and "Traceback" not in text
    )


def test_which_files_are_specs_can_be_said(folder):
    (folder / "pytest.ini").write_text("[pytest]\ngradverify_files = specs/*.yaml\n")
    code, text = pytest_run(folder, "--collect-only", "-q")
    assert code == 0 and "specs/b.yaml::named" in text and "a.gradverify.yaml" not in text, text


HEAVY = """
import sys

def test_nothing_heavy_is_imported():
    assert not {"torch", "numpy", "yaml", "pydantic", "rich", "typer"} & set(sys.modules)
"""


def test_the_plugin_imports_nothing_heavy_until_it_meets_a_spec(tmp_path):
    (tmp_path / "test_light.py").write_text(HEAVY)
    (tmp_path / "settings.yaml").write_text("a: 1\n")
    code, text = pytest_run(tmp_path, "-p", "no:xdist", "-p", "no:hypothesispytest")
    assert code == 0 and "1 passed" in text, text


@pytest.mark.skipif(bool(PLUGIN), reason="the installed gradverify is older than its entry point")
def test_it_can_be_switched_off(folder):
    done = process(
        sys.executable, "-m", "pytest", "-p", "no:gradverify", "--collect-only", cwd=folder
    )
    assert done.returncode == 5 and "no tests collected" in done.stdout


WARNS = """
import torch


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.x.cos()
"""


def test_the_baseline_of_the_project_and_warnings_of_rules(folder):
    (folder / "kept.py").write_text(WARNS)
    (folder / "kept.gradverify.yaml").write_text(
        "gradverify: 1\nchecks:\n"
        '  - {name: kept, function: "kept:Kept", inputs: {x: {shape: [2]}}}\n'
        '  - {name: wrong, function: "ops:Half", inputs: {x: {shape: [2]}}}\n'
    )
    (folder / "pyproject.toml").write_text('[tool.gradverify]\nbaseline = "known.json"\n')
    code, text = pytest_run(folder, "kept.gradverify.yaml")
    assert code == 2 and "there is no file known.json" in text
    update = ("check", "kept.gradverify.yaml", "--baseline-update")
    process(sys.executable, "-m", "gradverify", *update, cwd=folder)
    code, text = pytest_run(folder, "kept.gradverify.yaml")
    assert code == 0 and "1 passed, 1 xfailed" in text
    assert "known, by the baseline: GV101" in text
    assert "GradverifyWarning: kept.gradverify.yaml::kept: GV215 stale-saved: " in text


def test_the_summary_shows_the_finding_of_a_failed_assertion_at_80_columns(folder):
    (folder / "test_ops.py").write_text(
        "import torch, gradverify\nfrom ops import Half\n"
        "def test_half():\n    gradverify.assert_gradients(Half, torch.ones(2).double())\n"
    )
    code, text = pytest_run(folder, "test_ops.py", COLUMNS="80")
    assert code == 1
    assert "FAILED test_ops.py::test_half - gradverify.GradientError: GV101 jacob" in text
