"""Functions that print, each in its own way."""

import ctypes
import os
import random
import sys

import numpy as np
import torch


def by_python(x):
    print("by python")
    print("to stderr", file=sys.stderr)
    return x * 2


def by_descriptor(x):
    os.write(1, b"by descriptor\n")
    os.write(2, b"by error descriptor\n")
    return x * 2


def by_c(x):
    ctypes.CDLL(None).puts(b"by C")
    return x * 2


def by_the_original_stream(x):
    sys.__stdout__.write("by the original stream\n")
    return x * 2


def and_raises(x):
    print("before it raised")
    raise ValueError("no")


def silently(x):
    return x * 2


def disturbs(x):
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    torch.set_default_dtype(torch.float64)
    sys.path.insert(0, "/somewhere/else")
    y = x * 2
    torch.set_grad_enabled(False)
    return y
