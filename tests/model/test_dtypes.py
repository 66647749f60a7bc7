"""One table of dtypes and one of modes, from which every other list follows.

The class of faults: a dtype or a mode that one list has and another has not. What a dtype holds is
told by torch itself.
"""

from typing import get_args

import pytest
import torch

from gradverify.model.case import MODE_SETTINGS, Mode
from gradverify.model.dtypes import COMPLEX, FLOATING, TABLE, WIDER, Dtype
from gradverify.numerics.function import coordinates as dtypes
from gradverify.subject.draw import DIFFERENTIABLE


def test_the_table_has_every_dtype_that_a_spec_may_name_and_no_other():
    assert tuple(TABLE) == get_args(Dtype)


@pytest.mark.parametrize("name", TABLE)
def test_a_dtype_holds_what_torch_says(name):
    dtype, held = dtypes.DTYPES[name], TABLE[name]
    assert str(dtype) == f"torch.{name}"
    assert (name in COMPLEX) == dtype.is_complex == (held.real is not None)
    if name in FLOATING:
        assert held.roundoff == dtypes.UNITS[dtype] == torch.finfo(dtype).eps / 2
        assert held.integers is None
    elif name != "bool":
        assert held.integers == (torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1)
    if held.real:
        assert torch.zeros(1, dtype=dtype).real.dtype == dtypes.DTYPES[held.real]


def test_what_is_wider_holds_every_number_of_what_is_narrower():
    for narrow, wide in WIDER.items():
        x = torch.full((1,), 1 / 3, dtype=dtypes.DTYPES[narrow])
        assert torch.equal(x.to(dtypes.DTYPES[wide]).to(x.dtype), x)
    assert set(DIFFERENTIABLE) == {*dtypes.SINGLE, *dtypes.DOUBLE, *dtypes.SIXTEEN}


def test_what_may_be_asked_for_are_the_modes():
    assert ("auto", *(mode.value for mode in Mode)) == MODE_SETTINGS
    assert [mode.lines for mode in Mode] == ["", "rows", "blocks"]
