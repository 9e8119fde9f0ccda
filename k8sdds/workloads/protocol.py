"""The workload protocol: what a trial sends, and which results count."""

from __future__ import annotations

from typing import Protocol

from k8sdds.model.trial import Cell
from k8sdds.perftest.command import Load
from k8sdds.system.strict import Strict


class NoOptions(Strict):
    """The options of a workload that has none."""


class Workload(Protocol):
    """One kind of test. Each workload is one module of this package and one line of its registry."""

    name: str
    """The value of `test` in experiments and in trials.jsonl."""
    options: type[Strict] = NoOptions
    """The keys next to `name` where `test` is a mapping."""
    layout: str = "split"
    """The core layout that `auto` selects."""
    sends_at_rate: bool = True
    """Whether an offered rate has a meaning."""

    def unsupported(self, cell: Cell) -> str | None:
        """Return why the workload cannot run this cell, whatever the middleware and the network, or None."""
        return None

    def load(self, cell: Cell) -> Load:
        """Return what a publisher sends."""
