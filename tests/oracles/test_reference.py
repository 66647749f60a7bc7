import pytest
import torch
from live import Oracles, check, codes, fixed, message, randn, subject

from gradverify.evidence import Evidence
from gradverify.numerics.pairs.pair import Outcome
from oracles import handmade

HERE = "oracles.handmade"


def checked(name, function=handmade.standard_score, *values):
    return check(
        function,
        *(values or (randn(5),)),
        oracles=Oracles(reference=f"{HERE}:{name}" if ":" not in name else name),
    )


def test_a_right_reference_agrees_in_values_and_gradients():
    result = checked("reference")
    assert (result.verdict, codes(result)) == ("pass", set())
    (compared,) = (each for each in result.comparisons if each.rule == "GV106")
    assert compared.elements == 25


def test_wrong_values_are_told_as_values():
    result = checked("reference_with_wrong_values")
    assert "GV105" in codes(result)
    assert f"reference {HERE}:reference_with_wrong_values" in message(result, "GV105")


def test_a_wrong_gradient_with_right_values_is_told_as_a_gradient():
    assert codes(checked("reference_with_wrong_gradient")) == {"GV106"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reference_of_another_shape", "[5], the reference [1, 5]"),
        ("reference_of_another_type", "complex128"),
    ],
)
def test_another_shape_or_type_is_a_finding_of_the_values_and_no_gradient_is_compared(name, said):
    result = checked(name)
    assert codes(result) == {"GV105"}
    assert said in message(result, "GV105")
    assert not any(each.rule == "GV106" for each in result.comparisons)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("reference_that_raises", "GV002", "no such case"),
        ("reference_whose_backward_raises", "GV003", "no gradient"),
        ("reference_without_outputs", "GV002", "returned 0 outputs"),
    ],
)
def test_a_reference_that_fails_is_blamed_as_the_reference(name, code, said):
    result = checked(name)
    assert (result.verdict, codes(result)) == ("error", {code})
    assert f"reference {HERE}:{name}" in message(result, code)
    assert said in message(result, code)


def test_a_reference_that_writes_into_its_arguments_does_not_damage_the_check():
    live = subject(
        lambda x, index: x * (index + 1),
        randn(3),
        fixed(torch.tensor([0, 0, 0])),
        oracles=Oracles(reference=f"{HERE}:reference_that_writes"),
    )
    before = live.inputs[0].clone()
    seen = Evidence(live)
    assert all(tally.count(Outcome.MISMATCH) == 0 for tally in seen.reference.rows.values())
    assert torch.equal(live.inputs[0], before)


def test_an_infinity_in_both_is_left_out_and_the_worst_element_keeps_its_place():
    mask = torch.tensor([-torch.inf, 0.0, 0.0], dtype=torch.float64)
    live = subject(
        lambda x: x + mask,
        randn(3),
        oracles=Oracles(reference="oracles.test_reference:masked_and_wrong_at_the_end"),
    )
    tally = Evidence(live).reference.value_pairs[0]
    assert (tally.compared, tally.count(Outcome.MISMATCH)) == (2, 1)
    assert tally.worst[0].output_index == 2


def masked_and_wrong_at_the_end(x):
    return x + torch.tensor([-torch.inf, 0.0, 1e-3], dtype=torch.float64)


def test_a_nan_in_the_function_alone_is_no_agreement():
    live = subject(
        lambda x: torch.where(x > 1e9, x, x * torch.nan),
        randn(2),
        oracles=Oracles(reference="torch:clone"),
    )
    assert Evidence(live).reference.value_pairs[0].count(Outcome.PASS) == 0
