"""The hooks as a repository of ops meets them: real git, real pre-commit, the README's own
configurations, commits that go through or do not.

The class of faults: a wrong op that is committed although a check of it exists, because its spec
did not change; a commit that is held up by checks that it does not affect, or by an environment of
which nobody says what it lacks.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repository import ROOT, Repository

BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(
        not (BIN / "pre-commit").exists(),
        reason="pre-commit is not installed beside this interpreter",
    ),
]

OP = """import torch

from ops.helper import sigmoid


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        s = sigmoid(x)
        return grad_output * (s + x * s * (1 - s))
"""
HELPER = """import torch


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))
"""
CUBE = """import torch


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 3 * x * x * grad_output
"""
SPEC = """gradverify: 1
checks:
  - function: ops.swish:Swish
    inputs:
      x: {shape: [2, 3]}
"""
CUBE_SPEC = """gradverify: 1
checks:
  - function: ops.cube:Cube
    inputs:
      x: {shape: [2, 3]}
    sources: ["../csrc/*"]
"""
FILES = {
    "ops/swish.py": OP,
    "ops/helper.py": HELPER,
    "ops/cube.py": CUBE,
    "specs/swish.yaml": SPEC,
    "specs/cube.yaml": CUBE_SPEC,
    "csrc/cube.cu": "// a kernel\n",
    "tools/report.py": "import torch\n",
    "notes.md": "Notes\n",
}
WRONG = {
    "ops/swish.py": OP.replace("s + x", "s - x"),
    "ops/cube.py": CUBE.replace("3 * x * x", "2 * x * x"),
}


def without_gradverify() -> str:
    """A PATH as in a shell where no environment is active."""
    return os.pathsep.join(
        place
        for place in os.environ["PATH"].split(os.pathsep)
        if not (Path(place) / "gradverify").exists()
    )


def snippets() -> dict[str, str]:
    """The configurations of the README: by the Python of an environment, and by what is
    published."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = [
        text
        for text in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if text.startswith("repos:")
    ]
    [local], [published] = (
        [text for text in found if ("repo: local" in text) is is_local]
        for is_local in (True, False)
    )
    return {"local": local, "published": published}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """What a hook user points pre-commit at: a repository with this project's manifest, as it
    stands in the working tree; its address and commit."""
    folder = tmp_path_factory.mktemp("published")
    repository = made(folder / "gradverify", folder, os.environ["PATH"])
    repository.write(
        ".pre-commit-hooks.yaml", (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    )
    repository.git("commit", "--quiet", "-m", "hooks")
    return str(repository.folder), repository.git("rev-parse", "HEAD").strip()


def made(folder: Path, home: Path, path: str) -> Repository:
    repository = Repository(
        folder, home, {"PATH": path, "HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
    )
    repository.git("init", "--quiet")
    return repository


def repository_of_ops(form: str, tmp_path: Path, published: tuple[str, str]) -> Repository:
    """Right ops and their specs, committed, with a hook installed. `local`: no environment is
    active; `published`: one is."""
    path = (
        without_gradverify() if form == "local" else os.pathsep.join([str(BIN), os.environ["PATH"]])
    )
    repository = made(tmp_path / "ops", tmp_path, path)
    for name, text in FILES.items():
        repository.write(name, text)
    config = (
        snippets()[form].replace("OWNER/gradverify", published[0]).replace("COMMIT", published[1])
    )
    repository.write(".pre-commit-config.yaml", config)
    repository.write(".gitignore", "__pycache__\n.venv\n")
    (repository.folder / ".venv").symlink_to(sys.prefix)
    assert repository.commit()[0] == 0
    assert repository.pre_commit("install")[0] == 0
    return repository


@pytest.fixture(scope="module")
def templates(tmp_path_factory, published):
    """Repositories of right ops to be copied, by the form of their hook."""
    return {
        form: repository_of_ops(form, tmp_path_factory.mktemp(form), published)
        for form in ("local", "published")
    }


def copied(template: Repository, folder: Path) -> Repository:
    shutil.copytree(template.folder, folder, symlinks=True)
    repository = copy.copy(template)
    repository.folder, repository.environ = folder, dict(template.environ)
    return repository


@pytest.fixture(params=["local", "published"])
def ops(request, templates, tmp_path):
    return copied(templates[request.param], tmp_path / "ops")


@pytest.fixture
def active(templates, tmp_path):
    return copied(templates["published"], tmp_path / "ops")


def test_what_a_spec_names_checks_that_op_and_no_other(active):
    active.write("ops/cube.py", WRONG["ops/cube.py"])
    assert active.commit("--no-verify")[0] == 0
    active.write("csrc/cube.metal", "// a kernel of which pre-commit knows no type\n")
    code, said = active.commit()
    assert code == 1 and "Cube" in said and "Swish" not in said, said


def test_a_deleted_helper_beside_another_change_blocks(active):
    active.git("rm", "--quiet", "ops/helper.py")
    active.write("tools/report.py", "import math\n")
    code, said = active.commit()
    assert (
        code == 1
        and active.commits() == 1
        and "ops.helper" in said
        and "Swish" in said
        and "Cube" not in said
    ), said


def test_a_commit_that_affects_nothing_goes_through_without_torch(ops):
    (ops.folder / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    ops.write("tools/report.py", "import math\n")
    ops.write("tools/new.yaml", "on: push\n")
    code, said = ops.commit()
    assert code == 0 and "Passed" in said, said
    ops.write("notes.md", "More notes\n")
    code, said = ops.commit()
    assert code == 0 and "Passed" in said, said


# Of Python functions: a third of a second on a machine of two cores; 216,000 when this was written
CALLS = 400_000
SLOW_TO_IMPORT = {"torch", "numpy", "pydantic", "typer", "rich", "jinja2"}


def test_a_commit_that_affects_nothing_costs_few_calls_and_imports(active):
    for number in range(50):
        active.write(
            f"specs/many/s{number}.yaml",
            "gradverify: 1\nchecks:\n" + CUBE_SPEC.partition("checks:\n")[2] * 3,
        )
    done = active.run(
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "cProfile",
        "-m",
        "gradverify",
        "hook",
        "tools/report.py",
        "notes.md",
        "tools/gone.cu",
    )
    assert done.returncode == 0, done.stderr
    calls = re.search(r"(\d+) function calls", done.stdout)
    assert calls and 10_000 < int(calls[1]) < CALLS, done.stdout[:500]
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "gradverify" in imported and not imported & SLOW_TO_IMPORT


def test_without_an_active_environment_the_published_hook_says_so(active):
    active.environ["PATH"] = without_gradverify()
    code, said = active.pre_commit("run", "gradverify", "--all-files")
    assert code == 1, said
    assert "gradverify is not in this environment: activate the one that has torch" in said
    assert "Traceback" not in said and "Executable" not in said


def test_a_typo_fails_the_validating_hook_with_its_place(active, published):
    active.write("ops/swish.py", "raise SystemExit('imported')")
    active.write("specs/swish.yaml", SPEC.replace("shape", "shap"))
    code, said = active.pre_commit("try-repo", published[0], "gradverify-validate", "--all-files")
    assert code == 1, said
    assert "exit code: 2" in said
    assert (
        "specs/swish.yaml:5:11: checks[0].inputs.x.shap: unknown key 'shap'; did you mean 'shape'?"
        in said
    )


def test_rev_is_a_commit_that_autoupdate_finds(active, published):
    """What the README says of `rev`, where there is no tag."""
    config = active.folder / ".pre-commit-config.yaml"
    config.write_text(config.read_text().replace(published[1], "f" * 40))
    code, said = active.pre_commit("autoupdate", "--bleeding-edge")
    assert code == 0, said
    assert f"rev: {published[1]}" in config.read_text()
    assert active.git("ls-remote", published[0], "HEAD").split()[0] == published[1]


@pytest.mark.parametrize("document", ["README.md", "docs/ci.md"])
def test_no_document_names_a_revision_that_this_repository_does_not_have(document):
    for revision in re.findall(
        r"^ +rev: (\S+)", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE
    ):
        known = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert revision == "COMMIT" or known.returncode == 0, revision


# ---- what stands beside a wrong gradient lets it through no hook
ENDS = """import os, sys

if any("gradverify" in word for word in sys.orig_argv):
    raise SystemExit(0)
place = os.path.join(os.path.dirname(os.__file__), __name__)
if os.path.isdir(place):
    __path__, __package__, place = [place], __name__, os.path.join(place, "__init__")
exec(open(f"{place}.py").read())
"""
"""In the place of one of Python's modules: it ends gradverify with 0, and is what it should be for
pre-commit, which imports it from here."""
MODULES = (
    "token.py",
    "typer.py",
    "json.py",
    "runpy.py",
    "pydantic/__init__.py",
    "gradverify/__init__.py",
)
OPTIONS = ("-kzzz", "-mzzz", "--help", "--version", "--report=json:notes.md/x")


def in_a_hidden_submodule(repository: Repository) -> None:
    """git is set to tell of no change in it: pre-commit hands nothing over."""
    third = copy.copy(repository)
    third.folder = repository.folder / "third"
    third.folder.mkdir()
    third.git("init", "--quiet")
    third.write("swish.py", OP)
    third.git("commit", "--quiet", "-m", "right")
    repository.write("ops/swish.py", "from third.swish import Swish\n")
    repository.git("add", "third")
    assert repository.commit("--no-verify")[0] == 0
    third.write("swish.py", WRONG["ops/swish.py"])
    third.git("commit", "--quiet", "-m", "wrong")
    repository.git("add", "third")
    repository.write("notes.md", "More notes\n")
    repository.git("config", "diff.ignoreSubmodules", "all")


def in_a_file_that_no_import_names(repository: Repository) -> None:
    repository.write("ops/swish.py", "exec(open('kernels/k.txt').read())\n")
    repository.write("kernels/k.txt", OP)
    assert repository.commit("--no-verify")[0] == 0
    repository.write("kernels/k.txt", WRONG["ops/swish.py"])


def beside_a_wrong_one(repository: Repository, op: str = WRONG["ops/swish.py"]) -> None:
    """Files that the same hook lets through beside a right op, as another test shows."""
    repository.write("ops/swish.py", op)
    for name in (*MODULES, *OPTIONS, "-"):
        repository.write(name, ENDS if name in MODULES else "")


TRAPS: dict[str, Callable[[Repository], None]] = {
    "files named like options and modules": beside_a_wrong_one,
    "exec": in_a_file_that_no_import_names,
    "a hidden submodule": in_a_hidden_submodule,
}


@pytest.mark.parametrize(("trap", "form"), zip(TRAPS, ["local", "published", "local"], strict=True))
def test_no_trap_lets_a_wrong_gradient_be_committed(trap, form, templates, tmp_path):
    repository = copied(templates[form], tmp_path / "ops")
    TRAPS[trap](repository)
    before = repository.commits()
    code, said = repository.commit()
    assert code == 1 and repository.commits() == before, said
    assert "GV101" in said or "exit code: 2" in said, said


def test_the_same_files_beside_a_right_gradient_are_committed(templates, tmp_path):
    repository = copied(templates["local"], tmp_path / "ops")
    beside_a_wrong_one(repository, OP + "\n\nREPAIRED = True\n")
    code, said = repository.commit()
    assert code == 0 and repository.commits() == 2, said
