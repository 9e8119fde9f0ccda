"""Render HTML documents: one file each, whose policy allows only its own style sheet and scripts.

Reports, comparisons, claims, histories and recommendations share the templates base.html.j2, parts.html.j2 and
style.css.j2, and the script of sortable tables.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from k8sdds.report.table import Table
from k8sdds.report.theme import css_variables
from k8sdds.system.templates import templates

TABLES = "tables.js"
"""The script that sorts and filters tables."""


def render(
    template: str,
    variables: dict[str, Any],
    scripts: Sequence[str] = (TABLES,),
    *,
    figure_rules: str = "",
    allowed: Sequence[str] = (),
    connects: bool = False,
) -> str:
    """Return a document from a template that extends base.html.j2.

    `figure_rules` are those of `figures.inline_svg.share_styles`, `allowed` has the hashes of scripts that its scripts
    start. If it `connects`, it may connect to the server that it came from.
    """
    environment = templates("k8sdds.report")
    # A hyphen before a number looks like a dash in print.
    environment.filters["columns"] = _columns
    environment.filters["minus"] = lambda text: re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    style = environment.get_template("style.css.j2").render(
        css_variables=css_variables(), figure_rules=figure_rules
    )
    script = "".join(map(source, scripts))
    policy = (
        f"default-src 'none'; script-src {' '.join([source_hash(script), *allowed])};"
        f" style-src-elem {source_hash(style)}; style-src-attr 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    ) + ("; connect-src 'self'" if connects else "")
    return environment.get_template(template).render(**variables, style=style, script=script, policy=policy)


def _columns(table: Table) -> list[tuple[str, str, str]]:
    """Return title, unit and class of each column: those with other values than numbers are `text`."""
    heads = [(head, "") if isinstance(head, str) else head for head in table.heads]
    return [(*head, "" if table.is_number(index) else "text") for index, head in enumerate(heads)]


def source_hash(text: str) -> str:
    """Return the source expression of an inline script or style for a Content-Security-Policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def source(name: str) -> str:
    """Return the text of a file of the templates."""
    return files("k8sdds.report").joinpath("templates", name).read_text(encoding="utf-8")
