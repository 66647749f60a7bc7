"""Operators of torch's sample database in 16 bits, and the same under the disguise in which 16 bits
look like float64: no call raises that does not in 16 bits, shapes and dtypes are the same, and
numbers but for rounding. `benchmarks/disguised_operators.py` takes all; of these, torch decomposes
`rms_norm` and `scaled_dot_product_attention` by their dtype, above what the disguise sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAMPLE = (
    "matmul addmv squeeze t resize_ native_group_norm softmax cumsum index_add var_mean "
    "nn.functional.cross_entropy stack norm"
)
RUN = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch, disguised_operators as script
from gradverify.subject import rounding
torch.set_num_threads(1)

def disagreeing(*names):
    return {f"{op.full_name} {dtype}": found for op in script.operators() if op.full_name in names for dtype in script.DTYPES
            if (found := list(script.disagreements(op, dtype)))}

now = disagreeing(*sys.argv[1].split())
# the disguise as it was: what writes a shape writes into a copy
rounding._is_view = lambda func: any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
print(json.dumps([now, disagreeing("matmul")]))
"""


@pytest.mark.timeout(280)
def test_the_disguise_changes_no_operator_and_one_that_does_is_seen():
    done = subprocess.run(
        [sys.executable, "-c", RUN, SAMPLE],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    now, before = json.loads(done.stdout)
    assert now == {}
    assert before and all(
        "shape [1, 5], not [5]" in text for texts in before.values() for text in texts
    )
