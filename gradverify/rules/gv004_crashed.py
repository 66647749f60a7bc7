"""GV004 crashed: the process of the check ended before there was a result

What. A signal (a segmentation fault, an abort, SIGKILL), or a call of exit, _exit or exec, ended the worker process in which the check ran.

Why it matters. Nothing is known of the gradient. The check is an error (exit code 3) whatever status its process ended with: a status of 0 is no
pass. All other checks run.

How it is measured. Each check runs in a worker process; what counts is the result that it sends. The message names the signal or the status, and
shows the Python stack where one was left. With `--no-isolate` there is no worker, and a crash ends the run.

How to repair. Run the function by itself under a debugger, with the inputs of the check. A segmentation fault in native code is most often an index,
a stride or a size that is not checked; a SIGKILL is most often memory: a smaller input, fewer checks at a time (`-j`).

Example.
    @staticmethod
    def forward(ctx, x):
        return my_kernels.forward(x.data_ptr(), x.numel() + 1)          # reads behind the end
"""

VERDICT = "error"
