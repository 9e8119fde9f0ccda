"""Run folders of every kind, each read, printed and written once for all tests."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from k8sdds.report import content, csv_tables, html, terminal, write_report
from k8sdds.report.figures import canvas
from k8sdds.results.run_folder import RunFolder
from tests import run_folders as folders

_LONG = ("many", "paper")
"""The report of `many` takes as long as all others together, and that of `paper` longer than most; the tests in a
browser write both too."""


def kinds(*names: str) -> list[Any]:
    """Return kinds of run folders as parameters of a test."""
    return [pytest.param(name, marks=pytest.mark.long) if name in _LONG else name for name in names]


KINDS = kinds(*folders.KINDS)


def check_policy(page: str) -> None:
    """Check that a page allows exactly its own style sheet and script, and the library that it contains."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert policy.count("'unsafe-inline'") == 1 and "style-src-attr 'unsafe-inline'" in policy
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    packed = re.findall(r'id="vega">(.*?)</script>', page)
    libraries = [gzip.decompress(base64.b64decode(library)).decode() for library in packed]
    hashes = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (script, *libraries, style)
    ]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes


class Reported:
    """A run folder and the parts of its report. A test pays only for the parts that it uses."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run

    @cached_property
    def content(self) -> content.Content:
        """The data of the report."""
        return content.read(self.run)

    @cached_property
    def printed(self) -> str:
        """The printed text (80 columns, not a terminal)."""
        out = io.StringIO()
        terminal.show(self.content, Console(file=out, width=80), self.run.report / "report.html")
        return out.getvalue()

    @cached_property
    def tables(self) -> Path:
        """The folder of the tables."""
        csv_tables.write(self.content, self.run.report / "tables")
        return self.run.report / "tables"

    @cached_property
    def page(self) -> str:
        """The text of report.html without figures."""
        return html.write(self.content, [], self.run.path / "page.html").read_text(encoding="utf-8")

    @cached_property
    def html(self) -> Path:
        """The path of report.html; the whole report is written."""
        return write_report(self.run, None)

    @property
    def folder(self) -> Path:
        """The folder of the whole report."""
        return self.html.parent

    @cached_property
    def text(self) -> str:
        """The content of report.html."""
        return self.html.read_text(encoding="utf-8")


@pytest.fixture(autouse=True, scope="session")
def small_images() -> None:
    """Draw figures with few dots, of which most tests look at none."""
    canvas.DPI = 50


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Reports by kind of run folder, created on first use."""
    created: dict[str, Reported] = {}
    base = tmp_path_factory.mktemp("runs")

    def get(kind: str) -> Reported:
        if kind not in created:
            created[kind] = Reported(folders.KINDS[kind](base / kind))
        return created[kind]

    return get
