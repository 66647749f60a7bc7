from __future__ import annotations

from dataclasses import replace

import pytest
from live import case, tensor

from gradverify.model.case import InputRecipe, Search, TensorRecipe
from gradverify.running.inline import Devices, cuda_of, installed, placed, skipped

NONE, ONE = Devices((), 1), Devices(("a GPU",), 1)


def test_a_module_in_a_folder_of_the_spec_counts_and_is_not_imported(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "part.py").write_text("raise SystemExit('imported')")
    for search in (Search(folder=str(tmp_path)), Search(path=(str(tmp_path),))):
        assert installed("mine", search) and installed("pack.part", search)
    assert not installed("mine", Search())


CUDA = InputRecipe("x", TensorRecipe(shape=(2,), device="cuda"))


@pytest.mark.parametrize(
    "wants",
    [
        case(device="cuda"),
        case(requires=("cuda",)),
        case(inputs=[CUDA]),
        case(inputs=[InputRecipe("x", tensors=(CUDA.tensor,))]),
    ],
)
def test_a_device_is_wanted_by_a_setting_a_requirement_or_a_single_input(wants):
    missing = skipped(wants, NONE)
    assert (missing.reason, missing.missing) == ("no CUDA device", "cuda")
    assert skipped(wants, ONE) is None


def test_a_second_device_is_not_the_first():
    second = case(inputs=[InputRecipe("x", TensorRecipe(shape=(2,), device="cuda:1"))])
    assert skipped(second, ONE).missing == "cuda"
    found = skipped(case(requires=("cuda:1",)), ONE)
    assert found.reason == "there is no cuda:1: 1 CUDA device(s) seen"


@pytest.mark.parametrize(("machine", "device"), [(NONE, "cpu"), (ONE, "cuda"), (None, "cpu")])
def test_auto_is_settled_for_the_check_and_for_each_input(machine, device):
    auto = TensorRecipe(shape=(2,), device="auto")
    wanted = case(
        device="auto",
        inputs=[
            InputRecipe("x", auto),
            InputRecipe("xs", tensors=(auto, replace(auto, device="cpu"))),
            tensor(2),
        ],
    )
    seen = placed(wanted, machine)
    assert (
        seen.settings.device == device
        and seen.inputs[0].tensor.device == device
        and seen.inputs[2].tensor.device is None
    )
    assert [recipe.device for recipe in seen.inputs[1].tensors] == [device, "cpu"]


@pytest.mark.parametrize(
    ("runs", "there"),
    [
        (case(device="cuda"), {"cuda:0"}),
        (case(device="cuda:0"), {"cuda:0"}),
        (case(device="cuda:1", other_device="cuda"), {"cuda:0", "cuda:1"}),
        (case(inputs=[CUDA]), {"cuda:0"}),
        (case(requires=("cuda", "module:torch")), {"cuda:0"}),
        (case(), set()),
    ],
)
def test_a_check_takes_the_devices_of_all_its_parts_by_their_numbers(runs, there):
    """Two that share one never run at the same time, however they name it."""
    assert cuda_of(runs) == there
