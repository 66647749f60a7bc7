from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradverify.model.case import Search
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import find, importable


@pytest.fixture
def write(tmp_path):
    """`write("a/ops.py", "text")` below a fresh folder; modules that a test brought in are
    forgotten."""
    before = set(sys.modules)

    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    yield file
    for name in set(sys.modules) - before:
        del sys.modules[name]


def found(folder: Path, name: str, **search):
    with importable(Search(str(folder), **search)):
        return find(name, "function")


def refused(folder: Path, name: str, **search) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        found(folder, name, **search)
    assert caught.value.code == "GV001"
    return caught.value


@pytest.mark.parametrize(
    "name", ["ops_f:swish", "ops_f.swish", "pkg_f.act:Box.make", "pkg_f.act.Box.make"]
)
def test_a_name_is_found_after_a_colon_and_after_a_dot(write, tmp_path, name):
    write("ops_f.py", "def swish(x): return 'right'")
    write("pkg_f/act.py", "class Box:\n    @staticmethod\n    def make(x): return 'right'")
    assert found(tmp_path, name)(1) == "right"


def test_a_file_is_found_by_its_path_once_and_may_import_its_neighbour(write, tmp_path):
    write("ops/near_f.py", "number = 41")
    path = write("ops/act.py", "import near_f\nclass Act:\n    number = near_f.number + 1")
    first = found(tmp_path, f"{path}:Act")
    assert first.number == 42
    assert found(tmp_path, f"{path}:Act") is first


@pytest.mark.parametrize("layout", ["{}/ops_n.py", "{}/ops_n/__init__.py"])
def test_namesakes_in_two_specs_folders_are_not_mixed_up_nor_what_they_import(
    write, tmp_path, layout
):
    for folder, number in (("a", 1), ("b", 2)):
        write(f"{folder}/deep_n.py", f"number = {number}")
        write(layout.format(folder), "from deep_n import number\ndef f(): return number")
    for name in ("ops_n:f", "ops_n.f"):
        assert [found(tmp_path / folder, name)() for folder in "abba"] == [1, 2, 2, 1]


def test_a_folder_without_init_is_told_from_its_namesake(write, tmp_path):
    for folder, number in (("a", 1), ("b", 2)):
        write(f"{folder}/space_n/act.py", f"def f(): return {number}")
    assert [found(tmp_path / folder, "space_n.act:f")() for folder in "aba"] == [1, 2, 1]


def test_path_entries_come_before_the_specs_folder(write, tmp_path):
    write("lib/which_f.py", "value = 'path'")
    write("specs/which_f.py", "value = 'spec'")
    assert found(tmp_path / "specs", "which_f:value", path=(str(tmp_path / "lib"),)) == "path"


def test_import_entries_are_imported_first(write, tmp_path):
    write("registers_f.py", "import sys\nsys.registered_f = True")
    try:
        found(tmp_path, "torch:sin", imports=("registers_f",))
        assert sys.registered_f
    finally:
        del sys.registered_f
    assert (
        "import: nowhere_f: there is no module 'nowhere_f'"
        in refused(tmp_path, "torch:sin", imports=("nowhere_f",)).message
    )


def test_the_search_path_is_afterwards_what_it_was_also_after_an_error(write, tmp_path):
    write("pushes_f.py", "import sys\nsys.path.insert(0, '/somewhere/else')\nvalue = 1")
    before = list(sys.path)
    found(tmp_path, "pushes_f:value")
    assert sys.path == before
    refused(tmp_path, "nowhere_f:value")
    refused(tmp_path, "torch:sin", imports=("nowhere_f",))
    assert sys.path == before


def test_the_current_folder_is_importable(write, tmp_path, monkeypatch):
    write("cwd_f.py", "value = 7")
    (tmp_path / "specs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path / "specs", "cwd_f:value") == 7
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize("name", ["nowhere_f:value", "nowhere_f.value", "torch.nowhere_f:value"])
def test_a_missing_module_is_named(tmp_path, name):
    assert (
        "there is no module" in refused(tmp_path, name).message
        or "has no attribute 'nowhere_f'" in refused(tmp_path, name).message
    )


@pytest.mark.parametrize("name", ["breaks_f:value", "breaks_f.value", "breaks_f.deeper.value"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import missing_dependency_f",
            "ModuleNotFoundError: No module named 'missing_dependency_f'",
        ),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_module_whose_own_import_fails_is_not_called_missing(write, tmp_path, name, text, said):
    write("breaks_f.py", f"\n{text}")
    error = refused(tmp_path, name)
    assert f"importing 'breaks_f' raised {said}" in error.message
    assert "there is no module" not in error.message
    if "broken" not in text:
        assert [(Path(frame.file).name, frame.line) for frame in error.frames] == [
            ("breaks_f.py", 2)
        ]


def test_a_misspelt_attribute_suggests_the_nearest(write, tmp_path):
    write("spelt_f.py", "class Swish: pass")
    for name in ("spelt_f:Swihs", "spelt_f.Swihs"):
        error = refused(tmp_path, name)
        assert "'spelt_f' has no attribute 'Swihs'" in error.message
        assert "'Swish'" in (error.hint or "")


def test_an_attribute_that_raises_when_it_is_looked_up_is_the_users_fault(write, tmp_path):
    write("lazy_f.py", "def __getattr__(name):\n    raise OSError('no driver')")
    assert "OSError: no driver" in refused(tmp_path, "lazy_f:kernel").message


def test_ctrl_c_during_an_import_is_ctrl_c(write, tmp_path):
    write("slow_f.py", "raise KeyboardInterrupt")
    path = write("slow.py", "raise KeyboardInterrupt")
    for name in ("slow_f:f", "slow_f.f", f"{path}:f"):
        with pytest.raises(KeyboardInterrupt):
            found(tmp_path, name)
