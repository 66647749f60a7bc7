"""Forward values within bars."""

from live import Oracles, check, codes, evidence, randn

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
