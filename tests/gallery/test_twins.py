"""Every file of the gallery: one fault, its right twin by torch's own measure, a text that explains
both, and a spec that holds both."""

from __future__ import annotations

import inspect
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError
from torch.library import CustomOpDef

from gallery.twins import GALLERY, call, inputs, load, names
from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.model.report import OK, WRONG


@pytest.mark.parametrize("name", names())
def test_the_text_says_what_is_wrong_and_how_to_repair_it(name):
    module = load(name)
    for twin in (module.Faulty, module.Right):
        made_of = twin._init_fn if isinstance(twin, CustomOpDef) else twin
        assert (
            made_of is not twin or issubclass(twin, (Function, nn.Module))
        ) and made_of.__module__ == module.__name__
    title, explanation = inspect.getdoc(module).split("\n\n", 1)
    assert title.endswith(".") and len(title) <= 150
    assert "Repair:" in explanation and 2 <= explanation.count(".") <= 9


# ---- by torch's own measure
# For gradcheck, that is: a kink at its inputs; random
NO_DERIVATIVE = ("counts_both_branches", "draws_from_its_own_generator")
SPARSE = "swaps_sparse_indices"  # gradcheck is told of its elements by their values
SMOOTH = [name for name in names() if name not in (*NO_DERIVATIVE, SPARSE)]
OTHER_FORWARD = (
    "forgets_the_offset",
    "averages_over_features",
    "draws_from_its_own_generator",
    "computes_in_float32",
    "forgets_its_gain",
)
# Squares of a hundred whose difference is one
CANCELS = {"subtracts_squares_in_tf32": 1e-12}
REJECTED = (
    "drops_factor",
    "flips_sign",
    "transposes_gradient",
    "sums_instead_of_mean",
    "keeps_one_broadcast_slice",
    "swaps_gradients",
    "shifts_by_one",
    "wrong_at_the_border",
    "misses_conjugate",
    "forgets_second_gradient",
)
PASSED = (
    "takes_grad_output_for_contiguous",
    "takes_input_for_contiguous",
    "skips_weight_with_its_input",
    "keeps_its_mask_on_the_class",
    "saves_without_a_version",
    "returns_what_it_saved",
    "overwrites_repeated_rows",
    "casts_under_autocast",
    "forgets_in_float32",
    "asks_grad_output_for_a_number",
    "forgets_its_gain",
    "jvp_forgets_a_tangent",
    "vmap_ignores_in_dims",
)
SECOND_ORDER = (
    "keeps_an_intermediate",
    "detaches_in_backward",
    "reads_data_in_backward",
    "backward_without_grad",
)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_right_twin_is_right_to_second_order(name):
    assert gradcheck(call(load(name).Right), inputs(name), atol=1e-7, rtol=1e-6)
    assert gradgradcheck(call(load(name).Right), inputs(name), atol=1e-6)


def test_the_right_twin_of_a_sparse_input_passes_gradcheck():
    sparse, dense = (x.detach() for x in inputs(SPARSE))
    values = sparse.values().clone().requires_grad_()
    b = dense.clone().requires_grad_()
    right = load(SPARSE).Right
    assert gradcheck(
        lambda v, b: right.apply(
            torch.sparse_coo_tensor(sparse.indices(), v, sparse.shape, is_coalesced=True), b
        ),
        (values, b),
    )


@pytest.mark.parametrize("name", REJECTED)
def test_a_wrong_jacobian_is_wrong_for_gradcheck_too(name):
    with pytest.raises(GradcheckError, match="mismatch"):
        gradcheck(call(load(name).Faulty), inputs(name))


@pytest.mark.parametrize("name", (*PASSED, *SECOND_ORDER))
def test_what_rules_find_beyond_that_gradcheck_passes(name):
    assert gradcheck(call(load(name).Faulty), inputs(name))
    if name in SECOND_ORDER:
        with pytest.raises((GradcheckError, RuntimeError)):
            gradgradcheck(call(load(name).Faulty), inputs(name))


@pytest.mark.parametrize("name", names())
def test_the_twins_agree_in_their_values_and_the_right_one_writes_to_nothing(name):
    """The fault is in backward, except in the files whose fault is in forward."""
    module, given = load(name), inputs(name)
    before = [value.clone() if isinstance(value, Tensor) else value for value in given]
    output = call(module.Right)(*given)
    outputs = output if isinstance(output, tuple) else (output,)
    grad_outputs = [torch.full_like(each, -1.5) for each in outputs]
    torch.autograd.backward(outputs, grad_outputs)
    assert all(
        torch.equal(grad_output, torch.full_like(grad_output, -1.5)) for grad_output in grad_outputs
    )
    assert all(
        torch.equal(a.to_dense(), b.to_dense()) if isinstance(a, Tensor) else a == b
        for a, b in zip(before, given, strict=True)
    )
    if name not in OTHER_FORWARD:
        torch.testing.assert_close(
            call(module.Faulty)(*inputs(name)),
            call(module.Right)(*inputs(name)),
            rtol=1e-15,
            atol=CANCELS.get(name, 1e-15),
        )


# ---- the specs
def checks(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))["checks"]


def conditions(check: dict[str, Any]) -> dict[str, Any]:
    """Everything but the name, the twin and what is expected of it."""
    return {key: value for key, value in check.items() if key not in ("name", "function", "expect")}


@pytest.mark.parametrize("file", sorted(GALLERY.glob("gv[12]*.yaml")), ids=lambda file: file.stem)
def test_a_rules_spec_is_faults_beside_their_right_twins_on_the_same_inputs(file):
    every = checks(file)
    for faulty, right in zip(every[::2], every[1::2], strict=True):
        module = faulty["function"].partition(".py:")[0]
        assert (faulty["function"], right["function"]) == (
            f"{module}.py:Faulty",
            f"{module}.py:Right",
        )
        assert faulty["expect"] == [f"GV{file.stem[2:5]}"] and "expect" not in right
        assert conditions(faulty) == conditions(right)


def test_every_file_of_the_gallery_is_checked_by_a_spec_both_faulty_and_right():
    for file in GALLERY.glob("gv0*.yaml"):  # what cannot be judged
        assert {code for check in checks(file) for code in check.get("expect", ())} == {
            f"GV{file.stem[2:5]}"
        }
    used = {check["function"] for file in GALLERY.glob("*.yaml") for check in checks(file)}
    assert {f"{name}.py:{twin}" for name in names() for twin in ("Faulty", "Right")} <= used


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("gv224_saved_unused", (), OK),
        ("gv224_saved_unused", ("--strict",), WRONG),
        ("gv202_grad_output_modified", (), WRONG),
    ],
)
def test_a_spec_without_its_expectation_is_red_on_the_command_line(
    tmp_path: Path, name: str, options: tuple[str, ...], code: int
):
    text = (
        (GALLERY / f"{name}.yaml")
        .read_text(encoding="utf-8")
        .replace("function: ", f"function: {GALLERY}/")
    )
    bare = "\n".join(line for line in text.splitlines() if not line.strip().startswith("expect:"))
    (tmp_path / "without.yaml").write_text(bare)
    assert bare != text
    assert (
        run(
            Output(
                ("check", "--no-progress", str(tmp_path / "without.yaml"), *options),
                StringIO(),
                StringIO(),
            )
        )
        == code
    )
