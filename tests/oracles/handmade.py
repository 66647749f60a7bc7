"""Oracles as users write them: in NumPy, in torch, right and wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def standard_score(x: Tensor) -> Tensor:
    """(x − mean) / std with the population's std: np.std's meaning, not Tensor.std's."""
    return (x - x.mean()) / x.std(unbiased=False)


def reference(x: Tensor) -> Tensor:
    centred = x - x.sum() / x.numel()
    return centred / (centred * centred).mean().sqrt()


def reference_with_wrong_values(x: Tensor) -> Tensor:
    return reference(x) * 1.001


def reference_with_wrong_gradient(x: Tensor) -> Tensor:
    return (x - x.mean()) / x.std(unbiased=False).detach()


def reference_of_another_shape(x: Tensor) -> Tensor:
    return reference(x).unsqueeze(0)


def reference_of_another_type(x: Tensor) -> Tensor:
    return reference(x).to(torch.complex128)


def reference_that_raises(x: Tensor) -> Tensor:
    raise ValueError("no such case")


def reference_whose_backward_raises(x: Tensor) -> Tensor:
    y = reference(x)
    y.register_hook(_refuse)
    return y


def _refuse(gradient: Tensor) -> Tensor:
    raise ValueError("no gradient")


def reference_without_outputs(x: Tensor) -> tuple[Tensor, ...]:
    return ()


def reference_that_writes(x: Tensor, index: Tensor) -> Tensor:
    index.zero_()
    x.mul_(2)
    return x / 2


def numpy_gradient(x: Any, grad_output: Any) -> Any:
    s = x.std()
    z = (x - np.mean(x)) / s
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / s


def methods_only(x: Any, grad_output: Any) -> Any:
    """Names neither library: the module imports both, so tensors are what it gets, and `std` is torch's."""
    z = (x - x.mean()) / x.std()
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / x.std()


def torch_gradient(x: Tensor, grad_output: Tensor) -> Tensor:
    s = torch.std(x, unbiased=False)
    z = (x - x.mean()) / s
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / s


def local_numpy_gradient(x: Any, grad_output: Any) -> Any:
    import numpy

    z = (x - x.mean()) / x.std()
    return numpy.subtract(grad_output, grad_output.mean() + z * (z * grad_output).mean()) / x.std()


def wrong_gradient(x: Any, grad_output: Any) -> Any:
    return np.divide(grad_output, x.std())


def raises(x: Any, grad_output: Any) -> Any:
    raise ValueError("no such case")


def too_many(x: Any, grad_output: Any) -> Any:
    return grad_output, grad_output


def wrong_shape(x: Any, grad_output: Any) -> Any:
    return grad_output[:1]


def text(x: Any, grad_output: Any) -> Any:
    return "gradient"


def mapping(x: Any, grad_output: Any) -> Any:
    return {"x": grad_output}


def complex_gradient(x: Any, grad_output: Any) -> Any:
    return grad_output * (1 + 1j)


def writes_into_its_arguments(x: Any, grad_output: Any) -> Any:
    result = numpy_gradient(x, np.copy(grad_output))
    x[:] = 0
    grad_output[:] = 0
    return result


def product(x: Tensor, factor: Tensor, index: Tensor) -> Tensor:
    return x[index] * factor


def product_gradients(x: Any, factor: Any, index: Any, grad_output: Any) -> Any:
    of_x = np.zeros_like(x)
    np.add.at(of_x, index, grad_output * factor)
    return of_x, (grad_output * x[index]).sum(), None


def product_gradients_of_differentiable_inputs(x: Any, factor: Any, index: Any, grad_output: Any) -> Any:
    return product_gradients(x, factor, index, grad_output)[:2]


def product_gradient_of_one(x: Any, factor: Any, index: Any, grad_output: Any) -> Any:
    return product_gradients(x, factor, index, grad_output)[0], None, None
