"""GV005 timed-out: the check did not end within its time

What. The check ran for longer than its `timeout` (300 s where the spec names none), counted from its own start; or importing and building what it
names took longer than `--import-timeout` (600 s).

Why it matters. Nothing is known of the gradient: the check is an error (exit code 3), and its process was ended. All other checks run.

How it is measured. The process that supervises the workers keeps the time, so that a loop in native code ends too. Before the worker is killed it
writes the Python stack of what hangs, which the report shows.

How to repair. The last frame is where it waits: a lock, a loop that does not converge for these inputs, a collective call without its peers. If it is
only slow, check a smaller input or give `timeout` a larger number.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        while not converged(x):         # for a cotangent of zeros it never is
            x = step(x, grad_output)
"""

VERDICT = "error"
