"""The published hooks, by pre-commit itself: `try-repo` from a repository of ops that knows nothing of gradverify but its spec."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(not (BIN / "pre-commit").exists(), reason="pre-commit is not installed beside this interpreter"),
]

OP = """import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad_output):
        x, s = ctx.saved_tensors
        return grad_output * (s + x * s * (1 - s))
"""
SPEC = """gradverify: 1
checks:
  - function: ops:Swish
    inputs:
      x: {shape: [2, 3]}
"""
SPEC_FILE = "specs/op.gradverify.yaml"
IDENTITY = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in (("NAME", "a"), ("EMAIL", "a@example.org"))}


class Repository:
    """A git repository in a folder of the test, with an environment of its own: no network, no configuration, no cache of the caller's."""

    def __init__(self, folder: Path, home: Path, path: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.environ = {"PATH": path, "HOME": str(home), "PRE_COMMIT_HOME": str(home / "cache"), "GIT_CONFIG_GLOBAL": os.devnull,
                        "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **IDENTITY}
        self.run("git", "init", "--quiet")

    def write(self, name: str, text: str) -> None:
        """Writes the file and stages it."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self.run("git", "add", name)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=240, check=False)

    def pre_commit(self, *arguments: str) -> tuple[int, str]:
        """(exit code, what it prints): 0 where every hook passed."""
        done = self.run(str(BIN / "pre-commit"), *arguments)
        return done.returncode, done.stdout + done.stderr


def without_gradverify() -> str:
    """A PATH as in a shell where no environment is active."""
    return os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "gradverify").exists())


@pytest.fixture
def published(tmp_path):
    """What a hook user points pre-commit at: a repository with this project's manifest, as it stands in the working tree."""
    repository = Repository(tmp_path / "published", tmp_path, os.environ["PATH"])
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", repository.folder)
    repository.run("git", "add", ".")
    committed = repository.run("git", "commit", "--quiet", "-m", "hooks")
    assert committed.returncode == 0, committed.stderr
    return repository.folder


@pytest.fixture
def ops(tmp_path):
    """A right op and its spec, staged, in an active environment."""
    repository = Repository(tmp_path / "ops", tmp_path, os.pathsep.join([str(BIN), os.environ["PATH"]]))
    repository.write("ops.py", OP)
    repository.write(SPEC_FILE, SPEC)
    return repository


def test_a_right_op_passes_the_hook(ops, published):
    code, said = ops.pre_commit("try-repo", str(published), "gradverify", "--all-files", "--verbose")
    assert code == 0, said
    assert re.search(r"gradverify \(gradient checks\)\.+Passed", said)
    assert "36 elements" in said


def test_a_flipped_sign_fails_the_hook_and_its_output_names_input_and_element(ops, published):
    ops.write("ops.py", OP.replace("s + x", "s - x"))
    code, said = ops.pre_commit("try-repo", str(published), "gradverify", "--all-files")
    assert code == 1, said
    assert "exit code: 1" in said
    assert "GV101" in said
    assert re.search(r"^y0\[\d,\d\] +x\[\d,\d\] ", said, re.MULTILINE), said


def test_a_typo_fails_the_validating_hook_with_its_place(ops, published):
    ops.write(SPEC_FILE, SPEC.replace("shape", "shap"))
    code, said = ops.pre_commit("try-repo", str(published), "gradverify-validate", "--all-files")
    assert code == 1, said
    assert "exit code: 2" in said
    assert "specs/op.gradverify.yaml:5:11: checks[0].inputs.x.shap: unknown key 'shap'; did you mean 'shape'?" in said


def test_the_validating_hook_runs_no_op(ops, published):
    ops.write("ops.py", "raise SystemExit('imported')")
    code, said = ops.pre_commit("try-repo", str(published), "gradverify-validate", "--all-files")
    assert code == 0, said
    assert "Passed" in said


def test_a_commit_without_a_spec_runs_no_hook(ops, published):
    code, said = ops.pre_commit("try-repo", str(published), "gradverify", "--files", "ops.py")
    assert code == 0, said
    assert "no files to check" in said


def test_without_an_active_environment_the_hook_says_what_is_not_found(ops, published):
    ops.environ["PATH"] = without_gradverify()
    code, said = ops.pre_commit("try-repo", str(published), "gradverify", "--all-files")
    assert code == 1, said
    assert "`gradverify` not found" in said


@pytest.mark.parametrize(("sign", "expected"), [("s + x", 0), ("s - x", 1)])
def test_the_local_form_of_the_readme_checks_when_only_python_changed_and_no_environment_is_active(sign, expected, ops):
    ops.environ["PATH"] = without_gradverify()
    [config] = [text for text in re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
                if "repo: local" in text]
    (ops.folder / ".venv").symlink_to(sys.prefix)
    ops.write("ops.py", OP.replace("s + x", sign))
    ops.write(".pre-commit-config.yaml", config)
    code, said = ops.pre_commit("run", "gradverify", "--files", "ops.py")
    assert code == expected, said
    assert ("GV101" in said) == bool(expected)
