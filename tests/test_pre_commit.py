"""The hooks as a repository of ops meets them: real git, real pre-commit, the README's own configurations, commits that go through or do not.

The class of faults: a wrong op that is committed although a check of it exists, because its spec did not change; a commit that is held up by checks
that it does not affect, or by an environment of which nobody says what it lacks.
"""

from __future__ import annotations

import copy
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(not (BIN / "pre-commit").exists(), reason="pre-commit is not installed beside this interpreter"),
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
    sources: [../csrc/*.cu]
"""
FILES = {"ops/swish.py": OP, "ops/helper.py": HELPER, "ops/cube.py": CUBE, "specs/swish.yaml": SPEC, "specs/cube.yaml": CUBE_SPEC,
         "csrc/cube.cu": "// a kernel\n", "tools/report.py": "import torch\n", "notes.md": "Notes\n"}
WRONG = {"ops/swish.py": OP.replace("s + x", "s - x"), "ops/cube.py": CUBE.replace("3 * x * x", "2 * x * x")}
IDENTITY = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in (("NAME", "a"), ("EMAIL", "a@example.org"))}


class Repository:
    """A git repository in a folder of the test, with an environment of its own: no network, no configuration, no cache of the caller's."""

    def __init__(self, folder: Path, home: Path, path: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.environ = {"PATH": path, "HOME": str(home), "PRE_COMMIT_HOME": str(home / "cache"), "GIT_CONFIG_GLOBAL": os.devnull,
                        "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **IDENTITY}
        self.run("git", "init", "--quiet")

    def write(self, name: str, text: str | bytes | None) -> None:
        """Writes the file, or removes it, and stages that."""
        file = self.folder / name
        if text is None:
            file.unlink()
        else:
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_bytes(text.encode() if isinstance(text, str) else text)
        self.run("git", "add", "-A", "--", name)

    def commit(self) -> tuple[int, str]:
        """(exit code, what is printed) of a commit of what is staged: 0 where no hook objects."""
        done = self.run("git", "commit", "-m", "a change")
        return done.returncode, done.stdout + done.stderr

    def commits(self) -> int:
        return int(self.run("git", "rev-list", "--count", "HEAD").stdout)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=240, check=False)

    def pre_commit(self, *arguments: str) -> tuple[int, str]:
        """(exit code, what it prints): 0 where every hook passed."""
        done = self.run(str(BIN / "pre-commit"), *arguments)
        return done.returncode, done.stdout + done.stderr


def without_gradverify() -> str:
    """A PATH as in a shell where no environment is active."""
    return os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "gradverify").exists())


def snippets() -> dict[str, str]:
    """The configurations of the README: by the Python of an environment, and by what is published."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = [text for text in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if text.startswith("repos:")]
    [local], [published] = ([text for text in found if ("repo: local" in text) is is_local] for is_local in (True, False))
    return {"local": local, "published": published}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """What a hook user points pre-commit at: a repository with this project's manifest, as it stands in the working tree; its address and commit."""
    folder = tmp_path_factory.mktemp("published")
    repository = Repository(folder / "gradverify", folder, os.environ["PATH"])
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", repository.folder)
    repository.run("git", "add", ".")
    committed = repository.run("git", "commit", "--quiet", "-m", "hooks")
    assert committed.returncode == 0, committed.stderr
    return str(repository.folder), repository.run("git", "rev-parse", "HEAD").stdout.strip()


def repository_of_ops(form: str, tmp_path: Path, published: tuple[str, str]) -> Repository:
    """Right ops and their specs, committed, with a hook installed. `local`: no environment is active; `published`: one is."""
    path = without_gradverify() if form == "local" else os.pathsep.join([str(BIN), os.environ["PATH"]])
    repository = Repository(tmp_path / "ops", tmp_path, path)
    for name, text in FILES.items():
        repository.write(name, text)
    config = snippets()[form].replace("OWNER/gradverify", published[0]).replace("COMMIT", published[1])
    repository.write(".pre-commit-config.yaml", config)
    repository.write(".gitignore", "__pycache__\n.venv\n")
    (repository.folder / ".venv").symlink_to(sys.prefix)
    assert repository.commit()[0] == 0
    assert repository.pre_commit("install")[0] == 0
    return repository


@pytest.fixture(params=["local", "published"])
def ops(request, tmp_path, published):
    return repository_of_ops(request.param, tmp_path, published)


@pytest.fixture
def active(tmp_path, published):
    return repository_of_ops("published", tmp_path, published)


def test_a_wrong_commit_to_an_op_alone_is_blocked_and_its_repair_goes_through(ops):
    ops.write("ops/swish.py", WRONG["ops/swish.py"])
    code, said = ops.commit()
    assert code == 1 and ops.commits() == 1, said
    assert "exit code: 1" in said and "GV101" in said and "1 of 2 checks affected" not in said
    assert re.search(r"^y0\[\d,\d\] +x\[\d,\d\] ", said, re.MULTILINE), said
    ops.write("ops/swish.py", OP + "\n\nREPAIRED = True\n")
    code, said = ops.commit()
    assert code == 0 and ops.commits() == 2, said


def test_a_helper_that_an_op_imports_checks_that_op_and_no_other(ops):
    ops.write("ops/cube.py", WRONG["ops/cube.py"])
    assert ops.run("git", "commit", "--no-verify", "-m", "a fault that stands elsewhere").returncode == 0
    ops.write("ops/helper.py", HELPER + "\n\nCHANGED = True\n")
    code, said = ops.commit()
    assert code == 0, said
    ops.write("ops/helper.py", HELPER.replace("exp(-x)", "exp(-x * x)"))      # of which backward knows nothing
    code, said = ops.commit()
    assert code == 1 and "Swish" in said and "Cube" not in said, said


@pytest.mark.parametrize(("name", "text"), [("csrc/cube.cu", "// another kernel\n"), ("specs/cube.yaml", CUBE_SPEC + "    seed: 1\n")])
def test_a_file_that_a_check_names_and_its_spec_check_it(name, text, active):
    active.write("ops/cube.py", WRONG["ops/cube.py"])
    assert active.run("git", "commit", "--no-verify", "-m", "a fault").returncode == 0
    active.write(name, text)
    code, said = active.commit()
    assert code == 1 and "Cube" in said and "Swish" not in said, said


def test_a_deleted_helper_beside_another_change_blocks(active):
    active.run("git", "rm", "--quiet", "ops/helper.py")
    active.write("tools/report.py", "import math\n")
    code, said = active.commit()
    assert code == 1 and "ops.helper" in said and "Swish" in said and "Cube" not in said, said
    active.run("git", "restore", "--staged", "--worktree", "tools/report.py")
    code, said = active.commit()
    assert code == 1 and active.commits() == 1 and "ops.helper" in said, said


def test_a_file_of_any_kind_that_a_spec_names_checks_it(active):
    active.write("specs/cube.yaml", CUBE_SPEC.replace("[../csrc/*.cu]", "[../csrc/*.metal]"))
    active.write("ops/cube.py", WRONG["ops/cube.py"])
    assert active.run("git", "commit", "--no-verify", "-m", "a fault").returncode == 0
    active.write("csrc/cube.metal", "// a kernel of which pre-commit knows no type\n")
    code, said = active.commit()
    assert code == 1 and "Cube" in said and "Swish" not in said, said


def test_a_commit_that_affects_nothing_goes_through_without_torch(ops):
    (ops.folder / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    ops.write("tools/report.py", "import math\n")
    ops.write("tools/new.yaml", "on: push\n")
    code, said = ops.commit()
    assert code == 0 and "Passed" in said, said
    ops.write("notes.md", "More notes\n")
    code, said = ops.commit()
    assert code == 0 and "Passed" in said, said


CALLS = 400_000     # of Python functions: a third of a second on a machine of two cores; 216,000 when this was written
SLOW_TO_IMPORT = {"torch", "numpy", "pydantic", "typer", "rich", "jinja2"}


@pytest.mark.parametrize("words", [["hook", "tools/report.py"], ["hook", "tools/report.py", "notes.md", "tools/gone.cu"]], ids=" ".join)
def test_a_commit_that_affects_nothing_costs_few_calls_and_imports(words, active):
    for number in range(50):
        active.write(f"specs/many/s{number}.yaml", "gradverify: 1\nchecks:\n" + CUBE_SPEC.partition("checks:\n")[2] * 3)
    done = active.run(sys.executable, "-X", "importtime", "-m", "cProfile", "-m", "gradverify", *words)
    assert done.returncode == 0, done.stderr
    calls = re.search(r"(\d+) function calls", done.stdout)
    assert calls and 10_000 < int(calls[1]) < CALLS, done.stdout[:500]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "gradverify" in imported and not imported & SLOW_TO_IMPORT


def test_without_an_active_environment_the_published_hook_says_so(active):
    active.environ["PATH"] = without_gradverify()
    code, said = active.pre_commit("run", "gradverify", "--all-files")
    assert code == 1, said
    assert "gradverify is not in this environment: activate the one that has torch" in said
    assert "Traceback" not in said and "Executable" not in said


def test_an_environment_without_torch_is_told_in_a_sentence(active):
    without = ("import sys; sys.modules['torch'] = None; sys.argv = ['gradverify', 'hook', 'ops/swish.py']; "
               "from gradverify.__main__ import main; main()")
    done = active.run(sys.executable, "-c", without)
    assert done.returncode == 2, done.stderr
    assert "torch is not in this environment" in done.stderr and "Traceback" not in done.stderr


def test_a_typo_fails_the_validating_hook_with_its_place(active, published):
    active.write("specs/swish.yaml", SPEC.replace("shape", "shap"))
    code, said = active.pre_commit("try-repo", published[0], "gradverify-validate", "--all-files")
    assert code == 1, said
    assert "exit code: 2" in said
    assert "specs/swish.yaml:5:11: checks[0].inputs.x.shap: unknown key 'shap'; did you mean 'shape'?" in said


def test_the_validating_hook_runs_no_op(active, published):
    active.write("ops/swish.py", "raise SystemExit('imported')")
    code, said = active.pre_commit("try-repo", published[0], "gradverify-validate", "--all-files")
    assert code == 0, said
    assert "Passed" in said


def test_the_validating_hook_says_what_is_missing_too(active, published):
    active.environ["PATH"] = without_gradverify()
    code, said = active.pre_commit("try-repo", published[0], "gradverify-validate", "--all-files")
    assert code == 1 and "gradverify is not in this environment: " in said, said


def test_rev_is_a_commit_that_autoupdate_finds(active, published):
    """What the README says of `rev`, where there is no tag."""
    config = active.folder / ".pre-commit-config.yaml"
    config.write_text(config.read_text().replace(published[1], "f" * 40))
    code, said = active.pre_commit("autoupdate", "--bleeding-edge")
    assert code == 0, said
    assert f"rev: {published[1]}" in config.read_text()
    assert active.run("git", "ls-remote", published[0], "HEAD").stdout.split()[0] == published[1]


@pytest.mark.parametrize("document", ["README.md", "docs/ci.md"])
def test_no_document_names_a_revision_that_this_repository_does_not_have(document):
    for revision in re.findall(r"^ +rev: (\S+)", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE):
        known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
        assert revision == "COMMIT" or known.returncode == 0, revision


# ---- what stands beside a wrong gradient lets it through no hook
@dataclass(frozen=True)
class Trap:
    """`change` is staged beside the wrong op `op` (None: removed); `before` is committed with the right one; `last` is done before the commit."""

    change: Mapping[str, str | bytes | None] = field(default_factory=dict)
    before: Mapping[str, str | bytes | None] = field(default_factory=dict)
    op: str = "ops/swish.py"
    last: Callable[[Repository], None] = lambda repository: None


ENDS = """import os, sys

if any("gradverify" in word for word in sys.orig_argv):
    raise SystemExit(0)
place = os.path.join(os.path.dirname(os.__file__), __name__)
if os.path.isdir(place):
    __path__, __package__, place = [place], __name__, os.path.join(place, "__init__")
exec(open(f"{place}.py").read())
"""
"""In the place of one of Python's modules: it ends gradverify with 0, and is what it should be for pre-commit, which imports it from here."""


def loaded_by(code: str, file: str = "kernels/k.py") -> Trap:
    """The op stands in a file that no import statement names."""
    return Trap(before={"ops/swish.py": code, file: OP, "kernels/name.txt": "kernels.k\n"}, op=file)


def in_a_hidden_submodule(repository: Repository) -> None:
    """git is set to tell of no change in it: pre-commit hands nothing over."""
    third = copy.copy(repository)
    third.folder = repository.folder / "third"
    third.folder.mkdir()
    third.run("git", "init", "--quiet")
    third.write("swish.py", OP)
    third.run("git", "commit", "--quiet", "-m", "right")
    repository.write("ops/swish.py", "from third.swish import Swish\n")
    repository.run("git", "add", "third")
    assert repository.run("git", "commit", "--quiet", "--no-verify", "-m", "a submodule").returncode == 0
    third.write("swish.py", WRONG["ops/swish.py"])
    third.run("git", "commit", "--quiet", "-m", "wrong")
    repository.run("git", "add", "third")
    repository.write("notes.md", "More notes\n")
    repository.run("git", "config", "diff.ignoreSubmodules", "all")


def stale_bytecode(repository: Repository) -> None:
    """Compiled of the right op; of the size and the time of the wrong one."""
    file = repository.folder / "ops/swish.py"
    wrong, at = file.read_text(), file.stat().st_mtime_ns
    for text in (OP, wrong):
        file.write_text(text)
        os.utime(file, ns=(at, at))
        if text == OP:
            py_compile.compile(str(file), doraise=True)


AS_JSON = json.dumps({"gradverify": 1, "checks": [{"function": "ops.swish:Swish", "inputs": {"x": {"shape": [2, 3]}}}]}, indent=2)
SPECS: dict[str, str | bytes] = {
    "a comment in Latin-1": b"# caf\xe9\n" + SPEC.encode(), "UTF-16": SPEC.encode("utf-16"), "JSON on several lines": AS_JSON,
    "a slip in the key": SPEC.replace("gradverify", "gradverfy"),
    "a variable in a matrix": SPEC.replace("[2, 3]}", "[$n]}") + '    matrix: {n: ["$m"]}\n',
    "U+2028 in a comment": SPEC + "# checked daily\u2028    expect: fail\n"}
PLACES = ("specs/swish.YAML", "specs/build/swish.yaml", "specs/swish.json")
TRAPS: dict[str, Trap] = {
    **{f"a file named {name}": Trap({name: ""}) for name in ("-kzzz", "-mzzz", "--help", "--version", "--report=json:notes.md/x", "-")},
    **{f"a module {name}": Trap({name: ENDS}) for name in (
        "token.py", "typer.py", "json.py", "random.py", "runpy.py", "pydantic/__init__.py", "gradverify/__init__.py")},
    "spec_from_file_location": loaded_by(
        "import importlib.util\n\nspec = importlib.util.spec_from_file_location('k', 'kernels/k.py')\nk = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(k)\nSwish = k.Swish\n"),
    "run_path": loaded_by("import runpy\n\nSwish = runpy.run_path('kernels/k.py')['Swish']\n"),
    "resolve_name": loaded_by("import pkgutil\n\nSwish = pkgutil.resolve_name('kernels.k:Swish')\n"),
    "a computed import": loaded_by("from importlib import import_module\n\nSwish = import_module(open('kernels/name.txt').read().strip()).Swish\n"),
    "exec": loaded_by("exec(open('kernels/k.txt').read())\n", "kernels/k.txt"),
    "a hidden submodule": Trap(op="", last=in_a_hidden_submodule),
    **{f"a spec with {name}": Trap({"specs/swish.yaml": content}) for name, content in SPECS.items()},
    **{f"the spec {place}": Trap({"specs/swish.yaml": None, place: AS_JSON if place.endswith("json") else SPEC}) for place in PLACES},
    "stale bytecode": Trap(last=stale_bytecode),
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory, published):
    """Repositories of right ops to be copied, by the form of their hook; made once."""
    return {form: repository_of_ops(form, tmp_path_factory.mktemp(form), published) for form in ("local", "published")}


def copied(template: Repository, folder: Path) -> Repository:
    shutil.copytree(template.folder, folder, symlinks=True)
    repository = copy.copy(template)
    repository.folder = folder
    return repository


@pytest.mark.population(most=12)
@pytest.mark.parametrize(("trap", "form"), [*((trap, "local") for trap in TRAPS), ("a file named -kzzz", "published"), ("exec", "published")])
def test_no_trap_lets_a_wrong_gradient_be_committed(trap, form, templates, tmp_path):
    repository, found = copied(templates[form], tmp_path / "ops"), TRAPS[trap]
    for name, text in found.before.items():
        repository.write(name, text)
    if found.before:
        assert repository.run("git", "commit", "--quiet", "--no-verify", "-m", "right").returncode == 0
    for name, text in {**({found.op: WRONG["ops/swish.py"]} if found.op else {}), **found.change}.items():
        repository.write(name, text)
    found.last(repository)
    before = repository.commits()
    code, said = repository.commit()
    assert code == 1 and repository.commits() == before, said
    assert "GV101" in said or "exit code: 2" in said, said


def test_the_same_files_beside_a_right_gradient_are_committed(templates, tmp_path):
    repository = copied(templates["local"], tmp_path / "ops")
    for trap in TRAPS.values():
        for name, text in trap.change.items():
            if not name.startswith("specs/"):
                repository.write(name, text)
    repository.write("ops/swish.py", OP + "\n\nREPAIRED = True\n")
    code, said = repository.commit()
    assert code == 0 and repository.commits() == 2, said
