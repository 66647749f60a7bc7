"""README.md says of the verdict benchmark what its page says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = re.compile(
    r"of (\d+) right gradients gradverify called (\S+) wrong, and decided them (all); gradcheck "
    r"called (\d+) wrong\. "
    r"Of as many that were 1 % off, gradverify passed (\S+) and gradcheck (\d+)\."
)


def _totals(checker: str) -> list[int]:
    """Of the page's last row of this checker: checks, false alarms, right ones undecided, missed at
    +1e-4 and at +1 %."""
    row = next(
        line
        for line in (ROOT / "benchmarks/results/verdicts.md").read_text().splitlines()
        if line.startswith(f"| all | all | {checker} |")
    )
    return [int(cell) for cell in row.split("|")[4:9]]


def test_readme_tells_the_counts_of_the_page():
    told = README.search(" ".join((ROOT / "README.md").read_text().split()))
    assert told, "README.md compares the two checkers no more"
    ours, theirs = _totals("gradverify"), _totals("gradcheck slow")
    numbers = [0 if number in ("none", "all") else int(number) for number in told.groups()]
    assert numbers == [ours[0], ours[1], ours[2], theirs[1], ours[4], theirs[4]]
