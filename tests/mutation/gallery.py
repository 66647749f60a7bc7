"""Checks whose survivors are known by hand: what damage they let through, and what would find
it."""

from __future__ import annotations

from live import case, given, tensor

from gradverify.model.case import Case

SQUARES = [[0.5, -1.25, 0.75], [1.5, 0.25, -2.0]]
ORDERS = [[0.5, -1.25], [1.5, 0.25]]
BEYOND = [15.0, -20.0, 30.0, 12.5]

CHECKS: dict[str, Case] = {
    "equal inputs": case("torch:mul", [given(ORDERS, "x"), given(ORDERS, "y")], ignore=("GV113",)),
    "equal inputs, and a second point": case("torch:mul", [given(ORDERS, "x"), given(ORDERS, "y")]),
    "unequal inputs": case(
        "torch:mul", [given(ORDERS, "x"), given([[2.0, 3.0], [-1.0, 0.5]], "y")]
    ),
    "one tile": case("torch:sin", [tensor(3, 4, name="x")]),
    "two tiles": case("torch:sin", [tensor(3, 6, name="x")]),
    "one column": case("torch:sin", [tensor(20, 1, name="x")]),
    "beyond the clamp": case("mutation.functions:clamped", [given(BEYOND, "x")]),
    "inside the clamp": case("mutation.functions:clamped", [given([0.5, -0.25, 0.75, 0.1], "x")]),
    "loose": case("torch:sin", [given(SQUARES, "x")], rtol=0.05),
    "float32": case("torch:sin", [given(SQUARES, "x")], dtype="float32"),
    "fixed step": case("torch:sin", [given(SQUARES, "x")], eps=1e-6),
    "values only": case("torch:sin", [given(SQUARES, "x")], select=("GV201",)),
    "kink": case("mutation.functions:RightSlope", [given([0.0, 0.0], "x")]),
    "symmetric function": case("torch:add", [given(SQUARES, "x"), given(BEYOND[:3], "y")]),
    "sum": case("torch:add", [given(SQUARES, "x"), given(SQUARES, "y")]),
}
