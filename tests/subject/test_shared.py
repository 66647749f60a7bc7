"""Whatever a check changes of what all checks of a process share is seen and named; what it only used, or put back, is not."""

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from gradverify.subject import shared
from gradverify.subject.ambient import ambient, left_as_found
from gradverify.subject.machine import undisturbed


def replaced(owner, name):
    """Puts a stand-in where all look it up; gives back how to undo it."""
    own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, lambda *arguments, **options: before(*arguments, **options))
    return lambda: setattr(owner, name, before) if own else delattr(owner, name)


def opened():
    descriptor = os.open(os.devnull, os.O_RDONLY)
    return lambda: os.close(descriptor)


def started_thread():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    return lambda: (done.set(), thread.join())


def started_child():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return lambda: (child.stdin.close(), child.kill(), child.wait())


def set_to(get, put, value):
    before = get()
    put(value)
    return lambda: put(before)


def environment():
    os.environ["GRADVERIFY_LEFT"] = "1"
    return lambda: os.environ.pop("GRADVERIFY_LEFT")


CHANGES = [
    ("replaced torch.autograd.grad", lambda: replaced(torch.autograd, "grad")),
    ("replaced torch.autograd.backward", lambda: replaced(torch.autograd, "backward")),
    ("replaced torch.Tensor.__mul__", lambda: replaced(torch.Tensor, "__mul__")),
    ("replaced torch.Tensor.__rsub__", lambda: replaced(torch.Tensor, "__rsub__")),
    ("replaced torch.Tensor.__getitem__", lambda: replaced(torch.Tensor, "__getitem__")),
    ("replaced torch.Tensor.backward", lambda: replaced(torch.Tensor, "backward")),
    ("replaced torch.nn.functional.gelu", lambda: replaced(torch.nn.functional, "gelu")),
    ("changed default dtype", lambda: set_to(torch.get_default_dtype, torch.set_default_dtype, torch.float16)),
    ("changed gradient mode", lambda: set_to(torch.is_grad_enabled, torch._C._set_grad_enabled, False)),
    ("changed anomaly mode", lambda: set_to(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True)),
    ("changed threads", lambda: set_to(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1)),
    ("changed deterministic algorithms", lambda: set_to(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True)),
    ("changed NumPy's errors", lambda: set_to(np.geterr, lambda old: np.seterr(**old), dict.fromkeys(np.geterr(), "raise"))),
    ("changed sys.path", lambda: set_to(lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path), ["/nowhere", *sys.path])),
    ("changed current folder", lambda: set_to(os.getcwd, os.chdir, "/")),
    ("changed garbage collector", lambda: set_to(gc.isenabled, lambda on: gc.enable() if on else gc.disable(), False)),
    ("changed what signals do", lambda: set_to(lambda: signal.getsignal(15), lambda to: signal.signal(15, to), signal.SIG_IGN)),
    ("changed environment variable GRADVERIFY_LEFT", environment),
    ("left 1 file descriptor", opened), ("left 1 thread", started_thread)]


@pytest.mark.parametrize(("words", "change"), CHANGES, ids=[words for words, _ in CHANGES])
def test_a_change_is_named_and_gone_once_it_is_undone(words, change):
    before = shared.look()
    undo = change()
    try:
        told = shared.changes(before, shared.look())
    finally:
        undo()
    assert words in told
    assert words not in shared.changes(before, shared.look())


def test_a_child_process_that_is_left_is_told():
    before = shared.look()
    undo = started_child()
    try:
        told = shared.changes(before, shared.look())
    finally:
        undo()
    assert "left 1 child process" in told


def test_what_only_computes_changes_nothing():
    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad((x * x).sum(), x)
    before = shared.look()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        (x @ x).exp()
    torch.autograd.grad((x * x).sum(), x)
    np.random.seed(1)
    assert shared.changes(before, shared.look()) == ()


def test_every_switch_is_put_back_by_who_checks():
    before = shared.look()
    with left_as_found(ambient()) as changed:
        torch.set_default_dtype(torch.float16)
        torch.autograd.set_detect_anomaly(True)
        sys.path.insert(0, "/nowhere")
    assert {"default dtype", "anomaly mode", "sys.path"} <= set(changed)
    assert shared.changes(before, shared.look()) == ()


def test_what_a_check_itself_sets_for_its_time_is_no_change(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    before = shared.look()
    with undisturbed():
        assert shared.changes(before, shared.look()) == ()
