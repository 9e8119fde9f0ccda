"""The campaign's pods as they are now, by one watch: nobody polls, and nothing sleeps blindly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import urllib3

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods

READY_S = 120
"""From creation to ready, images pulled and network attached."""
READY_EACH_S = 0.5
"""As much longer for each pod: a kubelet starts its pods a few at a time."""
GONE_S = 60
UNSCHEDULED_S = 15
"""How long the scheduler may not find a node; other campaigns' pods may be going."""


class PodWatch:
    """The pods of a namespace with a label, kept up to date in the background until `close`."""

    def __init__(self, client: KubernetesClient, namespace: str, selector: str) -> None:
        self._client = client
        self._path = f"{CORE}/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._selector = selector
        self._pods: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._hearing: list[dict[str, None]] = []
        """For each that waits: the pods of which something was heard since it looked."""
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
        version = ""
        while not self._closed:
            began = time.monotonic()
            try:
                version = version or self._list()
                query = {"labelSelector": self._selector, "resourceVersion": version}
                for event in self._client.watch(self._path, allowWatchBookmarks="true", **query):
                    if self._closed:
                        break
                    if event["type"] == "ERROR":
                        version = ""  # it is too old: listed anew
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._apply(event)
            except (PrerequisiteError, urllib3.exceptions.HTTPError, OSError, ValueError, KeyError):
                version = ""  # the server is away, or the connection broke within a line
            if time.monotonic() - began < 1:
                time.sleep(0.5)

    def _list(self) -> str:
        """All pods as they are now; the version from which they are to be watched."""
        listed = self._client.get(self._path, labelSelector=self._selector)
        with self._changed:
            before = self._pods
            self._pods = {one["metadata"]["name"]: one for one in listed["items"]}
            self._tell({**before, **self._pods})
        return str(listed["metadata"]["resourceVersion"])

    def _apply(self, event: dict[str, Any]) -> None:
        one = event["object"]
        name = one["metadata"]["name"]
        with self._changed:
            if event["type"] == "DELETED":
                self._pods.pop(name, None)
            else:
                self._pods[name] = one
            self._tell([name])
        now = time.monotonic()
        for listener in self.listeners:
            listener(one, now)

    def _tell(self, names: Iterable[str]) -> None:
        for heard in self._hearing:
            heard.update(dict.fromkeys(names))
        self._changed.notify_all()

    def await_ready(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Returns when all these pods are ready. PrerequisiteError with the reason when one will not be.

        `timeout_s`: by default long enough for so many.
        """
        wanted = dict.fromkeys(names)
        waiting = dict(wanted)
        limit_s = timeout_s or READY_S + READY_EACH_S * len(wanted)

        def look(heard: Iterable[str], waited_s: float, on_time: bool) -> str | None:
            for name in heard:
                data = self._pods.get(name)
                if why := pods.trouble(data) if data else "":
                    return f"pod {name}: {why}"
                if data and pods.is_ready(data):
                    waiting.pop(name, None)
                else:
                    waiting[name] = None
            if on_time and waited_s > UNSCHEDULED_S:
                # That a pod stays unscheduled is no event.
                for name in waiting:
                    if why := pods.unscheduled(self._pods.get(name) or {}):
                        return f"pod {name}: {why}"
            return None if waiting else ""

        said = self._wait(wanted, look, limit_s)
        if said is None:
            late = next(iter(waiting))
            said = f"pod {late} is not ready after {limit_s:g} s: {self.why(late)}"
        if said:
            raise PrerequisiteError(
                said, f"kubectl -n {self._namespace} describe pods; k8sdds clean removes them"
            )

    def await_gone(self, names: Iterable[str], timeout_s: float | None = None) -> None:
        """Returns when none of these pods is there any more; PrerequisiteError when one stays."""
        waiting = set(names)
        limit_s = timeout_s or GONE_S + READY_EACH_S * len(waiting)

        def look(heard: Iterable[str], _waited_s: float, _on_time: bool) -> str | None:
            waiting.difference_update([name for name in heard if name not in self._pods])
            return None if waiting else ""

        if self._wait(dict.fromkeys(waiting), look, limit_s) is None:
            stuck = ", ".join(sorted(waiting)[:5])
            raise PrerequisiteError(f"pods do not go: {stuck}", "is their node alive? kubectl get nodes")

    def ended(self, name: str, timeout_s: float = 5) -> str:
        """Why a pod that was ready is so no more, when the word of it comes soon; else empty."""

        def look(_heard: Iterable[str], _waited_s: float, _on_time: bool) -> str | None:
            return pods.trouble(self._pods.get(name) or {"metadata": {}}) or None

        return self._wait({name: None}, look, timeout_s) or ""

    def _wait(
        self, wanted: Mapping[str, None], look: Callable[[list[str], float, bool], str | None], limit_s: float
    ) -> str | None:
        """What `look` says first, or None when the time is over.

        It gets the pods that something was heard of since (at first all), how long it took so far, and, once
        a second, whether it is time to look at the others: more pods cost more looks, not their square.
        """
        heard: dict[str, None] = dict.fromkeys(wanted)
        began = spoke = time.monotonic()
        with self._changed:
            self._hearing.append(heard)
            try:
                while True:
                    now = time.monotonic()
                    on_time = now - spoke >= 1
                    spoke = now if on_time else spoke
                    fresh = [name for name in heard if name in wanted]
                    heard.clear()
                    said = look(fresh, now - began, on_time)
                    left = began + limit_s - time.monotonic()
                    if said is not None or left <= 0:
                        return said
                    self._changed.wait(min(left, 1.0))
            finally:
                # By identity: two that wait may have heard the same.
                self._hearing = [one for one in self._hearing if one is not heard]

    def why(self, name: str) -> str:
        """What the events say of a pod, the last warning first."""
        data = self.pod(name)
        if data is None:
            return "it is not there"
        try:
            listed = self._client.get(
                f"{CORE}/namespaces/{self._namespace}/events", fieldSelector=f"involvedObject.name={name}"
            )["items"]
        except PrerequisiteError:
            listed = []
        warnings = [one for one in listed if one.get("type") == "Warning"] or listed
        if warnings:
            last = max(warnings, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
            return f"{last.get('reason')}: {last.get('message')}"
        return pods.unscheduled(data) or f"it is {data.get('status', {}).get('phase', 'new')}"
