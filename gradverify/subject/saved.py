"""`--save-failures`: what a check was wrong at, in a file that `torch.load` reads."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.model.fault import described
from gradverify.model.interrupt import is_interrupt
from gradverify.model.paths import shown_path
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult, Comparison
from gradverify.subject.find import run_folder
from gradverify.subject.layout import laid
from gradverify.subject.subject import Subject

JACOBIAN = ("GV101", "GV111")
"""Rules whose elements are slopes of the function at the check's own inputs."""

LONGEST_NAME = 80               # characters of a file's name, without what tells it from others


def saved(subject: Subject, result: CaseResult) -> CaseResult:
    """The result, with the file that was written into the folder of the case where elements of its Jacobian are wrong; or why there is none."""
    case = subject.case
    if judged(result, Gate()).ok is not False or result.verdict != "fail" or case.save is None:
        return result
    wrong = [each for each in result.comparisons if each.rule in JACOBIAN and each.mismatched and each.worst and each.output is not None]
    if not wrong:
        return replace(result, unsaved="no element of the Jacobian at these inputs is wrong")
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", f"{case.name}").strip("-.")[:LONGEST_NAME] or "check"
    name = f"{slug}-{hashlib.sha256(f'{case.id} {case.settings.seed}'.encode(errors='backslashreplace')).hexdigest()[:8]}.pt"
    try:
        torch.save(_call(subject, wrong), written := io.BytesIO())
        (path := Path(case.save, name)).write_bytes(written.getvalue())
    except BaseException as error:
        if is_interrupt(error):
            raise
        return replace(result, unsaved=described(error))
    return replace(result, saved=(shown_path(str(path), run_folder()),))


def _call(subject: Subject, wrong: list[Comparison]) -> dict[str, Any]:
    """What the function gets, and the worst element of each wrong pair with the cotangent whose gradient it is in."""
    called = subject.called(subject.leaves())
    values = [laid(a.value, a.layout).detach().requires_grad_(a.differentiable) if a.is_tensor else a.value for a in subject.arguments]
    args, kwargs = subject.arranged(values)
    lent = subject.parameters(values) | (subject.buffers(called) if subject.target.kind == "module" else {})
    elements = [{"input": each.input, "output": each.output, **asdict(each.worst[0]), "cotangent": _cotangent(called.outputs[each.output or 0], each)}
                for each in wrong]
    return {"function": subject.case.target, "seed": subject.case.settings.seed, "init": dict(subject.case.init or {}), "state": lent,
            "args": args, "kwargs": kwargs, "wrong": elements}


def _cotangent(output: Tensor, comparison: Comparison) -> Tensor:
    """One at the output element; i for the imaginary part of a complex one, whose real product with it is that part."""
    entry, cotangent = comparison.worst[0], torch.zeros_like(output, memory_format=torch.contiguous_format).detach()
    one: complex = 1j if entry.output_part == "im" else 1
    cotangent[entry.output_index] = one      # type: ignore[assignment]
    return cotangent
