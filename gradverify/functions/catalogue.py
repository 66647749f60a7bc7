"""The built-in functions by name, without importing torch, for the validation of specs; and the
location of their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Builtin:
    """One built-in. `parameters` are its inputs in the order of a call, of which the first
    `required` have no default.

    For a module, they are the inputs of its forward, then its parameters by the names that a spec
    addresses them with; only inputs of forward can be required. `module` and `attribute`: where the
    Function, callable or module class is.
    """

    name: str
    parameters: tuple[str, ...]
    required: int
    summary: str
    module: str
    attribute: str


_ALL = (
    Builtin(
        "linear",
        ("input", "weight", "bias"),
        2,
        "input @ weight.T + bias, bias optional",
        "gradverify.functions.linear",
        "LinearFunction",
    ),
    Builtin(
        "Linear",
        ("input", "weight", "bias"),
        1,
        "the linear layer as a module: init {in_features, out_features, bias}",
        "gradverify.functions.linear",
        "Linear",
    ),
    Builtin("mm", ("x", "w"), 2, "x @ w of two matrices", "gradverify.functions.linear", "MatMul"),
    Builtin(
        "affine",
        ("x", "w", "b"),
        3,
        "x @ w + b, composed of mm and add",
        "gradverify.functions.linear",
        "affine",
    ),
    Builtin(
        "add", ("x", "y"), 2, "x + y with broadcasting", "gradverify.functions.arithmetic", "Add"
    ),
    Builtin(
        "mul", ("x", "y"), 2, "x * y with broadcasting", "gradverify.functions.arithmetic", "Mul"
    ),
    Builtin(
        "mul_add_sum",
        ("x", "y", "z"),
        3,
        "sum(x * y + z)",
        "gradverify.functions.arithmetic",
        "MulAddSum",
    ),
    Builtin(
        "abs_mul",
        ("u", "v"),
        2,
        "|u * v|, element by element",
        "gradverify.functions.arithmetic",
        "AbsMul",
    ),
    Builtin(
        "square_of_sum",
        ("x", "y"),
        2,
        "(x + y) ** 2",
        "gradverify.functions.arithmetic",
        "SquareOfSum",
    ),
    Builtin(
        "kill_head",
        ("input", "n"),
        2,
        "input with its first n columns set to zero",
        "gradverify.functions.selection",
        "KillHead",
    ),
    Builtin("relu", ("input",), 1, "max(input, 0)", "gradverify.functions.activations", "ReLU"),
    Builtin(
        "sigmoid",
        ("input",),
        1,
        "1 / (1 + exp(-input))",
        "gradverify.functions.activations",
        "Sigmoid",
    ),
    Builtin(
        "softmax",
        ("input", "dim"),
        2,
        "softmax along one dimension",
        "gradverify.functions.activations",
        "Softmax",
    ),
    Builtin(
        "cross_entropy",
        ("input", "target"),
        2,
        "mean cross entropy of logits (N, C) and integer targets (N)",
        "gradverify.functions.losses",
        "CrossEntropy",
    ),
    Builtin(
        "shop",
        ("apple", "n1", "tangerine", "n2", "tax"),
        5,
        "(apple * n1 + tangerine * n2) * tax, tangerine and n2 optional (null)",
        "gradverify.functions.shop",
        "Shop",
    ),
)

BUILTINS: Mapping[str, Builtin] = MappingProxyType({builtin.name: builtin for builtin in _ALL})
