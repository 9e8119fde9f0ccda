"""Test that waiting for pods evaluates every watch event once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster import watch as watch_module
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.watch import PodWatch

END = object()
PATH = "/api/v1/namespaces/n/pods"


class Server:
    """Replace KubernetesClient for PodWatch: return one list, then the queued events."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.version = 1
        self._events: queue.Queue[Any] = queue.Queue()

    def get(self, path: str, **_: Any) -> dict[str, Any]:
        self.requests.append(f"get {path}")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch(self, path: str, resourceVersion: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.requests.append(f"watch {path} from {resourceVersion}")
        while (event := self._events.get()) is not END:
            yield event

    def send(self, kind: str, name: str, phase: str, **conditions: str) -> None:
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
def watch(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodWatch]:
    monkeypatch.setattr(watch_module, "PAUSE_S", 0.01)
    pod_watch = PodWatch(CampaignNamespace(server, "c", "n", owned=True, title="C"))  # type: ignore[arg-type]
    yield pod_watch
    pod_watch.close()


def wait_seen(watch: PodWatch, name: str) -> None:
    """Wait until the watch has reported a pod."""
    while watch.pod(name) is None:
        time.sleep(0.001)


def test_evaluations_grow_linearly_with_the_pods(
    server: Server, watch: PodWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, looks = 200, 0
    is_ready = pods.is_ready

    def counted(data: dict[str, Any]) -> bool:
        nonlocal looks
        looks += 1
        return is_ready(data)

    monkeypatch.setattr(pods, "is_ready", counted)
    names = [f"sub{i}" for i in range(count)]

    def tell() -> None:
        for name in names:
            server.send("ADDED", name, "Pending")
            server.send("MODIFIED", name, "Pending", PodScheduled="True")
            server.send("MODIFIED", name, "Running", Ready="True")

    threading.Thread(target=tell).start()
    watch.wait_ready(names, 60)
    # At most one per event.
    assert count <= looks <= 3 * count
    threading.Thread(target=lambda: [server.send("DELETED", name, "") for name in names]).start()
    watch.wait_deleted(names, 60)
    assert server.requests == [f"get {PATH}", f"watch {PATH} from 1"]


def test_a_failed_pod_ends_the_wait_with_its_reason(server: Server, watch: PodWatch) -> None:
    server.send("ADDED", "a", "Running", Ready="True")
    server.send("ADDED", "b", "Failed")
    with pytest.raises(PrerequisiteError, match="pod b: it is Failed"):
        watch.wait_ready(["a", "b"], 60)


@pytest.mark.parametrize(
    ("image", "owned", "remedy"),
    [
        ("a.example/b", True, "requires a login, use --image-login"),
        ("a.example/b", False, "let the administrator of n name a Secret in imagePullSecrets"),
        (versions.PERFTEST_IMAGE, True, "no registry has this image: load it with `k8sdds images load`"),
        (versions.PERFTEST_IMAGE, False, "no registry has this image: load it with `k8sdds images load`"),
    ],
)
def test_the_fix_of_a_failed_pull_depends_on_the_image_and_the_namespace(
    server: Server, watch: PodWatch, image: str, owned: bool, remedy: str
) -> None:
    watch._namespace = replace(watch._namespace, owned=owned)
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": 401 Unauthorized'}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    metadata = {"name": "a", "resourceVersion": "2"}
    server._events.put({"type": "ADDED", "object": {"metadata": metadata, "status": status}})
    with pytest.raises(PrerequisiteError, match="401 Unauthorized") as error:
        watch.wait_ready(["a"], 60)
    assert remedy in error.value.remedy
    assert ("--image-login" in error.value.remedy) == ("use --image-login" in remedy)


def test_a_pod_that_loses_readiness_is_awaited(server: Server, watch: PodWatch) -> None:
    server.send("ADDED", "a", "Running", Ready="True")
    server.send("MODIFIED", "a", "Running", Ready="False")
    server.send("ADDED", "b", "Running", Ready="True")
    ready = threading.Event()

    def wait() -> None:
        watch.wait_ready(["a", "b"], 60)
        ready.set()

    threading.Thread(target=wait).start()
    wait_seen(watch, "b")
    assert not ready.is_set()
    server.send("MODIFIED", "a", "Running", Ready="True")
    assert ready.wait(60)


def test_a_timeout_names_the_missing_pod(
    server: Server, watch: PodWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "TIMEOUT_PER_POD_S", 0)
    server.send("ADDED", "a", "Running", Ready="True")
    wait_seen(watch, "a")
    with pytest.raises(PrerequisiteError, match=r"pod b is not ready after 0\.1 s: it does not exist"):
        watch.wait_ready(["a", "b"], 0.1)
    with pytest.raises(PrerequisiteError, match=r"pods were not deleted after 0\.1 s: a"):
        watch.wait_deleted(["a", "b"], 0.1)


def test_a_watch_resumes_and_an_expired_one_lists_again(server: Server, watch: PodWatch) -> None:
    server.send("ADDED", "a", "Running", Ready="True")
    server.send("BOOKMARK", "", "")
    server.end()
    server.send("ADDED", "b", "Running", Ready="True")
    watch.wait_ready(["a", "b"], 60)
    assert server.requests == [f"get {PATH}", f"watch {PATH} from 1", f"watch {PATH} from 3"]
    server.send("ERROR", "", "")
    # The new list is empty, so the pods no longer exist.
    watch.wait_deleted(["a", "b"], 60)
