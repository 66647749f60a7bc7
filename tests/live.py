"""Live functions under the whole engine, without a spec file: what many tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import (
    Case,
    InputRecipe,
    Oracles,
    Search,
    Settings,
    SpecPlace,
    TensorRecipe,
)
from gradverify.model.codec import from_json, to_json
from gradverify.model.result import CaseResult
from gradverify.subject import prepare
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import live
from gradverify.verify import verify


def case(target: str = "live", inputs: Sequence[InputRecipe] = (), **changes: Any) -> Case:
    """A case; settings by their own names, everything else by the names of `Case`."""
    settings = {
        name: changes.pop(name) for name in list(changes) if name in Settings.__dataclass_fields__
    }
    values = dict(
        id=f"live.yaml::{target}",
        name=target,
        check=target,
        spec=SpecPlace("live.yaml", 1),
        inputs=tuple(inputs),
    )
    return Case(**{**values, "target": target, "settings": Settings(**settings), **changes})


def tensor(*shape: int, name: str | None = None, **recipe: Any) -> InputRecipe:
    return InputRecipe(name, TensorRecipe(shape=shape, **recipe))


def given(values: Any, name: str | None = None, **recipe: Any) -> InputRecipe:
    return InputRecipe(name, TensorRecipe(draw="values", arguments=values, **recipe))


def plain(value: Any, name: str | None = None) -> InputRecipe:
    return InputRecipe(name, value=value)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fixed(value: Any) -> Argument:
    """An argument that is not differentiated."""
    return Argument("", value)


def subject(
    function: Any, *values: Any, init: dict[str, Any] | None = None, **changes: Any
) -> Subject:
    """A subject of a live function; floating tensors are differentiated."""
    made = [
        value
        if isinstance(value, Argument)
        else Argument("", value, _is_differentiable(value))
        if isinstance(value, Tensor)
        else prepare.given([value], {})[0][0]
        for value in values
    ]
    described = case(**changes)
    return prepare.assemble(described, live("live", function, init, torch.float64), made)


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def evidence(function: Any, *values: Any, **changes: Any) -> Evidence:
    return Evidence(subject(function, *values, **changes))


def check(function: Any, *values: Any, **changes: Any) -> CaseResult:
    """Every value has the type of its field: another process reads the result."""
    return from_json(CaseResult, to_json(verify(subject(function, *values, **changes))))


def codes(result: CaseResult) -> set[str]:
    return {finding.code for finding in result.findings}


def message(result: CaseResult, code: str) -> str:
    """The one finding of that code."""
    found = [finding.message for finding in result.findings if finding.code == code]
    assert len(found) == 1, (
        f"{len(found)} findings {code} among {[finding.code for finding in result.findings]}"
    )
    return found[0]


__all__ = [
    "Oracles",
    "Search",
    "case",
    "check",
    "codes",
    "evidence",
    "fixed",
    "given",
    "message",
    "plain",
    "randn",
    "subject",
    "tensor",
]
