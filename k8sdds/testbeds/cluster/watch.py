"""Follow the state of a campaign's pods with one watch, and wait for changes of it without polling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import urllib3

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.testbeds.cluster import pods

READY_TIMEOUT_S = 120
"""From creation to ready, including image pulls and network setup."""
TIMEOUT_PER_POD_S = 0.5
"""Added to timeouts for each pod, because a kubelet starts only a few pods at a time."""
DELETE_TIMEOUT_S = 60
GONE = "it does not exist"
UNSCHEDULED_S = 15
"""How long a pod may stay unscheduled: pods of other campaigns may be terminating."""

Condition = Callable[[list[str], float, bool], str | None]
"""Evaluates a wait: (changed pods, seconds since the wait began, whether a second has passed since the last
such call) → the result, or None to wait on."""


class PodWatch:
    """The pods of a namespace with a label, updated by a background thread until `close`."""

    def __init__(self, client: KubernetesClient, namespace: str, selector: str) -> None:
        self._client = client
        self._path = f"{CORE}/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._selector = selector
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
                query: dict[str, Any] = {"labelSelector": self._selector, "resourceVersion": version}
                for event in self._client.watch(self._path, allowWatchBookmarks="true", **query):
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
                time.sleep(0.5)

    def _list(self) -> str:
        """Load the state of all pods; return the resource version from which to watch."""
        self.listings += 1
        listing = self._client.get(self._path, labelSelector=self._selector)
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

    def wait_ready(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Wait until all these pods are ready.

        Args:
            names: Names of the pods.
            timeout_s: None: depends on the number of pods.

        Raises:
            PrerequisiteError: a pod cannot become ready, or is not ready when the time is over.
            PartFailed: a pod was killed.
        """
        awaited = dict.fromkeys(names)
        pending = dict(awaited)
        killed: list[str] = []
        limit_s = timeout_s or READY_TIMEOUT_S + TIMEOUT_PER_POD_S * len(awaited)

        def evaluate(changed: Iterable[str], waited_s: float, periodic: bool) -> str | None:
            for name in changed:
                pod = self._pods.get(name)
                if pod and (failure := pods.failure(pod)):
                    killed.extend([name] if pods.was_killed(pod) else [])
                    return f"pod {name}: {failure}"
                if pod and pods.is_ready(pod):
                    pending.pop(name, None)
                else:
                    pending[name] = None
            if periodic and waited_s > UNSCHEDULED_S:
                # A pod that stays unscheduled causes no event.
                for name in pending:
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
            raise PrerequisiteError(
                problem,
                f"inspect them: kubectl -n {self._namespace} describe pods; remove leftovers: k8sdds clean",
            )

    def wait_deleted(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Wait until none of these pods exists.

        Args:
            names: Names of the pods.
            timeout_s: None: depends on the number of pods.

        Raises:
            PrerequisiteError: a pod still exists when the time is over.
        """
        pending = set(names)
        limit_s = timeout_s or DELETE_TIMEOUT_S + TIMEOUT_PER_POD_S * len(pending)

        def evaluate(changed: Iterable[str], _waited_s: float, _periodic: bool) -> str | None:
            pending.difference_update([name for name in changed if name not in self._pods])
            return None if pending else ""

        if self._wait(dict.fromkeys(pending), evaluate, limit_s) is None:
            stuck = ", ".join(sorted(pending)[:5])
            raise PrerequisiteError(
                f"pods were not deleted after {limit_s:g} s: {stuck}",
                "check that their nodes are ready: kubectl get nodes",
            )

    def wait_failures(self, names: Iterable[str], timeout_s: float = 5) -> dict[str, str]:
        """Wait until one of these pods, which were ready, has failed, at most `timeout_s`.

        Returns:
            Why they failed, by pod; empty: no failure was reported in time.
        """
        awaited = dict.fromkeys(names)
        failures: dict[str, str] = {}

        def evaluate(changed: Iterable[str], _waited_s: float, _periodic: bool) -> str | None:
            for name in changed:
                pod = self._pods.get(name)
                if failure := pods.failure(pod) if pod else GONE:
                    failures[name] = failure
            return "" if failures else None

        self._wait(awaited, evaluate, timeout_s)
        return failures

    def _wait(self, awaited: Mapping[str, None], evaluate: Condition, limit_s: float) -> str | None:
        """Return the first result of a condition that is not None, or None after `limit_s`.

        The condition gets only the pods that changed since its last call (first: all), so the total work
        grows with the number of events and not with the square of the number of pods.
        """
        changed: dict[str, None] = dict.fromkeys(awaited)
        started = last_periodic = time.monotonic()
        with self._changed:
            self._waits.append(changed)
            try:
                while True:
                    now = time.monotonic()
                    periodic = now - last_periodic >= 1
                    last_periodic = now if periodic else last_periodic
                    names = [name for name in changed if name in awaited]
                    changed.clear()
                    result = evaluate(names, now - started, periodic)
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
                f"{CORE}/namespaces/{self._namespace}/events", fieldSelector=f"involvedObject.name={name}"
            )["items"]
        except PrerequisiteError:
            events = []
        warnings = [event for event in events if event.get("type") == "Warning"] or events
        if warnings:
            last = max(warnings, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
            return f"{last.get('reason')}: {last.get('message')}"
        return pods.unscheduled_reason(pod) or f"it is {pod.get('status', {}).get('phase', 'new')}"
