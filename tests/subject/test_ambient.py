"""State that a check leaves behind is not there for the next one: each piece that torch, NumPy and
Python keep for a process."""

import gc
import os
import sys
import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from gradverify.subject.ambient import ambient
from gradverify.subject.machine import undisturbed

SET = {
    "function modes": lambda: TorchFunctionMode().__enter__(),
    "dispatch modes": lambda: FakeTensorMode().__enter__(),
    "saved tensors hooks": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda x: x, lambda x: x
    ).__enter__(),
    "default dtype": lambda: torch.set_default_dtype(
        torch.float64 if torch.get_default_dtype() == torch.float32 else torch.float32
    ),
    "default device": lambda: torch.set_default_device("meta"),
    "gradient mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "float32 products": lambda: torch.set_float32_matmul_precision("medium"),
    "backward's threads": lambda: torch.autograd.set_multithreading_enabled(False),
    "denormal numbers": lambda: torch.set_flush_denormal(True),
    "autocast on cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast on cuda": lambda: torch.set_autocast_dtype("cuda", torch.bfloat16),
    "reductions on CUDA": lambda: setattr(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
    "cudnn": lambda: torch._C._set_cudnn_benchmark(not torch.backends.cudnn.benchmark),
    "NumPy's errors": lambda: np.seterr(all="raise"),
    "warnings": lambda: warnings.simplefilter("error"),
    "garbage collector": gc.disable,
    "recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 50),
    "sys.path": lambda: sys.path.append("/nowhere"),
    "current folder": lambda: os.chdir("/"),
}


def test_every_piece_is_tested():
    assert {state.name for state in ambient()} == set(SET)


def test_all_of_it_at_once_is_put_back():
    # What ran before in this process may have left it on
    torch.use_deterministic_algorithms(False)
    before = {state.name: state.read() for state in ambient()}
    with pytest.raises(ValueError, match="inside"), undisturbed():
        for name in reversed(SET):
            # Which not every processor flushes
            if SET[name]() is not False or name != "denormal numbers":
                assert (
                    next(state for state in ambient() if state.name == name).read() != before[name]
                )
        raise ValueError("inside")
    assert {state.name: state.read() for state in ambient()} == before
