"""Ways in which checked code ends its process, hangs, or leaves something behind."""

import ctypes
import os
import posix
import signal
import subprocess
import threading
import time
from pathlib import Path

import torch
from torch.autograd import Function

LIBC = ctypes.CDLL(None)
done = set()


def once(name):
    """True the first time."""
    return name not in done and not done.add(name)


def until(name):
    while not Path(name).exists():
        time.sleep(0.01)


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


# ---- ends
def segmentation_fault(x):
    ctypes.string_at(0)


def abort(x):
    os.abort()


def kills_itself(x):
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_by_os(x):
    os._exit(0)


def leaves_by_posix(x):
    posix._exit(0)


def exits_by_libc(x):
    LIBC.exit(0)


def becomes_another_program(x):
    os.execv("/bin/true", ["/bin/true"])


def interrupts_itself(x):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)


def allocates(x):
    return x * torch.ones(10**14, dtype=torch.float64)[:2]  # 800 TB


def allocates_much(x):
    return x * torch.ones(10**9, dtype=torch.float64)[:2]  # 8 GB


# ---- hangs
def loops(x):
    while True:
        pass


def sleeps_in_c(x):
    LIBC.sleep(1000)


def deadlocks(x):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


class HangsInBackward(Wrong):
    @staticmethod
    def backward(ctx, grad_output):
        time.sleep(1000)


# ---- harmless
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


# ---- processes without end
def forks_children(x):
    while True:
        if os.fork() == 0:
            signal.pause()


def forks_in_children(x):
    while True:
        os.fork()
        time.sleep(0.05)


def forks_in_groups(x):
    while True:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.pause()
            os._exit(0)


def has_some_and_hangs(x):
    for _ in range(10):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
            os.fork()
            while True:
                signal.pause()
    time.sleep(1000)


def daemons():
    """In sessions of their own, without parents; one is another program."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    signal.pause()
            os._exit(0)
    subprocess.Popen(["sleep", "1234"], start_new_session=True)


def leaves_some(x):
    daemons()
    return x * x


def leaves_some_and_crashes(x):
    daemons()
    kills_itself(x)


# ---- the process that all workers are forked from
def beside(x):
    """Runs while another check ends that process."""
    Path("beside").touch()
    until("done")
    return x * x


def ends_them_all(number, again=True):
    if os.environ["JOBS"] == "2":
        until("beside")
    if again or not Path("done").exists():
        Path("done").touch()
        parent = os.getppid()
        if b"forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes():  # and no other one
            os.kill(parent, number)
        time.sleep(60)


def kills_the_server(x):
    ends_them_all(signal.SIGKILL)


def terminates_the_server(x):
    ends_them_all(signal.SIGTERM)


def kills_it_once(x):
    ends_them_all(signal.SIGKILL, again=False)
    return x * x
