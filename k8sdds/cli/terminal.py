"""Print to the terminal: results, steps, errors and confirmation prompts.

`--quiet` and `--verbose` take effect here: results and errors are always printed, steps and notes unless
`--quiet`, the commands that k8sdds runs and the causes of errors with `--verbose`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from k8sdds.system import reading
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

MAX_SHOWN_ARGUMENT = 200
"""Longest argument of a command that `--verbose` shows in full, such as a script of `sh -c`."""


class Verbosity(IntEnum):
    """How much is printed."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


_verbosity = Verbosity.NORMAL


def set_verbosity(verbosity: Verbosity) -> None:
    """Set how much this process prints; `VERBOSE` also prints each command that it runs."""
    global _verbosity
    if verbosity == Verbosity.VERBOSE:
        _watch_commands()
    _verbosity = verbosity


def quiet() -> bool:
    """Return whether only results and errors are printed."""
    return _verbosity == Verbosity.QUIET


@cache
def _watch_commands() -> None:
    # Once per process, because an audit hook cannot be removed.
    sys.addaudithook(_print_command)


def _print_command(event: str, arguments: tuple[Any, ...]) -> None:
    """Print the command of an audit event that starts a program, here or on another machine."""
    if _verbosity != Verbosity.VERBOSE:
        return
    # Arguments never contain secrets, because every user of the machine can read them.
    if event in ("subprocess.Popen", "os.exec"):
        argv = [os.fsdecode(argument) for argument in arguments[1]]
    elif event == "k8sdds.ssh":
        argv = ["ssh", *arguments]
    else:
        return
    shown = [a if len(a) <= MAX_SHOWN_ARGUMENT else f"{a[:MAX_SHOWN_ARGUMENT]}…" for a in argv]
    sys.stderr.write(f"+ {shlex.join(shown)}\n")


@cache
def console(stderr: bool = False) -> Console:
    """Return the console of stdout or stderr; in a pipe or a file it prints plain, wide text."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        """A console that prints all text literally: brackets are not markup, and control characters have no effect."""

        def __init__(self, **options: Any) -> None:
            super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(reading.printable(segment.text), segment.style)

    terminal = SafeConsole()
    if terminal.is_terminal:
        return terminal
    return SafeConsole(width=max(terminal.width, 140), no_color=True)


def print_text(text: str) -> None:
    """Print text unchanged to stdout, such as JSON or a script."""
    print(text, flush=True)


def print_line(text: str) -> None:
    """Print a line of a result to stdout, which a terminal wraps."""
    console().print(text, soft_wrap=True)


def print_step(text: str) -> None:
    """Print a line about what is done, or a hint, to stdout; not with `--quiet`."""
    if not quiet():
        print_line(text)


def print_note(text: str) -> None:
    """Print a line to stderr, so that stdout keeps only the result; not with `--quiet`."""
    if not quiet():
        console(stderr=True).print(text, soft_wrap=True)


def print_error(error: BaseException) -> None:
    """Print an error to stderr; with `--verbose`, also the errors that caused it."""
    print(f"k8sdds: {reading.printable(str(error))}", file=sys.stderr)
    cause = error.__cause__
    while cause is not None and _verbosity == Verbosity.VERBOSE:
        print(f"  caused by {type(cause).__name__}: {reading.printable(str(cause))}", file=sys.stderr)
        cause = cause.__cause__


def live(draw: Callable[[], Any], stderr: bool = False) -> AbstractContextManager[Any]:
    """Draw what a function returns below the output of a `with` block. Without a terminal, draw nothing."""
    shown_on = console(stderr)
    if quiet() or not shown_on.is_terminal:
        return nullcontext()
    from rich.live import Live

    return Live(console=shown_on, refresh_per_second=4, transient=True, get_renderable=draw)


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation unless `yes`. Raises typer.Abort if the user declines."""
    import typer

    if not agrees(question, yes):
        raise typer.Abort


def agrees(question: str, yes: bool) -> bool:
    """Return `yes`, or whether the user answers a question with yes."""
    import typer

    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("cannot ask for confirmation without a terminal", "add --yes to confirm")
    return typer.confirm(question, default=False)
