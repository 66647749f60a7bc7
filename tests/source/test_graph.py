"""Which local files an import reads, told from text alone, against what Python really imports.

The class of faults: an edge of the import graph that is missed lets a changed helper pass
unchecked; one that is invented runs checks that nothing affects. So every form of import is held
against `sys.modules` after the real import, the way checks import what they name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gradverify.source.graph import Graph

REALLY = """
import json, os, sys
from gradverify.model.case import Search
from gradverify.subject.find import find, importable

def imported(folder, path, target):
    os.chdir(folder)
    before = {id(module) for module in sys.modules.values()}
    with importable(Search(os.path.join(folder, "specs"), tuple(os.path.join(folder, place) for place in path))):
        find(target, "function")
        modules = [module for module in sys.modules.values() if id(module) not in before]
        for held in vars(sys.modules.get("gradverify: own modules that are out of sight", object)).values():
            modules += held.values() if isinstance(held, dict) else []
    return sorted({str(module.__file__) for module in modules if getattr(module, "__file__", None)})

for line in sys.stdin:
    reader, writer = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writer, "w") as answer:
            json.dump(imported(*json.loads(line)), answer)
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader) as answer:
        print(answer.read())
"""


@pytest.fixture(scope="module")
def python():
    """A process with torch in it, that imports each target asked for in a child of its own, as a
    check would."""
    with subprocess.Popen(
        [sys.executable, "-P", "-u", "-c", REALLY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.stdin.close()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")


def really(python: Any, folder: Path, path: tuple[str, ...], target: str) -> set[str]:
    """Files below the folder that importing the target has read."""
    python.stdin.write(json.dumps([str(folder), path, target]) + "\n")
    python.stdin.flush()
    return names(folder, json.loads(python.stdout.readline()))


def told(folder: Path, path: tuple[str, ...], target: str) -> set[str]:
    folders = (*(str(folder / place) for place in path), str(folder / "specs"), str(folder))
    return names(folder, Graph().of([target], (), folders).files)


def names(folder: Path, files: object) -> set[str]:
    inside = [Path(file) for file in files if Path(file).is_relative_to(folder)]  # type: ignore[attr-defined]
    return {file.relative_to(folder).as_posix() for file in inside}


F = "def f(x): return x\n"
PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/act.py": "from . import base\nfrom .deep.inner import g\n" + F,
    "pkg/base.py": "",
    "pkg/unused.py": "",
    "pkg/deep/__init__.py": "from .. import up\nused = up\n",
    "pkg/deep/inner.py": "from ..side import z\ng = 1\n",
    "pkg/up.py": "",
    "pkg/side.py": "z = 1\n",
    "unused.py": "",
}

TREES: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "a module beside others": ({"a.py": "import b\n" + F, "b.py": "", "c.py": ""}, (), "a:f"),
    "relative imports": (PACKAGE, (), "pkg.act:f"),
    "dotted attribute": (PACKAGE, (), "pkg.act.f"),
    "an attribute of an attribute": (
        {**PACKAGE, "pkg/act.py": "class C:\n    @staticmethod\n    def f(x): return x\n"},
        (),
        "pkg.act.C.f",
    ),
    "import of a submodule by its full name": (
        {**PACKAGE, "a.py": "import pkg.deep.inner as d\n" + F},
        (),
        "a:f",
    ),
    "a submodule as a member": ({**PACKAGE, "a.py": "from pkg import base\n" + F}, (), "a:f"),
    "a member that is no submodule": (
        {**PACKAGE, "pkg/__init__.py": "base2 = 1\n", "a.py": "from pkg import base2\n" + F},
        (),
        "a:f",
    ),
    "star with __all__": (
        {
            **PACKAGE,
            "pkg/__init__.py": "__all__ = ['base']\n__all__ += ['up']\n",
            "a.py": "from pkg import *\n" + F,
        },
        (),
        "a:f",
    ),
    "star without": ({**PACKAGE, "a.py": "from pkg import *\n" + F}, (), "a:f"),
    "cycle": ({"a.py": "import b\n" + F, "b.py": "import c\n", "c.py": "import a\n"}, (), "a:f"),
    "cycle in a package": (
        {
            "p/__init__.py": "from .a import f\n",
            "p/a.py": "import p.b\n" + F,
            "p/b.py": "from p import a\n",
        },
        (),
        "p:f",
    ),
    "import_module": (
        {"a.py": "import importlib\nimportlib.import_module('b')\n" + F, "b.py": "", "c.py": ""},
        (),
        "a:f",
    ),
    "import_module, relative": (
        {
            "p/__init__.py": "",
            "p/a.py": "from importlib import import_module as load\nload('.b', __package__)\n" + F,
            "p/b.py": "",
            "p/c.py": "",
        },
        (),
        "p.a:f",
    ),
    "import_module, relative to another": (
        {
            "p/__init__.py": "",
            "p/q/__init__.py": "",
            "p/q/b.py": "",
            "b.py": "",
            "a.py": (
                "import importlib\nimportlib.import_module('.b', package='p.q')\n"
                "importlib.import_module('..q', 'p.q')\n"
            )
            + F,
        },
        (),
        "a:f",
    ),
    "__import__": (
        {"a.py": "__import__('b.c')\n" + F, "b/__init__.py": "", "b/c.py": "", "b/d.py": ""},
        (),
        "a:f",
    ),
    "conditional": (
        {
            "a.py": """
        import sys
        if sys.version_info >= (3, 0):
            import b
        try:
            import no_such_module_anywhere
        except ImportError:
            import c
        with open(__file__):
            import d
        for _ in range(1):
            import e
        match 1:
            case 1:
                import g
        class K:
            import h
        def f(x): return x
        """,
            **{f"{name}.py": "" for name in "bcdeghi"},
        },
        (),
        "a:f",
    ),
    "types only": (
        {
            "a.py": """
        from typing import TYPE_CHECKING
        import typing
        if TYPE_CHECKING:
            import b
        else:
            import c
        if typing.TYPE_CHECKING:
            from b import x
        def f(x): return x
        """,
            "b.py": "",
            "c.py": "",
        },
        (),
        "a:f",
    ),
    "namespace packages": (
        {
            "n/m/a.py": "from n.m import b\nfrom . import c\n" + F,
            "n/m/b.py": "",
            "n/m/c.py": "",
            "n/d.py": "",
        },
        (),
        "n.m.a:f",
    ),
    "a namespace package in two folders": (
        {"n/a.py": "import n.b\n" + F, "lib/n/b.py": "", "lib/n/c.py": ""},
        ("lib",),
        "n.a:f",
    ),
    "a package wins over a namespace package": (
        {"lib/n/b.py": "", "n/__init__.py": "", "n/a.py": F},
        ("lib",),
        "n.a:f",
    ),
    "src layout": (
        {
            "src/p/__init__.py": "",
            "src/p/a.py": "from p import b\n" + F,
            "src/p/b.py": "",
            "b.py": "",
        },
        ("src",),
        "p.a:f",
    ),
    "the spec's folder before the current one": (
        {"specs/h.py": F, "h.py": "", "other.py": ""},
        (),
        "h:f",
    ),
    "path before the spec's folder": (
        {"specs/h.py": "", "lib/h.py": "import g\n" + F, "lib/g.py": "", "g.py": ""},
        ("lib",),
        "h:f",
    ),
    "a name of Python's own": (
        {
            "a.py": "import random, json, wave\n" + F,
            "random.py": "import b\n",
            "wave.py": "import b\n",
            "b.py": "",
        },
        (),
        "a:f",
    ),
    "a name that Python's library has elsewhere": (
        {"a.py": "import winreg\n" + F, "winreg.py": "import b\n", "b.py": ""},
        (),
        "a:f",
    ),
    "a folder with a name of Python's own": (
        {"a.py": "import json, code\n" + F, "json/x.py": "", "code/x.py": ""},
        (),
        "a:f",
    ),
    "an installed name": ({"yaml.py": "import b\n" + F, "b.py": ""}, (), "yaml:f"),
    "torch is never replaced": (
        {"a.py": "import torch, numpy\n" + F, "torch.py": "", "numpy/__init__.py": ""},
        (),
        "a:f",
    ),
    "encodings": (
        {
            "a.py": "# -*- coding: latin-1 -*-\nimport b\n" + F,
            "b.py": "\ufeffimport c\n",
            "c.py": "",
        },
        (),
        "a:f",
    ),
    "a warning": ({"a.py": "import b\ns = '\\d'\n" + F, "b.py": ""}, (), "a:f"),
    "a module of the package's name inside": (
        {
            "p/__init__.py": "from .p import f\n",
            "p/p.py": "import q\n" + F,
            "p/q.py": "",
            "q.py": "",
        },
        (),
        "p:f",
    ),
}


@pytest.mark.parametrize("tree", TREES)
def test_it_tells_what_is_really_imported(tree: str, python: Any, tmp_path: Path) -> None:
    files, path, target = TREES[tree]
    write(tmp_path, {**files, "specs/s.yaml": ""})
    assert told(tmp_path, path, target) == really(python, tmp_path, path, target)


EXPORTS = {
    "ops/__init__.py": "from .act import Swish as S, Gelu\nfrom .norm import *\nimport ops.loss\n"
    "from . import tools\n__all__ = ['S', 'Gelu']\n",
    "ops/act.py": "from .tools import g\n" + F,
    "ops/norm.py": "",
    "ops/loss.py": "",
    "ops/tools.py": "",
    "a.py": "from ops import S\n" + F,
    "b.py": "from ops import rms_norm\n" + F,
    "c.py": "import ops\n" + F,
    "d.py": "from ops import tools\n" + F,
}
ACT = {"ops/__init__.py", "ops/act.py", "ops/tools.py"}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("ops.act:f", ACT),
        ("ops:S", ACT),
        ("ops.Gelu.f", ACT),
        ("ops:rms_norm", {"ops/__init__.py", "ops/norm.py"}),
        ("a:f", {"a.py", *ACT}),
        ("b:f", {"b.py", "ops/__init__.py", "ops/norm.py"}),
        ("c:f", {"c.py", *ACT, "ops/norm.py", "ops/loss.py"}),
        ("d:f", {"d.py", "ops/__init__.py", "ops/tools.py"}),
    ],
)
def test_of_what_a_package_exports_only_what_is_taken_counts(
    target: str, expected: set[str], tmp_path: Path
) -> None:
    write(tmp_path, EXPORTS)
    assert told(tmp_path, (), target) == expected


@pytest.mark.parametrize("use", ["register(tools)", "def rms_norm(x): return tools.f(x)"])
def test_what_a_package_uses_of_its_imports_counts_for_all(use: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "ops/__init__.py": f"from . import tools, loss\nfrom .norm import *\n{use}\n",
            "ops/act.py": F,
            "ops/norm.py": "",
            "ops/loss.py": "",
            "ops/tools.py": "",
        },
    )
    used = {"ops/__init__.py", "ops/act.py", "ops/tools.py", "ops/norm.py"}
    assert told(tmp_path, (), "ops.act:f") == used


FILES = {
    "ops/act.py": "import helper\nimport shared\n" + F,
    "ops/helper.py": "import shared\n",
    "ops/shared.py": "",
    "shared.py": "",
    "helper.py": "",
    "ops/unused.py": "",
}


@pytest.mark.parametrize("target", ["ops/act.py:f", "ops/helper.py:shared"])
def test_a_file_finds_its_neighbours_first(target: str, python: Any, tmp_path: Path) -> None:
    """When its functions run, its folder is no more on the path: what they may import by another
    way counts as well."""
    write(tmp_path, {**FILES, "specs/s.yaml": ""})
    found = told(tmp_path, (), f"{tmp_path}/{target}")
    assert found >= really(python, tmp_path, (), f"{tmp_path}/{target}")
    assert "ops/unused.py" not in found


def test_what_functions_import_when_they_run_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "def f(x):\n    import b\n    async def g():\n        from c import d\n    return "
            "x\n",
            "b.py": "",
            "c.py": "",
            "e.py": "",
        },
    )
    assert told(tmp_path, (), "a:f") == {"a.py", "b.py", "c.py"}


@pytest.mark.parametrize(
    "code",
    [
        "importlib.import_module(name)",
        "importlib.import_module(f'p.{name}')",
        "importlib.import_module('.' + name, __package__)",
        "importlib.import_module(name=name)",
        "__import__(name)",
        "importlib.import_module('b' + name)",
        "importlib.util.spec_from_file_location('b', 'kernels/b.py')",
        "spec.loader.exec_module(module)",
        "loader.load_module()",
        "runpy.run_path('b.py')",
        "run = getattr(runpy, 'run_path')",
        "from runpy import run_module as run",
        "pkgutil.resolve_name('b:f')",
        "exec(text)",
        "run = exec",
        "from importlib.machinery import SourceFileLoader",
    ],
)
@pytest.mark.parametrize("indent", ["", "def g():\n    "])
def test_code_that_loads_files_may_load_any(code: str, indent: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.py": f"import b\n{F}\n{indent}{code}\n", "b.py": "", "c.py": ""})
    reach = Graph().of(["a:f"], (), (str(tmp_path),))
    assert names(tmp_path, reach.unread) == {"a.py"} and names(tmp_path, reach.files) == {
        "a.py",
        "b.py",
    }


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "self.exec(1)",
        "x = 'exec'",
        "importlib.import_module('c')",
        "importlib.import_module('..c', 'p')",
        "# run_path\nexecute(run_paths)",
    ],
)
def test_code_that_loads_no_files_may_not(code: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.py": f"{F}\n{code}\n", "c.py": "", "p/__init__.py": ""})
    assert Graph().of(["a:f"], (), (str(tmp_path),)).unread == frozenset()


@pytest.mark.parametrize(
    "content",
    [
        b"def f(:\n",
        b"print 'old'\n",
        b"\xff\xfea\x00",
        b"x = 1\0",
        b"# coding: no-such\n",
        b"# coding: utf-8\n'\xff'\n",
        b"(" * 3000 + b")" * 3000,
    ],
)
def test_a_file_that_is_no_python_is_told_and_ends_nothing(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import bad\nimport b\n" + F, "b.py": "", "c.py": ""})
    (tmp_path / "bad.py").write_bytes(content)
    reach = Graph().of(["a:f"], (), (str(tmp_path),))
    assert names(tmp_path, reach.files) == {"a.py", "b.py", "bad.py"}
    assert names(tmp_path, reach.unread) == {"bad.py"}


def test_a_deep_tree_of_imports_is_no_recursion(tmp_path: Path) -> None:
    write(tmp_path, {f"m{i}.py": f"import m{i + 1}\n" for i in range(1500)})
    assert len(told(tmp_path, (), "m0:f")) == 1500


def test_what_is_found_nowhere_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "import nowhere.at_all, pkg.gone\n", "pkg/__init__.py": ""})
    assert Graph().of(["a:f"], (), (str(tmp_path),)).missing == {"nowhere.at_all", "pkg.gone"}
    assert Graph().of(["no_module:f"], (), (str(tmp_path),)).missing == {"no_module"}


@pytest.mark.parametrize(
    ("importing", "asked"),
    [
        ("import b", "b"),
        ("from b import x", "b"),
        ("from p import b", "p.b"),
        ("import p.b", "p.b"),
        ("from p.b import x", "p.b"),
        ("import random", "random"),
        ("from .b import x", "q.b"),
    ],
)
def test_every_name_that_may_be_a_module_is_told_so_that_a_deleted_file_is_known_by_it(
    importing: str, asked: str, tmp_path: Path
) -> None:
    write(
        tmp_path,
        {"q/a.py": f"{importing}\n" + F, "q/__init__.py": "", "p/__init__.py": "", "b.py": ""},
    )
    found = Graph().of(["q.a:f"], (), (str(tmp_path),)).names
    assert {asked, "q", "q.a"} <= found and not found & {"other", "p.other", "q.other"}


def test_links_are_followed_by_name(python: Any, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "import linked\nfrom folder import c\n" + F,
            "real/b.py": "import real_helper\n",
            "real_helper.py": "",
            "dir/c.py": "",
        },
    )
    (tmp_path / "linked.py").symlink_to(tmp_path / "real" / "b.py")
    (tmp_path / "folder").symlink_to(tmp_path / "dir")
    assert (
        told(tmp_path, (), "a:f")
        == {"a.py", "linked.py", "real_helper.py", "folder/c.py"}
        == really(python, tmp_path, (), "a:f")
    )


def test_what_is_installed_is_not_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": "import yaml, typer, os, torch\nimport lib.site_thing\n" + F,
            "b.py": "",
            "env/site-packages/lib/site_thing.py": "import b\n",
        },
    )
    assert told(tmp_path, ("env/site-packages",), "a:f") == {"a.py"}


def test_built_in_functions_lie_in_gradverify_wherever_that_is(tmp_path: Path) -> None:
    import gradverify

    write(tmp_path, {"gradverify/__init__.py": ""})
    files = Graph().of(["gradverify.functions.linear:LinearFunction"], (), (str(tmp_path),)).files
    assert str(Path(gradverify.__path__[0]) / "functions" / "linear.py") in files


def test_a_name_computed_of_a_thousand_parts_is_a_file_that_cannot_be_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "ops.py": "from importlib import import_module\n"
            f"import_module({' + '.join(['name'] * 500)})\n"
        },
    )
    assert names(tmp_path, Graph().of(["ops:f"], (), [str(tmp_path)]).unread) == {"ops.py"}
