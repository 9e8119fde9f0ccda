"""Format the help pages: panels of commands and options, examples, exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.system.errors import EXIT_CODES

# Panels of commands, in the order of `k8sdds --help`.
MEASURE, ANALYZE, CLUSTER, LAB, PACKAGE = "Measure", "Analyze", "Cluster", "Lab", "Package"

# Panels of options.
SELECTION, TESTBED, MACHINES, OUTPUT = "Selection", "Testbed", "Machines", "Output"


def examples(*lines: str) -> str:
    """Return the end of a command's help: command lines that work as written."""
    return _list("Examples:" if len(lines) > 1 else "Example:", lines)


def exit_codes() -> str:
    """Return the end of `k8sdds --help`."""
    return _list("Exit codes:", [f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()])


def _list(title: str, lines: Sequence[str]) -> str:
    # Typer reads brackets as markup.
    return "\n".join([f"[bold]{title}[/bold]", *(line.replace("[", r"\[") for line in lines)])
