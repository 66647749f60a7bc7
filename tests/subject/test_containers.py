"""Tensors inside containers are inputs: taken apart, named by their path, differentiated, put
together for every call; others are told of.

The class: every way in which a tensor can reach a function without being an argument itself. A
wrong gradient of any of them must be found.
"""

from __future__ import annotations

import collections
import dataclasses
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from live import Oracles, case, check, codes, message, plain, randn
from torch import Tensor
from torch.autograd import Function
from torch.nn.utils.rnn import pack_sequence

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.subject.forms import taken_apart
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

Pair = namedtuple("Pair", "a b")


@dataclasses.dataclass(frozen=True)
class Frozen:
    h: Tensor
    n: int


@dataclasses.dataclass(slots=True)
class Slots:
    h: Tensor
    more: list


class Rows(list):
    pass


class Times(Function):
    """x · y, whose gradient of y is `factor` times the right one."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @classmethod
    def backward(cls, ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, Times.factor * grad_output * x


def double(*shape, seed=0):
    return randn(*shape, seed=seed)


X, H = double(3), double(3, seed=1)
HELD = {
    "dict": ({"h": H, "n": 2}, ".h", lambda s: s["h"]),
    "list": ([H, 2], "[0]", lambda s: s[0]),
    "namedtuple": (Pair(H, "mean"), ".a", lambda s: s.a),
    "default": (collections.defaultdict(list, h=H), ".h", lambda s: s["h"]),
    "frozen dataclass": (Frozen(H, 3), ".h", lambda s: s.h),
    "slots": (Slots(H, [1]), ".h", lambda s: s.h),
    "deep": ({"a": [{"b": (Frozen(H, 3),)}]}, ".a[0].b[0].h", lambda s: s["a"][0]["b"][0].h),
    "key": ({7: H}, "[7]", lambda s: s[7]),
    "own list": (Rows([H]), "[0]", lambda s: s[0]),
}


def test_a_list_that_holds_itself_ends():
    loop = [H]
    loop.append(loop)
    assert [path for path, _ in taken_apart(loop).elements] == ["[0]", "[1]"]


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_tensor_in_a_container_is_differentiated(kind, factor, monkeypatch):
    monkeypatch.setattr(Times, "factor", factor)
    value, path, got = HELD[kind]
    result = check(lambda x, state: Times.apply(x, got(state)), X, value)
    compared = {each.input: each.mismatched for each in result.comparisons if each.rule == "GV101"}
    assert compared == {"x": 0, f"state{path}": 3 if factor != 1 else 0}
    assert codes(result) == (set() if factor == 1 else {"GV101"})


def test_a_packed_sequence_is_taken_apart():
    packed = pack_sequence([double(3), double(2)])
    result = check(lambda packed: packed.data.sin().sum(), packed)
    assert (
        result.verdict,
        {each.input for each in result.comparisons if each.rule == "GV101"},
    ) == ("pass", {"packed.data"})


def test_every_call_gets_a_container_of_its_own():
    def pops(state):
        return state.pop("h") * 2

    assert codes(check(pops, {"h": H})) == set()


def test_a_write_into_a_tensor_of_a_container_is_seen():
    def writes(x, state):
        state["h"].mul_(2)
        return x * state["h"]

    found = check(writes, X, {"h": H})
    assert "GV203" in codes(found) and {
        each.input for each in found.findings if each.code == "GV203"
    } == {"state.h"}


class Opaque:
    def __init__(self, h):
        self.h = h


class Slotted:
    __slots__ = ("h",)

    def __init__(self, h):
        self.h = h


@pytest.mark.parametrize(
    "value",
    [
        Opaque(H),
        Slotted(H),
        Opaque([{"a": H}]),
        Opaque(Opaque(H)),
        torch.nn.Linear(1, 1),
        SimpleNamespace(h=H),
        (lambda h: lambda: h)(H.clone().requires_grad_()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tensors_that_cannot_be_taken_out_are_said(value):
    result = check(lambda x, state: x * 2, X, value)
    assert result.verdict == "pass" and codes(result) == {"GV008"}
    assert result.findings[0].severity == "warning" and "inside state" in message(result, "GV008")


# ---- where they come from
def made(seed, dtype, device):
    source = torch.Generator().manual_seed(seed)
    one, two = (torch.randn(3, generator=source, dtype=dtype) for _ in range(2))
    return {"x": one, "state": {"h": two, "n": 2, "size": (3, 4)}}


def by_name(seed, dtype, device):
    return {"scale": torch.full((3,), 2.0, dtype=dtype), "x": torch.arange(1, 4, dtype=dtype)}


def state_of(shape, dtype, device, generator):
    return {
        "h": torch.randn(shape, dtype=dtype, generator=generator),
        "c": [torch.rand(2, dtype=dtype, generator=generator)],
        "n": 3,
    }


def times_state(x, state):
    return Times.apply(x, state["h"]) * state["n"]


def sums_state(state):
    return state["h"].sin() * state["n"] + state["c"][0].sum()


def keyword_only(x, *, scale):
    return Times.apply(x, scale)


HERE = "subject.test_containers"


def names(subject):
    return [(argument.name, argument.differentiable) for argument in subject.arguments]


def test_inputs_from_may_nest():
    subject = prepare(case(f"{HERE}:times_state", inputs_from=f"{HERE}:made"))
    assert names(subject) == [
        ("x", True),
        ("state.h", True),
        ("state.n", False),
        ("state.size", False),
    ]
    result = verify(subject)
    assert result.verdict == "pass" and [each.name for each in result.inputs] == ["x", "state.h"]


def test_a_wrong_gradient_in_what_inputs_from_nests_is_found(monkeypatch):
    monkeypatch.setattr(Times, "factor", 1.01)
    found = verify(prepare(case(f"{HERE}:times_state", inputs_from=f"{HERE}:made")))
    assert found.verdict == "fail" and found.findings[0].input == "state.h"


def test_a_dict_of_inputs_from_reaches_keywords():
    subject = prepare(case(f"{HERE}:keyword_only", inputs_from=f"{HERE}:by_name"))
    assert [(argument.name, argument.keyword) for argument in subject.arguments] == [
        ("x", False),
        ("scale", True),
    ]
    assert verify(subject).verdict == "pass"


def test_make_may_give_a_container():
    state = InputRecipe(
        "state", TensorRecipe(shape=(3,), draw="make", arguments=f"{HERE}:state_of")
    )
    subject = prepare(case(f"{HERE}:sums_state", [state]))
    assert names(subject) == [("state.h", True), ("state.c[0]", True), ("state.n", False)]
    assert verify(subject).verdict == "pass"
    kept = prepare(
        case(
            f"{HERE}:sums_state",
            [
                InputRecipe(
                    "state",
                    TensorRecipe(
                        shape=(3,), draw="make", arguments=f"{HERE}:state_of", requires_grad=False
                    ),
                )
            ],
        )
    )
    assert not kept.inputs


def test_a_reference_gets_the_same_container():
    result = verify(
        prepare(
            case(
                f"{HERE}:times_state",
                inputs_from=f"{HERE}:made",
                oracles=Oracles(reference=f"{HERE}:times_state"),
            )
        )
    )
    assert result.verdict == "pass" and {
        each.input for each in result.comparisons if each.rule == "GV106"
    } == {"x", "state.h"}


def gradient_of_state(x, state, grad_output):
    return grad_output * state["h"] * state["n"], {"h": grad_output * x * state["n"]}


def test_a_hand_written_gradient_of_a_container_is_one():
    right = Oracles(gradient=f"{HERE}:gradient_of_state")
    result = verify(prepare(case(f"{HERE}:times_state", inputs_from=f"{HERE}:made", oracles=right)))
    assert result.verdict == "pass" and {
        each.input for each in result.comparisons if each.rule == "GV107"
    } == {"x", "state.h"}


def test_a_plain_list_is_no_tensor_and_the_shape_is_offered():
    result = verify(prepare(case("torch:sin", [plain([40, 30], "input")])))
    assert result.findings[0].hint == (
        "`input: [40, 30]` is passed as a list: a tensor of that shape is `input: {shape: [40, "
        "30]}`, one of these numbers `input: {values: [40, 30]}`"
    )
    values = verify(prepare(case("torch:sin", [plain([0.5, 3], "input")])))
    assert (
        values.findings[0].hint
        == "`input: [0.5, 3]` is passed as a list: one of these numbers `input: {values: [0.5, 3]}`"
    )
    assert verify(prepare(case("torch:sin", [plain("mean", "input")]))).findings[0].hint is None
