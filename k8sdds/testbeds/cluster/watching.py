"""The campaign's pods as they are now, by one watch: nobody polls, and nothing sleeps blindly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import urllib3

from k8sdds.errors import LackError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.api import CORE, Api

READY_S = 120
"""From creation to ready, images pulled and network attached."""
UNSCHEDULED_S = 15
"""How long the scheduler may not find a node; other campaigns' pods may be going."""


class PodWatch:
    """The pods of a namespace with a label, kept up to date in the background until `close`."""

    def __init__(self, api: Api, namespace: str, selector: str) -> None:
        self._api = api
        self._path = f"{CORE}/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._selector = selector
        self._pods: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.listeners: list[Callable[[dict[str, Any], float], None]] = []
        """Told of every event: the pod, and when it came (monotonic seconds)."""
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; the thread ends with its connection."""
        self._closed = True

    def pod(self, name: str) -> dict[str, Any] | None:
        """A pod as last seen; None where there is none."""
        with self._changed:
            return self._pods.get(name)

    def _follow(self) -> None:
        while not self._closed:
            try:
                listed = self._api.get(self._path, labelSelector=self._selector)
                with self._changed:
                    self._pods = {one["metadata"]["name"]: one for one in listed["items"]}
                    self._changed.notify_all()
                version = listed["metadata"]["resourceVersion"]
                for event in self._api.watch(
                    self._path, labelSelector=self._selector, resourceVersion=version
                ):
                    if self._closed or event["type"] == "ERROR":
                        break  # the version is too old: listed anew
                    self._apply(event)
            except (LackError, urllib3.exceptions.HTTPError, OSError, ValueError, KeyError):
                # The server is away, or the connection broke within a line.
                time.sleep(0.5)

    def _apply(self, event: dict[str, Any]) -> None:
        one = event["object"]
        with self._changed:
            if event["type"] == "DELETED":
                self._pods.pop(one["metadata"]["name"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self._pods[one["metadata"]["name"]] = one
            self._changed.notify_all()
        now = time.monotonic()
        for listener in self.listeners:
            listener(one, now)

    def await_ready(self, names: Iterable[str], timeout_s: float = READY_S) -> None:
        """Returns when all these pods are ready. LackError with the reason when one will not be."""
        wanted = list(names)
        began = time.monotonic()

        def state() -> str | None:
            """None: go on waiting; empty: all are ready; else what is wrong."""
            waiting = False
            for name in wanted:
                data = self._pods.get(name)
                if data is None:
                    waiting = True
                    continue
                why = pods.trouble(data)
                if not why and time.monotonic() - began > UNSCHEDULED_S:
                    why = pods.unscheduled(data)
                if why:
                    return f"pod {name}: {why}"
                waiting = waiting or not pods.is_ready(data)
            return None if waiting else ""

        said = self._wait(state, began, timeout_s)
        if said is None:
            late = [name for name in wanted if not (self.pod(name) and pods.is_ready(self.pod(name) or {}))]
            said = f"pod {late[0]} is not ready after {timeout_s:g} s: {self.why(late[0])}"
        if said:
            raise LackError(said, f"kubectl -n {self._namespace} describe pods; k8sdds clean removes them")

    def await_gone(self, names: Iterable[str], timeout_s: float = 60) -> None:
        """Returns when none of these pods is there any more; LackError when one stays."""
        wanted = set(names)
        left = self._wait(lambda: None if wanted & set(self._pods) else "", time.monotonic(), timeout_s)
        if left is None:
            stuck = ", ".join(sorted(wanted & set(self._pods)))
            raise LackError(f"pods do not go: {stuck}", "is their node alive? kubectl get nodes")

    def _wait(self, state: Callable[[], str | None], began: float, timeout_s: float) -> str | None:
        with self._changed:
            while (said := state()) is None:
                left = began + timeout_s - time.monotonic()
                if left <= 0:
                    return None
                # A second at most: that a pod stays unscheduled is no event.
                self._changed.wait(min(left, 1.0))
            return said

    def why(self, name: str) -> str:
        """What the events say of a pod, the last warning first."""
        data = self.pod(name)
        if data is None:
            return "it is not there"
        try:
            listed = self._api.get(
                f"{CORE}/namespaces/{self._namespace}/events", fieldSelector=f"involvedObject.name={name}"
            )["items"]
        except LackError:
            listed = []
        warnings = [one for one in listed if one.get("type") == "Warning"] or listed
        if warnings:
            last = max(warnings, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
            return f"{last.get('reason')}: {last.get('message')}"
        return pods.unscheduled(data) or f"it is {data.get('status', {}).get('phase', 'new')}"
