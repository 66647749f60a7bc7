"""Oracles as users write them: in NumPy, in torch, right and wrong."""

import numpy as np
import torch


def standard_score(x):
    """(x − mean) / std with the population's std: np.std's meaning, not Tensor.std's."""
    return (x - x.mean()) / x.std(unbiased=False)


def reference(x):
    centred = x - x.sum() / x.numel()
    return centred / (centred * centred).mean().sqrt()


def reference_with_wrong_values(x):
    return reference(x) * 1.001


def reference_with_wrong_gradient(x):
    return (x - x.mean()) / x.std(unbiased=False).detach()


def reference_of_another_shape(x):
    return reference(x).unsqueeze(0)


def reference_of_another_type(x):
    return reference(x).to(torch.complex128)


def reference_that_raises(x):
    raise ValueError("no such case")


def reference_whose_backward_raises(x):
    y = reference(x)
    y.register_hook(_refuse)
    return y


def _refuse(gradient):
    raise ValueError("no gradient")


def reference_without_outputs(x):
    return ()


def reference_that_writes(x, index):
    index.zero_()
    x.mul_(2)
    return x / 2


def numpy_gradient(x, grad_output):
    s = x.std()
    z = (x - np.mean(x)) / s
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / s


def methods_only(x, grad_output):
    """Names neither library: the module imports both, so tensors are what it gets, and `std` is
    torch's."""
    z = (x - x.mean()) / x.std()
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / x.std()


def torch_gradient(x, grad_output):
    s = torch.std(x, unbiased=False)
    z = (x - x.mean()) / s
    return (grad_output - grad_output.mean() - z * (z * grad_output).mean()) / s


def wrong_gradient(x, grad_output):
    return np.divide(grad_output, x.std())


def raises(x, grad_output):
    raise ValueError("no such case")


def too_many(x, grad_output):
    return grad_output, grad_output


def wrong_shape(x, grad_output):
    return grad_output[:1]


def text(x, grad_output):
    return "gradient"


def mapping(x, grad_output):
    return {"x": grad_output}


def complex_gradient(x, grad_output):
    return grad_output * (1 + 1j)


def writes_into_its_arguments(x, grad_output):
    result = numpy_gradient(x, np.copy(grad_output))
    x[:] = 0
    grad_output[:] = 0
    return result


def product(x, factor, index):
    return x[index] * factor


def product_gradients(x, factor, index, grad_output):
    of_x = np.zeros_like(x)
    np.add.at(of_x, index, grad_output * factor)
    return of_x, (grad_output * x[index]).sum(), None


def product_gradients_of_differentiable_inputs(x, factor, index, grad_output):
    return product_gradients(x, factor, index, grad_output)[:2]


def product_gradient_of_one(x, factor, index, grad_output):
    return product_gradients(x, factor, index, grad_output)[0], None, None
