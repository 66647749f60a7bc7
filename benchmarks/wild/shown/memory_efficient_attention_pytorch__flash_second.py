"""A gradient penalty through the attention is silently ignored: its backward runs without
autograd."""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 3, 2, requires_grad=True) for _ in range(3))


def loss(q):
    y = FlashAttentionFunction.apply(q, k, v, None, False, 2, 2)
    # With a gradient penalty
    return y.sum() + 10 * (torch.autograd.grad((y**2).sum(), q, create_graph=True)[0] ** 2).sum()


wrong = torch.autograd.grad(loss(q), q)[0][0, 0, 0, 0].item()
step = torch.zeros(1, 1, 3, 2)
step[0, 0, 0, 0] = 1e-2
right = ((loss(q + step) - loss(q - step)) / 2e-2).item()
print(f"d loss / d q[0] = {wrong:.4f}\nright, a difference of the loss: {right:.4f}")
assert abs(wrong - right) > 0.05
