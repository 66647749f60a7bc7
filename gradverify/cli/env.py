"""`gradverify env`: properties of the machine, for bug reports; `gradverify schema`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

from gradverify.cli.bug import version_of
from gradverify.cli.options import Options, command
from gradverify.cli.output import Output
from gradverify.model.codec import as_text
from gradverify.model.problem import OK

PACKAGES = ("gradverify", "torch", "numpy", "typer", "rich", "PyYAML", "pydantic", "Jinja2")
VARIABLES = (
    "CI",
    "PRE_COMMIT",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "COLUMNS",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)

TORCH_PROGRAM = """
import torch
print("cuda build:", torch.version.cuda or torch.version.hip or "none")
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print("cuda devices:", ", ".join(names) or "none")
print("threads:", torch.get_num_threads())
"""
TORCH_LIMIT = 120
"""Seconds: a first import from a slow disk takes tens of them."""


@command()
def env_command(options: Options, out: Output) -> int:
    """Print versions, platform and devices, for bug reports."""
    out.write("".join(f"{line}\n" for line in _lines()))
    return OK


def _lines() -> Iterator[str]:
    yield f"python: {platform.python_version()} ({sys.executable})"
    yield f"platform: {platform.platform()}, {os.cpu_count()} CPUs"
    for package in PACKAGES:
        yield f"{package}: {version_of(package) or 'not installed'}"
    yield from _torch_lines()
    yield from (f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ)


def _torch_lines() -> list[str]:
    """Return lines about torch, from another process, as this one does not import torch."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", TORCH_PROGRAM],
            capture_output=True,
            text=True,
            timeout=TORCH_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"torch does not answer: {error}"]
    if done.returncode:
        return [
            f"torch cannot be imported: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        ]
    return done.stdout.splitlines()


@command("report_schema")
def schema_command(options: Options, out: Output) -> int:
    """Print the JSON Schema of specs for editors; with --report, that of the JSON report."""
    from gradverify.report.json import report_schema
    from gradverify.spec.schema import json_schema

    out.write(as_text(report_schema() if options.report_schema else json_schema()))
    return OK
