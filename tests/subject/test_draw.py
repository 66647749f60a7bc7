"""What a recipe draws: by seed, check and input alone, with the structure and the distances that it
names; and what cannot be drawn, with the input it is of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.model.case import TensorRecipe
from gradverify.subject.draw import draw, generator
from gradverify.subject.failure import UserCodeError

CPU = torch.device("cpu")
UNIT = dict(draw="uniform", arguments=(0.0, 1.0))


def drawn(seed=0, check="check", name="x", default="float64", **recipe):
    source = generator(seed, check, name)
    return draw(TensorRecipe(**recipe), default, CPU, source, f"inputs.{name}")


def kind(what, *shape, **changes):
    return drawn(shape=shape, draw="kind", arguments=what, **changes)


def test_draws_depend_on_seed_check_and_input_and_on_nothing_else():
    first = drawn(shape=(50,))
    torch.randn(3)
    assert torch.equal(first, drawn(shape=(50,)))
    for other in (dict(seed=1), dict(check="other"), dict(name="y")):
        assert not torch.equal(first, drawn(shape=(50,), **other))


@pytest.mark.parametrize("how", ["normal", "uniform", "linspace"])
def test_every_dtype_sees_the_same_numbers_and_none_is_of_the_global_stream(how):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    recipe = dict(shape=(20,), draw=how, arguments=(0.0, 1.0))
    double = drawn(**recipe)
    assert torch.equal(drawn(dtype="float32", **recipe), double.float())
    assert torch.equal(drawn(default="float32", **recipe), double.float())
    assert torch.equal(torch.rand(2), expected)


def test_draws_have_the_distribution_they_name():
    normal = drawn(shape=(4000,), arguments=(3.0, 2.0))
    assert normal.mean().item() == pytest.approx(3, abs=0.15)
    assert normal.std().item() == pytest.approx(2, abs=0.15)
    uniform = drawn(shape=(4000,), draw="uniform", arguments=(-1.0, 3.0))
    assert -1 <= uniform.min() < -0.95 and 2.95 < uniform.max() < 3
    integers = drawn(shape=(200,), draw="integers", arguments=(2, 5))
    assert (integers.dtype, set(integers.tolist())) == (torch.int64, {2, 3, 4})
    z = drawn(shape=(50,), dtype="complex128")
    assert z.is_complex() and not torch.equal(z.real, z.imag)


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        (dict(shape=(2, 2), draw="linspace", arguments=(0.0, 3.0)), [[0, 1], [2, 3]]),
        (dict(shape=(2,), draw="fill", arguments=1.5), [1.5, 1.5]),
        (dict(draw="values", arguments=[[1, 2], [3, 4.5]]), [[1, 2], [3, 4.5]]),
        (dict(draw="values", arguments=["1+2j", "-3j"], dtype="complex128"), [1 + 2j, -3j]),
        (dict(draw="values", arguments=["inf", "-inf"]), [float("inf"), float("-inf")]),
        (dict(draw="values", arguments=0.1), 0.1),
        (dict(shape=(0, 3)), []),
    ],
)
def test_given_numbers_come_out_as_they_are(recipe, wanted):
    assert drawn(**recipe).tolist() == wanted


@pytest.mark.parametrize(("avoid", "dtype"), [((0.0, 1.0), "float64"), ((0.0,), "complex128")])
def test_avoided_values_are_kept_away_from(avoid, dtype):
    tensor = drawn(shape=(500,), avoid=avoid, margin=0.2, dtype=dtype)
    assert all(bool(((tensor - value).abs() >= 0.2).all()) for value in avoid)
    assert (drawn(shape=(500,), dtype=dtype) == tensor).sum() > 200  # the others stay as drawn


# ---- files
def test_arrays_and_tensors_load_from_files(tmp_path):
    np.save(tmp_path / "one.npy", np.array([[1.5, 2.5]]))
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.arange(3))
    torch.save(torch.tensor([1.5, 2.5]), tmp_path / "tensor.pt")
    torch.save({"w": torch.tensor([3.5])}, tmp_path / "dict.pt")

    def file(name, **changes):
        return drawn(draw="file", arguments=f"{tmp_path}/{name}", **changes)

    assert file("one.npy").tolist() == [[1.5, 2.5]] and file("two.npz#a").tolist() == [1, 1]
    assert file("two.npz#b").dtype == torch.int64
    assert file("two.npz#b", dtype="float64").dtype == torch.float64
    assert file("tensor.pt").dtype == torch.float64 and file("dict.pt#w").tolist() == [3.5]


class Explodes:
    def __reduce__(self):
        return (print, ("a file must not run code",))


def test_a_file_that_does_not_fit_is_refused_with_the_input_named_and_runs_no_code(
    tmp_path, capsys
):
    np.save(tmp_path / "bad.npy", np.array([Explodes()], dtype=object), allow_pickle=True)
    torch.save(Explodes(), tmp_path / "bad.pt")
    np.savez(tmp_path / "two.npz", a=np.ones(1), b=np.ones(1))
    np.save(tmp_path / "complex.npy", np.array([1 + 2j]))
    torch.save([1, 2], tmp_path / "list.pt")
    said_of = {
        "two.npz": "two.npz#a",
        "two.npz#c": "'a', 'b'",
        "complex.npy": "complex",
        "list.pt": "list",
        "none.npy": "none.npy",
        "bad.npy": "allow_pickle",
        "bad.pt": "",
    }
    for name, said in said_of.items():
        with pytest.raises(UserCodeError, match="inputs") as caught:
            drawn(draw="file", arguments=f"{tmp_path}/{name}")
        assert said in caught.value.message and caught.value.code == "GV001"
    assert capsys.readouterr().out == ""


# ---- distances
def smallest(x):
    flat = x.reshape(-1)
    return float(((flat[:, None] - flat[None, :]).abs() + torch.eye(len(flat)) * 1e9).min())


@pytest.mark.parametrize(
    "recipe",
    [
        dict(shape=(20, 20)),
        dict(shape=(20, 20), dtype="float32"),
        dict(shape=(100,), dtype="complex128"),
        dict(shape=(300,), avoid=(0.0, 0.5), margin=0.2),
        dict(shape=(11,), draw="uniform", arguments=(0.0, 0.5)),
        dict(shape=(10,), draw="uniform", arguments=(-1.0, 1.0), avoid=(0.0,), margin=0.5),
        dict(shape=(5,), draw="choice", arguments=[0.0, 1.0, 2.0, 3.0, 4.0]),
    ],
)
def test_all_elements_keep_their_distance_and_off_what_is_avoided(recipe):
    x = drawn(distinct=0.05, **recipe)
    assert smallest(x) >= 0.05 * 0.99 and x.std() > 0.1
    for value in recipe.get("avoid", ()):
        assert (x - value).abs().min() >= recipe["margin"] * (1 - 1e-6)
    if recipe.get("draw") == "uniform":
        low, high = recipe["arguments"]
        assert low <= x.min() and x.max() <= high * (1 + 1e-6)


def test_integers_as_many_as_there_are_come_once_each():
    x = drawn(shape=(6,), draw="integers", arguments=(0, 6), distinct=1.0)
    assert sorted(x.tolist()) == [0, 1, 2, 3, 4, 5] and x.dtype == torch.int64
    wide = drawn(shape=(3,), draw="integers", arguments=(0, 10), distinct=3.5)
    assert smallest(wide.double()) >= 4


# ---- structure
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_structured_matrices(dtype):
    h = drawn(shape=(3, 4, 4), symmetric=True, dtype=dtype)
    assert torch.equal(h, h.mH) and (dtype == "float64" or not torch.equal(h, h.mT))
    a = kind("spd", 5, 4, 4, dtype=dtype)
    assert torch.equal(a, a.mH) and torch.linalg.eigvalsh(a).min() >= 0.5 - 1e-12
    assert not torch.equal(a[0], a[1])
    for shape in ((3, 4, 4), (6, 4), (4, 6)):
        q = kind("orthogonal", *shape, dtype=dtype)
        gram = q @ q.mH if shape[-1] > shape[-2] else q.mH @ q
        assert torch.allclose(gram, torch.eye(4, dtype=gram.dtype).expand_as(gram), atol=1e-12)
    lower = kind("lower_triangular", 3, 4, 4, dtype=dtype)
    assert torch.equal(lower, lower.tril()) and (lower.tril(-1) != 0).sum() == 18
    assert lower.diagonal(dim1=-2, dim2=-1).abs().min() >= 0.5
    u = kind("unit_vector", 5, 3, dtype=dtype)
    assert torch.allclose(u.abs().square().sum(-1), torch.ones(5, dtype=torch.float64))


def test_rows_that_are_probabilities_choices_or_masks():
    p = kind("simplex", 5, 3)
    assert p.min() > 0 and torch.allclose(p.sum(-1), torch.ones(5, dtype=torch.float64))
    order = kind("permutation", 6, 5, default="float32")
    assert order.dtype == torch.int64 and len({tuple(row.tolist()) for row in order}) > 1
    assert torch.equal(order.sort(-1).values, torch.arange(5).expand(6, 5))
    hot = kind("one_hot", 20, 4)
    assert hot.dtype == torch.float64 and set(hot.unique().tolist()) == {0.0, 1.0}
    assert bool((hot.sum(-1) == 1).all()) and len(hot.argmax(-1).unique()) > 1
    mask = kind("mask", 200, 3)
    assert mask.dtype == torch.bool and bool(mask.any(-1).all())
    assert 0.4 < mask.double().mean() < 0.75


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (dict(shape=(3,), **UNIT, avoid=(0.5,), margin=0.9), "no draw keeps a margin"),
        (dict(shape=(30,), **UNIT, avoid=(0.5,), margin=0.4, distinct=0.1), r"inputs\.x"),
        (dict(shape=(5,), draw="choice", arguments=[1.0, 2.0], distinct=0.1), r"inputs\.x"),
        (dict(draw="values", arguments=[1.0, 1.0], distinct=0.1), r"inputs\.x"),
        (dict(draw="values", arguments=[[1.0, 2.0], [3.0, 4.0]], symmetric=True), "not symmetric"),
        (dict(shape=(2,), symmetric=True), "square"),
        (dict(shape=(50,), domain=(0.0, 10.0)), "lie in the domain"),
        (dict(shape=(10**6, 10**6, 10**6)), r"inputs\.x: making the tensor"),
    ],
)
def test_what_cannot_be_is_said(recipe, said):
    with pytest.raises(UserCodeError, match=said) as caught:
        drawn(**recipe)
    assert caught.value.code == "GV001"
