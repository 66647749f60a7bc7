"""A spec's own modules win over imported namesakes, for its own code; everybody else still gets what they had, while it runs and afterwards.

The class: which of two modules of one name is imported, by whom, and when. A wrong one may mean that the wrong function is checked in silence.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest

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


STDLIB = {"random": random, "types": types, "json": json, "os": os}


@pytest.mark.parametrize("name", ["random", "types", "json"])
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
@pytest.mark.parametrize("colon", [":", "."])
def test_an_own_module_wins_over_an_imported_one(write, tmp_path, name, form, colon):
    write(form.format(name), "def f(): return 'own'")
    assert found(tmp_path, f"{name}{colon}f")() == "own"
    assert sys.modules[name] is STDLIB[name] and importlib.import_module(name) is STDLIB[name]


def test_without_an_own_one_the_imported_one_is_found(tmp_path):
    assert found(tmp_path, "random:Random") is random.Random


def test_one_that_pythons_library_has_and_nobody_imported_yet(write, tmp_path):
    name = next(each for each in ("wave", "cgitb", "chunk", "sched", "this") if each in sys.stdlib_module_names and each not in sys.modules)
    write(f"{name}.py", "def f(): return 'own'")
    assert found(tmp_path, f"{name}:f")() == "own"
    assert name not in sys.modules
    assert not hasattr(importlib.import_module(name), "f")


def test_own_code_gets_own_modules_and_all_other_code_the_others(write, tmp_path, monkeypatch):
    write("random.py", "own = True")
    monkeypatch.syspath_prepend(str(tmp_path / "lib/site-packages"))
    write("lib/site-packages/foreign_n.py", "import random\ndef lazily():\n    import random\n    return random")
    write("ops_n.py", "import random, foreign_n\nfrom random import own\ndef f():\n    import random as again\n    return random, again, foreign_n")
    with importable(Search(str(tmp_path))):
        mine, again, foreign = find("ops_n:f", "function")()
        assert mine is again and mine.own is True
        assert foreign.random is random and foreign.lazily() is random
    assert sys.modules["random"] is random


def test_torch_gets_pythons_own_while_the_spec_runs(write, tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir("/")      # this test's own file lies elsewhere then

    write("random.py", "import torch\ntorch.manual_seed(0)\ndef f(x): return torch.nn.functional.dropout(x)")
    write("warnings.py", "def f(): pass")
    with importable(Search(str(tmp_path))):
        f = find("random:f", "function")
        f(torch.ones(3))
        torch.testing.assert_close(torch.ones(2), torch.ones(2))
        torch.utils.data.DataLoader([1, 2], shuffle=True)
        import warnings
        assert hasattr(warnings, "catch_warnings")
        assert sys.modules["random"] is random


def test_a_module_named_like_what_it_imports_means_the_other(write, tmp_path):
    write("random.py", "import random\nfrom random import Random\ndef f(): return random, Random")
    assert found(tmp_path, "random:f")() == (random, random.Random)


@pytest.mark.parametrize("form", ["{}/ops_m.py", "{}/ops_m/__init__.py"])
def test_two_specs_with_equal_names_each_get_their_own(write, tmp_path, form):
    for folder in "ab":
        write(f"{folder}/random.py", f"name = '{folder}'")
        write(form.format(folder), "from random import name\ndef f():\n    import random\n    return name, random.name")
    assert [found(tmp_path / folder, "ops_m:f") and _called(tmp_path / folder) for folder in "abba"] == [(f, f) for f in "abba"]


def _called(folder):
    with importable(Search(str(folder))):
        return find("ops_m:f", "function")()


def test_one_spec_has_it_and_the_next_has_not(write, tmp_path):
    write("a/random.py", "def f(): return 'own'")
    (tmp_path / "b").mkdir()
    assert found(tmp_path / "a", "random:f")() == "own"
    with pytest.raises(UserCodeError, match="no attribute 'f'"):
        found(tmp_path / "b", "random:f")


PACKAGE = {
    "types/__init__.py": "from .act import f\nfrom . import act",
    "types/act.py": "from .deep.more import number\nimport types.deep.more\nfrom types import deep\n"
                    "def f():\n    from .late import late\n    import types.late as other\n    return number + late + (other.late == late)",
    "types/deep/__init__.py": "", "types/deep/more.py": "number = 1", "types/late.py": "import types as t\nlate = 10 if t.act else 0",
}


@pytest.mark.parametrize("name", ["types:f", "types.act:f", "types.act.f"])
def test_packages_submodules_and_relative_imports(write, tmp_path, name):
    for file, text in PACKAGE.items():
        write(file, text)
    with importable(Search(str(tmp_path))):
        f = find(name, "function")
        assert f() == 12 and f() == 12
        assert sys.modules["types"] is types and not [each for each in sys.modules if each.startswith("types.")]
    assert sys.modules["types"] is types


def test_lazy_imports_inside_a_function_and_by_name(write, tmp_path):
    write("random.py", "number = 1")
    write("ops_l.py", "import importlib\ndef f():\n    import random\n    from random import number\n"
                      "    return random.number, number, importlib.import_module('random').number, __import__('random').number")
    with importable(Search(str(tmp_path))):
        assert find("ops_l:f", "function")() == (1, 1, 1, 1)


@pytest.mark.parametrize("twice", [False, True])
def test_a_file_gets_its_neighbours_also_lazily(write, tmp_path, twice):
    write("ops/random.py", "number = 1")
    path = write("ops/act.py", "from random import number\ndef f():\n    import random\n    return number, random.number")
    (tmp_path / "specs").mkdir()
    for _ in range(1 + twice):
        with importable(Search(str(tmp_path / "specs"))):
            assert find(f"{path}:f", "function")() == (1, 1)
    assert sys.modules["random"] is random


def test_it_is_loaded_once_for_all_checks(write, tmp_path):
    write("random.py", "token = object()")
    assert found(tmp_path, "random:token") is found(tmp_path, "random:token")


def test_path_entries_come_before_the_specs_folder(write, tmp_path):
    write("lib/random.py", "where = 'path'")
    write("spec/random.py", "where = 'spec'")
    assert found(tmp_path / "spec", "random:where", path=(str(tmp_path / "lib"),)) == "path"


def test_import_entries_too(write, tmp_path):
    write("random.py", "import sys\nsys.own_random = True")
    try:
        found(tmp_path, "torch:sin", imports=("random",))
        assert sys.own_random
    finally:
        del sys.own_random


def test_one_whose_import_fails_leaves_nothing_behind(write, tmp_path):
    write("random.py", "import torch\nraise RuntimeError('broken')")
    with pytest.raises(UserCodeError, match="RuntimeError: broken"):
        found(tmp_path, "random:f")
    assert sys.modules["random"] is random
    write("random.py", "def f(): return 'repaired'")
    importlib.invalidate_caches()
    os.utime(tmp_path / "random.py", (1, 1))
    assert found(tmp_path, "random:f")() == "repaired"


def test_import_itself_is_afterwards_what_it_was(write, tmp_path):
    before = builtins.__import__, importlib.import_module
    write("random.py", "from importlib import import_module\nf = import_module")
    kept = found(tmp_path, "random:f")
    with pytest.raises(UserCodeError):
        found(tmp_path, "nowhere:f")
    assert (builtins.__import__, importlib.import_module) == before
    assert kept("random") is random


def test_what_importing_an_own_module_brings_in_gets_pythons_own(write, tmp_path):
    """Libraries that are imported for the first time, `importlib`'s own parts among them."""
    write("typing.py", "name = 'own'")
    write("email.py", "")
    write("inspect.py", "import sys\nfor each in [n for n in sys.modules if n.startswith('importlib.metadata')]: del sys.modules[each]\n"
                        "import importlib.metadata\nfrom typing import name\ndef f(): return name, importlib.metadata.version('torch')")
    kept = {name: module for name, module in sys.modules.items() if name.startswith("importlib.metadata")}
    try:
        assert found(tmp_path, "inspect:f")()[0] == "own"
    finally:
        sys.modules.update(kept)


def test_code_in_c_finds_pythons_own_again_after_importing_it(write, tmp_path):
    """`_elementtree` imports `copy` as it is loaded, and looks it up in sys.modules then."""
    write("copy.py", "name = 'own'")
    write("inspect.py", "from copy import name\nimport sys\nsys.modules.pop('_elementtree', None)\nimport _elementtree\ndef f(): return name")
    assert found(tmp_path, "inspect:f")() == "own"


@pytest.mark.parametrize("name", ["torch", "numpy", "gradverify"])
def test_what_a_check_stands_on_is_never_replaced(write, tmp_path, name):
    write(f"{name}/__init__.py", "raise RuntimeError('the wrong one')")
    with importable(Search(str(tmp_path))):
        assert importlib.import_module(name) is sys.modules[name]
        find("torch:sin", "function")


def test_the_same_module_imported_before_is_no_namesake(write, tmp_path, monkeypatch):
    write("same_n.py", "token = object()")
    monkeypatch.syspath_prepend(str(tmp_path))
    import same_n

    assert found(tmp_path, "same_n:token") is same_n.token


def test_one_that_somebody_else_imported_from_elsewhere_is(write, tmp_path, monkeypatch):
    write("theirs/utils_n.py", "name = 'theirs'")
    write("spec/utils_n.py", "name = 'own'")
    write("spec/ops_u.py", "import utils_n\nname = utils_n.name")
    monkeypatch.syspath_prepend(str(tmp_path / "theirs"))
    import utils_n

    assert found(tmp_path / "spec", "utils_n:name") == "own" and found(tmp_path / "spec", "ops_u:name") == "own"
    assert sys.modules["utils_n"] is utils_n and utils_n.name == "theirs"


OPS = """
import torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        import random
        x, = ctx.saved_tensors
        return g * x * random.FACTOR
"""


def test_two_specs_of_one_run_are_judged_by_their_own_modules(write, tmp_path):
    for folder, factor in (("right", 2.0), ("wrong", 2.02)):
        write(f"{folder}/ops.py", OPS)
        write(f"{folder}/random.py", f"FACTOR = {factor}\ndef f(x): return x * {factor}")
        write(f"{folder}/s.yaml", "gradverify: 1\nchecks:\n  - {function: 'ops:F', inputs: [{shape: [3]}]}\n"
                                  "  - {function: 'random:f', name: r, inputs: [{shape: [3]}]}\n")
    ran = subprocess.run([sys.executable, "-m", "gradverify", "check", ".", "--format", "json"], cwd=tmp_path, capture_output=True, text=True)
    verdicts = {check["id"]: check["verdict"] for check in json.loads(ran.stdout)["checks"]}
    assert verdicts == {"right/s.yaml::F": "pass", "right/s.yaml::r": "pass", "wrong/s.yaml::F": "fail", "wrong/s.yaml::r": "pass"}
