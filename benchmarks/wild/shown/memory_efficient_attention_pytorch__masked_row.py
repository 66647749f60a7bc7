"""With more keys than queries, the first causal query may look at nothing: forward averages all
values, backward differentiates something else."""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, n, 2, requires_grad=True) for n in (3, 4, 4))
y = FlashAttentionFunction.apply(q, k, v, None, True, 2, 2)[0, 0, 0]
print("y[0] =", y.tolist(), "and the mean of v is", v.mean(2)[0, 0].tolist())
wrong = torch.autograd.grad(y.sum(), (q, v))
print(
    f"backward returns {wrong[0][0, 0, 0].tolist()} for q[0] and {wrong[1][0, 0, 0].tolist()} for "
    "v[0]\nright: [0, 0] and [0.25, 0.25]"
)
assert torch.allclose(y, v.mean(2)[0, 0]) and wrong[0].abs().max() > 0.1
