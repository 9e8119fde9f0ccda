"""Show the progress of a deploy: one live line per node on a terminal, else plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from k8sdds.cli.terminal import live, print_step
from k8sdds.deploy.actions import Action


class Progress:
    """Observes actions, which run in several threads, and draws their progress."""

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
