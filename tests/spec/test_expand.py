from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.model.case import Case, InputRecipe, TensorRecipe
from gradverify.model.codec import from_json, to_json
from spec.marked import HEAD, check, loaded


def cases(text: str, folder: Path) -> tuple[Case, ...]:
    result = loaded(text, folder)
    assert result.problems == (), "\n".join(map(str, result.problems))
    return result.cases


def one(text: str, folder: Path) -> Case:
    (case,) = cases(text, folder)
    return case


def recipe(text: str, folder: Path) -> TensorRecipe:
    tensor = (
        one(check(f"inputs: {{x: {text}, y: 1}}", "dtype: complex128"), folder).inputs[0].tensor
    )
    assert tensor is not None
    return tensor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{shape: [2, 3]}", TensorRecipe((2, 3), "normal", [0.0, 1.0])),
        ("{shape: []}", TensorRecipe((), "normal", [0.0, 1.0])),
        ("{shape: [0, 3]}", TensorRecipe((0, 3), "normal", [0.0, 1.0])),
        ("{shape: [2], normal: [1, 2]}", TensorRecipe((2,), "normal", [1.0, 2.0])),
        ("{shape: [2], uniform: [-1, 1]}", TensorRecipe((2,), "uniform", [-1.0, 1.0])),
        ("{shape: [2], integers: [0, 5]}", TensorRecipe((2,), "integers", [0, 5])),
        (
            "{shape: [2], integers: [0, 5], dtype: float64, requires_grad: true}",
            TensorRecipe((2,), "integers", [0, 5], dtype="float64", requires_grad=True),
        ),
        ("{shape: [3], linspace: [-1, 1]}", TensorRecipe((3,), "linspace", [-1.0, 1.0])),
        ("{shape: [2], fill: 0}", TensorRecipe((2,), "fill", 0)),
        ("{shape: [2], fill: '1-2j'}", TensorRecipe((2,), "fill", "1-2j")),
        ("{values: [[1, 2.5]]}", TensorRecipe(None, "values", [[1, 2.5]])),
        ("{values: 3}", TensorRecipe(None, "values", 3)),
        ("{values: ['1e-3+2j', 4]}", TensorRecipe(None, "values", ["1e-3+2j", 4])),
        ("{values: [0, 2], dtype: int64}", TensorRecipe(None, "values", [0, 2], dtype="int64")),
        ("{values: [1], shape: [1]}", TensorRecipe(None, "values", [1])),
        ("{shape: [2], avoid: 0}", TensorRecipe((2,), "normal", [0.0, 1.0], avoid=(0.0,))),
        (
            "{shape: [2], avoid: [0, 1], margin: 0.2}",
            TensorRecipe((2,), "normal", [0.0, 1.0], avoid=(0.0, 1.0), margin=0.2),
        ),
        (
            "{shape: [2], requires_grad: false, dtype: float32}",
            TensorRecipe((2,), "normal", [0.0, 1.0], dtype="float32", requires_grad=False),
        ),
    ],
)
def test_a_tensor_becomes_its_recipe(text: str, expected: TensorRecipe, tmp_path: Path) -> None:
    assert recipe(text, tmp_path) == expected


def test_files_and_their_keys_become_absolute(tmp_path: Path) -> None:
    for name in ("d.npy", "d.npz", "d.pt"):
        (tmp_path / name).write_text("")
    for text in ("d.npy", "d.npz#key", "d.pt"):
        assert recipe(f"{{file: {text}}}", tmp_path) == TensorRecipe(
            None, "file", str(tmp_path / text)
        )


def test_values_that_are_no_mappings_are_passed_as_they_are(tmp_path: Path) -> None:
    case = one(
        HEAD
        + (
            "  - {function: my.ops:f, inputs: {a: 4, b: -1.5, c: null, d: true, e: mean, f: [2, "
            "3], g: 1e-5}}"
        ),
        tmp_path,
    )
    assert case.inputs == tuple(
        InputRecipe(name, value=value)
        for name, value in {
            "a": 4,
            "b": -1.5,
            "c": None,
            "d": True,
            "e": "mean",
            "f": [2, 3],
            "g": 1e-5,
        }.items()
    )


def test_a_plain_list_of_inputs_has_no_names(tmp_path: Path) -> None:
    case = one(HEAD + "  - {function: mul, inputs: [{shape: [2]}, 3]}", tmp_path)
    assert case.inputs == (
        InputRecipe(None, TensorRecipe((2,), "normal", [0.0, 1.0])),
        InputRecipe(None, value=3),
    )


def test_a_check_with_everything_becomes_a_case(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text("")
    (tmp_path / "lib").mkdir()
    case, made = cases(
        "gradverify: 1\npath: lib\nimport: [my_ext]\nchecks:\n  - name: all of it\n    function: "
        "ops.py:Swish\n    inputs: {x: {shape: [2]}}\n"
        "    kwargs: {mode: fast}\n    init: {size: 3}\n    reference: my.plain:swish\n    "
        "gradient: ops.py:back\n    expected: {x: [1, 2]}\n"
        "    eps: 1e-6\n    atol: 1e-4\n    rtol: 0\n    dtype: float32\n    device: cuda:1\n    "
        "seed: 7\n    strict: true\n    outputs: [0]\n"
        "    rules: {select: [GV1], ignore: [GV201]}\n    expect: [GV101]\n    tags: [slow]\n    "
        "skip: later\n    requires: [cuda]\n"
        "    second_order: true\n    forward_ad: false\n    vmap: auto\n"
        "  - {name: made, function: my.ops:Act.Swish, inputs_from: ops.py:inputs}\n",
        tmp_path,
    )
    assert (case.id, case.name, case.check, case.spec.line) == (
        "s.yaml::all of it",
        "all of it",
        "all of it",
        5,
    )
    assert case.target == f"{tmp_path}/ops.py:Swish"
    assert (case.kwargs, case.init) == ({"mode": "fast"}, {"size": 3})
    assert (case.oracles.reference, case.oracles.gradient, case.oracles.expected) == (
        "my.plain:swish",
        f"{tmp_path}/ops.py:back",
        {"x": [1, 2]},
    )
    settings = case.settings
    assert (
        settings.eps,
        settings.atol,
        settings.rtol,
        settings.dtype,
        settings.device,
        settings.seed,
    ) == (1e-6, 1e-4, 0.0, "float32", "cuda:1", 7)
    assert (settings.strict, settings.outputs, settings.select, settings.ignore) == (
        True,
        (0,),
        ("GV1",),
        ("GV201",),
    )
    assert (case.expect, case.tags, case.skip, case.requires) == (
        ("GV101",),
        ("slow",),
        "later",
        ("cuda",),
    )
    assert (case.search.folder, case.search.path, case.search.imports) == (
        str(tmp_path),
        (str(tmp_path / "lib"),),
        ("my_ext",),
    )
    assert (settings.second_order, settings.forward_ad, settings.vmap) == (True, False, "auto")
    assert made.inputs_from == f"{tmp_path}/ops.py:inputs"
    assert from_json(Case, to_json(case)) == case


def test_every_combination_of_a_matrix_is_a_case_with_its_values_in_place(tmp_path: Path) -> None:
    found = cases(
        check(
            "inputs: {x: {shape: [$rows, $width]}, y: {values: [[$width, 0], [1, $rows]]}}",
            "name: op",
            "matrix: {rows: [1, 7], width: [3, 128]}",
        ),
        tmp_path,
    )
    assert [case.name for case in found] == [
        f"op[rows={rows},width={width}]" for rows in (1, 7) for width in (3, 128)
    ]
    assert found[0].id == "s.yaml::op[rows=1,width=3]"
    assert {case.check for case in found} == {"op"}
    tensors = [tuple(recipe.tensor for recipe in case.inputs) for case in found]
    assert [(x.shape, y.arguments) for x, y in tensors if x and y] == [
        ((rows, width), [[width, 0], [1, rows]]) for rows in (1, 7) for width in (3, 128)
    ]


def test_a_variable_named_like_a_setting_sets_it(tmp_path: Path) -> None:
    found = cases(
        check("seed: 5", "matrix: {dtype: [float64, float32], seed: [1, 2], device: [cpu]}"),
        tmp_path,
    )
    assert [(case.settings.dtype, case.settings.seed) for case in found] == [
        ("float64", 1),
        ("float64", 2),
        ("float32", 1),
        ("float32", 2),
    ]
    assert found[-1].name == "mul[dtype=float32,seed=2,device=cpu]"


def test_whole_lists_targets_and_settings_can_be_variables(tmp_path: Path) -> None:
    found = cases(
        HEAD + "  - {name: a, function: $f, inputs: [{shape: $s}, $n], atol: $tol,\n"
        "     matrix: {f: [mul, 'torch:mul'], s: [[], [2, 3]], n: [true], tol: [1e-6]}}",
        tmp_path,
    )
    assert [case.name for case in found] == [
        f"a[f={f},s={s},n=true,tol=1e-6]" for f in ("mul", "torch:mul") for s in ("[]", "[2,3]")
    ]
    tensor = found[3].inputs[0].tensor
    assert found[3].target == "torch:mul" and tensor is not None and tensor.shape == (2, 3)
    assert found[3].inputs[1].value is True and found[3].settings.atol == 1e-6


def test_exclude_drops_combinations_and_true_is_not_one(tmp_path: Path) -> None:
    found = cases(
        check(
            "inputs: [$a, $b]",
            "matrix: {a: [1, true], b: [3, 4], exclude: [{a: 1, b: 3}, {a: true, b: 4}]}",
        ),
        tmp_path,
    )
    assert [case.name for case in found] == ["mul[a=1,b=4]", "mul[a=true,b=3]"]


def test_each_value_of_many_excludes_is_read_once_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradverify.spec import build as expand

    calls, original = [], expand.comparable
    monkeypatch.setattr(expand, "comparable", lambda value: calls.append(value) or original(value))
    numbers = ", ".join(map(str, range(1000)))
    excluded = ", ".join(f"{{a: {number}}}" for number in range(999))
    assert [
        case.name
        for case in cases(
            check("inputs: [$a, 1]", f"matrix: {{a: [{numbers}], exclude: [{excluded}]}}"), tmp_path
        )
    ] == ["mul[a=999]"]
    assert len(calls) <= 4 * 1000


def test_two_dollars_stand_for_one(tmp_path: Path) -> None:
    assert one(
        HEAD + "  - {function: my:f, inputs: {a: $$rows, b: 'costs $5'}}", tmp_path
    ).inputs == (InputRecipe("a", value="$rows"), InputRecipe("b", value="costs $5"))


def test_a_matrix_of_the_defaults_is_every_checks_unless_it_has_its_own(tmp_path: Path) -> None:
    found = cases(
        "gradverify: 1\ndefaults: {matrix: {seed: [1, 2]}}\nchecks:\n  - {function: mul, inputs: "
        "[1, 2]}\n"
        "  - {function: relu, inputs: [1], matrix: {seed: [3]}}\n",
        tmp_path,
    )
    assert [case.name for case in found] == ["mul[seed=1]", "mul[seed=2]", "relu[seed=3]"]


def test_values_too_long_for_a_name_are_shown_by_their_place(tmp_path: Path) -> None:
    found = cases(
        check("inputs: [{values: $v}, 1]", f"matrix: {{v: [{list(range(30))}, [1]]}}"), tmp_path
    )
    assert [case.name for case in found] == ["mul[v=#0]", "mul[v=[1]]"]


def test_the_parameters_of_a_module_may_have_expected_gradients(tmp_path: Path) -> None:
    text = HEAD + (
        "  - {name: a, function: linear, init: {n: 3}, inputs: {input: {shape: [3]}}, "
        "expected: {weight: [1, 2]}}\n"
    )
    assert one(text, tmp_path).oracles.expected == {"weight": [1, 2]}
    assert loaded(text.replace("init: {n: 3}, ", ""), tmp_path).problems
    assert one(text.replace("function: linear", "function: my:net"), tmp_path).oracles.expected == {
        "weight": [1, 2]
    }
