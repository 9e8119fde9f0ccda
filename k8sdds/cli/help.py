"""Format the help pages: panels of commands and options, examples, exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import typer

from k8sdds.system.errors import EXIT_CODES

# Panels of commands, in the order of `k8sdds --help`.
START, MEASURE, ANALYZE = "Start here", "Measure", "Analyze"
CLUSTER, LAB, PACKAGE = "Cluster", "Lab", "Package"

# Panels of options, and what declares an option in each.
SELECTION, TESTBED, MACHINES, OUTPUT = "Selection", "Testbed", "Machines", "Output"
selection_option = partial(typer.Option, rich_help_panel=SELECTION)
testbed_option = partial(typer.Option, rich_help_panel=TESTBED)
machines_option = partial(typer.Option, rich_help_panel=MACHINES)
output_option = partial(typer.Option, rich_help_panel=OUTPUT)

FIRST_COMMANDS = (
    "k8sdds recommend teleoperation      # which network and DDS settings, and why",
    "k8sdds run quickstart               # what each network costs, in 2 minutes",
    "k8sdds init application my-robot    # describe what your application sends",
)


def examples(*lines: str) -> str:
    """Return the end of a command's help: command lines that work as written."""
    return _list("Examples:" if len(lines) > 1 else "Example:", lines)


def overview() -> str:
    """Return the end of `k8sdds --help`: the first commands, and the exit codes."""
    codes = _list("Exit codes:", [f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()])
    return f"{examples(*FIRST_COMMANDS)}\n\n{codes}"


def _list(title: str, lines: Sequence[str]) -> str:
    # Typer reads brackets as markup.
    return "\n".join([f"[bold]{title}[/bold]", *(line.replace("[", r"\[") for line in lines)])
