"""Templates of the formats that are documents. Each reads the report itself, and can use the texts
of the terminal views."""

from __future__ import annotations

import posixpath
import shlex
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gradverify.report import names, numbers, plain, reproduce
from gradverify.report.look import Look
from gradverify.report.terminal import canvas, line, panel, status, table, view


@cache
def template(name: str) -> Template:
    """Return a template of templates/. Text is escaped, except in Markdown."""
    environment = Environment(
        loader=PackageLoader("gradverify.report", "templates"),
        autoescape=not name.endswith(".md.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    modules = (canvas, line, names, numbers, panel, plain, reproduce, status, table, view)
    environment.globals |= {module.__name__.rpartition(".")[2]: module for module in modules}
    environment.globals |= {"look": Look(), "shell": shlex.join, "path": posixpath}
    return environment.get_template(name)
