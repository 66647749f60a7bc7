from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.model.case import TensorRecipe
from gradverify.subject.draw import draw, generator
from gradverify.subject.failure import UserCodeError

CPU = torch.device("cpu")


def drawn(seed=0, check="check", name="x", default="float64", **recipe):
    return draw(TensorRecipe(**recipe), default, CPU, generator(seed, check, name), f"inputs.{name}")


def test_draws_depend_on_seed_check_and_input_and_on_nothing_else():
    first = drawn(shape=(50,))
    torch.randn(3)
    assert torch.equal(first, drawn(shape=(50,)))
    for other in (drawn(1, shape=(50,)), drawn(check="other", shape=(50,)), drawn(name="y", shape=(50,))):
        assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", ["normal", "uniform", "linspace"])
def test_every_dtype_sees_the_same_numbers(kind):
    double = drawn(shape=(20,), draw=kind, arguments=(0.0, 1.0))
    assert torch.equal(drawn(shape=(20,), draw=kind, arguments=(0.0, 1.0), dtype="float32"), double.float())
    assert torch.equal(drawn(shape=(20,), draw=kind, arguments=(0.0, 1.0), default="float32"), double.float())


def test_nothing_is_drawn_from_the_global_stream():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    for kind in ("normal", "uniform", "integers", "linspace"):
        drawn(shape=(5,), draw=kind, arguments=(0, 5))
    assert torch.equal(torch.rand(2), expected)


def test_draws_have_the_distribution_they_name():
    normal = drawn(shape=(4000,), arguments=(3.0, 2.0))
    assert normal.mean().item() == pytest.approx(3, abs=0.15)
    assert normal.std().item() == pytest.approx(2, abs=0.15)
    uniform = drawn(shape=(4000,), draw="uniform", arguments=(-1.0, 3.0))
    assert -1 <= uniform.min() < -0.95 and 2.95 < uniform.max() < 3
    integers = drawn(shape=(200,), draw="integers", arguments=(2, 5))
    assert (integers.dtype, set(integers.tolist())) == (torch.int64, {2, 3, 4})
    assert drawn(shape=(200,), draw="integers", arguments=(2, 5), dtype="float32").dtype == torch.float32


def test_given_numbers_come_out_as_they_are():
    assert drawn(shape=(2, 2), draw="linspace", arguments=(0.0, 3.0)).tolist() == [[0, 1], [2, 3]]
    assert drawn(shape=(2,), draw="fill", arguments=1.5).tolist() == [1.5, 1.5]
    assert drawn(draw="values", arguments=[[1, 2], [3, 4.5]]).tolist() == [[1, 2], [3, 4.5]]
    assert drawn(draw="values", arguments=2.2).shape == ()
    assert drawn(draw="values", arguments=["1+2j", "-3j"], dtype="complex128").tolist() == [1 + 2j, -3j]
    assert drawn(draw="values", arguments=["inf", "-inf"]).tolist() == [float("inf"), float("-inf")]
    assert drawn(draw="values", arguments=[1, 0], dtype="int32").dtype == torch.int32
    assert drawn(draw="values", arguments=0.1).item() == 0.1
    assert drawn(shape=(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("avoid", [(0.0,), (0.0, 1.0)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_avoided_values_are_kept_away_from(avoid, dtype):
    tensor = drawn(shape=(500,), avoid=avoid, margin=0.2, dtype=dtype)
    assert all(bool(((tensor - value).abs() >= 0.2).all()) for value in avoid)
    assert (drawn(shape=(500,), dtype=dtype) == tensor).sum() > 200      # the others stay as drawn


def test_arrays_and_tensors_load_from_files(tmp_path):
    numbers = np.array([[1.5, 2.5]])
    np.save(tmp_path / "one.npy", numbers)
    np.savez(tmp_path / "two.npz", a=numbers, b=np.arange(3))
    torch.save(torch.tensor([1.5, 2.5]), tmp_path / "tensor.pt")
    torch.save({"w": torch.tensor([3.5])}, tmp_path / "dict.pt")
    assert drawn(draw="file", arguments=f"{tmp_path}/one.npy").tolist() == numbers.tolist()
    assert drawn(draw="file", arguments=f"{tmp_path}/two.npz#a").tolist() == numbers.tolist()
    assert drawn(draw="file", arguments=f"{tmp_path}/two.npz#b").dtype == torch.int64
    assert drawn(draw="file", arguments=f"{tmp_path}/two.npz#b", dtype="float64").dtype == torch.float64
    assert drawn(draw="file", arguments=f"{tmp_path}/tensor.pt").dtype == torch.float64
    assert drawn(draw="file", arguments=f"{tmp_path}/dict.pt#w").tolist() == [3.5]


class Explodes:
    def __reduce__(self):
        return (print, ("a file must not run code",))


def test_no_file_runs_code(tmp_path, capsys):
    np.save(tmp_path / "bad.npy", np.array([Explodes()], dtype=object), allow_pickle=True)
    torch.save(Explodes(), tmp_path / "bad.pt")
    for file in ("bad.npy", "bad.pt"):
        with pytest.raises(UserCodeError) as caught:
            drawn(draw="file", arguments=f"{tmp_path}/{file}")
        assert caught.value.code == "GV001"
    assert capsys.readouterr().out == ""


def test_a_file_that_does_not_fit_is_refused_with_the_input_named(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.ones(1), b=np.ones(1))
    np.save(tmp_path / "complex.npy", np.array([1 + 2j]))
    torch.save([1, 2], tmp_path / "list.pt")
    said_of = {"two.npz": "two.npz#a", "two.npz#c": "'a', 'b'", "complex.npy": "complex", "list.pt": "list", "none.npy": "none.npy"}
    for file, said in said_of.items():
        with pytest.raises(UserCodeError, match="inputs") as caught:
            drawn(draw="file", arguments=f"{tmp_path}/{file}")
        assert said in caught.value.message
