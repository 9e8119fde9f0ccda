"""Define the lines of readings.jsonl and events.jsonl, as far as k8sdds uses them (docs/reference/run-folder.md)."""

from __future__ import annotations

from pydantic import Field

from k8sdds.system.shapes import Count, Finite, Number, Shape, Text


class TopReading(Shape):
    """What `kubectl top` shows of a node or a pod."""

    name: str
    at: str
    window_s: Finite
    cpu_cores: Finite
    memory_bytes: Finite


class Reading(Shape):
    """A line of readings.jsonl."""

    kind: Text = None
    block: Count = Field(default=0)
    network: Text = None
    when: Text = None
    node: Text = None
    lacks: dict[str, Text] | None = None
    pods: dict[str, dict[str, Number]] | None = None
    tops: list[TopReading] | None = None


class Event(Shape):
    """A line of events.jsonl."""

    at: Text = None
    event: Text = None
