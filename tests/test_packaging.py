"""What is published: an sdist and a wheel that are whole, that install into an empty environment,
and that work outside of the repository.

The class of faults: a file that the tool, its hooks or its tests need, present in the repository
and left out of what is installed.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTALLED = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
# Importing pip takes its own distutils
LACKING = sorted({"build", "hatch-fancy-pypi-readme", "hatchling", "pip"} - INSTALLED)
SPEC = """gradverify: 1
checks:
  - {name: right, function: sigmoid, inputs: {input: {shape: [2]}}}
  - {name: wrong, function: add, inputs: {x: {shape: [2]}, y: {shape: [2]}}, expected: {x: [2, 2]}}
"""
TELL = """
import gradverify
from importlib.metadata import entry_points
print(gradverify.__file__)
print(*(each.value for each in entry_points(group="pytest11", name="gradverify")))
"""

pytestmark = pytest.mark.skipif(
    bool(LACKING), reason=f"needs {' and '.join(LACKING)}, of the extra `test`"
)


def tracked():
    """Paths of the files that git holds; None where this is no checkout."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return None
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Path of the sdist and of the wheel that is built from it."""
    tree = tmp_path_factory.mktemp("tree")
    names = tracked()
    if names is None:
        shutil.copytree(
            ROOT,
            tree,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(".*_cache", ".venv", "__pycache__", "dist"),
        )
    for name in names or ():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next((tree / "dist").glob("*.tar.gz")), next((tree / "dist").glob("*.whl"))


def inside(sdist):
    with tarfile.open(sdist) as archive:
        return {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}


def test_the_sdist_holds_every_file_of_the_repository(built):
    held = inside(built[0])
    assert {
        "action.yml",
        ".pre-commit-hooks.yaml",
        ".ci/run",
        "docs/starting.md",
        "tests/test_action.py",
        "constraints.txt",
    } <= held
    assert set(tracked() or ()) <= held
    assert held - set(tracked() or held) <= {"PKG-INFO"}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gradverify").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == {name for name in package if not name.endswith(".so")}
    assert {
        "gradverify/py.typed",
        "gradverify/spec/schema.json",
        "gradverify/report/templates/page.html.j2",
    } <= held


def test_no_link_of_the_published_readme_is_relative(built):
    with zipfile.ZipFile(built[1]) as archive:
        text = archive.read(
            next(name for name in archive.namelist() if name.endswith("METADATA"))
        ).decode()
    assert (
        "(docs/" not in text
        and "[Starting]" not in text
        and "Starting (`docs/starting.md`)" in text
    )
    assert "Description-Content-Type: text/markdown" in text


@pytest.mark.parametrize("kind", [0, 1], ids=["sdist", "wheel"])
def test_it_works_where_it_is_installed(built, kind, tmp_path):
    """In an empty environment that takes over torch and what else this one has, by their folders,
    and so none of its editable installs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=True)
    python = tmp_path / "env/bin/python"
    found = map(importlib.util.find_spec, ("torch", "hatchling", "tomlkit"))
    others = {Path(each.origin).parents[1] for each in found if each is not None}
    own = next((tmp_path / "env/lib").glob("python3*/site-packages"))
    (own / "others.pth").write_text("".join(f"{folder}\n" for folder in others))
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--ignore-installed",
        "--disable-pip-version-check",
        str(built[kind]),
    ]
    done = subprocess.run(install, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    place = tmp_path / "elsewhere"
    (place / "specs").mkdir(parents=True)
    (place / "specs/s.yaml").write_text(SPEC)
    environ = {
        name: text
        for name, text in os.environ.items()
        if name not in ("PYTHONPATH", "CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    }

    def call(*command):
        done = subprocess.run(
            command, cwd=place, env=environ, capture_output=True, text=True, timeout=200
        )
        return done.returncode, done.stdout + done.stderr

    code, text = call(python, "-c", TELL)
    assert code == 0 and text.split() == [
        str(own / "gradverify/__init__.py"),
        "gradverify.pytest_plugin",
    ], text
    if kind == 0:
        code, text = call(tmp_path / "env/bin/gradverify", "list")
        assert code == 0 and "specs/s.yaml::wrong" in text, text
        return
    code, text = call(tmp_path / "env/bin/gradverify", "check", "specs", "--report", "r.html")
    assert (
        code == 1 and "1 failed, 1 passed" in text and "<style>" in (place / "r.html").read_text()
    ), text
