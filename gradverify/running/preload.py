"""What workers need, imported once in the process that they are forked from: torch and gradverify
itself, never a user's module."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
import warnings

from gradverify.model.case import Case
from gradverify.model.codec import reader
from gradverify.model.result import CaseResult
from gradverify.running.family import adopt_orphans, end_with_caller
from gradverify.running.server import lacking
from gradverify.running.words import leave

# What torch imports in the first backward (sympy among it, 0.8 s of CPU), forward-mode derivative
# and draw: once here, not once in every worker.
IN_THE_FIRST = (
    "torch.fx.experimental.symbolic_shapes",
    "torch._decomp.decompositions_for_jvp",
    "torch.utils._device",
    "numpy.random",
    "numpy.ma",
)

# What 1,900 modules make stays: looking through it for garbage takes 0.5 of 3.6 s of CPU, and finds
# next to nothing
gc.disable()
end_with_caller()  # a supervisor that is killed cannot end its workers
try:
    with warnings.catch_warnings():
        # Those of torch's own modules, which PYTHONWARNINGS=error would make errors of
        warnings.simplefilter("ignore")
        import gradverify.rules
        import gradverify.running.inline
        import gradverify.subject.instruments
        import gradverify.verify
        from gradverify.rules import catalogue
        from gradverify.torch_private import leave_compiler_out

        for _module in pkgutil.iter_modules(gradverify.rules.__path__):
            importlib.import_module(f"gradverify.rules.{_module.name}")
        catalogue.runnable()  # their pages are parsed: 0.2 s
        for _class in (Case, CaseResult):
            reader(_class)
        for _name in IN_THE_FIRST:
            with contextlib.suppress(Exception):
                importlib.import_module(_name)
        leave_compiler_out()
except BaseException as error:
    if lacking(error) is None:
        raise
    leave(1)  # the supervisor says what is short
adopt_orphans()  # of workers that crash: the supervisor ends them
# Theirs, said where such a one ends
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
# What is here stays: collections in the workers pass it by, and its memory stays shared with them
gc.freeze()
gc.enable()
