from __future__ import annotations

import pytest
import torch
from live import case, given, plain, tensor

from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import prepare

HERE = "subject.targets"


def prepared(attribute, *inputs, **changes):
    return prepare(
        case(attribute if ":" in attribute else f"{HERE}:{attribute}", inputs, **changes)
    )


def listed(subject):
    return [(a.name, a.value.tolist() if a.is_tensor else a.value) for a in subject.arguments]


def refused(attribute, *inputs, code="GV001", **changes):
    with pytest.raises(UserCodeError) as caught:
        prepared(attribute, *inputs, **changes)
    assert caught.value.code == code
    return caught.value


def test_names_are_bound_by_the_signature_whatever_their_order():
    subject = prepared("plain", plain(3.0, "scale"), given([2.0], "y"), given([1.0], "x"))
    assert listed(subject) == [("x", [1.0]), ("y", [2.0]), ("scale", 3.0)]
    assert subject.called(subject.inputs).outputs[0].tolist() == [-5.0]


def test_trailing_defaults_are_left_out_and_skipped_ones_filled():
    assert listed(prepared("plain", given([2.0], "y"), given([1.0], "x"))) == [
        ("x", [1.0]),
        ("y", [2.0]),
    ]
    assert listed(prepared("Old", given([1.0], "x"))) == [("x", [1.0])]
    conv = prepare(
        case(
            "torch.nn.functional:layer_norm",
            (tensor(2, 3, name="input"), plain([3], "normalized_shape"), tensor(3, name="bias")),
        )
    )
    assert [a.name for a in conv.arguments] == ["input", "normalized_shape", "weight", "bias"]
    assert conv.arguments[2].value is None


def test_equal_recipes_in_a_list_draw_different_numbers():
    x, y = prepared("plain", tensor(4), tensor(4)).inputs
    assert not torch.equal(x, y)


def test_missing_extra_and_misspelt_names_are_told_apart():
    assert "'y' is missing" in refused("plain", tensor(2, name="x"), code="GV002").message
    assert (
        "plain takes (x, y, scale)"
        in refused(
            "plain", tensor(2, name="x"), tensor(2, name="y"), tensor(2, name="zebra"), code="GV002"
        ).message
    )
    error = refused(
        "plain", tensor(2, name="x"), tensor(2, name="y"), plain(1.0, "scael"), code="GV002"
    )
    assert error.message.startswith("inputs.scael")
    assert error.hint == "did you mean 'scale'?"


def test_keyword_arguments_reach_a_callable_but_not_a_function_class():
    subject = prepared("plain", given([1.0]), given([2.0]), kwargs={"shift": 10.0})
    assert subject.called(subject.inputs).outputs[0].tolist() == [7.0]
    assert (
        "positional arguments only"
        in refused("Old", tensor(2), kwargs={"factor": 3.0}, code="GV002").message
    )


def test_floating_tensors_are_differentiated_unless_the_spec_says_no():
    subject = prepared(
        "many",
        tensor(2),
        tensor(2, requires_grad=False),
        tensor(2, draw="integers", arguments=(0, 3)),
        plain(2.0),
        tensor(2, dtype="complex128"),
    )
    assert [a.differentiable for a in subject.arguments] == [True, False, False, False, True]


def test_inputs_from_sees_seed_and_dtype_and_leaves_the_global_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (
        prepared("plain", inputs_from=f"{HERE}:made", seed=seed).inputs for seed in (0, 0, 1)
    )
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0]) and not torch.equal(first[1], other[1])
    assert (
        prepared("plain", inputs_from=f"{HERE}:made", dtype="float32").inputs[0].dtype
        == torch.float32
    )


@pytest.mark.parametrize(
    ("maker", "said"),
    [
        ("made_badly", "returned a int"),
        ("made_not_at_all", "OSError: no data"),
        ("made_in_quarter", "float8_e5m2"),
        ("nowhere", "no attribute 'nowhere'"),
    ],
)
def test_inputs_from_that_does_not_fit_is_blamed(maker, said):
    assert said in refused("plain", inputs_from=f"{HERE}:{maker}").message


def test_a_modules_parameters_are_inputs_under_their_own_names():
    subject = prepared("Layer", tensor(2, name="x"), init={"width": 2})
    assert [(a.name, a.differentiable, a.parameter) for a in subject.arguments] == [
        ("x", True, False),
        ("weight", True, True),
        ("bias", True, True),
        ("frozen", False, True),
    ]
    assert subject.arguments[1].value.tolist() == [1 / 3, 1 / 3]


def test_a_module_that_is_built_has_the_parameters_of_its_seed():
    def weight(seed):
        return (
            prepare(
                case(
                    "torch.nn:Linear",
                    (tensor(2, 3),),
                    init={"in_features": 3, "out_features": 2},
                    seed=seed,
                )
            )
            .arguments[-2]
            .value
        )

    before = torch.get_rng_state()
    assert torch.equal(weight(0), weight(0))
    assert not torch.equal(weight(0), weight(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_parameter_can_be_given_and_must_have_its_shape():
    subject = prepared(
        "Layer", given([3.0, 4.0], "weight"), given([1.0, 1.0], "x"), init={"width": 2}
    )
    assert subject.called(subject.inputs).outputs[0].tolist() == [3.0, 4.0]
    assert (
        "parameter has shape [2]"
        in refused(
            "Layer", tensor(3, name="weight"), tensor(2, name="x"), init={"width": 2}
        ).message
    )
    assert (
        refused(
            "Layer", tensor(2, name="wieght"), tensor(2, name="x"), init={"width": 2}, code="GV002"
        ).hint
        == "did you mean 'weight'?"
    )
