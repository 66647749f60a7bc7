"""Which checks a change affects, from cases, and from the texts of specs alone.

The class of faults: a thing that a spec can name (a function, an oracle, a maker of inputs, a
module, a file) whose change goes by unseen, or one that stops checks it has nothing to do with.
Every key that names something is tried, both ways; and the first sieve, which reads nothing but
YAML, must let nothing through that the exact answer holds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import gradverify
from gradverify.functions.catalogue import BUILTINS
from gradverify.rules.catalogue import codes
from gradverify.running.affected import Changes, affected, of_hook, project_specs, sieved
from gradverify.spec.discover import discover
from gradverify.spec.load import load

HEAD = "gradverify: 1\nchecks:\n"
OTHER = "  - {name: other, function: other.mod:f, inputs: [1]}\n"
MODULES = {
    "mod.py": "import helper\ndef f(x): return x\n",
    "helper.py": "",
    "other/mod.py": "def f(x): return x\n",
    "unrelated.py": "",
}

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def changed(folder: Path, *files: str) -> Changes:
    return of_hook(files, folder, {})


def names(folder: Path, *files: str) -> set[str]:
    """Names of the checks that a change of these files affects."""
    changes = changed(folder, *files)
    specs = project_specs(folder)
    builtins = {name: known.parameters for name, known in BUILTINS.items()}
    loaded = load([Path(spec) for spec in specs], builtins=builtins, codes=codes(), cwd=folder)
    assert loaded.problems == ()
    found = affected(changes, folder, specs)
    return {case.name for case in loaded.cases if (case.spec.path, case.spec.line) in found}


@pytest.mark.parametrize(
    "check",
    [
        "function: mod:f, inputs: [1]",
        "function: ../mod.py:f, inputs: [1]",
        "function: relu, inputs: [1], reference: mod:f",
        "function: relu, inputs: [1], surrogate: ../mod.py:f",
        "function: relu, inputs_from: mod:f",
        "function: relu, inputs: [{make: mod:f, shape: [2]}]",
        "function: other.mod:f, inputs: [1], kwargs: {k: {make: mod:f, shape: [2]}}",
        "function: $fn, inputs: [1], matrix: {fn: [mod:f]}",
    ],
    ids=lambda text: text.replace(" ", ""),
)
def test_whatever_a_check_names_counts_with_all_that_it_imports(check: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **MODULES,
            "specs/s.yaml": f"{HEAD}  - {{name: one, {check}}}\n",
            "specs/t.yaml": HEAD + OTHER,
            "my ops/x.py": "",
        },
    )
    one = "one[fn=mod:f]" if "$fn" in check else "one"
    assert (
        names(tmp_path, "mod.py")
        == names(tmp_path, "helper.py")
        == names(tmp_path, "mod.py", "unrelated.py")
        == {one}
    )
    assert names(tmp_path, "unrelated.py") == names(tmp_path, "gone.py") == names(tmp_path) == set()
    assert names(tmp_path, "specs/s.yaml") == {one}


def test_the_projects_file_counts_for_all_checks(tmp_path: Path) -> None:
    write(
        tmp_path,
        {**MODULES, "pyproject.toml": "", "specs/s.yaml": HEAD + OTHER, "deep/pyproject.toml": ""},
    )
    assert (
        names(tmp_path, "pyproject.toml") == {"other"}
        and names(tmp_path, "deep/pyproject.toml") == set()
    )
    (tmp_path / "pyproject.toml").unlink()
    assert names(tmp_path, "pyproject.toml") == {"other"}


def test_cases_of_one_matrix_are_affected_together(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **MODULES,
            "specs/s.yaml": f"{HEAD}  - {{name: m, function: $f, inputs: [1], matrix: {{f: [mod:f, "
            f"other.mod:f]}}}}\n",
        },
    )
    assert (
        names(tmp_path, "helper.py")
        == names(tmp_path, "other/mod.py")
        == {"m[f=mod:f]", "m[f=other.mod:f]"}
    )
    assert names(tmp_path, "unrelated.py") == set()


def test_modules_that_register_operators_count_for_all_checks_of_the_file(tmp_path: Path) -> None:
    text = (
        "gradverify: 1\nimport: mod\nchecks:\n  - {name: a, function: torch.ops.lib.op, inputs: "
        "[1]}\n"
    ) + OTHER
    write(tmp_path, {**MODULES, "specs/s.yaml": text})
    assert names(tmp_path, "helper.py") == {"a", "other"}
    assert names(tmp_path, "unrelated.py") == set()


def test_folders_of_path_are_looked_into(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/mod.py": "import helper\n",
            "src/helper.py": "",
            "helper.py": "",
            "specs/s.yaml": "gradverify: 1\npath: [../src]\nchecks:\n  - {name: a, function: mod:f, inputs: "
            "[1]}\n",
        },
    )
    assert names(tmp_path, "src/helper.py") == {"a"} and names(tmp_path, "helper.py") == set()


@pytest.mark.parametrize(
    "path", ["path: &p [../src]\nimport: *p", "path: ../src", "<<: {path: [../src]}"]
)
def test_however_path_is_written(path: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "src/mod.py": "",
            "specs/s.yaml": f"gradverify: 1\n{path}\nchecks:\n  - {{name: a, function: mod:f, inputs: [1]}}\n",
        },
    )
    assert sieved(changed(tmp_path, "src/mod.py"), tmp_path)[0] == ("specs/s.yaml",)


def test_files_that_a_check_names_count(tmp_path: Path) -> None:
    text = (
        HEAD + "  - {name: a, function: relu, inputs: [1], sources: [../csrc/*.cu, ../ops]}\n"
        "  - {name: b, function: relu, inputs: [{file: data.npz#x}]}\n" + OTHER
    )
    write(tmp_path, {**MODULES, "csrc/k.cu": "", "specs/s.yaml": text, "specs/data.npz": ""})
    assert (
        names(tmp_path, "csrc/k.cu")
        == names(tmp_path, "csrc/gone.cu")
        == names(tmp_path, "ops/deep/x.h")
        == {"a"}
    )
    assert names(tmp_path, "specs/data.npz") == {"b"}
    assert names(tmp_path, "csrc/k.cpp", "csrc/deep/k.cu", "specs/data.npy") == set()


def test_a_built_in_is_affected_by_its_own_code(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "specs/s.yaml": HEAD
            + (
                "  - {name: a, function: linear, inputs: [1, 2]}\n  - {name: b, function: relu, "
                "inputs: [1]}\n"
            )
        },
    )
    folder = Path(gradverify.__path__[0]) / "functions"
    assert (
        names(tmp_path, str(folder / "linear.py"))
        == names(tmp_path, str(folder / "arithmetic.py"))
        == {"a"}
    )
    assert names(tmp_path, str(folder / "activations.py")) == {"b"}
    assert names(tmp_path, str(folder / "losses.py"), str(folder.parent / "verify.py")) == set()


def test_deleted_modules_count(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **MODULES,
            "specs/s.yaml": f"{HEAD}  - {{name: one, function: mod:f, inputs: [1]}}\n{OTHER}",
        },
    )
    (tmp_path / "helper.py").unlink()
    assert names(tmp_path, "helper.py") == {"one"}
    (tmp_path / "mod.py").unlink()
    assert names(tmp_path, "mod.py") == {"one"}


def test_a_module_that_only_a_changed_path_would_find_counts_by_its_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "mod.py": "import sys\nsys.path.insert(0, 'deep/lib')\nimport hidden.part\n",
            "deep/lib/hidden/part.py": "",
            "deep/part.py": "",
            "specs/s.yaml": f"{HEAD}  - {{name: one, function: mod:f, inputs: [1]}}\n{OTHER}",
            "other/mod.py": "",
        },
    )
    assert names(tmp_path, "deep/lib/hidden/part.py") == {"one"}
    assert names(tmp_path, "deep/part.py") == set()


@pytest.mark.parametrize(
    "helper",
    [
        "def (:\n",
        "import runpy\nrunpy.run_path('kernel.txt')\n",
        "exec(open('kernel.txt').read())\n",
        "import pkgutil\npkgutil.resolve_name('kernel:f')\n",
        "import importlib.util\nimportlib.util.spec_from_file_location('k', 'kernel.txt')\n",
        "from importlib import import_module\nimport_module(open('name.txt').read())\n",
    ],
)
def test_what_loads_nobody_can_tell_what_may_depend_on_any_file(
    helper: str, tmp_path: Path
) -> None:
    write(
        tmp_path,
        {
            **MODULES,
            "helper.py": helper,
            "specs/s.yaml": f"{HEAD}  - {{name: one, function: mod:f, inputs: [1]}}\n{OTHER}",
        },
    )
    for name in ("unrelated.py", "kernel.txt", "gone.md"):
        assert names(tmp_path, name) == {"one"}
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    "text",
    [
        "gradverify: 1\nchecks: [\n",
        "gradverify: 1\nchecks: [{function: mod:f, inputs: [*x]}]\n",
        "gradverify: 1\n\t- a\n",
    ],
)
def test_a_spec_that_cannot_be_read_may_be_affected_by_anything(text: str, tmp_path: Path) -> None:
    write(tmp_path, {**MODULES, "specs/s.yaml": text, "specs/t.yaml": HEAD + OTHER})
    assert sieved(changed(tmp_path, "unrelated.py"), tmp_path)[0] == ("specs/s.yaml",)
    assert sieved(changed(tmp_path), tmp_path)[0] == ()


def test_links_count_under_both_their_names(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "mod.py": "import linked\n",
            "real/file.py": "",
            "specs/s.yaml": f"{HEAD}  - {{name: one, function: mod:f, inputs: [1]}}\n",
        },
    )
    (tmp_path / "linked.py").symlink_to("real/file.py")
    (tmp_path / "again.yaml").symlink_to("specs/s.yaml")
    for name in (
        "linked.py",
        "real/file.py",
        "again.yaml",
        "./real/../linked.py",
        str(tmp_path / "real" / "file.py"),
    ):
        assert names(tmp_path, name) == {"one"}, name


WHERE: dict[str, dict[str, str]] = {
    "paths of the project": {
        "pyproject.toml": "[tool.gradverify]\npaths = ['a', 'b/one.yaml']\n",
        "a/x.yaml": HEAD,
        "b/one.yaml": HEAD,
        "b/two.yaml": HEAD,
        "specs/s.yaml": HEAD,
    },
    "specs": {
        "specs/s.yaml": HEAD,
        "specs/deep/t.yml": HEAD,
        "other.gradverify.yaml": HEAD,
        "specs/no.yaml": "a: 1\n",
    },
    "the suffix": {
        "x/one.gradverify.yaml": HEAD,
        "two.gradverify.yml": HEAD,
        "three.yaml": HEAD,
        ".hidden/h.gradverify.yaml": HEAD,
    },
    "a project without paths": {"pyproject.toml": "[project]\nname = 'x'\n", "specs/s.yaml": HEAD},
    "nothing": {"a.py": ""},
}


@pytest.mark.parametrize("case", WHERE)
def test_specs_are_looked_for_where_check_looks(case: str, tmp_path: Path) -> None:
    write(tmp_path, WHERE[case])
    assert set(project_specs(tmp_path)) == {
        file.as_posix() for file in discover([], tmp_path).files
    }
