"""How long pods take to start: made → scheduled → network ready → running → ready.

The API's own times have whole seconds, so the steps are timed by when a watch tells of them: what is added
is the way of the event, some milliseconds. A pod whose event was lost with a connection has the step from
the API's times, marked by `coarse`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from k8sdds.kubernetes.metrics.quantities import unix_s

STEPS = ("scheduled_s", "network_ready_s", "running_s", "ready_s")
NETWORK_READY = ("PodReadyToStartContainers", "PodHasNetwork")
"""Condition that the sandbox and its network stand: since Kubernetes 1.29, and before 1.28."""


def steps(pod: dict[str, Any]) -> dict[str, float]:
    """The steps that a pod has done, with the API's time of each in seconds since 1970 (whole seconds)."""
    status = pod.get("status") or {}
    conditions = {
        one["type"]: one.get("lastTransitionTime")
        for one in status.get("conditions") or ()
        if one.get("status") == "True"
    }
    running = [
        ((one.get("state") or {}).get("running") or {}).get("startedAt")
        for one in status.get("containerStatuses") or ()
    ]
    network = next((conditions[name] for name in NETWORK_READY if name in conditions), None)
    found = {
        "scheduled_s": conditions.get("PodScheduled"),
        "network_ready_s": network,
        "running_s": max(running) if running and all(running) else None,
        "ready_s": conditions.get("Ready"),
    }
    return {step: unix_s(at) for step, at in found.items() if at}


@dataclass
class Startups:
    """The starts of the pods of a block, as a watch tells of them."""

    _made: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, dict[str, float]] = field(default_factory=dict)
    _coarse: dict[str, dict[str, float]] = field(default_factory=dict)

    def made(self, name: str, at_s: float) -> None:
        """A pod was asked for; `at_s` on any clock that does not jump, the same for all calls."""
        self._made.setdefault(name, at_s)

    def seen(self, pod: dict[str, Any], at_s: float) -> None:
        """An event shows the pod so."""
        name = pod["metadata"]["name"]
        self._made.setdefault(name, at_s)
        known = self._seen.setdefault(name, {})
        done = steps(pod)
        if not known and len(done) > 1:
            # The first sight of a pod that is on its way already: only the API knows when.
            made = unix_s(pod["metadata"]["creationTimestamp"])
            self._coarse[name] = {step: at - made for step, at in done.items()}
        for step in done:
            known.setdefault(step, at_s)

    def facts(self) -> dict[str, dict[str, Any]]:
        """Pod to seconds from being asked for to each step (null: not reached), and if that is coarse."""
        found = {}
        for name, known in self._seen.items():
            coarse = self._coarse.get(name)
            times = coarse or {step: at - self._made[name] for step, at in known.items()}
            found[name] = {step: times.get(step) for step in STEPS} | {"coarse": coarse is not None}
        return found
