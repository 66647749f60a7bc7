"""What a run adds where GitHub Actions reads it: annotations among the plain text of stdout, and the job summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gradverify.cli.terminal import is_set
from gradverify.model.fault import described
from gradverify.model.report import Report
from gradverify.report.formats import renderer

ACTIONS, SUMMARY = "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"


def is_read_there(asked: str | None, environ: Mapping[str, str]) -> bool:
    """Is stdout to carry workflow commands? Where `--format` says so, or says nothing and GitHub Actions runs this."""
    return asked == "github" or (asked is None and is_set(environ, ACTIONS))


def annotated(report: Report) -> str:
    """At the end of stdout: a fault of ours in drawing them costs them alone."""
    try:
        return renderer("github")(report)
    except Exception as error:
        return f"annotations are missing: gradverify itself failed to draw them ({described(error)})\n"


def summarised(report: Report, environ: Mapping[str, str]) -> str | None:
    """Appends the summary to the file that GitHub names, within what that may hold. A sentence where it could not be written."""
    if not (environ.get(SUMMARY) and is_set(environ, ACTIONS)):
        return None
    from gradverify.report.markdown import LIMIT

    path = Path(environ[SUMMARY])
    try:
        taken = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if taken else "") + renderer("markdown", limit=max(0, LIMIT - taken))(report))
    except OSError as error:
        return f"the job summary {path} could not be written: {error.strerror or error}"
    except Exception as error:
        return f"the job summary is missing: gradverify itself failed to draw it ({described(error)})"
    return None
