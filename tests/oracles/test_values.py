"""Forward values within bars."""

from live import Oracles, check, codes, evidence, randn
from torch.autograd import Function

from gradverify.numerics.pairs.pair import Outcome

HERE = "oracles.test_values"
OFFSET = 1e9


def cancels(x):
    """x, by a way that loses nine of its sixteen digits."""
    return (x + OFFSET) - OFFSET


def identity(x):
    return x * 1


def values(function, reference, **settings):
    return evidence(
        function, randn(6), oracles=Oracles(reference=f"{HERE}:{reference}"), **settings
    ).reference.value_pairs[0]


def test_where_rounding_hides_more_than_the_tolerance_nothing_is_said():
    assert values(cancels, "identity", rtol=1e-9).count(Outcome.UNDECIDED) >= 4
    assert values(cancels, "identity", rtol=1e-9).count(Outcome.MISMATCH) == 0
    result = check(
        lambda x: cancels(x).detach() + (x - x.detach()),
        randn(6),
        rtol=1e-9,
        oracles=Oracles(reference=f"{HERE}:identity"),
    )
    assert "GV105" not in codes(result)


def test_undecided_values_are_no_pass():
    result = check(cancels, randn(6), rtol=1e-9, oracles=Oracles(reference=f"{HERE}:identity"))
    assert result.verdict == "undecided"
    assert any(
        "could not be compared with reference" in finding.message for finding in result.findings
    )


class MoreThanSquare(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x + 1e-3 * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x + 1e-3)


def square(x):
    return x * x


def test_where_the_forwards_differ_the_gradients_point_at_forward(recwarn):
    """Which of the two functions is meant is not known, and backward is that of its forward."""
    result = check(MoreThanSquare, randn(3), oracles=Oracles(reference=f"{HERE}:square"))
    assert [found.code for found in result.findings][:2] == ["GV105", "GV106"]
    for found in result.findings[:2]:
        assert "def forward" in found.source
    assert not [each for each in recwarn if issubclass(each.category, RuntimeWarning)]
