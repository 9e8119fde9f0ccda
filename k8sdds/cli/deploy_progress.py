"""What the terminal shows of a deploy: a live line per node, or plain lines without a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from k8sdds.cli.terminal import console
from k8sdds.deploy.actions import Action

if TYPE_CHECKING:
    from k8sdds.deploy.facts import Facts
    from k8sdds.model.profile import Profile


class Progress:
    """Who is told of actions, from several threads, and draws them."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self._total = {node: 0 for node in dict.fromkeys(action.node for action in actions)}
        for action in actions:
            self._total[action.node] += 1
        self._done = dict.fromkeys(self._total, 0)
        self._now: dict[str, tuple[Action, float]] = {}
        self._lock = threading.Lock()
        self._live: Any = None

    def __enter__(self) -> Progress:
        if console().is_terminal:
            from rich.live import Live

            self._live = Live(
                console=console(), refresh_per_second=4, transient=True, get_renderable=self._table
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, action: Action) -> None:
        """An action begins on its node."""
        with self._lock:
            self._now[action.node] = (action, time.monotonic())

    def ended(self, action: Action, seconds: float, error: Exception | None) -> None:
        """It has ended, well or not: a line that stays."""
        with self._lock:
            self._now.pop(action.node, None)
            self._done[action.node] += 1
            outcome = f"{seconds:.1f} s" if error is None else f"failed after {seconds:.1f} s"
            line = f"{action.node}: {action.phase}: {action.title} ({outcome})"
            console().print(line, highlight=False, markup=False, soft_wrap=True)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for node, total in self._total.items():
                action, since = self._now.get(node, (None, 0.0))
                count = f"{self._done[node]}/{total}"
                if action is not None:
                    words = f"{action.phase}: {action.title}  {time.monotonic() - since:.0f} s"
                else:
                    words = "done" if self._done[node] == total else "waits for other nodes"
                table.add_row(f"[bold]{node}[/bold]", count, words)
        return table


def machines_table(wanted: Profile, names: Sequence[str], seen: Mapping[str, Facts]) -> Any:
    """The machines of a profile, a line each, with what is on them."""
    from rich.table import Table

    from k8sdds.kubernetes import apply

    cluster = apply.cluster(seen.get(wanted.control_plane.name))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "node",
        "arch",
        "system",
        "kernel",
        "cpus",
        "memory",
        "cgroup",
        "containerd",
        "kubelet",
        "cluster",
    ):
        table.add_column(column, overflow="fold")
    for name in names:
        found = seen.get(name)
        if found is None:
            table.add_row(name, "not reached")
            continue
        one = found.one
        part = one.get("marker") or ("another's" if found.all("leftover") else "none")
        if one.get("marker") == wanted.name:
            part = {True: "ready", False: "not ready", None: "not joined"}[cluster.ready.get(name)]
        table.add_row(
            name,
            found.architecture,
            one.get("os.PRETTY_NAME", "?"),
            one.get("kernel", "?"),
            one.get("cpus", "?"),
            f"{found.number('memory_kib') / 1024**2:.1f} GiB",
            f"v{one.get('cgroup', '?')}",
            one.get("containerd") or "–",
            found.pairs("program").get("kubelet") or "–",
            part,
        )
    return table
