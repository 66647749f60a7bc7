"""What to change, by the name of the cause: one sentence, which stands where a finding's own hint would suggest something else."""

from __future__ import annotations

from collections.abc import Mapping

from gradverify.model.result import Cause

INDEXED = "add up what repeats: index_add, scatter_add, index_put(accumulate=True)"
_NARROW = "compute in the dtype of the inputs: look for .half(), .bfloat16(), .float() or a literal of that type in backward"
_SLICE = "look for a factor that has one number for each of them, such as a weight, a norm or a count: it is left out, or applied twice"
_MOVED = "look for roll, flip, permute, sort or an index in forward: backward must undo it"
REMEDIES: Mapping[str, str] = {
    "sign flipped": "look for a minus sign that is missing, or that is one too many",
    "scaled": "look for a factor that backward leaves out or applies twice",
    "zero gradient": "forward moves with this input: look for a detach, a no_grad, zeros that are never filled or the wrong variable returned",
    "constant slightly off": "compute constants instead of typing digits, the same ones in forward and backward",
    "missing conjugate": "multiply grad_output by the conjugate of the derivative: `.conj()`",
    "transposed": "look for a transpose that is missing or one too many: of a matrix that is multiplied by, `.mT`, or of the result",
    "swapped inputs": "return the gradients in the order in which forward takes its arguments",
    "repeated index overwritten": INDEXED,
    "missing reduction": "sum over what forward broadcast: `grad.sum(dim)`, or `grad.sum_to_size(x.shape)`",
    "zero block": "look at the bounds of loops and the mask of the last tile: these elements are never written",
    "wrong block": "look at what treats these positions unlike the others: bounds, offsets, the mask of the last tile",
    "wrong at the border": "look at how backward pads: what forward repeats or reads twice at the border, backward must add up",
    "wrong only": "look at the `where`, the mask or the `if` that backward takes for them",
    "shifted": _MOVED, "permuted": _MOVED,
    "missing factor": "multiply by it: the gradient is grad_output times the derivative with respect to this input",
    "extra factor": "divide by it, or leave it out once",
    "missing symmetrisation": "forward reads the matrix and its transpose: add the gradient's transpose, (G + G.mT) / 2 for a symmetric input",
    "scaled per": _SLICE,
    "missing rank-one term": "each of these outputs depends on all inputs of its block: subtract the mean or the dot product, "
                             "as y * (g - (g * y).sum(-1, keepdim=True)) does for a softmax",
    "scaled rank-one term": "look at the factor of the term that couples the elements: a mean where a sum belongs, a coefficient of a series",
    "computed in": _NARROW,
}


def remedy(cause: Cause) -> str | None:
    """The hint for a cause; None where the finding's own serves."""
    return next((hint for name, hint in REMEDIES.items() if cause.name.startswith(name)), None)
