"""Torch's operators in 16 bits against the same under `Disguised`, where 16 bits look like float64:
what the disguise changes.

    python benchmarks/disguised_operators.py            # all operators of torch's sample database, in some minutes
    python benchmarks/disguised_operators.py matmul     # those whose name holds a text

A sample disagrees where the disguised call, or its backward, raises and the plain one does not,
where it gives other shapes or dtypes, or values that are apart by more than rounding. Operators
that draw numbers are compared after the same seed. What is meant to be another number is left out:
the gradient of what all rows share, which the disguise rounds after each row.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradverify.subject.rounding import Disguised

DTYPES = (torch.bfloat16, torch.float16)
LEFT_OUT = (
    "sparse.mm.reduce",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
"""The first crashes the process, the others return what nobody has written."""
SAMPLES = 6  # of an operator
ROUNDINGS = 8.0  # of a value and of the root mean square of its tensor


def operators(text: str = "") -> list[Any]:
    """PyTorch's operators whose name holds a text."""
    from torch.testing._internal.common_methods_invocations import op_db

    torch.backends.__allow_nonbracketed_mutation_flag = True
    return [
        operator
        for operator in op_db
        if text in operator.full_name and operator.full_name not in LEFT_OUT
    ]


def disagreements(operator: Any, dtype: torch.dtype) -> Iterator[str]:
    """What the disguise changes, at the first samples of an operator."""
    for number, (call, given) in enumerate(samples(operator, dtype)):
        try:
            seeded()
            plain = called(call, given)
        except Exception:  # torch does not have it
            continue
        try:
            seeded()
            with Disguised(dtype, rows=0):
                narrow = called(call, pytree.tree_map(lambda x: widened(x, dtype), given))
        except Exception as error:
            yield (
                f"sample {number} raises {type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}"
            )
            continue
        apart = differing(plain, narrow, dtype)
        if apart:
            yield f"sample {number}: {apart}"


def samples(operator: Any, dtype: torch.dtype) -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    """What is called, and with what."""
    if dtype not in operator.supported_dtypes("cpu"):
        return
    seeded()
    differentiated = (
        dtype in operator.supported_backward_dtypes("cpu") and operator.supports_autograd
    )
    for sample in islice(
        operator.sample_inputs("cpu", dtype, requires_grad=differentiated), SAMPLES
    ):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        # What it asks for is narrow too, under the disguise
        if torch.float64 in [x for x in leaves if isinstance(x, torch.dtype)]:
            continue

        def call(
            leaves: list[Any],
            spec: Any = spec,
            process: Callable[[Any], Any] = sample.output_process_fn_grad,
        ) -> Any:
            value, args, kwargs = pytree.tree_unflatten(leaves, spec)
            return process(operator.get_op()(value, *args, **kwargs))

        yield call, leaves


def called(call: Callable[..., Any], given: list[Any]) -> list[Any]:
    """What it returns, and the gradients of its inputs for ones."""
    own = [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
        for x in given
    ]
    outputs = pytree.tree_leaves(call(own))
    graph = [y for y in outputs if isinstance(y, Tensor) and y.requires_grad]
    leaves = [x for x in own if isinstance(x, Tensor) and x.requires_grad]
    pulled = (
        torch.autograd.grad(graph, leaves, [torch.ones_like(y) for y in graph], allow_unused=True)
        if graph and leaves
        else ()
    )
    return [*outputs, *pulled]


def widened(x: Any, dtype: torch.dtype) -> Any:
    """The same in float64."""
    if isinstance(x, Tensor):
        return x.detach().double().requires_grad_(x.requires_grad) if x.dtype == dtype else x
    return torch.float64 if x is dtype else x


def differing(plain: list[Any], narrow: list[Any], dtype: torch.dtype) -> str | None:
    """How the disguised results are others; None where they are the same but for rounding."""
    if len(plain) != len(narrow):
        return f"{len(narrow)} results, not {len(plain)}"
    for a, b in zip(plain, narrow, strict=True):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            if isinstance(a, Tensor) or isinstance(b, Tensor):
                return f"{b!r}, not {a!r}"
            continue
        if a.shape != b.shape:
            return f"shape {list(b.shape)}, not {list(a.shape)}"
        if b.dtype not in {
            dtype: (torch.float64,),
            torch.complex32: (torch.complex32, torch.complex128),
        }.get(a.dtype, (a.dtype,)):
            return f"{b.dtype}, not {a.dtype}"
        if a.layout is torch.strided and not a.is_quantized:
            one, other = a.detach().to(torch.complex128), b.detach().to(torch.complex128)
            finite = one.isfinite() & other.isfinite()
            size = one[finite].abs().square().mean().sqrt() if finite.any() else torch.zeros(())
            off = (one - other).abs() > ROUNDINGS * torch.finfo(dtype).eps * torch.maximum(
                one.abs(), size
            )
            if bool((one.isfinite() != other.isfinite()).any()) or bool((off & finite).any()):
                return (
                    "values apart by "
                    f"{float((one - other)[finite].abs().max() if finite.any() else float('nan')):.2g} "
                    f"of {float(size):.2g}"
                )
    return None


def seeded() -> None:
    torch.default_generator.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def main(text: str) -> int:
    """Prints what disagrees, an operator and dtype a line."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = total = 0
    for operator in operators(text):
        for dtype in DTYPES:
            total += dtype in operator.supported_dtypes("cpu")
            apart = list(disagreements(operator, dtype))
            if apart:
                found += 1
                print(
                    f"{operator.full_name} {str(dtype).removeprefix('torch.')}: {len(apart)}, "
                    f"{apart[0]}",
                    flush=True,
                )
    print(f"{found} of {total} operators and dtypes disagree")
    return int(found > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
