"""The gallery as the tests see it: every file, and inputs on which its fault shows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import CustomOpDef

from gradverify.subject.find import find

GALLERY = Path(__file__).resolve().parents[2] / "specs" / "gallery"


def names() -> list[str]:
    """Without those that need Triton (tests/gallery/test_kernels.py) or end their process."""
    return sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "ends_its_process")


def load(name: str) -> ModuleType:
    """A file of the gallery as the module that checks import, once per process: an operator is
    registered once."""
    return sys.modules[find(f"{GALLERY / name}.py:__name__", "function")]


def twins(name: str) -> tuple[Any, Any]:
    """The faulty one and the right one."""
    return load(name).Faulty, load(name).Right


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Standard normal numbers that require a gradient."""
    generator = torch.Generator().manual_seed(seed + math.prod(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


def values(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


INPUTS: Mapping[str, Callable[[], tuple[Any, ...]]] = {
    "add_saves_unused": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "approximates_without_gradients": lambda: (draw(2, 3),),
    "asks_grad_output_for_a_number": lambda: (draw(2, 3),),
    "averages_over_features": lambda: (draw(4, 3), draw(4, 3, seed=1)),
    "averages_weight_gradient": lambda: (draw(4, 3),),
    "backward_without_grad": lambda: (draw(2, 3),),
    "bypasses_backward": lambda: (draw(2, 3),),
    "casts_under_autocast": lambda: (draw(2, 3),),
    "centres_its_input_in_place": lambda: (draw(2, 3),),
    "computes_in_float32": lambda: (draw(2, 3),),
    "counts_both_branches": lambda: (values(-1.0, 0.0, 2.0),),
    "decays_every_twentieth_call": lambda: (draw(2, 3),),
    "detaches_in_backward": lambda: (draw(2, 3),),
    "draws_from_its_own_generator": lambda: (draw(4, 5),),
    "seeds_torch_for_its_mask": lambda: (draw(4, 5),),
    "drops_factor": lambda: (draw(2, 3),),
    "leaves_half_unwritten": lambda: (draw(2, 3),),
    "writes_one_too_many": lambda: (draw(2, 3),),
    "drops_its_mask_in_backward": lambda: (values(-2.0, -0.5, 0.5, 2.0),),
    "flips_sign": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "forgets_a_factor_when_compiled": lambda: (draw(2, 3),),
    "forgets_a_factor_on_cuda": lambda: (draw(2, 3),),
    "subtracts_squares_in_tf32": lambda: (draw(4, 3), draw(5, 3, seed=1)),
    "forgets_in_bfloat16": lambda: (draw(4, 16),),
    "forgets_in_float32": lambda: (draw(2, 3),),
    "forgets_its_gain": lambda: (draw(2, 3), values(0.5, 1.5, 1.0)),
    "forgets_second_gradient": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "forgets_the_offset": lambda: (draw(2, 3),),
    "forgets_the_scale_in_16_bits": lambda: (draw(5, 8), draw(3, 8)),
    "forgets_the_scale": lambda: (
        draw(5, 4),
        draw(2, 4),
        torch.zeros(4, 2, dtype=torch.float64, requires_grad=True),
    ),
    "gives_index_a_gradient": lambda: (draw(4, 2), torch.tensor([3, 0, 3])),
    "jvp_forgets_a_tangent": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "keeps_its_mask_on_the_class": lambda: (values(-2.0, -0.5, 0.5, 2.0),),
    "keeps_its_output_on_ctx": lambda: (draw(2, 3),),
    "keeps_an_intermediate": lambda: (draw(2, 3),),
    "keeps_one_broadcast_slice": lambda: (draw(3, 2), draw(2)),
    "keeps_the_first_mask": lambda: (values(-2.0, -0.5, 0.5, 2.0),),
    "misstates_its_shape": lambda: (draw(2, 3),),
    "misses_conjugate": lambda: (
        draw(3, dtype=torch.complex128),
        draw(3, dtype=torch.complex128, seed=1),
    ),
    "mul_ignores_grad_output": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "needs_both_outputs": lambda: (draw(2, 3),),
    "numpy_sigmoid": lambda: (draw(2, 3),),
    "overwrites_repeated_rows": lambda: (draw(4, 2), torch.tensor([3, 0, 1])),
    "reads_data_in_backward": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "reads_what_forward_did_not_keep": lambda: (draw(2, 3), 2.5),
    "relu_modifies_grad_output": lambda: (values(-2.0, -0.5, 0.5, 2.0),),
    "returns_float32_gradient": lambda: (draw(2, 3),),
    "returns_its_inputs_memory": lambda: (draw(2, 3),),
    "returns_too_few_gradients": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "returns_two_views": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "returns_unsummed_gradient": lambda: (draw(3, 2), draw(2)),
    "returns_what_it_saved": lambda: (draw(2, 3),),
    "returns_wrong_shape": lambda: (draw(2, 3), draw(3, 4)),
    "rounds_a_constant": lambda: (draw(2, 3),),
    "saves_without_a_version": lambda: (draw(2, 3),),
    "shifts_by_one": lambda: (draw(6),),
    "sinc_divides_by_zero": lambda: (values(-1.5, 0.0, 0.01, 2.0),),
    "skips_weight_with_its_input": lambda: (draw(2, 3), draw(3, 4)),
    "squares_its_output_in_place": lambda: (draw(2, 3),),
    "stacks_no_rows": lambda: (draw(2, 3),),
    "sums_instead_of_mean": lambda: (draw(2, 3),),
    "swaps_gradients": lambda: (draw(2, 3), draw(2, 3, seed=1)),
    "swaps_sparse_indices": lambda: (
        draw(4, 4).detach().relu().to_sparse().requires_grad_(),
        draw(4, 3),
    ),
    "takes_grad_output_for_contiguous": lambda: (draw(2, 3),),
    "takes_input_for_contiguous": lambda: (draw(2, 3),),
    "transposes_gradient": lambda: (draw(3, 3), draw(3, 3, seed=1)),
    "vmap_ignores_in_dims": lambda: (draw(3, 3), draw(3, 3, seed=1)),
    "vmap_rule_reads_a_number": lambda: (
        draw(2, 3),
        torch.tensor([0.5, -2.0, 1.0, 0.25], dtype=torch.float64),
    ),
    "wrong_at_the_border": lambda: (draw(2, 5),),
}


def call(twin: Any) -> Callable[..., Any]:
    """How a twin is called: an operator as it is, a module as an object with double-precision
    parameters, a Function through `apply`."""
    if isinstance(twin, CustomOpDef):
        return twin
    if issubclass(twin, nn.Module):
        return twin(3).double()
    return twin.apply


def gradients(
    twin: Any, inputs: tuple[Any, ...], grad_output: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    """The gradient of every floating input under the given cotangent, or under a fixed signed
    one."""
    output = call(twin)(*inputs)
    if grad_output is None:
        grad_output = (
            torch.linspace(-1.0, 2.0, output.numel(), dtype=torch.float64)
            .reshape(output.shape)
            .to(output.dtype)
        )
    tensors = [tensor for tensor in inputs if isinstance(tensor, Tensor) and tensor.requires_grad]
    return torch.autograd.grad(output, tensors, grad_output, allow_unused=True)
