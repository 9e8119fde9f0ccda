"""How the campaign's pods are awaited: by what a watch tells, each event looked at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.watch import PodWatch

END = object()
PATH = "/api/v1/namespaces/n/pods"


class Server:
    """What a PodWatch needs of an KubernetesClient: one list, then events as they are told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.version = 1
        self._events: queue.Queue[Any] = queue.Queue()

    def get(self, path: str, **_: Any) -> dict[str, Any]:
        self.asked.append(f"get {path}")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, resourceVersion: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(f"watch {path} from {resourceVersion}")
        while (event := self._events.get()) is not END:
            yield event

    def tell(self, kind: str, name: str, phase: str, **conditions: str) -> None:
        self.version += 1
        meta = {"name": name, "resourceVersion": str(self.version)}
        status = {"phase": phase, "conditions": [{"type": t, "status": s} for t, s in conditions.items()]}
        self._events.put({"type": kind, "object": {"metadata": meta, "status": status}})

    def end(self) -> None:
        self._events.put(END)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.end()


@pytest.fixture
def watch(server: Server) -> Iterator[PodWatch]:
    made = PodWatch(server, "n", "a=b")  # type: ignore[arg-type]
    yield made
    made.close()


def seen(watch: PodWatch, name: str) -> None:
    """Returns when the watch has told of a pod."""
    while watch.pod(name) is None:
        time.sleep(0.001)


@pytest.mark.parametrize("count", [100, 300])
def test_looks_grow_with_the_pods_and_nobody_polls(
    count: int, server: Server, watch: PodWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    is_ready = pods.is_ready

    def counted(data: dict[str, Any]) -> bool:
        nonlocal looks
        looks += 1
        return is_ready(data)

    monkeypatch.setattr(pods, "is_ready", counted)
    names = [f"sub{i}" for i in range(count)]

    def tell() -> None:
        for name in names:
            server.tell("ADDED", name, "Pending")
            server.tell("MODIFIED", name, "Pending", PodScheduled="True")
            server.tell("MODIFIED", name, "Running", Ready="True")

    threading.Thread(target=tell).start()
    watch.wait_ready(names, 60)
    # One for each event at most, and none for what nobody has spoken of.
    assert count <= looks <= 3 * count
    threading.Thread(target=lambda: [server.tell("DELETED", name, "") for name in names]).start()
    watch.wait_deleted(names, 60)
    assert server.asked == [f"get {PATH}", f"watch {PATH} from 1"]


def test_one_that_fails_ends_the_wait_with_its_reason(server: Server, watch: PodWatch) -> None:
    server.tell("ADDED", "a", "Running", Ready="True")
    server.tell("ADDED", "b", "Failed")
    with pytest.raises(PrerequisiteError, match="pod b: it is Failed"):
        watch.wait_ready(["a", "b"], 60)


def test_a_pod_that_was_ready_and_is_no_more_is_waited_for(server: Server, watch: PodWatch) -> None:
    server.tell("ADDED", "a", "Running", Ready="True")
    server.tell("MODIFIED", "a", "Running", Ready="False")
    server.tell("ADDED", "b", "Running", Ready="True")
    ready = threading.Event()

    def wait() -> None:
        watch.wait_ready(["a", "b"], 60)
        ready.set()

    threading.Thread(target=wait).start()
    seen(watch, "b")
    assert not ready.is_set()
    server.tell("MODIFIED", "a", "Running", Ready="True")
    assert ready.wait(60)


def test_what_never_comes_is_named_when_the_time_is_over(server: Server, watch: PodWatch) -> None:
    server.tell("ADDED", "a", "Running", Ready="True")
    seen(watch, "a")
    with pytest.raises(PrerequisiteError, match=r"pod b is not ready after 0\.2 s: it does not exist"):
        watch.wait_ready(["a", "b"], 0.2)
    with pytest.raises(PrerequisiteError, match="pods were not deleted after 0.2 s: a"):
        watch.wait_deleted(["a", "b"], 0.2)


def test_a_watch_that_ends_goes_on_where_it_was_and_one_too_old_begins_anew(
    server: Server, watch: PodWatch
) -> None:
    server.tell("ADDED", "a", "Running", Ready="True")
    server.tell("BOOKMARK", "", "")
    server.end()
    server.tell("ADDED", "b", "Running", Ready="True")
    watch.wait_ready(["a", "b"], 60)
    assert server.asked == [f"get {PATH}", f"watch {PATH} from 1", f"watch {PATH} from 3"]
    server.tell("ERROR", "", "")
    # The list is empty here: what it does not have is gone.
    watch.wait_deleted(["a", "b"], 60)
