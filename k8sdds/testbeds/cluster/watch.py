"""Follow the state of a campaign's pods with one watch, and detect restarts of other pods that its trials need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import urllib3

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.testbeds.cluster import permissions, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace

READY_TIMEOUT_S = 120
"""From creation to ready, including image pulls and network setup."""
TIMEOUT_PER_POD_S = 0.5
"""Added to timeouts for each pod, because a kubelet starts only a few pods at a time."""
DELETE_TIMEOUT_S = 60
PAUSE_S = 0.5
"""Before a watch that ended at once is started again."""
PULL_ERRORS = ("ErrImagePull", "ImagePullBackOff")
GONE = "it does not exist"
UNSCHEDULED_S = 15
"""How long a pod may stay unscheduled: pods of other campaigns may be terminating."""

Condition = Callable[[list[str], float], str | None]
"""Evaluates a wait: (changed pods, seconds since the wait began) → the result, or None to wait on."""


class PodWatch:
    """The pods of a campaign, updated by a background thread until `close`."""

    def __init__(self, namespace: CampaignNamespace) -> None:
        self._client = namespace.client
        self._namespace = namespace
        self._pods: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        """Guards `_pods` and `_waits`."""
        self._waits: list[dict[str, None]] = []
        """For each active wait, the names of the pods that changed since it last evaluated its condition."""
        self._closed = False
        self.listeners: list[Callable[[dict[str, Any], float], None]] = []
        """Called in the watch thread for every event, with the pod and the time (monotonic, seconds)."""
        self.listings = 0
        """How often the state of all pods was loaded. Events between the end of a watch and a listing are missed."""
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching. The thread ends with its connection."""
        self._closed = True

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return the last known state of a pod, or None if it does not exist."""
        with self._changed:
            return self._pods.get(name)

    def _follow(self) -> None:
        version = ""
        while not self._closed:
            started = time.monotonic()
            try:
                version = version or self._list()
                query: dict[str, Any] = {
                    "labelSelector": self._namespace.selector,
                    "resourceVersion": version,
                }
                for event in self._client.watch(self._namespace.pods, allowWatchBookmarks="true", **query):
                    if self._closed:
                        break
                    if event["type"] == "ERROR":
                        version = ""  # the resource version has expired
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._apply(event)
            except (PrerequisiteError, urllib3.exceptions.HTTPError, OSError, ValueError, KeyError):
                version = ""  # the server is unavailable, or the connection broke within a line
            if time.monotonic() - started < 1:
                time.sleep(PAUSE_S)

    def _list(self) -> str:
        """Load the state of all pods; return the resource version from which to watch."""
        self.listings += 1
        listing = self._client.get(self._namespace.pods, labelSelector=self._namespace.selector)
        with self._changed:
            before = self._pods
            self._pods = {pod["metadata"]["name"]: pod for pod in listing["items"]}
            self._notify({**before, **self._pods})
        return str(listing["metadata"]["resourceVersion"])

    def _apply(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        now = time.monotonic()
        # Before waits end because of the event, so that they find what listeners recorded.
        for listener in self.listeners:
            listener(pod, now)
        with self._changed:
            if event["type"] == "DELETED":
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod
            self._notify([name])

    def _notify(self, names: Iterable[str]) -> None:
        for changed in self._waits:
            changed.update(dict.fromkeys(names))
        self._changed.notify_all()

    def wait_ready(self, names: Iterable[str], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all these pods are ready, at most `timeout_s` and some time per pod.

        Raises PrerequisiteError if a pod cannot become ready in time, PartFailed if it was killed.
        """
        awaited = dict.fromkeys(names)
        pending = dict(awaited)
        killed: list[str] = []
        limit_s = timeout_s + TIMEOUT_PER_POD_S * len(awaited)

        def evaluate(changed: list[str], waited_s: float) -> str | None:
            for name in changed:
                pod = self._pods.get(name)
                if pod and (failure := pods.failure(pod)):
                    killed.extend([name] if pods.was_killed(pod) else [])
                    return f"pod {name}: {failure}"
                if pod and pods.is_ready(pod):
                    pending.pop(name, None)
                else:
                    pending[name] = None
            # A pod that stays unscheduled causes no event.
            for name in pending if waited_s > UNSCHEDULED_S and not changed else ():
                if reason := pods.unscheduled_reason(self._pods.get(name) or {}):
                    return f"pod {name}: {reason}"
            return None if pending else ""

        problem = self._wait(awaited, evaluate, limit_s)
        if problem is None:
            late = next(iter(pending))
            problem = f"pod {late} is not ready after {limit_s:g} s: {self.reason(late)}"
        if killed:
            raise PartFailed(problem)
        if problem:
            remedy = f"inspect them: kubectl -n {self._namespace.name} describe pods; remove leftovers: k8sdds clean"
            if any(name in problem for name in PULL_ERRORS):
                remedy = f"{self._namespace.pull_remedy(problem)}; {remedy}"
            raise PrerequisiteError(problem, remedy)

    def wait_deleted(self, names: Iterable[str], timeout_s: float = DELETE_TIMEOUT_S) -> None:
        """Wait until none of these pods exists, at most `timeout_s` and some time per pod. Raises PrerequisiteError."""
        pending = set(names)
        limit_s = timeout_s + TIMEOUT_PER_POD_S * len(pending)

        def evaluate(changed: list[str], _waited_s: float) -> str | None:
            pending.difference_update([name for name in changed if name not in self._pods])
            return None if pending else ""

        if self._wait(dict.fromkeys(pending), evaluate, limit_s) is None:
            stuck = ", ".join(sorted(pending)[:5])
            raise PrerequisiteError(
                f"pods were not deleted after {limit_s:g} s: {stuck}",
                "check that their nodes are ready: kubectl get nodes",
            )

    def wait_failures(self, names: Iterable[str], timeout_s: float = 5) -> dict[str, str]:
        """Wait until one of these pods, which were ready, has failed. Return why, by pod; empty if none has failed."""
        failures: dict[str, str] = {}

        def evaluate(changed: list[str], _waited_s: float) -> str | None:
            for name in changed:
                pod = self._pods.get(name)
                if failure := pods.failure(pod) if pod else GONE:
                    failures[name] = failure
            return "" if failures else None

        self._wait(dict.fromkeys(names), evaluate, timeout_s)
        return failures

    def _wait(self, awaited: Mapping[str, None], evaluate: Condition, limit_s: float) -> str | None:
        """Return the first result of a condition that is not None, or None after `limit_s`.

        The condition gets only the pods that changed since its last call (first: all), so the total work
        grows with the number of events and not with the square of the number of pods. It is called every second, too.
        """
        changed: dict[str, None] = dict.fromkeys(awaited)
        started = time.monotonic()
        with self._changed:
            self._waits.append(changed)
            try:
                while True:
                    names = [name for name in changed if name in awaited]
                    changed.clear()
                    result = evaluate(names, time.monotonic() - started)
                    remaining_s = started + limit_s - time.monotonic()
                    if result is not None or remaining_s <= 0:
                        return result
                    self._changed.wait(min(remaining_s, 1.0))
            finally:
                # Compare by identity: two waits may have equal dicts.
                self._waits = [other for other in self._waits if other is not changed]

    def reason(self, name: str) -> str:
        """Return why a pod is not ready: its last warning event, or its phase."""
        pod = self.pod(name)
        if pod is None:
            return GONE
        try:
            events = self._client.get(
                f"{CORE}/namespaces/{self._namespace.name}/events",
                fieldSelector=f"involvedObject.name={name}",
            )["items"]
        except PrerequisiteError:
            events = []
        warnings = [event for event in events if event.get("type") == "Warning"] or events
        if warnings:
            last = max(warnings, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
            return f"{last.get('reason')}: {last.get('message')}"
        return pods.unscheduled_reason(pod) or f"it is {pod.get('status', {}).get('phase', 'new')}"


Instances = dict[str, frozenset[str]]
"""NAMESPACE/NAME of a pod to its `instance`."""


class NeededPods:
    """The pods of others that the trials of the current block need: agents of the network, and discovery servers.

    Kubernetes replaces such a pod when it is killed. An attempt that failed meanwhile failed because of it.
    """

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._patterns: tuple[str, ...] = ()
        self._instances: Instances | None = None

    def remember(self, patterns: Iterable[str]) -> None:
        """Remember the pods whose NAMESPACE/NAME matches one of these patterns, as they are now."""
        self._patterns = tuple(dict.fromkeys(patterns))
        self._instances = self._read()

    def restarted(self) -> str:
        """Return which pod was seen to restart since it was remembered, or nothing; remember them again."""
        before, self._instances = self._instances, self._read()
        if before is None or self._instances is None:
            return ""
        changed = [name for name in before if before[name] != self._instances.get(name)]
        return f"pod {changed[0]} was restarted" if changed else ""

    def forgive(self, stopped: Collection[str]) -> None:
        """Remember again the pods in the place of these (NAMESPACE/NAME), which were stopped by request."""
        if not stopped or self._instances is None or (now := self._read()) is None:
            return
        others = {name: instance for name, instance in self._instances.items() if name not in stopped}
        self._instances = now | others

    def pod_ids(self) -> set[str]:
        """Return the ids of the remembered pods, and of their containers."""
        return {identity for instance in (self._instances or {}).values() for identity in instance}

    def _read(self) -> Instances | None:
        try:
            # This user possibly does not see the network's agents.
            found = permissions.pods_named(self._client, self._patterns)
        except PrerequisiteError:
            return None
        return {name: instance(pod) for name, pod in found.items()}


def instance(pod: Mapping[str, Any]) -> frozenset[str]:
    """Return the id of a pod and those of its running containers, which change when it restarts."""
    containers = pod.get("status", {}).get("containerStatuses", [])
    running = [container for container in containers if "running" in container.get("state", {})]
    return frozenset([pod["metadata"]["uid"], *(container["containerID"] for container in running)])
