"""What every check needs is imported once, before workers are forked: none of them pays for it
again."""

import subprocess
import sys

LATE = """
import sys
import gradverify.running.preload
from gradverify.cli.gather import gather
from gradverify.running.inline import run_case
before = set(sys.modules)
result = run_case(gather(["s.yaml"]).cases[0])
print(result.verdict, *sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ("torch", "numpy", "sympy", "mpmath")))
"""


def test_a_first_check_imports_nothing_more_of_torch_and_numpy(tmp_path):
    """Nor in forward mode, where torch's kernel of `x * 2` would import the compiler to turn it
    off."""
    (tmp_path / "op.py").write_text("def f(x):\n    return x * 2\n")
    (tmp_path / "s.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {function: 'op.py:f', inputs: {x: {shape: [2]}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["pass"], done.stderr
