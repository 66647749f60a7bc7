"""Settings that a call in Python gives, `check(torch.sin, x, seed=1)`: what is wrong with them, in words of Python and not of YAML."""

from __future__ import annotations

import re
from dataclasses import replace

from gradverify.spec.fault import Fault
from gradverify.spec.schema_settings import RunSettings
from gradverify.spec.wording import NOT_A_BOOLEAN

CODE_IN_A_LIST = re.compile(r"write \[(GV\d*)\]$")
LISTED = ("select", "ignore")


class Arguments(RunSettings):
    """What a call takes: the settings of one run of a check."""


def is_a_call(origin: str) -> bool:
    """Do the settings come from a call, `run()`?"""
    return origin.endswith("()")


def in_python(fault: Fault) -> Fault:
    """The fault of one setting, at the argument that gave it."""
    path = fault.path[1:] if fault.path[:1] == ("rules",) and fault.path[1:2] and fault.path[1] in LISTED else fault.path
    message = CODE_IN_A_LIST.sub(r"write ['\1']", fault.message.replace(NOT_A_BOOLEAN, "write True or False"))
    return replace(fault, path=path, message=message.replace("nothing (null)", "None"))
