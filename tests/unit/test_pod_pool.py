"""Pods that share the memory of a further pod are created after it, and replaced with it."""

from __future__ import annotations

from typing import Any

from k8sdds.testbeds.cluster import placement, pods
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from tests.unit.test_cluster import cell, nodes


class Watch:
    """A watch of pods that are ready at once, until they are lost."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def wait_ready(self, names: Any) -> None:
        assert not self.lost.intersection(names)

    def pod(self, name: str) -> dict[str, Any]:
        return {"metadata": {"deletionTimestamp": "now"} if name in self.lost else {"uid": name}}


class Pool(PodPool):
    """A pool that remembers the pods that it created and deleted, in order."""

    def __init__(self) -> None:
        self._names, self._ready, self._discarded = {}, {}, set()
        self._created, self._invalid = 0, False
        self.did: list[str] = []

    def new_name(self, slot: Slot) -> str:
        self._created += 1
        return f"{slot.participant}-{self._created}"

    def post(self, body: dict[str, Any]) -> None:
        self.did.append(body["name"])

    def manifest(self, slot: Slot, name: str) -> dict[str, Any]:
        return {"name": name}

    def remove(self, names: Any) -> None:
        self.did += [f"not {name}" for name in names]

    def _query_facts(self, slot: Slot) -> ReadyPod:
        return ReadyPod(self._names[slot], "", "", None, slot.node, {})


def test_pods_follow_the_one_whose_memory_they_share() -> None:
    shared = cell(network="flannel-vxlan", middleware="zenoh", transport="shared-memory")
    needed = placement.slots(shared, nodes()).values()
    pool, watch = Pool(), Watch()
    pool.watch = watch  # type: ignore[assignment]
    pool.ensure(needed)
    # Both are created at the same time.
    assert pool.did[0] == "shm-1" and set(pool.did[1:]) == {"pub0-2", "sub0-3"}
    pool.ensure(needed)
    watch.lost.add("shm-1")
    pool.ensure(needed)
    assert pool.did[3:-2] == ["not shm-1", "shm-4", "not pub0-2", "not sub0-3"]
    assert set(pool.did[-2:]) == {"pub0-5", "sub0-6"}
    assert set(pool.ready_pods()) == {*needed, pods.memory_holder(next(iter(needed)).node)}
