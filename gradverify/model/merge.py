"""The shards of one run joined: the report that the run would have left undivided, except for times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gradverify.model.event import Shard
from gradverify.model.problem import NOT_JUDGED, Problem, ProblemsError
from gradverify.model.report import Gate, Report, exit_code, judged, summarise


@dataclass(frozen=True, slots=True)
class Part:
    """A shard's report, and how its file is called."""

    name: str
    report: Report
    shard: Shard

    @property
    def run(self) -> tuple[str, int, int]:
        """The same for all shards of a run."""
        return self.shard.of, self.shard.count, self.shard.total


def merged(reports: Sequence[tuple[str, Report]]) -> Report:
    """Of (name of its file, report) for each shard of one run, in any order. Raises ProblemsError where they are no whole, with one sentence."""
    parts = [Part(name, report, report.selection.shard) for name, report in reports if report.selection.shard is not None]
    refusal = next(_unsharded(reports), None) or next(_refusals(parts), None)
    if refusal:
        raise ProblemsError([Problem(refusal)])
    return _joined(sorted(parts, key=lambda part: part.shard.index))


def differing(reports: Sequence[Report]) -> tuple[str, ...]:
    """What the machines that ran the shards had not in common, a sentence each."""
    seen = {name: dict.fromkeys(getattr(report.environment, name) or "none" for report in reports) for name in ("python", "torch", "numpy")}
    return tuple(f"the shards ran with different versions of {name}: {', '.join(versions)}" for name, versions in seen.items() if len(versions) > 1)


def _joined(parts: Sequence[Part]) -> Report:
    first = parts[0].report
    places = [(place, check) for part in parts for place, check in zip(part.shard.places, part.report.checks, strict=True)]
    checks = tuple(check for _, check in sorted(places, key=lambda placed: placed[0]))
    machines = [part.report.environment for part in parts]      # a shard in which nothing ran did not ask what it has
    crashes = tuple(dict.fromkeys(part.report.crashed for part in parts if part.report.crashed))
    interrupted = next((part.report.exit_code or NOT_JUDGED for part in parts if part.report.interrupted), None)
    started_at = min((part.report.started_at for part in parts), key=datetime.fromisoformat)
    return replace(
        first, started_at=started_at, duration_s=max(part.report.duration_s for part in parts),
        argv=tuple(_undivided(first.argv)), exit_code=exit_code(checks, interrupted, bool(crashes)), interrupted=interrupted is not None,
        environment=next((machine for machine in machines if machine.threads is not None), machines[0]),
        selection=replace(first.selection, shard=None), summary=summarise(checks), checks=checks, crashed="\n".join(crashes) or None,
        forgiven=None)      # what `--exit-zero` spared the jobs of the shards, their whole answers for


def _undivided(argv: Sequence[str]) -> Iterator[str]:
    """The command without `--shard I/N`."""
    words = iter(argv)
    for word in words:
        if word == "--shard":
            next(words, None)
        elif not word.startswith("--shard="):
            yield word


def _unsharded(reports: Sequence[tuple[str, Report]]) -> Iterator[str]:
    for name, report in reports:
        if report.selection.shard is None:
            yield f"{name} is the report of a whole run, no shard: `merge` joins the reports of `check --shard I/N`"


def _refusals(parts: Sequence[Part]) -> Iterator[str]:
    """Shards of another run than most, or than the first; shards that are there twice, or missing; and checks that are not those of their shard."""
    most, _ = Counter(part.run for part in parts).most_common(1)[0]
    own = next(part for part in parts if part.run == most)
    for part in parts:
        if part.run != most:
            yield f"{part.name} belongs to another run than {own.name}: {_difference(part.shard, own.shard)}"
        if part.report.tool.version != own.report.tool.version:
            yield f"{part.name} was written by gradverify {part.report.tool.version}, {own.name} by {own.report.tool.version}"
    count, known = own.shard.count, dict[int, Part]()
    for part in parts:
        before = known.setdefault(part.shard.index, part)
        if before is not part:
            yield f"{before.name} and {part.name} are both shard {part.shard.index} of {count}"
    absent = [str(index) for index in range(1, count + 1) if index not in known]
    if absent:
        names = " and ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))
        yield f"shard{'s' * (len(absent) > 1)} {names} of {count} {'are' if len(absent) > 1 else 'is'} missing"
    for part in parts:
        if len(part.report.checks) != len(part.shard.places):
            yield f"{part.name} does not hold the checks of its shard: {len(part.report.checks)} of {len(part.shard.places)}"
    places = sorted(place for part in parts for place in part.shard.places)
    if places != list(range(own.shard.total)):
        yield f"the shards together hold {len(places)} checks at other places than the {own.shard.total} that were divided"
    holders: dict[str, str] = {}
    for part in parts:      # what no run writes: somebody changed the file
        for check in part.report.checks:
            if check.id in holders:
                yield f"{check.id} is in {holders[check.id]} and again in {part.name}"
            holders[check.id] = part.name
            if check.verdict == "pass" and any(finding.severity == "error" for finding in check.findings):
                yield f"{part.name} contradicts itself: {check.id} is `pass`, and has errors"
            elif check.ok not in {judged(check, gate).ok for gate in (Gate(), Gate("fail", fail_on_skip=True))}:
                yield f"{part.name} contradicts itself: {check.id} is `{check.verdict}`, and that is {'' if check.ok else 'not '}as expected"


def _difference(one: Shard, other: Shard) -> str:
    if one.count != other.count:
        return f"it is one of {one.count} shards, not of {other.count}"
    if one.total != other.total:
        return f"{one.total} checks were divided, not {other.total}"
    return "other checks or sources, or under other settings"
