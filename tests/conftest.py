import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")      # before torch is imported: small tensors on two threads wait more than they compute

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores: hundreds of tests wait for what they started."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.fixture
def golden():
    """`golden(name, text)` compares with tests/golden/<name>; GRADVERIFY_UPDATE_GOLDEN=1 writes the file anew."""

    def compare(name, text):
        path = GOLDEN / name
        if os.environ.get("GRADVERIFY_UPDATE_GOLDEN") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"tests/golden/{name} is missing: run with GRADVERIFY_UPDATE_GOLDEN=1 and read what it writes"
        assert text == path.read_text(encoding="utf-8")

    return compare
