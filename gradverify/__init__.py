"""gradverify checks hand-written autograd backwards against finite differences, element by
element."""

TYPE_CHECKING = False  # what type checkers read as true; this module imports nothing

if TYPE_CHECKING:
    from gradverify.api import ProblemsError as ProblemsError
    from gradverify.api import Report as Report
    from gradverify.api import run as run
    from gradverify.direct import GradientError as GradientError
    from gradverify.direct import GradverifyWarning as GradverifyWarning
    from gradverify.direct import Result as Result
    from gradverify.direct import UndecidedWarning as UndecidedWarning
    from gradverify.direct import assert_gradients as assert_gradients
    from gradverify.direct import check as check
    from gradverify.recording.session import record as record

__version__ = "0.1.0"

OFFERED = {
    "ProblemsError": "api",
    "Report": "api",
    "run": "api",
    "GradientError": "direct",
    "GradverifyWarning": "direct",
    "Result": "direct",
    "UndecidedWarning": "direct",
    "assert_gradients": "direct",
    "check": "direct",
    "record": "recording.session",
}
"""Public name → the module that holds it, imported when it is asked for: importing gradverify
itself imports nothing else."""


def __getattr__(name: str) -> object:
    if name not in OFFERED:
        raise AttributeError(f"module 'gradverify' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gradverify.{OFFERED[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *OFFERED])
