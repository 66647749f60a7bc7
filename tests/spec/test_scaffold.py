"""The text of a proposed spec: valid whatever was found, and read back as exactly what was
proposed."""

from __future__ import annotations

import math

import pytest
import yaml

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.model.codec import to_json
from gradverify.model.proposal import Proposal
from gradverify.spec.document import Loader12
from gradverify.spec.load import load
from gradverify.spec.scaffold import Entry, _flow, scaffold, spec_of

X = InputRecipe("x", TensorRecipe((2, 3)))


def text(*proposals, function="my_ops:Op", **said):
    return scaffold(
        "my_ops.py",
        "gradverify.schema.json",
        [Entry(function, "my_ops.py:3", each) for each in proposals],
        **said,
    )


def read(tmp_path, written):
    """The cases of the text. Nothing is wrong with it."""
    file = tmp_path / "s.yaml"
    file.write_text(written, encoding="utf-8")
    loaded = load([file], builtins={}, codes=())
    assert loaded.problems == (), written
    return loaded.cases


@pytest.mark.parametrize(
    "recipe",
    [
        X,
        InputRecipe("x", TensorRecipe(())),
        InputRecipe("x", TensorRecipe((4,), "integers", [0, 3])),
        InputRecipe("x", TensorRecipe((4,), "uniform", [0.1, 0.9])),
        InputRecipe("x", TensorRecipe((4,), "kind", "mask")),
        InputRecipe("x", TensorRecipe((4, 4), "kind", "spd", symmetric=True)),
        InputRecipe("x", TensorRecipe(None, "values", [[1.5, 2.0]])),
        InputRecipe("x", TensorRecipe((2,), dtype="complex128")),
        InputRecipe("x", TensorRecipe((2,), requires_grad=False)),
        InputRecipe("x", TensorRecipe(None, "values", [1, 2], dtype="int64")),
        InputRecipe("x", tensors=(TensorRecipe((2,)), TensorRecipe((3,)))),
    ],
    ids=lambda recipe: repr(recipe)[:60],
)
def test_tensors_are_read_back_as_they_were_proposed(tmp_path, recipe):
    [case] = read(tmp_path, text(Proposal("my_ops:Op", (recipe,))))
    # Lists and tuples alike
    assert [to_json(each) for each in case.inputs[0].recipes] == [
        to_json(each) for each in recipe.recipes
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -3,
        1e-5,
        0.1,
        1e300,
        math.inf,
        -math.inf,
        "mean",
        "no",
        "true",
        "null",
        "",
        "a: b",
        "# x",
        "[x]",
        "é",
        "1e-5",
        "two words",
        "it's",
        'a "b"',
        "back\\slash",
        "- x",
        [1, 2],
        [[0.5], []],
        ["mean", None],
        "ends:",
    ],
)
def test_plain_values_are_read_back_as_they_were_proposed(tmp_path, value):
    [case] = read(tmp_path, text(Proposal("my_ops:Op", (X, InputRecipe("n", value=value)))))
    read_back = case.inputs[1].value
    assert read_back == value and type(read_back) is type(value)


def test_arguments_by_keyword_and_those_that_build_a_module(tmp_path):
    keywords = (InputRecipe("shift", TensorRecipe((2,))), InputRecipe("mode", value="mean"))
    written = text(
        Proposal(
            "my_ops:Op",
            (X,),
            keywords,
            {"dim": 4},
            remarks={"x": "seen"},
            dtype="float32",
            note="Not quite.",
        )
    )
    [case] = read(tmp_path, written)
    assert (
        case.settings.dtype == "float32" and "# seen\n" in written and "  # Not quite.\n" in written
    )
    assert (case.init, case.kwargs, [each.name for each in case.keywords]) == (
        {"dim": 4},
        {"mode": "mean"},
        ["shift"],
    )


def test_varied_values_are_every_combination_also_where_they_are_called_as_settings_are(tmp_path):
    inputs = (X, *(InputRecipe(name, value=0) for name in ("mode", "n", "eps", "exclude")))
    varied = {"mode": ("sum", "mean"), "n": (1, 2), "eps": (0.5, 1.0), "exclude": (True, False)}
    cases = read(tmp_path, text(Proposal("my_ops:Op", inputs, varied=varied)))
    assert {tuple(each.value for each in case.inputs[1:]) for case in cases} == {
        (mode, n, eps, exclude)
        for mode in ("sum", "mean")
        for n in (1, 2)
        for eps in (0.5, 1.0)
        for exclude in (True, False)
    }
    assert {case.settings.eps for case in cases} == {"auto"} and {
        case.settings.mode for case in cases
    } == {"auto"}


def test_optional_arguments_have_a_check_without_them(tmp_path):
    inputs = (X, InputRecipe("bias", TensorRecipe((3,))))
    cases = read(tmp_path, text(Proposal("my_ops:Op", inputs, left_out=("bias",))))
    assert [(case.name, case.inputs[1].tensor is None, case.inputs[1].value) for case in cases] == [
        ("Op", False, None),
        ("Op without bias", True, None),
    ]


def test_what_does_not_run_is_a_comment_that_is_a_check_once_uncommented(tmp_path):
    written = text(Proposal("my_ops:Op", (X,), missing="nothing fits"))
    assert read(tmp_path, written) == () and "TODO Op (my_ops.py:3): nothing fits." in written
    lines = written.replace("checks: []      # none runs yet: see below", "checks:").splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("  # - function"))
    uncommented = lines[:place] + [line.replace("  # ", "  ", 1) for line in lines[place:]]
    assert [case.name for case in read(tmp_path, "\n".join(uncommented))] == ["Op"]


def test_what_to_do_about_it_is_written_once(tmp_path):
    written = text(Proposal("my_ops:Op", (X,), missing="name its surrogate", advised=True))
    assert read(tmp_path, written) == ()
    assert "TODO Op (my_ops.py:3): name its surrogate.\n" in written and "Give" not in written


@pytest.mark.parametrize("missing", [None, "nothing fits"])
def test_only_calls_that_were_tried_are_said_to_have_refused_float64(missing):
    entry = Entry("my_ops:Op", "", Proposal("my_ops:Op", (X,), dtype="float32", missing=missing))
    for recorded in (False, True):
        written = spec_of([entry], recorded=recorded)
        assert "dtype: float32" in written
        assert ("it refused float64" in written) is not recorded


def test_a_file_may_hold_both_and_functions_of_one_name(tmp_path):
    entries = [
        Entry("a:Op", "", Proposal("a:Op", (X,))),
        Entry("a:Layer.Op", "", Proposal("a:Layer.Op", (X,))),
        Entry("a:Other", "", Proposal("a:Other", missing="no:\n# 'way' {")),
    ]
    written = scaffold("a.py", "../gradverify.schema.json", entries, ["../src"], ["a.ext"])
    (tmp_path / "specs").mkdir()
    (tmp_path / "src").mkdir()
    assert [case.name for case in read(tmp_path / "specs", written)] == ["Op", "Layer.Op"]
    assert written.startswith("# yaml-language-server: $schema=../gradverify.schema.json\n")


@pytest.mark.parametrize(
    "text", ["\x7f", "\x85", "\ud800", "\uffff", "\u2028", "😀", "x: y", "a #b", "~", "'\"\\"]
)
def test_any_text_is_read_back_as_it_was(text):
    assert yaml.load(_flow([text, 1]), Loader=Loader12) == [text, 1]
