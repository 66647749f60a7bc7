from __future__ import annotations

import torch
from live import fixed, randn, subject

from gradverify.subject.batches import Batches
from gradverify.subject.subject import Argument

X = randn(4, 3)


def batches(function, *values, checked=(0,), shape=(4, 3)) -> Batches:
    made = subject(function, *values)
    return Batches(made, checked, [[torch.ones(shape, dtype=torch.float64)] for _ in range(3)], torch.Generator().manual_seed(0))


def test_a_function_that_is_defined_at_x_alone_has_no_loop():
    def only_here(x):
        if not torch.equal(x.detach(), X):
            raise ValueError("elsewhere")
        return x.sin()

    assert batches(only_here, X).impossible == "a loop over other points is refused: forward raised ValueError: elsewhere"
    assert batches(torch.sin, X).impossible is None


def test_symmetry_domains_and_integers_stay():
    symmetric = batches(torch.sin, Argument("", X[:3] + X[:3].mT, True, symmetric=True), shape=(3, 3)).points((0,))
    assert all(torch.equal(point[0], point[0].mT) for point in symmetric)
    inside = batches(torch.sin, Argument("", X, True, domain=(-0.5, 0.5))).points((0,))
    assert all(float(point[0].abs().max()) <= 0.5 for point in inside[1:])
    index = torch.tensor([0, 3, 3, 1])
    rows = batches(lambda x, index: x[index], X, fixed(index)).points((0, 0))
    assert [point[1].tolist() for point in rows] == [[0, 3, 3, 1], [1, 3, 3, 0], [0, 3, 3, 1]]


def test_all_are_batched_along_either_end_and_each_alone():
    two = batches(torch.mul, X, X)
    assert two.variants == ((0, 0), (-1, -1), (-1, None), (None, -1))
    assert batches(torch.sin, X).variants == ((0,), (-1,))
    assert all(torch.equal(point[1], X) for point in two.points((-1, None)))
