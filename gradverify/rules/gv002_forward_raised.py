"""GV002 forward-raised: the forward, or what it is compared with, raises

What. Calling the function on the inputs of the spec raises, or they do not fit its signature: one is missing, or has a name that it lacks. If a
`reference`, `gradient` or `surrogate` raises, the message names that, and not the function.

Why it matters. Nothing was checked: an error (exit code 3), never a pass.

How it is measured. One forward at the inputs of the check, with gradients on. The exception is shown with your frames only.

How to repair. Most often shapes, dtypes or the device of the inputs do not fit: `gradverify list` prints the sizes. An op that needs
a GPU wants `device: cuda` and `requires: [cuda]`.

Example.
    class Norm(Function):
        @staticmethod
        def forward(ctx, x, weight):
            return x * weight           # x [2, 3], weight [4]: the shapes do not fit
"""

RANK = 10
VERDICT = "error"
STOPS = True
