from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradverify.subject.failure import UserCodeError, blamed, describe, user_frames


def raised(call):
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_frames_of_torch_and_of_gradverify_are_left_out():
    def mine():
        torch.nn.functional.conv1d(torch.ones(1), torch.ones(2), stride="three")

    def blames():
        with blamed("GV002", "forward"):
            torch.nn.Linear(2, 2)(torch.ones(3))

    assert [frame.function for frame in user_frames(raised(mine))] == ["raised", "mine"]
    assert {Path(frame.file).name for frame in raised(blames).frames} == {"test_failure.py"}


@pytest.mark.parametrize(
    "error",
    [ValueError("text"), SystemExit(0), RecursionError(), MemoryError("big"), StopIteration()],
)
def test_whatever_user_code_raises_is_blamed(error):
    with pytest.raises(UserCodeError) as caught, blamed("GV003", "backward"):
        raise error
    assert caught.value.code == "GV003"
    assert caught.value.message.startswith(f"backward raised {type(error).__name__}")


def test_ctrl_c_is_nobodys_fault():
    with pytest.raises(KeyboardInterrupt), blamed("GV003", "backward"):
        raise KeyboardInterrupt


def test_a_message_is_one_line_and_survives_an_exception_that_cannot_speak():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    assert describe(ValueError("a\n  b")) == "ValueError: a b"
    assert describe(ValueError()) == "ValueError"
    assert describe(MuteError()) == "MuteError"


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("expected scalar type Float but found Double", True),
        ("\"rope_cuda\" not implemented for 'Double'", True),
        ("expected scalar type ComplexFloat but found ComplexDouble", True),
        ("\"rope\" not implemented for 'Half'", False),
        ("expected scalar type Double but found Float", False),
    ],
)
def test_a_function_that_refuses_float64_comes_with_what_to_write(text, hinted):
    def refuses():
        with blamed("GV002", "forward"):
            raise RuntimeError(text)

    assert (raised(refuses).hint is not None and "dtype: float32" in raised(refuses).hint) == hinted


INDEX = torch.tensor([0.0, 1.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(3)[INDEX],
        lambda: torch.ones(3).gather(0, INDEX),
        lambda: torch.nn.functional.embedding(INDEX, torch.ones(3, 2)),
        lambda: torch.nn.functional.one_hot(INDEX),
        lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), INDEX),
        lambda: torch.bincount(INDEX),
        lambda: torch.ones(3)[INDEX[0] : INDEX[1]],
        lambda: INDEX.double() & 1,
    ],
    ids=["[]", "gather", "embedding", "one_hot", "cross_entropy", "bincount", "slice", "bitwise"],
)
def test_indices_that_are_no_whole_numbers_come_with_what_to_write(call):
    def refused():
        with blamed("GV002", "forward"):
            call()

    assert "dtype: int64" in raised(refused).hint


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2).masked_fill(INDEX, 0.0),
        lambda: torch.where(INDEX, INDEX, INDEX),
        lambda: torch.ones(2).masked_select(INDEX),
    ],
    ids=["masked_fill", "where", "masked_select"],
)
def test_a_mask_that_is_none_comes_with_what_to_write(call):
    def refused():
        with blamed("GV002", "forward"):
            call()

    assert "dtype: bool" in raised(refused).hint


def test_of_endless_recursion_each_frame_is_shown_once_and_of_many_the_ends():
    def itself():
        itself()

    def even(n):
        odd(n + 1)

    def odd(n):
        even(n + 1)

    assert [frame.function for frame in user_frames(raised(itself))] == ["raised", "itself"]
    seen = [frame.function for frame in user_frames(raised(lambda: even(0)))]
    assert seen[:4] == ["raised", "<lambda>", "even", "odd"] and len(seen) == 16


def test_a_file_that_is_no_python_is_shown_at_its_line(tmp_path):
    path = tmp_path / "op.py"
    path.write_text("import torch\ndef f(x:\n    return x\n")
    last = user_frames(raised(lambda: compile(path.read_text(), str(path), "exec")))[-1]
    assert (last.file, last.line, last.text) == (str(path), 2, "def f(x:")
