from __future__ import annotations

import pytest
import torch
from live import case, codes, given, message, randn, tensor
from torch.autograd import Function

from gradverify.subject.failure import UserCodeError
from gradverify.subject.layout import laid
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

HERE = "subject.test_layout"
STRIDES = {"transposed": (1, 2), "strided": (6, 2), "offset": (3, 1), "contiguous": (3, 1)}


@pytest.mark.parametrize("layout", STRIDES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int64, torch.bool])
def test_the_numbers_stay_and_lie_otherwise(layout, dtype):
    x = (randn(2, 3) * 3).to(dtype)
    y = laid(x, layout)
    assert torch.equal(x, y) and y.stride() == STRIDES[layout] and not y._is_view()
    assert y.storage_offset() == (1 if layout == "offset" else 0)
    assert laid(y, layout) is y


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_channels_last_is_torchs_own(shape):
    y = laid(randn(*shape), "channels_last")
    assert (
        y.is_contiguous(
            memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        )
        and not y.is_contiguous()
    )


class Raw(Function):
    """Right in forward; backward reads x through its pointer, as if it were contiguous."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return (
            2
            * grad_output
            * torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset())
        )


class Seen(Function):
    """Tells what it was called with."""

    strides: set

    @staticmethod
    def forward(ctx, x):
        Seen.strides.add((x.stride(), x.requires_grad))
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def verdict(function, layout, **changes):
    return verify(
        prepare(case(f"{HERE}:{function}", [tensor(2, 3, name="x", layout=layout)], **changes))
    )


@pytest.mark.parametrize(
    ("layout", "found"),
    [("contiguous", set()), ("offset", set()), ("transposed", {"GV101"}), ("strided", {"GV101"})],
)
def test_a_backward_that_assumes_contiguity_is_caught_where_the_layout_is_another(layout, found):
    result = verdict("Raw", layout, ignore=("GV211",))  # which varies the layout itself
    assert codes(result) == found
    assert result.inputs[0].layout == layout


def test_an_expanded_input_is_called_once_with_stride_0_and_measured_on_separate_elements():
    Seen.strides = set()
    result = verdict("Seen", "expanded")
    varied = {((7, 2), True), ((1, 2), True)}  # by GV211
    assert result.verdict == "pass" and Seen.strides - varied == {
        ((3, 1), True),
        ((0, 1), True),
        ((3, 1), False),
    }
    (compared,) = (each for each in result.comparisons if each.rule == "GV101")
    assert compared.elements == 36


def test_a_backward_that_cannot_read_an_expanded_input_is_caught_by_name():
    result = verdict("Raw", "expanded")
    assert codes(result) == {"GV211"}
    assert "with x expanded (stride 0), backward raised" in message(result, "GV211")


def test_a_function_that_writes_into_its_input_cannot_take_an_expanded_one():
    result = verify(prepare(case("torch:sin_", [tensor(2, 3, name="x", layout="expanded")])))
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert "share memory" in message(result, "GV002")


def test_one_slice_is_drawn_and_repeated():
    x = prepare(case("torch:sin", [tensor(3, 4, name="x", layout="expanded")])).inputs[0]
    assert torch.equal(x, x[:1].expand(3, 4)) and x.is_contiguous() and x[0].std() > 0
    with pytest.raises(UserCodeError, match="slices given differ"):
        prepare(case("torch:sin", [given([1.0, 2.0], "x", layout="expanded")]))


def test_a_layout_for_all_inputs_leaves_alone_what_cannot_have_it_or_names_its_own():
    inputs = [
        tensor(2, 3),
        tensor(3),
        tensor(2, 3, layout="strided"),
        tensor(2, 3, draw="integers", arguments=(0, 5)),
    ]
    subject = prepare(case("torch.nn.functional:linear", inputs, layout="transposed"))
    assert [argument.layout for argument in subject.arguments] == [
        "transposed",
        "contiguous",
        "strided",
        "transposed",
    ]
    assert subject.arguments[3].value.stride() == (1, 2)
