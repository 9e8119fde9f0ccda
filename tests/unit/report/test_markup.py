"""Tables as Markdown and LaTeX: the same cells as on the terminal, and no character that means something else."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from k8sdds.report import markup, terminal
from k8sdds.report.table import Table
from tests import run_folders as folders
from tests.conftest import Command

SPECIAL = "a_b & 5 % #1 $x {y} ~z ^w \\ |*`<i>](u) -3 – µ"


def show(console: Console) -> None:
    rows = [["one\ntwo", "-3 [-4, 2]"], [SPECIAL, "7"]]
    console.print(Text(f"Title {SPECIAL}", style="bold"))
    Table.of(["reason", "overhead %"], rows).print(console)
    console.print("n = 3, 5 %", style="dim")


def rendered(form: str, show, width: int = 40) -> str:
    console = Console(width=width, markup=False)
    return markup.render(form, lambda: show(console), console)


def test_markdown_escapes_what_has_a_meaning() -> None:
    special = r"a_b & 5 % #1 $x {y} \~z ^w \\ \|\*\`\<i>\](u) -3 – µ"
    assert rendered("markdown", show).split("\n") == [
        f"**Title {special}**", "",
        "| reason | overhead % |", "| --- | ---: |", "| one<br>two | -3 [-4, 2] |", f"| {special} | 7 |", "",
        "n = 3, 5 %",
    ]  # fmt: skip


def test_latex_escapes_what_has_a_meaning() -> None:
    special = r"a\_b \& 5 \% \#1 \$x \{y\} \textasciitilde{}z \textasciicircum{}w \textbackslash{} |*`<i>](u) $-$3 -- $\mu$"
    assert rendered("latex", show).split("\n") == [
        f"% Title {SPECIAL}", "",
        r"\begin{table}[htbp]", rf"\caption{{Title {special}}}", r"\label{tab:title-a-b-5-1-x-y-z-w-i-u-3}",
        r"\begin{tabular}{p{0.2\linewidth}r}", r"\toprule",
        r"reason & overhead \% \\", r"\midrule", r"one; two & $-$3 [$-$4, 2] \\", rf"{special} & 7 \\", r"\bottomrule",
        r"\end{tabular}", r"\end{table}", "",
        "% n = 3, 5 %",
    ]  # fmt: skip


def test_latex_labels_tables_of_one_caption_apart_and_headings_are_distinct(reports) -> None:
    def show(console: Console) -> None:
        for _ in range(2):
            terminal.show(reports("paper").content, console)

    text = rendered("latex", show)
    labels = re.findall(r"\\label\{(.*)\}", text)
    assert labels == ["tab:unicast-reliable-1-subscriber-n-3", "tab:unicast-reliable-1-subscriber-n-3-2"]
    assert r"& throughput overhead \% & p90 $\mu$s & p90 overhead \%" in text


@pytest.mark.parametrize("kind", ["scaling", "troubled", "camera"])
def test_a_report_has_the_same_cells_in_every_format(reports, kind: str) -> None:
    def show(console: Console) -> None:
        terminal.show(reports(kind).content, console)

    printed = Console(width=250, file=io.StringIO(), markup=False)
    show(printed)
    lines = [line.split() for line in printed.file.getvalue().splitlines()]
    rows = [
        line
        for line in rendered("markdown", show).split("\n")
        if line.startswith("| ") and "--- |" not in line
    ]
    assert len(rows) > 4
    for row in rows:
        words = re.sub(r"[|\\]", " ", row).split()
        # A terminal does not repeat the point of a row, such as `2 1 KiB`.
        assert any(words[-len(line) :] == line for line in lines if len(line) >= len(words) - 3), row
    latex = [line for line in rendered("latex", show).split("\n") if line.endswith(r" \\")]
    assert [line.count(" & ") for line in latex] == [row.count(" | ") for row in rows]
    assert all(map(str.isascii, latex))


def test_a_report_in_a_format_writes_no_files(k8sdds: Command, tmp_path: Path) -> None:
    run = folders.single(tmp_path / "run").path
    done = k8sdds("report", str(run), "--format", "markdown")
    assert done.returncode == 0 and "| payload | network |" in done.stdout and "Report:" not in done.stdout
    assert not (run / "report").exists()
    refused = k8sdds("report", str(run), "--serve", "--pdf")
    assert refused.returncode == 2 and "--serve excludes --pdf and --format" in refused.stderr
