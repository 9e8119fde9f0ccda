"""Lay out text for a terminal of any width: numbers, intervals and words are never cut or broken."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_GLUED = re.compile(r"(?<=[~\d]) +(?=\S)| +(?=\[)|(?<=,) +(?=[^\[\]]*\])")
"""Spaces at which no line ends: after numbers, before and within intervals."""
SPACE = "\0"
"""A space at which no line ends."""


def wrap(text: str, width: int, indent: str = "", mark: str = "") -> list[str]:
    """Return text as lines of at most so many columns; a longer word has a longer line of its own.

    Line breaks of the text are kept. `mark` begins the first line, `indent` all others.
    """
    glued = _GLUED.sub(lambda match: SPACE * len(match[0]), text)
    lines = [
        line
        for part in glued.split("\n")
        for line in textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False,
                                  initial_indent=mark, subsequent_indent=indent) or [""]
    ]  # fmt: skip
    return [line.replace(SPACE, " ") for line in lines]


def paragraph(console: Console, text: str, mark: str = "", style: str = "") -> None:
    """Print text in lines of at most 100 columns, with a mark such as `- ` in front."""
    from rich.text import Text

    lines = wrap(text, min(console.width, 100), " " * len(mark), mark)
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)
