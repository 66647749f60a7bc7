"""Import torch and gradverify once, in the process that workers are forked from; never a user's
module."""

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
from gradverify.running.sending import leave
from gradverify.running.server import lacking

# Modules that torch imports in the first backward (sympy among them, 0.8 s of CPU), forward-mode
# derivative and random draw: imported once here, not in every worker
IN_THE_FIRST = (
    "torch.fx.experimental.symbolic_shapes",
    "torch._decomp.decompositions_for_jvp",
    "torch.utils._device",
    "numpy.random",
    "numpy.ma",
)

# Objects of 1,900 modules stay alive: collecting garbage among them takes 0.5 of 3.6 s of CPU and
# frees next to nothing
gc.disable()
end_with_caller()  # a supervisor that is killed cannot end its workers
try:
    with warnings.catch_warnings():
        # PYTHONWARNINGS=error would turn warnings of torch's own modules into errors
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
    leave(1)  # the supervisor reports which resource is short
adopt_orphans()  # of workers that crash: the supervisor ends them
# The warning that forkserver emits when an adopted orphan ends
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
# Collections in the workers skip the objects made so far, whose memory stays shared
gc.freeze()
gc.enable()
