"""What the seeds are compared with: the same functions as plain torch expressions, and gradients
written by hand in NumPy."""

import numpy as np


def linear(input, weight, bias=None):
    product = input @ weight.T
    return product if bias is None else product + bias


def affine(x, w, b):
    return x @ w + b


def mul_add_sum(x, y, z):
    return (x * y + z).sum()


def mul_add_sum_gradient(x, y, z, grad_output):
    """d sum(xy + z): y, x and 1, each times the 0-dim grad_output."""
    x, y, z, grad_output = map(np.asarray, (x, y, z, grad_output))
    return grad_output * y, grad_output * x, grad_output * np.ones_like(z)


def square_of_sum_gradient(x, y, grad_output):
    """d (x + y)²: 2(x + y) for both."""
    x, y, grad_output = map(np.asarray, (x, y, grad_output))
    gradient = grad_output * 2 * (x + y)
    return gradient, gradient
