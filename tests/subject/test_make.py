"""`make`: draws by the spec's own function."""

from __future__ import annotations

import pytest
import torch
from live import case, tensor

from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import prepare

HERE = "subject.test_make"
SEEN: list = []


def ring(shape, dtype, device, generator):
    SEEN.append((tuple(shape), dtype, str(device)))
    return torch.rand(tuple(shape), generator=generator, dtype=dtype, device=device) + torch.rand(
        tuple(shape), dtype=dtype
    )


def raises(shape, dtype, device, generator):
    raise ValueError("no graph")


def too_small(shape, dtype, device, generator):
    return torch.zeros(1)


def array(shape, dtype, device, generator):
    return [1.0]


def sparse(shape, dtype, device, generator):
    return torch.eye(2).to_sparse()


def made(function, **changes):
    return prepare(
        case(
            "torch:sin",
            [tensor(2, 2, name="x", draw="make", arguments=f"{HERE}:{function}")],
            **changes,
        )
    ).arguments[0]


def test_it_draws_in_double_precision_on_the_cpu_and_every_dtype_sees_the_same_numbers():
    SEEN.clear()
    double, single = made("ring"), made("ring", dtype="float32")
    assert set(SEEN) == {((2, 2), torch.float64, "cpu")}
    assert single.value.dtype == torch.float32 and torch.equal(single.value, double.value.float())
    assert not torch.equal(double.value, made("ring", seed=1).value)
    assert made("ring", dtype="complex128").value.is_complex()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "ValueError: no graph"),
        ("too_small", "returned shape [1], the spec says [2, 2]"),
        ("array", "returned a list"),
        ("sparse", "sparse COO tensor"),
        ("nowhere", "no attribute 'nowhere'"),
    ],
)
def test_what_does_not_fit_is_blamed_on_it(function, said):
    with pytest.raises(UserCodeError) as caught:
        made(function)
    assert (
        caught.value.code == "GV001"
        and "inputs.x.make" in caught.value.message
        and said in caught.value.message
    )
    assert [frame.function for frame in caught.value.frames] == (
        ["raises"] if function == "raises" else []
    )
