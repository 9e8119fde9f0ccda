"""Define the outputs of an attempt at a trial, which workloads and validity checks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import PUBLISHER, SUBSCRIBER, Participant, Role, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import aggregate, histograms

if TYPE_CHECKING:
    from k8sdds.results.hdr import Histogram

TICKS_PER_S = 100
"""Unit of times in /proc on every architecture (USER_HZ)."""
MIN_TICKS = 10


@dataclass(frozen=True)
class TrialOutputs:
    """The participants' summaries, the supervisors' meters and the testbed's measurement of an attempt."""

    trial: Trial
    measurement: Measurement
    folder: Path
    """The attempt's raw files, with one folder for each participant."""
    summaries: Mapping[Participant, Summary | None]
    """The summary that each participant reported, or None if it is missing or incomplete."""

    @cached_property
    def logged(self) -> Mapping[str, list[Histogram]]:
        """What the participants logged by tag: latencies in ns, or how many episodes of them are above a value."""
        return histograms.logged(self.folder)

    @cached_property
    def latencies(self) -> Mapping[str, Histogram]:
        """The latencies in ns that the participants logged, by tag, each merged over the participants."""
        return histograms.latencies(self.logged)

    @property
    def publishers(self) -> list[Summary]:
        """The summaries of the publishers, without missing ones."""
        return list(self.summaries_of(PUBLISHER).values())

    @property
    def subscribers(self) -> list[Summary]:
        """The summaries of the subscribers, without missing ones."""
        return list(self.summaries_of(SUBSCRIBER).values())

    def summaries_of(self, role: Role) -> dict[Participant, Summary]:
        """Return the summaries of the participants with a role, without missing ones."""
        return {
            participant: summary
            for participant, summary in self.summaries.items()
            if participant.role == role and summary is not None
        }

    @property
    def meters(self) -> dict[str, dict[str, Any]]:
        """The readings of each supervisor (docs/reference/supervisor.md), by participant. Empty if there are none."""
        return {name: outcome.meters or {} for name, outcome in self.measurement.outcomes.items()}

    def meters_of(self, participant: Participant) -> dict[str, Any]:
        """Return the readings of a participant's supervisor. Empty if there are none."""
        return self.meters.get(participant.name, {})

    def meters_of_role(self, role: Role) -> list[dict[str, Any]]:
        """Return the readings of the supervisors of all started participants with a role."""
        return [
            outcome.meters or {}
            for outcome in self.measurement.outcomes.values()
            if outcome.participant.role == role
        ]

    def pod_bytes(self, participant: Participant, key: str) -> int | None:
        """Return a counter of a pod's interface, or None if there is no such counter or it was not read."""
        name = self.measurement.outcomes[participant.name].interface
        interface = (self.meters_of(participant).get("interfaces") or {}).get(name)
        return interface.get(key) if isinstance(interface, dict) else None

    def delivered_bytes(self, participant: Participant) -> int | None:
        """Return the payload that a participant received in the measured interval; None if it receives none."""
        return self._payload_bytes(participant, "delivered_bytes", "received")

    def attempt_bytes(self, participant: Participant) -> int | None:
        """Return the same with the warm-up: what it received between the readings of the links."""
        warmup = self._payload_bytes(participant, "warmup_delivered_bytes", "warmup_received")
        measured = self.delivered_bytes(participant)
        return None if measured is None else measured + (warmup or 0)

    def crossing_bytes(self, participant: Participant) -> int | None:
        """Return what of `attempt_bytes` must have crossed a link; None if it receives nothing.

        Nodes of a graph may be on the same node of the testbed, with the nodes from which they receive.
        """
        nodes = self.trial.cell.graph_nodes
        summary = self.summaries.get(participant)
        if not nodes or summary is None:
            return self.attempt_bytes(participant)
        places = {node.name: self.measurement.nodes.get(it.name, it.name) for it, node in nodes.items()}
        own = places[nodes[participant].name]
        received = [entry for entry in summary["flows"] or () if entry["role"] == SUBSCRIBER]
        crossing = (entry["delivered_bytes"] for entry in received if places.get(entry["publisher"]) != own)
        return sum(crossing) if received else None

    def sent_bytes(self, publisher: Summary) -> int:
        """Return the payload that a publisher sent; if it is unknown, that of the most samples that one received."""
        if publisher["flows"]:
            return sum(entry["sent_bytes"] or 0 for entry in publisher["flows"] if entry["role"] == PUBLISHER)
        if publisher["sent_bytes"] is not None:
            return int(publisher["sent_bytes"])
        sent = publisher["sent"]
        if sent is None:
            sent = max((summary["received"] or 0 for summary in self.subscribers), default=0)
        return int(sent) * self.trial.cell.payload_bytes

    def _payload_bytes(self, participant: Participant, own: str, samples: str) -> int | None:
        """Return bytes that a program counted itself, or else those of the samples that a subscriber counted."""
        summary = self.summaries.get(participant)
        if summary is None:
            return None
        counted: int | None = summary[own]
        if counted is None and participant.subscribes:
            return (summary[samples] or 0) * self.trial.cell.payload_bytes
        return counted

    def achieved_rate_percent(self, sent: str, offered_per_s: float) -> float | None:
        """Return what all publishers `sent`, a key of their summaries, in percent of what was offered.

        None without a rate or if it is unknown.
        """
        offered = offered_per_s * sum(summary["measured_s"] or 0 for summary in self.publishers)
        return aggregate.ratio(aggregate.total(summary[sent] for summary in self.publishers), offered, 100)

    def episodes(self, kind: str) -> dict[str, int] | None:
        """Return the number of episodes of the publisher's latencies above each percentile, or None."""
        if self.trial.cell.publishers != 1 or not self.publishers:
            return None
        return (self.publishers[0][kind] or {}).get("episodes")

    def latency_us(self, kind: str, quantity: str) -> float | None:
        """Return a quantity of the publisher's latencies, `latency_ns` or `loaded_latency_ns`.

        None with several publishers: they have no common percentiles.
        """
        if self.trial.cell.publishers != 1 or not self.publishers:
            return None
        return aggregate.finite(self.publishers[0].latency_us(kind, quantity))


def cpu_interval_s(meters: dict[str, Any]) -> float | None:
    """Return the length of the interval over which the meters were read."""
    duration: float | None = (meters.get("interval") or {}).get("duration_s")
    return duration


def machine_percent(meters: dict[str, Any], name: str) -> float | None:
    """Return a time of the machine in /proc/stat in percent of the interval; None if it is unknown.

    The kernel counts it in ticks, so it is unknown over an interval of less than MIN_TICKS.
    """
    if (cpu_interval_s(meters) or 0) < MIN_TICKS / TICKS_PER_S:
        return None
    return percent(meters, (meters.get("machine") or {}).get(name))


def percent(meters: dict[str, Any], seconds: float | None) -> float | None:
    """Return a time in percent of the interval over which the meters were read."""
    duration = cpu_interval_s(meters)
    return seconds / duration * 100 if seconds is not None and duration else None


def spin_percent(summary: Summary | None) -> float | None:
    """Return how long a publisher spun until samples were due, in percent of its interval; None if it is unknown."""
    if summary is None or summary["pacer_spin_s"] is None or not summary["measured_s"]:
        return None
    return float(summary["pacer_spin_s"] / summary["measured_s"] * 100)
