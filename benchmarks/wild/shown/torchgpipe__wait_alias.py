"""Wait returns the memory of its input, and autograd does not know: one in place behind it changes
the input, not its gradient."""

import torch
from torchgpipe.copy import Wait
from torchgpipe.stream import CPUStream

x = torch.tensor([1.0, 2.0], requires_grad=True)


def written(through):
    z = x * 1
    through(z).mul_(3)
    return z.tolist(), torch.autograd.grad(z.sum(), x)[0].tolist()


wrong = written(lambda z: Wait.apply(CPUStream, CPUStream, z)[0])
right = written(lambda z: z.view_as(z))
print(
    "z is",
    wrong[0],
    "and its gradient",
    wrong[1],
    "\nright, through z.view_as(z): z is",
    right[0],
    "and its gradient",
    right[1],
)
assert wrong[0] == right[0] and wrong[1] != right[1]
