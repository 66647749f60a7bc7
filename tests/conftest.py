import gc
import os
import sys
from pathlib import Path

os.environ.pop("PYTEST_ADDOPTS", None)  # of this run, and not of those that tests start
# Before torch is imported: small tensors on two threads wait more than they compute
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from sampling import sample

GOLDEN = Path(__file__).parent / "golden"
LONG = (
    "gallery/test_cpp_extension.py",
    "docs/test_snippets.py",
    "hostile/test_processes.py",
    "hostile/test_environment.py",
    "cli/test_init.py",
    "test_toy_repository.py",
    "test_pre_commit.py",
    "test_pytest_plugin.py",
    "docs/test_contributing.py",
    "test_packaging.py",
    # These files first: no process waits for one of them at the end
    "trial/test_propose.py",
    "running/test_same_everywhere.py",
)


def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores: hundreds of tests wait for what they started."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.fixture
def golden():
    """`golden(name, text)` compares with tests/golden/<name>; GRADVERIFY_UPDATE_GOLDEN=1 writes the
    file anew."""

    def compare(name, text):
        path = GOLDEN / name
        if os.environ.get("GRADVERIFY_UPDATE_GOLDEN") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), (
            f"tests/golden/{name} is missing: run with GRADVERIFY_UPDATE_GOLDEN=1 and read what it "
            "writes"
        )
        assert text == path.read_text(encoding="utf-8")

    return compare


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "population(by=None, most=None): a population of cases, of which the suite keeps a "
        "stratified sample; GRADVERIFY_POPULATION=all keeps them all (benchmarks/populations.py)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is collected, and torch, stay: looking through them for garbage again and again finds
    none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    long = {Path(__file__).parent / name for name in LONG}
    assert all(map(Path.is_file, long)), "LONG names a file that is gone"
    items.sort(key=lambda item: item.path not in long)
    if os.environ.get("GRADVERIFY_POPULATION") == "all":
        return
    populations, kept = {}, set()
    for item in items:
        if item.get_closest_marker("population"):
            populations.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for members in populations.values():
        mark = members[0].get_closest_marker("population")
        kept |= set(sample(members, *mark.args, **mark.kwargs))
    left_out = {item for members in populations.values() for item in members} - kept
    # One case that is asked for by its name runs
    if left_out and not (len(items) == 1 and config.args == [items[0].nodeid]):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _settings_of_torch():
    """What a test leaves changed in torch, later tests of the process would meet; it fails, and
    they do not."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        found = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device().type,
        )
        torch.use_deterministic_algorithms(False)
        assert found == (False, True, torch.float32, "cpu")
