"""Every planted fault is found and named where it is, and nowhere else, in each comparison that
claims to see it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics import prepare
from gradverify.numerics.choose import Mode
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Verdict
from gradverify.rules.chosen import could_miss
from numerics.differentiable import DOUBLE, normal
from numerics.planted import Planted, named
from numerics.windows import along_last

R, C = 16, 8
SCORES = normal(0, R, C)
INDEX = torch.tensor([1, 3, 3, 7, 1, 0])


def softmax(x):
    return x.softmax(-1)


def flat(row, column):
    return row * C + column


def row_leaks(g, x, cotangent):
    g[4] += 0.3 * cotangent[9]


def leaking(x):
    return x.softmax(-1) + 0.1 * x[9, 0] * torch.eye(R, dtype=DOUBLE)[4, :, None]


def one_entry(g, x, cotangent):
    y = x[5].softmax(-1)
    g[5, 3] -= 0.01 * y[7] * y[3] * cotangent[5, 7]


def zero_sum(g, x, cotangent):
    g[3, 2] += 0.1 * (cotangent[8, 0] - cotangent[8, 1])


def cancelling(g, x, cotangent):
    g[3, 2] += 0.1 * cotangent[8, 0]
    g[5, 1] -= 0.1 * cotangent[8, 0]


def permuted(g, x, cotangent):
    g[6] = g[6].roll(1)


def mean_term(g, x, cotangent):
    """Left out: of each row it sums to zero."""
    g += 1e-3 * (cotangent - cotangent.mean(-1, keepdim=True))


def tail(g, x, cotangent):
    g[256:] = 0


def no_gate(g, x, cotangent):
    g.copy_(cotangent)


def unused_row(g, x, cotangent):
    g[5] += cotangent.sum(0)


def one_element(g, x, cotangent):
    g.view(-1)[1234] *= 1.01


def dead(x):
    return [(i, i) for i in np.flatnonzero(x.numpy().ravel() < 0).tolist()]


PIXELS = normal(3, 30, 30)
PLANTED = {
    "one gradient element by 1 %": Planted(
        F.gelu, normal(1, 64, 64), frozenset({(1234, 1234)}), one_element
    ),
    "one entry of a Jacobian by 1 %": Planted(
        softmax, SCORES, frozenset({(flat(5, 7), flat(5, 3))}), one_entry
    ),
    "row 9 leaks into row 4, backward only": Planted(
        softmax, SCORES, frozenset((flat(9, c), flat(4, c)) for c in range(C)), row_leaks
    ),
    "row 9 leaks into row 4, forward only": Planted(
        leaking, SCORES, frozenset((flat(4, c), flat(9, 0)) for c in range(C)), taught=softmax
    ),
    "wrong tail of a block of 256": Planted(
        F.gelu, normal(2, 280), frozenset((i, i) for i in range(256, 280)), tail
    ),
    "off the structure, zero sum": Planted(
        softmax, SCORES, frozenset((flat(8, c), flat(3, 2)) for c in (0, 1)), zero_sum
    ),
    "two strays that cancel": Planted(
        softmax, SCORES, frozenset({(flat(8, 0), flat(3, 2)), (flat(8, 0), flat(5, 1))}), cancelling
    ),
    "permuted within a row": Planted(
        softmax,
        SCORES,
        frozenset((flat(6, a), flat(6, b)) for a in range(C) for b in range(C)),
        permuted,
    ),
    "a mean term left out": Planted(
        softmax,
        SCORES,
        frozenset((flat(r, a), flat(r, b)) for r in range(R) for a in range(C) for b in range(C)),
        mean_term,
    ),
    "missing relu gate": Planted(torch.relu, PIXELS, frozenset(dead(PIXELS)), no_gate),
    "gradient on an unused embedding row": Planted(
        lambda w: F.embedding(INDEX, w),
        normal(4, 20, 8),
        frozenset((8 * n + c, 40 + c) for n in range(6) for c in range(8)),
        unused_row,
    ),
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_where_it_is_and_nowhere_else(name, mode):
    planted = PLANTED[name]
    compared = planted.compared(mode)
    (pair,) = compared.pairs
    assert pair.verdict is Verdict.MISMATCH
    assert named(compared)
    assert named(compared) <= planted.places
    assert pair.count(Outcome.MISMATCH) <= planted.lines(mode)


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.ENTRIES])
@pytest.mark.parametrize("name", ["off the structure, zero sum", "two strays that cancel"])
def test_what_cancels_in_a_sum_of_plus_and_minus_one_is_seen_whatever_the_draw(name, mode, seed):
    assert PLANTED[name].compared(mode, seed).pairs[0].verdict is Verdict.MISMATCH


@pytest.mark.population("name")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", PLANTED)
def test_without_the_fault_it_passes(name, mode):
    compared = PLANTED[name].right(mode)
    assert compared.pairs[0].verdict is Verdict.PASS


# ---- real sizes
@pytest.mark.parametrize("mode", Mode)
def test_one_entry_of_a_billion_off_by_one_per_cent_is_named(mode):
    def spoil(g, x, cotangent):
        y = x[700].softmax(-1)
        g[700, 3] -= 0.01 * y[7] * y[3] * cotangent[700, 7]

    planted = Planted(
        softmax, normal(1, 1024, 32), frozenset({(700 * 32 + 7, 700 * 32 + 3)}), spoil
    )
    compared = planted.compared(mode)
    (pair,) = compared.pairs
    assert 32768**2 > 10**9 and pair.elements == {Mode.ENTRIES: 32768**2, Mode.BLOCKS: 1024}.get(
        mode, 32768
    )
    assert named(compared) == planted.places


def test_an_entry_that_its_block_drowns_is_seen_by_rows_and_blocks_say_that_they_cannot():
    n, weight = 150, normal(5, 150, 150)
    weight[7, 3] = 1e-4

    def spoil(g, x, cotangent):
        g[3] += 0.01 * weight[7, 3] * cotangent[7]

    planted = Planted(
        lambda x: torch.tanh(weight @ x / n),
        normal(6, n),
        frozenset({(7, 3)}),
        lambda g, x, c: spoil(g, x, c / n),
    )
    found = [planted.compared(mode, seed=1) for mode in Mode]
    assert [compared.pairs[0].verdict for compared in found] == [Verdict.MISMATCH] * 2 + [
        Verdict.PASS
    ]
    assert all(named(compared) == planted.places for compared in found[:2])
    beginning = (
        "Could miss an entry wrong by less than about 1e-08 of the norm of its block (one entry "
        "among very many)"
    )
    assert could_miss(found[2].choice).startswith(beginning)


# ---- structure that was not seen
def blind(monkeypatch, always):
    """Detection that sees rows and no leak between them: in its first guess, or `always`."""
    see = prepare.detected
    monkeypatch.setattr(
        prepare,
        "detected",
        lambda survey, tensor, exact: (
            see(survey, tensor, exact) if exact and not always else (along_last(R, C),)
        ),
    )


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("mode", Mode)
def test_a_leak_of_the_forward_that_detection_missed_is_named_all_the_same(
    monkeypatch, mode, always
):
    blind(monkeypatch, always)
    planted = PLANTED["row 9 leaks into row 4, forward only"]
    compared = planted.compared(mode)
    assert compared.pairs[0].verdict is Verdict.MISMATCH
    assert named(compared) and named(compared) <= planted.places


@pytest.mark.parametrize("mode", Mode)
def test_a_leak_that_detection_missed_and_the_backward_has_is_no_false_alarm(monkeypatch, mode):
    blind(monkeypatch, always=False)
    compared = PLANTED["row 9 leaks into row 4, forward only"].right(mode)
    assert compared.pairs[0].verdict is Verdict.PASS


@pytest.mark.parametrize("mode", Mode)
def test_a_lone_stray_dependence_is_named_though_one_guess_in_six_misses_it(mode):
    n = 60

    def forward(x):
        return F.gelu(x) + 0.1 * x[40].sin() * torch.eye(n, dtype=DOUBLE)[5]

    planted = Planted(forward, normal(7, n), frozenset({(5, 40)}), taught=F.gelu)
    found = [planted.compared(mode, seed) for seed in (0, 3, 4, 7, 9, 10)]
    assert len({compared.forward for compared in found}) > 1  # not always the same structure
    assert all(named(compared) == planted.places for compared in found)
