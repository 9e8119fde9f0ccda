"""Tables and paragraphs on terminals of any width."""

import io
import re
from collections import Counter

import pytest
from rich.console import Console

from k8sdds.analysis import history
from k8sdds.analysis.comparison import Side, compare_all
from k8sdds.analysis.conditions import UNIT
from k8sdds.cli import output
from k8sdds.cli.list import _experiments, _networks
from k8sdds.report import comparison as comparison_report
from k8sdds.report import content, terminal
from k8sdds.report import history as history_report
from k8sdds.report.table import Table
from k8sdds.report.text import wrap
from tests import run_folders as folders

WIDTHS = (24, 40, 60, 72, 80, 100, 200)


def printed(show, width):
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False))
    return out.getvalue()


def check(show):
    """Check at every width that all words, numbers and intervals are printed whole, and that lines fit."""
    # Blocks do not name what they begin with, and cells without a value.
    wide = re.sub(r"^.*\n─+\s*$", "", printed(show, 1000), flags=re.MULTILINE)
    for width in WIDTHS:
        text = printed(show, width)
        lines = [line.rstrip() for line in text.splitlines()]
        assert not [line for line in lines if len(line) > width and len(line.split()) > 2], text
        assert not words(wide) - words(text), text
        for interval in re.findall(r"\[-?[\d.]+, -?[\d.]+\]", wide):
            assert any(interval in line for line in lines), (interval, text)


def words(text):
    return Counter(word.strip(";:,") for word in text.split() if not re.fullmatch("─+|–", word))


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    networks = ("host", "flannel-vxlan", "flannel-hostgw", "weavenet")
    plan = folders.Plan(networks=networks, payloads=(64, 1024), histograms=False)
    return content.read(folders.make(tmp_path_factory.mktemp("runs") / "run", plan))


def test_tables_of_a_report_are_whole_at_any_width(read):
    check(lambda console: terminal.show(read, console))
    check(lambda console: terminal.results_so_far(read.attempts, "host").print(console))


def test_tables_of_a_comparison_are_whole_at_any_width(read):
    sides = [
        Side(f"run@{label}", "run", [row for row in read.best if row[UNIT] == label], label=label)
        for label in ("host", "weavenet")
    ]
    (compared,) = compare_all(sides)
    check(lambda console: comparison_report.findings(sides, [compared]).show(console))


def test_tables_of_a_history_are_whole_at_any_width(read):
    runs = [history.Run(f"run-{n:02}", f"2026-11-{n:02}", read.best, "host") for n in range(1, 14)]
    shown = history.history(runs, (), False)
    check(history_report.findings(shown, False).show)


@pytest.mark.parametrize("rows", [_experiments, _networks])
def test_lists_are_whole_at_any_width(rows, monkeypatch):
    listed = rows()

    def show(console):
        monkeypatch.setattr(output, "console", lambda: console)
        output.print_table(listed)

    check(show)


def test_columns_are_used_where_they_fit():
    table = Table.of(["name", "value"], [["a", "158 [151, 165]"], ["b", "1.2 [1.1, 1.3]"]])
    assert printed(table.print, 20).splitlines()[2:] == ["a     158 [151, 165]", "b     1.2 [1.1, 1.3]"]
    assert printed(table.print, 19).splitlines() == [
        "a", "  value:", "  158 [151, 165]", "b", "  value:", "  1.2 [1.1, 1.3]",
    ]  # fmt: skip


def test_keys_are_shown_where_they_change():
    rows = [["1 KiB", "host", "9"], ["1 KiB", "weavenet", "5"], ["4 KiB", "host", "9"]]
    table = Table.of(["payload", "network", "Mbit/s"], rows, keys=2)
    lines = [line.rstrip() for line in printed(table.print, 80).splitlines()[2:]]
    assert [line[:7].strip() for line in lines] == ["1 KiB", "", "", "4 KiB"]
    assert printed(table.print, 20).splitlines()[3:6] == [
        "payload 1 KiB,",
        "  network weavenet",
        "  Mbit/s: 5",
    ]


def test_lines_end_between_words_only():
    assert wrap("by 24 % [7, 38] of host", 14, "  ", "- ") == ["- by", "  24 % [7, 38]", "  of host"]
    assert wrap("see /a/long/path here", 5) == ["see", "/a/long/path", "here"]
