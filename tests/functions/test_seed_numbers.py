"""The seed specs hold exactly the numbers that the project grew from, and plain torch autograd reproduces them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from gradverify.functions.catalogue import BUILTINS

SEEDS = Path(__file__).parents[2] / "specs" / "seeds"
FILES = sorted(SEEDS.glob("*.yaml"))


def checks(file: str) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((SEEDS / f"{file}.yaml").read_text(encoding="utf-8"))
    return {check["name"]: check for check in document["checks"]}


def setting(check: dict[str, Any], name: str) -> float | None:
    """A number, also where YAML 1.1 reads `1e-6` as a string."""
    return float(check[name]) if name in check else None


def plain() -> Any:
    spec = importlib.util.spec_from_file_location("plain", SEEDS / "plain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensor(numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_every_builtin_has_a_seed_and_every_seed_names_only_builtins():
    used = {check["function"] for file in FILES for check in checks(file.stem).values()}
    assert used == set(BUILTINS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_seed_file_is_about_one_builtin_and_names_its_inputs_as_the_code_does(file):
    seeds = list(checks(file.stem).values())
    assert len({check["function"] for check in seeds}) == 1
    parameters = BUILTINS[seeds[0]["function"]].parameters
    for check in seeds:
        assert tuple(check["inputs"]) == parameters[:len(check["inputs"])]


def test_linear_holds_the_tutorials_numbers():
    both = checks("linear")
    given, unbiased = both["linear, the tutorial's numbers"], both["linear without bias, the tutorial's numbers"]
    for check in (given, unbiased):
        assert check["inputs"]["input"] == {"values": [[2.0, 1.5, 2.5], [1.0, 2.0, 3.0]]}
        assert check["inputs"]["weight"] == {"values": [[3.0, 2.0, 3.5], [1.0, 2.0, 3.0]]}
        assert (setting(check, "eps"), setting(check, "atol")) == (1e-6, 1e-4)
    assert given["inputs"]["bias"] == {"values": [0.1, 0.2]}
    assert unbiased["inputs"]["bias"] is None


def test_linear_is_checked_without_bias_with_a_fixed_input_and_against_autograd():
    every = checks("linear").values()
    assert any(check["inputs"]["bias"] is None and "shape" in check["inputs"]["input"] for check in every)
    assert any(check["inputs"]["input"].get("requires_grad") is False for check in every)
    assert any(check.get("reference") == "plain.py:linear" for check in every)


def test_kill_head_is_10_by_20_with_4_columns_cleared():
    check = checks("kill_head")["kill_head"]
    assert check["inputs"] == {"input": {"shape": [10, 20], "uniform": [-1, 1]}, "n": 4}
    assert (setting(check, "eps"), setting(check, "atol")) == (1e-6, 1e-4)


def test_matrix_products_have_the_notebooks_sizes():
    assert checks("mm")["mm, every element"]["inputs"] == {"x": {"shape": [32, 128]}, "w": {"shape": [128, 10]}}
    affine = checks("affine")["affine against autograd of x @ W + b"]
    assert affine["inputs"] == {"x": {"shape": [32, 128]}, "w": {"shape": [128, 10]}, "b": {"shape": [10]}}
    assert affine["reference"] == "plain.py:affine"


@pytest.mark.parametrize("name", ["add", "mul"])
def test_broadcasting_is_checked_at_32_by_10_and_10(name):
    assert any(check["inputs"] == {"x": {"shape": [32, 10]}, "y": {"shape": [10]}} for check in checks(name).values())


def test_mul_add_sum_is_3_by_4_against_numpy_and_against_autograd():
    every = checks("mul_add_sum").values()
    square = [check for check in every if check["inputs"]["x"] == {"shape": [3, 4]}]
    assert any(check.get("gradient") == "plain.py:mul_add_sum_gradient" for check in square)
    assert any(check.get("reference") == "plain.py:mul_add_sum" for check in square)


def test_no_seed_is_skipped_and_two_sit_on_a_kink():
    assert not [name for file in FILES for name, check in checks(file.stem).items() if "skip" in check]
    assert 0.0 in checks("relu")["relu at 0"]["inputs"]["input"]["values"]
    assert 0.0 in checks("abs_mul")["abs_mul at the kink"]["inputs"]["u"]["values"]


def test_random_inputs_of_kinked_functions_keep_away_from_the_kink():
    drawn = [recipe for name in ("relu", "abs_mul") for check in checks(name).values() for recipe in check["inputs"].values() if "shape" in recipe]
    assert len(drawn) == 3
    assert all(recipe["avoid"] == 0 for recipe in drawn)


def test_the_shop_holds_the_textbooks_numbers():
    two, three = checks("shop")["two apples"], checks("shop")["two apples and three tangerines"]
    assert two["inputs"] == {"apple": {"values": 100.0}, "n1": {"values": 2.0}, "tangerine": None, "n2": None, "tax": {"values": 1.1}}
    assert two["expected"] == {"apple": 2.2, "n1": 110, "tax": 200}
    assert three["inputs"] == {"apple": {"values": 100.0}, "n1": {"values": 2.0}, "tangerine": {"values": 150.0}, "n2": {"values": 3.0},
                               "tax": {"values": 1.1}}
    assert three["expected"] == {"apple": 2.2, "tangerine": 3.3, "n1": 110, "n2": 165, "tax": 650}


@pytest.mark.parametrize("name", ["two apples", "two apples and three tangerines"])
def test_plain_autograd_gives_the_shops_gradients(name):
    check = checks("shop")[name]
    values = {key: tensor(recipe["values"]) for key, recipe in check["inputs"].items() if recipe}
    bill = values["apple"] * values["n1"]
    if "tangerine" in values:
        bill = bill + values["tangerine"] * values["n2"]
    (bill * values["tax"]).backward()
    assert {key: value.grad.item() for key, value in values.items()} == pytest.approx(check["expected"], rel=1e-15)


def test_the_hand_written_gradients_are_those_of_autograd():
    module = plain()
    x, y, z = (tensor(np.random.default_rng(seed).normal(size=(3, 4))) for seed in range(3))
    arrays = [value.detach().numpy() for value in (x, y, z)]
    by_hand = module.mul_add_sum_gradient(*arrays, np.float64(-1.5))
    by_torch = torch.autograd.grad(module.mul_add_sum(x, y, z), (x, y, z), torch.tensor(-1.5, dtype=torch.float64))
    np.testing.assert_allclose(by_hand, [gradient.numpy() for gradient in by_torch], rtol=1e-15)
    by_hand = module.square_of_sum_gradient(*arrays[:2], arrays[2])
    by_torch = torch.autograd.grad((x + y) ** 2, (x, y), z.detach())
    np.testing.assert_allclose(by_hand, [gradient.numpy() for gradient in by_torch], rtol=1e-15)
