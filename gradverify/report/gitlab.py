"""GitLab's code quality report, which shows errors at the line to change, in the diff of a merge
request."""

from __future__ import annotations

from gradverify.model.case import Json
from gradverify.model.codec import as_text
from gradverify.model.report import Report
from gradverify.report.names import readable
from gradverify.report.troubles import Trouble, title, troubles

SEVERITY = {"error": "major", "warning": "minor"}


def render(report: Report) -> str:
    """Return the report, a JSON list; an entry without a line in the repository is placed at its
    line of the spec."""
    return as_text([_issue(trouble) for trouble in troubles(readable(report))])


def _issue(trouble: Trouble) -> Json:
    place = trouble.place
    wrong = trouble.check.verdict == "fail" and trouble.level == "error"
    message = " ".join(trouble.message.split())
    return {
        "description": f"{trouble.check.name}: {title(trouble)}: {message}",
        "check_name": trouble.rule,
        "fingerprint": trouble.fingerprint,
        "severity": "critical" if wrong else SEVERITY[trouble.level],
        "location": {
            "path": place.file if place else trouble.check.spec.path,
            "lines": {"begin": place.line or 1 if place else 1},
        },
    }
