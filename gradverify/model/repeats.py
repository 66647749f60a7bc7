"""What the repeats of one check came to, each and together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradverify.model.result import CaseResult, Repeat, Verdict

SAID: dict[Verdict, str] = {"fail": "failed", "error": "could not be judged", "undecided": "came out undecided", "pass": "passed"}
SAID_OF_ALL: dict[Verdict, str] = {"fail": "all {} repeats failed", "error": "none of {} repeats could be judged",
                                   "undecided": "all {} repeats came out undecided", "pass": "all {} repeats passed"}
MOST_SEEDS = 5


def repeat_of(result: CaseResult) -> Repeat:
    """What of a judged result is kept of each repeat."""
    found = tuple(dict.fromkeys(finding.code for finding in result.findings))
    first = next((finding.message for finding in result.findings if finding.severity == "error"), None)
    return Repeat(result.seed, result.verdict, result.ok is not False, result.seconds, result.calls, found, result.reason or first)


def told(results: Sequence[CaseResult | Repeat]) -> str | None:
    """`2 of 5 repeats failed (seeds 1, 3); 3 passed (seeds 0, 2, 4)`; None where all came out alike and as expected."""
    by_verdict = {verdict: [result.seed for result in results if result.verdict == verdict] for verdict in SAID}
    groups = [(SAID[verdict], seeds) for verdict, seeds in by_verdict.items() if seeds]
    bad = [result.seed for result in results if result.ok is False]
    if len(groups) < 2:
        if bad and len(bad) < len(results):     # the same verdict by other findings, where `expect` lists codes
            return f"{len(bad)} of {len(results)} repeats were not as expected ({_seeds(bad)})"
        return SAID_OF_ALL[results[0].verdict].format(len(results)) if bad and len(results) > 1 else None
    counts = [f"{len(groups[0][1])} of {len(results)} repeats", *(str(len(seeds)) for _, seeds in groups[1:])]
    return "; ".join(f"{count} {said} ({_seeds(seeds)})" for count, (said, seeds) in zip(counts, groups, strict=True))


def _seeds(seeds: Iterable[int]) -> str:
    seeds = sorted(seeds)
    shown = ", ".join(map(str, seeds[:MOST_SEEDS])) + (" …" if len(seeds) > MOST_SEEDS else "")
    return f"seed{'s' * (len(seeds) > 1)} {shown}"
