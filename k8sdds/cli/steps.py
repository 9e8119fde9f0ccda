"""Show the steps of a long task and the actions of a plan: a line for each, and while it runs, how long it takes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from k8sdds.cli.terminal import console, live, print_note, print_step, quiet
from k8sdds.system.numbers import format_duration

if TYPE_CHECKING:
    from k8sdds.deploy.actions import Action

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


class Progress:
    """Draw the progress of actions, which run in several threads: one live line per node on a terminal."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self._total = {node: 0 for node in dict.fromkeys(action.node for action in actions)}
        for action in actions:
            self._total[action.node] += 1
        self._done = dict.fromkeys(self._total, 0)
        self._running: dict[str, tuple[Action, float]] = {}
        self._lock = threading.Lock()
        self._live = live(self._table)

    def __enter__(self) -> Progress:
        self._live.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._live.__exit__(*failure)

    def started(self, action: Action) -> None:
        """Record that an action started on its node."""
        with self._lock:
            self._running[action.node] = (action, time.monotonic())

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        """Print a permanent line for an action that succeeded or failed."""
        with self._lock:
            self._running.pop(action.node, None)
            self._done[action.node] += 1
            outcome = f"{seconds:.1f} s" if error is None else f"failed after {seconds:.1f} s"
            line = f"{action.node}: {action.phase}: {action.title} ({outcome})"
            print_step(line)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for node, total in self._total.items():
                action, started_at = self._running.get(node, (None, 0.0))
                if action is not None:
                    state = f"{action.phase}: {action.title}  {time.monotonic() - started_at:.0f} s"
                else:
                    state = "done" if self._done[node] == total else "waiting for other nodes"
                table.add_row(Text(node, style="bold"), f"{self._done[node]}/{total}", state)
        return table
