"""Show the steps of a long task: a line for each, and while it runs, how long it takes."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Self

from k8sdds.cli.terminal import console, live, print_note, quiet
from k8sdds.system.numbers import format_duration

PAUSE_S = 30
"""Without a terminal: time between two lines about the same step."""


class Steps:
    """Print what a task reports, and while it runs, how long the last step has taken.

    On a terminal, this is a line below the output; else a line every `PAUSE_S`.
    """

    def __init__(self) -> None:
        self._step = self._detail = ""
        self._since_s = time.monotonic()
        self._shown = contextlib.ExitStack()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()

    def __call__(self, line: str) -> None:
        """Print the start of a step, or a note."""
        self._step, self._detail, self._since_s = line, "", time.monotonic()
        print_note(line)
        self._show()

    def detail(self, text: str) -> None:
        """Replace the detail of the current step, such as the file that is compiled."""
        self._detail = text
        self._show()

    def pause(self) -> None:
        """Show nothing until the next step, because a question is asked or the task has ended."""
        self._shown.close()
        self._is_shown = False

    def _show(self) -> None:
        if self._is_shown or quiet():
            return
        self._is_shown = True
        if console(stderr=True).is_terminal:
            self._shown.enter_context(live(self._status, stderr=True))
            return
        ended = threading.Event()
        threading.Thread(target=self._repeat, args=(ended,), daemon=True).start()
        self._shown.callback(ended.set)

    def _repeat(self, ended: threading.Event) -> None:
        while not ended.wait(PAUSE_S):
            if self._elapsed_s() >= PAUSE_S:
                print_note(f"{'' if self._detail else f'{self._step}: '}{self._status()}")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._since_s

    def _status(self) -> Any:
        from rich.text import Text

        text = f"{format_duration(self._elapsed_s())}  {self._detail}".strip()
        return Text(text, no_wrap=True, overflow="ellipsis", style="dim")
