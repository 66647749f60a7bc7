"""GV003 backward-raised: backward raises

What. The first plain backward raises. A wrong number or shape of gradients is GV212, not this; on a zero-size input it is GV221.

Why it matters. Nothing was checked: an error (exit code 3), never a pass.

How it is measured. `torch.autograd.grad` with a dense random cotangent. Where that is refused, or backward puts gradients into `.grad` itself, the
same on a fresh forward, then leaf `.backward()` (re-entrant checkpoints, reversible nets), which all rules use from then on: only if all three raise
is it this finding. Your frames only are shown.

How to repair. Read the frames. A frequent cause: `ctx.saved_tensors` holds other tensors than the code unpacks, or an attribute of ctx
is set in one branch of forward only.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors   # forward saved x alone
        return grad_output * weight
"""

RANK = 10
VERDICT = "error"
STOPS = True
