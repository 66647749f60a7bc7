"""SARIF 2.1.0, for GitHub code scanning and other viewers: one result for each finding, at the line
of backward."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from gradverify.model.case import Json
from gradverify.model.codec import as_text, to_json
from gradverify.model.problem import INTERNAL
from gradverify.model.report import Report
from gradverify.model.rule import RuleInfo
from gradverify.report.names import Place, pair_of, readable
from gradverify.report.reproduce import again
from gradverify.report.terminal.panel import comparisons_of
from gradverify.report.troubles import MEANS, Trouble, title, troubles

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
"""The conventional name of the repository's root, which the reader of the report resolves."""

MOST_RESULTS = 25_000
"""GitHub rejects a run with more results."""


def render(report: Report, book: Sequence[RuleInfo] = ()) -> str:
    """Return the report as SARIF. `book`: the rules, whose pages are included as help. Control
    characters are written as visible escapes, so that no viewer interprets them."""
    report = readable(report)
    found = troubles(report)[:MOST_RESULTS]
    rules = list(dict.fromkeys(trouble.rule for trouble in found))
    pages = {page.code: page for page in book}
    # Runs on different devices have different ids, so that they do not replace one another
    devices = {check.device for check in report.checks}
    run = {
        "tool": {
            "driver": {
                "name": report.tool.name,
                "version": report.tool.version,
                "semanticVersion": report.tool.version,
                "rules": [_rule(rule, pages.get(rule), found) for rule in rules],
            }
        },
        "automationDetails": {
            "id": f"gradverify/{devices.pop()}/" if len(devices) == 1 else "gradverify/"
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {ROOT: {}},
        "invocations": [_invocation(report)],
        "results": [_result(trouble, rules, report) for trouble in found],
    }
    return as_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: str, page: RuleInfo | None, found: Sequence[Trouble]) -> Json:
    if page is None:
        known = next(
            (trouble.finding.name for trouble in found if trouble.rule == rule and trouble.finding),
            rule,
        )
        return {"id": rule, "name": known, "shortDescription": {"text": MEANS.get(rule, known)}}
    sentence = page.message[:1].upper() + page.message[1:]
    return {
        "id": rule,
        "name": page.name,
        "shortDescription": {"text": sentence},
        "fullDescription": {"text": f"{sentence}."},
        "help": {"text": page.page, "markdown": page.page},
        "defaultConfiguration": {"level": page.severity},
        "properties": {"tags": ["gradients", "autograd"]},
    }


def _result(trouble: Trouble, rules: Sequence[str], report: Report) -> Json:
    check, found = trouble.check, trouble.finding
    about = f" ({pair_of(found)})" if found and pair_of(found) else ""
    result = {
        "ruleId": trouble.rule,
        "ruleIndex": rules.index(trouble.rule),
        "level": trouble.level,
        "message": {"text": f"{check.name}: {title(trouble)}{about}: {trouble.message}"},
        "partialFingerprints": {"gradverify/v1": trouble.fingerprint},
        "properties": _properties(trouble, report),
    }
    # GitHub rejects a file in which one result has no place
    place = trouble.place or Place(check.spec.path, check.spec.line)
    own = found is not None and trouble.where is not None and found.line == trouble.where.line
    result["locations"] = [
        {
            **_physical(place, found.source if found and own else None),
            "logicalLocations": [{"fullyQualifiedName": check.function.target, "kind": "function"}],
        }
    ]
    if trouble.where and trouble.spec:
        result["relatedLocations"] = [
            {"id": 1, **_physical(trouble.spec), "message": {"text": "the check"}}
        ]
    return result


def _physical(place: Place, snippet: str | None = None) -> Json:
    """Return the physical location: relative to the root of the repository, or as given if the file
    lies elsewhere."""
    root = {} if place.file.startswith(("/", "../")) else {"uriBaseId": ROOT}
    location: Json = {"artifactLocation": {"uri": quote(place.file, safe="/"), **root}}
    if place.line is not None and place.line >= 1:
        lines = len(snippet.splitlines()) if snippet else 1
        location["region"] = {
            "startLine": place.line,
            "endLine": place.line + max(lines, 1) - 1,
            **({"snippet": {"text": snippet}} if snippet else {}),
        }
    return {"physicalLocation": location}


def _properties(trouble: Trouble, report: Report) -> Json:
    check, found = trouble.check, trouble.finding
    worst = [
        entry
        for comparison in (comparisons_of(found, check) if found else ())
        for entry in comparison.worst[:1]
    ]
    return {
        "check": check.id,
        "verdict": check.verdict,
        "device": check.device,
        "dtype": check.dtype,
        "seed": check.seed,
        "again": again(check, report.argv),
        **({"worst": to_json(worst[0])} if worst else {}),
    }


def _invocation(report: Report) -> Json:
    failures = [
        f"{check.id}: gradverify itself failed in {fault.during}: {fault.what}"
        for check in report.checks
        for fault in check.faults
    ]
    failures += [f"gradverify itself failed: {report.crashed}"] if report.crashed else []
    failures += ["the run was interrupted"] if report.interrupted else []
    return {
        "executionSuccessful": not failures and report.exit_code != INTERNAL,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": text}} for text in failures
        ],
    }
