"""The pytest plugin in runs of its own: a folder with specs and tests, collected, selected, failed and skipped as pytest does it."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import entry_points

import pytest

REGISTERED = any(entry.value == "gradverify.pytest_plugin" for entry in entry_points(group="pytest11"))
PLUGIN = [] if REGISTERED else ["-p", "gradverify.pytest_plugin"]

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


def noisy(x):
    return x.sin() + 1e-4 * torch.frac(1e6 * x).detach()
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
  - {name: noisy, function: "ops:noisy", inputs: {x: {shape: [2]}}}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "a.gradverify.yaml").write_text(SPEC)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/b.yaml").write_text("gradverify: 1\nchecks:\n  - {name: named, function: sigmoid, inputs: {input: {shape: [2]}}}\n")
    (tmp_path / "other.yaml").write_text("not: a spec\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra --strict-markers -p no:cacheprovider\n")
    return tmp_path


def pytest_run(folder, *arguments, plugin=True, **environment):
    environ = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")}
    command = [sys.executable, "-m", "pytest", *(PLUGIN if plugin else ()), *arguments]
    done = subprocess.run(command, cwd=folder, env={**environ, **environment}, capture_output=True, text=True, timeout=280)
    return done.returncode, done.stdout + done.stderr


def test_checks_pass_fail_skip_and_fail_as_expected(folder):
    code, text = pytest_run(folder, "--junitxml=j.xml")
    assert code == 1 and "2 failed, 4 passed, 2 skipped, 1 xfailed" in text, text
    assert re.search(r"FAILED a\.gradverify\.yaml::wrong - GV101 jacobian: 2 of 4", text)
    assert "analytic = 0.5000 × numeric" in text and "return 0.5 * g * x.cos()" in text and "gradverify check a.gradverify.yaml::wrong" in text
    assert "expected to fail, but passed" in text and "XFAIL a.gradverify.yaml::wrong as expected - as expected: GV101" in text
    assert re.search(r"SKIPPED \[1\] a\.gradverify\.yaml:\d+: waits for a fix", text) and "no CUDA device" in text
    assert "Traceback" not in text and "NotDecided" in text
    properties = {node.get("name") for node in ElementTree.parse(folder / "j.xml").iter("property")}
    assert {"verdict", "elements", "calls", "max_abs_error"} <= properties


def test_tags_are_marks_and_names_are_node_ids(folder):
    code, text = pytest_run(folder, "-m", "fast", "-n", "2", "-v")
    assert code == 0 and "3 passed" in text and "a.gradverify.yaml::many[n=2]" in text, text
    code, text = pytest_run(folder, "a.gradverify.yaml::right", "specs/b.yaml")
    assert code == 0 and "2 passed" in text, text


@pytest.mark.population(most=2)
@pytest.mark.parametrize("tag", ["xfail", "skip", "skipif", "_private"])
def test_no_tag_changes_what_comes_of_a_check(folder, tag):
    """Names that pytest acts on by itself, or cannot have as marks."""
    (folder / "a.gradverify.yaml").write_text(
        f"gradverify: 1\nchecks:\n  - {{name: wrong, function: 'ops:Half', inputs: {{x: {{shape: [2]}}}}, tags: [{tag}]}}\n")
    code, text = pytest_run(folder, "-k", tag, "a.gradverify.yaml")
    assert code == 1 and "1 failed" in text and "GV101" in text, text


ANOTHER = """
import os, signal, time

def test_another():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
    raise AssertionError("Ctrl-C was not heard")
"""


def test_ctrl_c_in_another_test_is_pytests_own_where_checks_are_isolated(folder):
    (folder / "test_another.py").write_text(ANOTHER)
    code, text = pytest_run(folder, "--gradverify-isolate", "specs/b.yaml", "test_another.py")
    assert code == 2 and "KeyboardInterrupt" in text and "1 passed" in text and "not heard" not in text, text


def test_undecided_fails_in_ci(folder):
    code, text = pytest_run(folder, "a.gradverify.yaml::noisy", CI="true")
    assert code == 1 and "GV007" in text, text


@pytest.mark.parametrize(("says", "name", "told"), [
    ('undecided = "fail"', "noisy", "GV007"),
    ("fail-on-skip = true", "not now", "waits for a fix"),
    ('require-device = ["cuda"]', "on a GPU", "cuda"),
])
def test_what_the_project_lets_fail_fails(folder, says, name, told):
    node = f"a.gradverify.yaml::{name}"
    assert pytest_run(folder, node)[0] == 0
    (folder / "pyproject.toml").write_text(f"[tool.gradverify]\n{says}\n")
    code, text = pytest_run(folder, node)
    assert code == 1 and told in text, text


def test_pytests_own_configuration_goes_before_the_projects(folder):
    (folder / "pyproject.toml").write_text('[tool.gradverify]\nundecided = "fail"\n')
    assert pytest_run(folder, "a.gradverify.yaml::noisy", "-o", "gradverify_undecided=warn")[0] == 0


def test_a_faulty_spec_is_told_at_its_line(folder):
    (folder / "a.gradverify.yaml").write_text("gradverify: 1\nchecks:\n  - {function: sigmoid, inptus: {}}\n")
    code, text = pytest_run(folder)
    assert code == 2 and "a.gradverify.yaml:3:" in text and "did you mean 'inputs'?" in text and "Traceback" not in text


def test_which_files_are_specs_can_be_said(folder):
    (folder / "pytest.ini").write_text("[pytest]\ngradverify_files = specs/*.yaml\n")
    code, text = pytest_run(folder, "--collect-only", "-q")
    assert code == 0 and "specs/b.yaml::named" in text and "a.gradverify.yaml" not in text, text


def test_a_crash_costs_its_check_alone_where_checks_are_isolated(folder):
    (folder / "a.gradverify.yaml").write_text(SPEC.partition("checks:")[0] + "checks:\n"
        "  - {name: crashes, function: 'ops:crash', inputs: {x: {shape: [2]}}}\n"
        "  - {name: right, function: sigmoid, inputs: {input: {shape: [2]}}}\n")
    code, text = pytest_run(folder, "--gradverify-isolate")
    assert code == 1 and "1 failed, 1 passed" in text and "SIGSEGV" in text, text


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


def test_what_other_tests_leave_behind_is_not_in_the_way_of_checks(folder):
    (folder / "test_mess.py").write_text(MESS)
    code, text = pytest_run(folder, "-p", "no:randomly", "test_mess.py", "a.gradverify.yaml::right", "a.gradverify.yaml::wrong as expected")
    assert code == 0 and "2 passed, 1 xfailed" in text, text


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


@pytest.mark.skipif(not REGISTERED, reason="the installed gradverify is older than its entry point")
def test_it_can_be_switched_off(folder):
    code, text = pytest_run(folder, "-p", "no:gradverify", "--collect-only", plugin=False)
    assert code == 5 and "no tests collected" in text
