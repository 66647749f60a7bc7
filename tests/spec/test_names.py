from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.spec.fault import nearest
from gradverify.spec.names import own_name, resolve


@pytest.mark.parametrize("text", ["mul", "my_ops.act:Swish", "my_ops.act.Swish", "my:Outer.Inner", "torch.nn.functional:gelu"])
def test_a_name_that_is_no_file_stays_as_written(text: str, tmp_path: Path) -> None:
    assert resolve(text, tmp_path, ("mul",)) == (text, None)


def test_a_file_is_taken_relative_to_the_spec_and_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "act.py").write_text("")
    assert resolve("../act.py:Swish", tmp_path / "specs") == (f"{tmp_path}/act.py:Swish", None)


@pytest.mark.parametrize(("text", "words"), [
    ("mull", "did you mean 'mul'?"), ("nothing_like_it", "built-ins: mul"), ("act.py", "act.py:Name"), ("folder/act", "no attribute"),
    ("gone.py:F", "no file 'gone.py'"), ("notes.txt/x:F", "no Python file"), ("act.py:2x", "no attribute's name"), ("a-b:c", "no name"),
    ("a..b", "no name"), (":f", "no name"), ("a:", "no name"), ("folder.py:F", "is a folder"), ("gone/act.py:F", "folder does not exist"),
])
def test_what_cannot_be_a_function_says_why(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "act.py").write_text("")
    (tmp_path / "folder.py").mkdir()
    complaint = resolve(text, tmp_path, ("mul",))[1]
    assert complaint is not None and all(word in complaint for word in words.split()), complaint


def test_a_functions_own_name_is_its_last_part() -> None:
    assert [own_name(text) for text in ("mul", "a.b:C.D", "a.b.c", "/x/y.py:F")] == ["mul", "D", "c", "F"]


@pytest.mark.parametrize(("word", "meant"), [("linaer", "linear"), ("Linaer", "Linear"), ("SOFTMAX", "softmax"), ("quite else", None)])
def test_of_two_names_that_differ_in_capitals_the_one_written_alike_is_meant(word: str, meant: str | None) -> None:
    assert nearest(word, ("linear", "Linear", "softmax")) == meant
