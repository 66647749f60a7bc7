"""The gradient of the attention of spikes for the values takes grad_output of the key's place for
that of the query."""

import torch
from exact_snn.attention import ExactAttentionCombineFn, _combine_forward

t_q, t_k, t_v = (
    torch.tensor(times, dtype=torch.float64, requires_grad=True)
    for times in ([[1.0], [4.0]], [[2.0], [3.0]], [[1.5], [4.5]])
)
rest = (10.0, 2.5, False, 0.0625, 0.5, 50.0, "gaussian")
weights = torch.tensor([[1.0], [0.0]], dtype=torch.float64)  # the loss is the first output
(wrong,) = torch.autograd.grad(
    (ExactAttentionCombineFn.apply(t_q, t_k, t_v, *rest) * weights).sum(), t_v
)
(right,) = torch.autograd.grad((_combine_forward(t_q, t_k, t_v, *rest)[0] * weights).sum(), t_v)
print(
    "backward returns",
    wrong.flatten().tolist(),
    "\nright, torch through the same forward:",
    right.flatten().tolist(),
)
assert not torch.allclose(wrong, right)
