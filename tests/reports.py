"""Run folders of every kind, each reported once for all tests."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from k8sdds.report import write_report
from k8sdds.results.run_folder import RunFolder
from tests import run_folders as folders


class Reported:
    """A run folder with its report and the printed text (80 columns, not a terminal)."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        out = io.StringIO()
        self.html = write_report(run, Console(file=out, width=80))
        self.printed = out.getvalue()

    @property
    def folder(self) -> Path:
        """The folder of the report."""
        return self.html.parent

    @property
    def text(self) -> str:
        """The content of report.html."""
        return self.html.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Reports by kind of run folder, written on first use."""
    created: dict[str, Reported] = {}
    base = tmp_path_factory.mktemp("runs")

    def get(kind: str) -> Reported:
        if kind not in created:
            created[kind] = Reported(folders.KINDS[kind](base / kind))
        return created[kind]

    return get
