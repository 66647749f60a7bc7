"""Thirty ways in which checked code ends its process, hangs, or changes what all checks share; each a function of one tensor."""

import ctypes
import os
import posix
import signal
import subprocess
import sys
import threading
import time

import torch
from torch.autograd import Function

LIBC = ctypes.CDLL(None)
done = set()


def once(name):
    """True the first time."""
    return name not in done and not done.add(name)


def segmentation_fault(x):
    ctypes.string_at(0)


def abort(x):
    os.abort()


def kills_itself(x):
    os.kill(os.getpid(), signal.SIGKILL)


def terminates_itself(x):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def leaves_by_os(x):
    os._exit(0)


def leaves_by_posix(x):
    posix._exit(0)


def exits_by_libc(x):
    LIBC.exit(0)


def leaves_by_libc(x):
    LIBC._exit(0)


def becomes_another_program(x):
    os.execv("/bin/true", ["/bin/true"])


def exits_by_sys(x):
    sys.exit(0)


class ExitsError(Exception):
    def __str__(self):
        raise SystemExit(0)


def exits_when_printed(x):
    raise ExitsError


def interrupts(x):
    raise KeyboardInterrupt


class UnprintableError(Exception):
    def __str__(self):
        return "\ud800\x1b[31m\0" * 10000


def raises_what_cannot_be_printed(x):
    raise UnprintableError


def loops(x):
    while True:
        pass


def sleeps_in_c(x):
    LIBC.sleep(1000)


def deadlocks(x):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def returns_a_lambda_too(x):
    return x * 2, lambda: 1


def allocates(x):
    return x * torch.ones(10**9, dtype=torch.float64)[:2]


def recurses(x):
    return recurses(x)


def prints_much(x):
    for _ in range(100 if once("prints") else 0):
        os.write(1, b"z" * (1 << 20))
    return x * 2


def prints_natively(x):
    if once("natively"):
        LIBC.perror(b"native words")
    return x * 2


def closes_descriptors(x):
    os.closerange(3, 64)
    return x * 2


def leaves_a_child(x):
    if once("child"):
        subprocess.Popen(["sleep", "1234"])
    return x * 2


def returns_twice(x):
    if once("twice"):
        os.fork()
    return x * 2


def leaves_a_thread(x):
    if once("thread"):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return x * 2


class HangsInBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        time.sleep(1000)


def replaces_grad(x):
    torch.autograd.grad = lambda *arguments, **options: (torch.zeros(2, dtype=torch.float64),)
    return x * 2


def replaces_mul(x):
    torch.Tensor.__mul__ = lambda a, b: a
    return x + x


def changes_the_default_dtype(x):
    torch.set_default_dtype(torch.float16)
    return x * 2


def leaves_anomaly_detection_on(x):
    torch.autograd.set_detect_anomaly(True)
    return x * 2


def right(x):
    return x * x


class Wrong(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0]
