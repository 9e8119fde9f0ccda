"""Words and consoles for the terminal."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console(stderr: bool = False) -> Console:
    """The terminal, or plain text of full width into a pipe or file."""
    from rich.console import Console

    one = Console(stderr=stderr, soft_wrap=False)
    return one if one.is_terminal else Console(stderr=stderr, width=max(one.width, 140), no_color=True)


def duration_words(seconds: float) -> str:
    """`45 s`, `3 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def size_words(size: int) -> str:
    """`64 B`, `1 KiB`, `1.5 MiB`."""
    for unit, factor in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if size >= factor and size % (factor // 2) == 0:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
