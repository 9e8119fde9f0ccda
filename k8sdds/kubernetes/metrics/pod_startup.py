"""Measure how long pods take to start: created → scheduled → network ready → running → ready.

The API server's timestamps have a resolution of one second. The steps are therefore timed by the arrival of
watch events, which adds some milliseconds. If an event was lost with a connection, the step has the API
server's timestamp, and the pod is marked as `coarse`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from k8sdds.kubernetes.metrics.quantities import parse_time_s

STEPS = ("scheduled_s", "network_ready_s", "running_s", "ready_s")
NETWORK_READY = ("PodReadyToStartContainers", "PodHasNetwork")
"""Condition for a ready sandbox and network: its name since Kubernetes 1.29, and before 1.28."""


def completed_steps(pod: dict[str, Any]) -> dict[str, float]:
    """Return the completed steps of a pod with the API server's timestamps (whole seconds since 1970)."""
    status = pod.get("status") or {}
    conditions = {
        condition["type"]: condition.get("lastTransitionTime")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    started = [
        ((container.get("state") or {}).get("running") or {}).get("startedAt")
        for container in status.get("containerStatuses") or ()
    ]
    times = {
        "scheduled_s": conditions.get("PodScheduled"),
        "network_ready_s": next((conditions[name] for name in NETWORK_READY if name in conditions), None),
        "running_s": max(started, key=str) if started and all(started) else None,
        "ready_s": conditions.get("Ready"),
    }
    return {step: parse_time_s(time) for step, time in times.items() if time}


@dataclass
class PodStarts:
    """The start times of a block's pods, from watch events."""

    _created: dict[str, float] = field(default_factory=dict)
    _steps: dict[str, dict[str, float]] = field(default_factory=dict)
    _coarse: dict[str, dict[str, float]] = field(default_factory=dict)

    def created(self, name: str, at_s: float) -> None:
        """Record that a pod was created at `at_s`, a time of the monotonic clock like that of all calls."""
        self._created.setdefault(name, at_s)

    def observe(self, pod: dict[str, Any], at_s: float) -> None:
        """Record the state of a pod in a watch event that arrived at `at_s`."""
        name = pod["metadata"]["name"]
        self._created.setdefault(name, at_s)
        observed = self._steps.setdefault(name, {})
        completed = completed_steps(pod)
        if not observed and len(completed) > 1:
            # The first event shows several completed steps: only the API server knows their times.
            created = parse_time_s(pod["metadata"]["creationTimestamp"])
            self._coarse[name] = {step: time - created for step, time in completed.items()}
        for step in completed:
            observed.setdefault(step, at_s)

    def last_s(self) -> float | None:
        """Return when the last pod got ready, by the monotonic clock; None if not all were seen to get ready."""
        ready = [observed.get("ready_s") for observed in self._steps.values()]
        known = [at_s for at_s in ready if at_s is not None]
        return max(known, default=None) if len(known) == len(ready) else None

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return for each pod the seconds from creation to each step (None if not reached), and `coarse`."""
        result = {}
        for name, observed in self._steps.items():
            coarse = self._coarse.get(name)
            times = coarse or {step: at_s - self._created[name] for step, at_s in observed.items()}
            result[name] = {step: times.get(step) for step in STEPS} | {"coarse": coarse is not None}
        return result
