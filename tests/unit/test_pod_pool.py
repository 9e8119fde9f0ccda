"""Pods that share the memory of a further pod are created after it, and replaced with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from k8sdds.testbeds.cluster import placement, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.session import ClusterSession
from tests.unit.builders import trial
from tests.unit.test_cluster import cell, nodes


class Watch:
    """A watch of pods that are ready at once, until they are lost."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def wait_ready(self, names: Any) -> None:
        assert not self.lost.intersection(names)

    def pod(self, name: str) -> dict[str, Any]:
        deletion = {"deletionTimestamp": "now"} if name in self.lost else {}
        return {"metadata": {"uid": f"uid-{name}"} | deletion}


class Pool(PodPool):
    """A pool that remembers the pods that it created, deleted and queried, in order."""

    def __init__(self) -> None:
        self._namespace = CampaignNamespace(None, "c", "n", owned=True, title="C")  # type: ignore[arg-type]
        self._image, self._memory, self._extra_volumes, self._tolerations = "a.example/b", (1, 1), None, ()
        self._names, self._ready, self._discarded = {}, {}, set()
        self._created, self._invalid = 0, False
        self.watch: Any = Watch()
        self.did: list[str] = []
        self.queried: list[str] = []
        self.memory_of: dict[str, str] = {}
        """Path of the memory that a pod shares, by name."""

    def new_name(self, slot: Slot) -> str:
        self._created += 1
        return f"{slot.participant}-{self._created}"

    def post(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        self.did.append(name)
        for volume in body["spec"]["volumes"]:
            if "hostPath" in volume:
                self.memory_of[name] = volume["hostPath"]["path"]

    def remove(self, names: Any) -> None:
        self.did += [f"not {name}" for name in names]

    def _query_facts(self, slot: Slot) -> ReadyPod:
        self.queried.append(self._names[slot])
        return ReadyPod(self._names[slot], "", "", None, slot.node, {})


SHARING = cell(network="flannel-vxlan", middleware="zenoh", transport="shared-memory")
"""A publisher and a subscriber that share the memory of a node."""


def needed_slots() -> list[Slot]:
    return list(placement.slots(SHARING, nodes()).values())


def test_pods_follow_the_one_whose_memory_they_share() -> None:
    needed, pool = needed_slots(), Pool()
    pool.ensure(needed)
    # Both are created at the same time.
    assert pool.did[0] == "shm-1" and set(pool.did[1:]) == {"pub0-2", "sub0-3"}
    pool.ensure(needed)
    pool.watch.lost.add("shm-1")
    pool.ensure(needed)
    assert pool.did[3:-2] == ["not shm-1", "shm-4", "not pub0-2", "not sub0-3"]
    assert set(pool.did[-2:]) == {"pub0-5", "sub0-6"}
    assert set(pool.ready_pods()) == {*needed, pods.memory_holder(needed[0].node)}
    holders = {"pub0-2": "shm-1", "sub0-3": "shm-1", "pub0-5": "shm-4", "sub0-6": "shm-4"}
    assert pool.memory_of == {
        name: f"/var/lib/kubelet/pods/uid-{holder}/volumes/kubernetes.io~empty-dir/shared-memory"
        for name, holder in holders.items()
    }


def test_all_pods_that_share_memory_must_answer_after_a_failure() -> None:
    needed, pool = needed_slots(), Pool()
    pool.ensure(needed)
    pool.queried.clear()
    pool.ensure(needed)
    assert not pool.queried
    pool.invalidate()
    pool.ensure(needed)
    assert sorted(pool.queried) == ["pub0-2", "shm-1", "sub0-3"]
    pool.ensure(needed)
    assert len(pool.queried) == 3


def test_the_memory_of_participants_whose_attempt_failed_is_replaced() -> None:
    pool, session = Pool(), object.__new__(ClusterSession)
    session._pods, session._nodes = pool, nodes()
    forgotten: list[Slot] = []
    session._verifier = SimpleNamespace(forget=forgotten.extend)  # type: ignore[assignment]
    pool.ensure(needed_slots())
    session.discard(trial(SHARING))
    assert forgotten == needed_slots()
    pool.ensure(needed_slots())
    assert {"not shm-1", "not pub0-2", "not sub0-3"} <= set(pool.did)
    assert [pool.memory_of[pool.pod(slot).name] for slot in needed_slots()] == [
        pods.memory_folder({"metadata": {"uid": "uid-shm-4"}})
    ] * 2
    pool.did.clear()
    own = SHARING.model_copy(update={"dev_shm": "own"})
    pool.ensure(placement.slots(own, nodes()).values())
    session.discard(trial(own))
    pool.ensure([*placement.slots(own, nodes()).values(), *needed_slots()])
    assert "not shm-4" not in pool.did, "no pod that shares this memory failed"
