from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from gradverify.model.dtypes import Dtype
from gradverify.spec.fault import SYNONYMS, nearest
from gradverify.spec.names import own_name, resolve
from gradverify.spec.schema import Budget, Check, Rules, RunSettings, Settings, Spec, Tensor
from gradverify.spec.wording import home_of


@pytest.mark.parametrize(
    "text",
    ["mul", "my_ops.act:Swish", "my_ops.act.Swish", "my:Outer.Inner", "torch.nn.functional:gelu"],
)
def test_a_name_that_is_no_file_stays_as_written(text: str, tmp_path: Path) -> None:
    assert resolve(text, tmp_path, ("mul",)) == (text, None)


def test_a_file_is_taken_relative_to_the_spec_and_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "act.py").write_text("")
    assert resolve("../act.py:Swish", tmp_path / "specs") == (f"{tmp_path}/act.py:Swish", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mull", "did you mean 'mul'?"),
        ("nothing_like_it", "built-ins: mul"),
        ("act.py", "act.py:Name"),
        ("folder/act", "no attribute"),
        ("gone.py:F", "no file 'gone.py'"),
        ("notes.txt/x:F", "no Python file"),
        ("act.py:2x", "no attribute's name"),
        ("a-b:c", "no name"),
        ("a..b", "no name"),
        (":f", "no name"),
        ("a:", "no name"),
        ("folder.py:F", "is a folder"),
        ("gone/act.py:F", "folder does not exist"),
    ],
)
def test_what_cannot_be_a_function_says_why(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "act.py").write_text("")
    (tmp_path / "folder.py").mkdir()
    complaint = resolve(text, tmp_path, ("mul",))[1]
    assert complaint is not None and all(word in complaint for word in words.split()), complaint


def test_a_functions_own_name_is_its_last_part() -> None:
    assert [own_name(text) for text in ("mul", "a.b:C.D", "a.b.c", "/x/y.py:F")] == [
        "mul",
        "D",
        "c",
        "F",
    ]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("linaer", "linear"), ("Linaer", "Linear"), ("SOFTMAX", "softmax"), ("quite else", None)],
)
def test_of_two_names_that_differ_in_capitals_the_one_written_alike_is_meant(
    word: str, meant: str | None
) -> None:
    assert nearest(word, ("linear", "Linear", "softmax")) == meant


def keys(model):
    return {info.alias or name for name, info in model.model_fields.items()}


def test_a_synonym_stands_for_a_name_of_the_format_and_is_none_itself():
    known = set().union(*map(keys, (Spec, Check, Tensor, Budget, Rules)))
    values = {*get_args(Dtype), "cuda"}
    assert set(SYNONYMS.values()) <= known | values
    assert not set(SYNONYMS) & (known | values)


@pytest.mark.parametrize(
    "model",
    [Spec, Check, Settings, RunSettings, Tensor, Budget, Rules],
    ids=lambda model: model.__name__,
)
def test_no_key_is_sent_away_from_a_place_that_has_it_to_one_that_lacks_it(model):
    homes = {
        "`rules:": Rules,
        "`budget:": Budget,
        "top of the file": Spec,
        "or in `defaults`": RunSettings,
        "or in its `defaults`": Settings,
        "in a check": Check,
        "in an input": Tensor,
    }
    for key in set().union(*map(keys, (Spec, Check, Tensor, Budget, Rules))) - keys(model):
        home = home_of(key, model)
        if home:
            place = next(place for words, place in homes.items() if words in home)
            assert key in keys(place), (key, home)
