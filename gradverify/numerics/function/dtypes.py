"""Torch's dtypes by their names, and by each its unit roundoff."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gradverify.model import dtypes

DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in dtypes.DTYPES}
UNITS: Mapping[torch.dtype, float] = {DTYPES[name]: held.roundoff for name, held in dtypes.TABLE.items() if held.roundoff is not None}
SINGLE = tuple(DTYPES[name] for name in dtypes.WIDER)
DOUBLE = tuple(dict.fromkeys(DTYPES[name] for name in dtypes.WIDER.values()))
WIDE: Mapping[torch.dtype, torch.dtype] = {DTYPES[name]: DTYPES[wide] for name, wide in dtypes.WIDER.items()}
"""What runs in single precision → the same in double."""
SIXTEEN: Mapping[torch.dtype, torch.dtype] = {DTYPES[name]: DTYPES[wide] for name in dtypes.LEGS if (wide := dtypes.TABLE[name].double)}
"""What is judged in two legs → what its first leg is in."""
REAL: Mapping[torch.dtype, torch.dtype] = {DTYPES[name]: DTYPES[real] for name in dtypes.COMPLEX if (real := dtypes.TABLE[name].real)}
"""The real type of a complex one."""
