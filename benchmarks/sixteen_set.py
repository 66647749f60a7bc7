"""All operators by name; `plain_NAME` is torch's own operations in the dtype of the inputs, which a
check names as its `reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sixteen_kit import Kit, Operator
from sixteen_more import MORE
from sixteen_operators import FIRST
from torch import Tensor

OPERATORS: Mapping[str, Operator] = {**FIRST, **MORE}


def plain(name: str) -> Callable[..., Tensor]:
    """What a spec would name as the `reference`."""
    return lambda *inputs: OPERATORS[name].function(Kit(), *inputs)


globals().update({f"plain_{each}": plain(each) for each in OPERATORS})
