"""torch.autograd.gradcheck with its defaults on every check of specs, as JSON: python beside.py
SPEC… (in the environment of their package)"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from gradverify.cli.gather import gather
from gradverify.model.case import Case
from gradverify.subject.failure import UserCodeError
from gradverify.subject.find import importable
from gradverify.subject.prepare import prepare


def main(specs: Sequence[str]) -> None:
    print(json.dumps({case.id: gradcheck(case) for case in gather(specs).cases}))


def gradcheck(case: Case) -> str:
    """What it says of the function at the inputs of a check: `passes`, `fails`, or the first line
    of what it or the function raises."""
    try:
        with importable(case.search):
            subject = prepare(case)
    except UserCodeError as error:
        return f"raises: {error.message.splitlines()[0]}"

    def function(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            y
            for y in subject.forward(inputs)
            if isinstance(y, Tensor) and (y.is_floating_point() or y.is_complex())
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "passes" if torch.autograd.gradcheck(function, subject.leaves()) else "fails"
        except GradcheckError:
            return "fails"
        except Exception as error:  # the function's own: gradcheck lets it through
            return f"raises: {type(error).__name__}"


if __name__ == "__main__":
    main(sys.argv[1:])
