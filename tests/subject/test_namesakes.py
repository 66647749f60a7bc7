"""Modules of one name: Python's own stays what it is for everybody, a spec that means another one
is told so, and two specs each get their own.

A wrong one may mean that the wrong function is checked in silence.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import types
from pathlib import Path

import pytest
from commands import here

from gradverify.model.case import Search
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import find, importable


@pytest.fixture
def write(tmp_path):
    """`write("a/ops.py", "text")` below a fresh folder; modules that lie there are forgotten."""
    before = dict(sys.modules)

    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    yield file
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.modules.update(before)


def found(folder, name, **search):
    with importable(Search(str(folder), **search)):
        return find(name, "function")


@pytest.mark.parametrize("name", ["random", "types", "json", "wave"])
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
@pytest.mark.parametrize("colon", [":", "."])
def test_a_module_that_is_named_like_one_of_python_is_refused_in_a_sentence(
    write, tmp_path, name, form, colon
):
    file = write(form.format(name), "def f(): return 'own'")
    with pytest.raises(UserCodeError) as caught:
        found(tmp_path, f"{name}{colon}f")
    assert f"{file} has the name of a module that is imported already" in caught.value.message
    assert found(tmp_path, f"{file}:f")() == "own"


def test_everybody_gets_pythons_own_while_the_spec_runs(write, tmp_path):
    for name in ("random", "types", "wave", "queue", "numbers"):
        write(f"{name}.py", "raise RuntimeError('the wrong one')")
    write(
        "ops_n.py",
        "import random, types\ndef f():\n    import wave\n    return random, types, wave",
    )
    with importable(Search(str(tmp_path))):
        assert find("ops_n:f", "function")() == (random, types, importlib.import_module("wave"))


def test_an_own_module_wins_over_an_installed_one(write, tmp_path, monkeypatch):
    write("installed/utils_o.py", "name = 'installed'")
    write("spec/utils_o.py", "name = 'own'")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    assert found(tmp_path / "spec", "utils_o:name") == "own"


def test_one_that_somebody_else_imported_is_refused(write, tmp_path, monkeypatch):
    write("theirs/utils_n.py", "name = 'theirs'")
    write("spec/utils_n.py", "name = 'own'")
    monkeypatch.syspath_prepend(str(tmp_path / "theirs"))
    import utils_n

    with pytest.raises(UserCodeError, match="imported already"):
        found(tmp_path / "spec", "utils_n:name")
    assert sys.modules["utils_n"] is utils_n and utils_n.name == "theirs"


def test_the_same_module_imported_before_is_no_namesake(write, tmp_path, monkeypatch):
    write("same_n.py", "token = object()")
    monkeypatch.syspath_prepend(str(tmp_path))
    import same_n

    assert found(tmp_path, "same_n:token") is same_n.token


OPS = """
import torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        import factor
        x, = ctx.saved_tensors
        return g * x * factor.FACTOR
"""


@pytest.mark.parametrize("options", [(), ("--no-isolate",)])
def test_two_specs_of_one_run_are_judged_by_their_own_modules(
    write, tmp_path, monkeypatch, options
):
    """In workers, and in one process."""
    monkeypatch.chdir(tmp_path)
    for folder, factor in (("right", 2.0), ("wrong", 2.02)):
        write(f"{folder}/ops.py", OPS)
        write(f"{folder}/factor.py", f"FACTOR = {factor}\ndef f(x): return x * {factor}")
        write(
            f"{folder}/s.yaml",
            "gradverify: 1\nchecks:\n  - {function: 'ops:F', inputs: [{shape: [3]}]}\n"
            "  - {function: 'factor:f', name: r, inputs: [{shape: [3]}]}\n",
        )
    here("check", ".", "--report", "json:r.json", *options)
    verdicts = {
        check["id"]: check["verdict"]
        for check in json.loads((tmp_path / "r.json").read_text())["checks"]
    }
    assert verdicts == {
        "right/s.yaml::F": "pass",
        "right/s.yaml::r": "pass",
        "wrong/s.yaml::F": "fail",
        "wrong/s.yaml::r": "pass",
    }


def test_no_file_is_looked_for_of_modules_that_no_spec_brought(tmp_path, monkeypatch):
    """torch alone has thousands of them."""
    asked = list[Path]()
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: (asked.append(path), is_file(path))[1])
    with importable(Search(str(tmp_path))):
        pass
    assert len(asked) < 50
