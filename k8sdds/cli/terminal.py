"""Words and consoles for the terminal."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console(stderr: bool = False) -> Console:
    """The terminal, or plain text of full width into a pipe or file."""
    from rich.console import Console

    class Terminal(Console):
        """rich's, which would end with 1 where the reader of a pipe has enough."""

        def on_broken_pipe(self) -> None:
            _enough()

    one = Terminal(stderr=stderr)
    return one if one.is_terminal else Terminal(stderr=stderr, width=max(one.width, 140), no_color=True)


def say(text: str) -> None:
    """Print a text as it is, such as JSON or a script."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _enough()


def _enough() -> NoReturn:
    """End well: the reader, such as `head`, has what it wants."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def format_duration(seconds: float) -> str:
    """`45 s`, `3 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def format_size(size: int) -> str:
    """`64 B`, `1 KiB`, `1.5 MiB`."""
    for unit, factor in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if size >= factor and size % (factor // 2) == 0:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
