"""The participants' pods of a campaign: made when a trial needs them, kept for all that follow."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes import exec_stream
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace, owner
from k8sdds.testbeds.cluster.pods import SUPERVISOR, Slot
from k8sdds.testbeds.cluster.watch import PodWatch

WORKERS = 16
"""Requests at a time."""


@dataclass(frozen=True)
class ReadyPod:
    """A pod that is ready, and what it said of itself."""

    name: str
    address: str
    interface: str
    mtu_bytes: int | None
    node: str
    facts: dict[str, Any]

    @property
    def machine(self) -> str:
        """What tells its kernel from others."""
        return str(self.facts.get("boot_id") or self.node)


class PodPool:
    """All pods of a campaign by slot."""

    def __init__(
        self,
        client: KubernetesClient,
        space: CampaignNamespace,
        image: str,
        memory: tuple[int, int],
        campaign: str,
        parts: Mapping[str, Any] | None = None,
    ) -> None:
        """`parts`: what every pod has beside its own (`pods.pod`)."""
        self._client = client
        self._parts = parts
        self._space = space
        self._image = image
        self._memory = memory
        self._campaign = campaign
        self._members: dict[Slot, ReadyPod] = {}
        self._gone: dict[Slot, ReadyPod] = {}
        """What is known of those that have none."""
        self._names: dict[Slot, str] = {}
        self._made = 0
        self._suspect = False
        self.watch = PodWatch(client, space.namespace, space.selector)

    def member(self, slot: Slot) -> ReadyPod:
        """The pod of a slot that `muster` has made ready; the last one, where it is lost and not replaced."""
        return self._members[slot] if slot in self._members else self._gone[slot]

    def has(self, slot: Slot) -> bool:
        """Whether a slot's pod is ready."""
        return slot in self._members

    def slots(self) -> list[Slot]:
        """Those whose pods are ready."""
        return list(self._members)

    def invalidate(self) -> None:
        """Something was lost: `muster` asks every pod before it counts as ready again."""
        self._suspect = True

    def ensure(self, slots: Iterable[Slot], network: str = "") -> None:
        """Returns when every slot has a ready pod that has been asked for its machine; those that are there
        already are kept. PrerequisiteError with the reason when one cannot be had."""
        wanted = list(dict.fromkeys(slots))
        self.place(wanted, network)
        unknown = wanted if self._suspect else [slot for slot in wanted if slot not in self._members]
        for slot, member in zip(unknown, self._each(self._meet, unknown), strict=True):
            self._members[slot] = member
        self._suspect = False

    def place(self, slots: Sequence[Slot], network: str = "") -> None:
        """Returns when every slot has a ready pod; lost ones are replaced. PrerequisiteError as of `muster`."""
        self._remove([slot for slot in slots if slot in self._names and not self._is_up(slot)])
        missing = [slot for slot in slots if slot not in self._names]
        named = [(slot, self._name(slot)) for slot in missing]
        self._each(lambda one: self._create(*one, network), named)
        self.watch.await_ready(self._names[slot] for slot in slots)

    def delete_unless(self, unless: Callable[[Slot], bool]) -> None:
        """Remove pods, as before their network is replaced."""
        self._remove([slot for slot in self._names if not unless(slot)])

    def close(self) -> None:
        """Stop watching. The pods go with their namespace."""
        self.watch.close()

    def _is_up(self, slot: Slot) -> bool:
        data = self.watch.pod(self._names[slot])
        # Not seen yet: made a moment ago.
        return slot not in self._members if data is None else not pods.trouble(data)

    def _name(self, slot: Slot) -> str:
        self._made += 1
        kind = "host" if slot.host else "pod"
        return f"{slot.participant}-{kind}-{self._made}-{self._space.campaign[-6:]}"

    def _create(self, slot: Slot, name: str, network: str) -> None:
        made = pods.pod(name, slot, self._image, self._space.campaign, self._memory, network, self._parts)
        made["metadata"]["annotations"] = {
            versions.OWNER_ANNOTATION: owner(),
            versions.NAME_ANNOTATION: self._campaign,
        }
        try:
            self._client.create(self._space.pods, made)
        except ApiError as refused:
            raise PrerequisiteError(
                f"pod {name} is refused: {refused.message}",
                f"a quota or a policy of the namespace {self._space.namespace} stands against it",
            ) from refused
        self._names[slot] = name

    def _remove(self, slots: Sequence[Slot]) -> None:
        names = [self._names[slot] for slot in slots]

        def remove(name: str) -> None:
            self._client.delete(f"{self._space.pods}/{name}", grace_s=0)

        self._each(remove, names)
        for slot in slots:
            del self._names[slot]
            if slot in self._members:
                self._gone[slot] = self._members.pop(slot)
        self.watch.await_gone(names)

    def _meet(self, slot: Slot) -> ReadyPod:
        """Ask a ready pod for its interfaces and its machine."""
        name = self._names[slot]
        try:
            done = exec_stream.run_command(self._client, self._space.namespace, name, [SUPERVISOR, "facts"])
        except PrerequisiteError as error:
            why = self.watch.ended(name)
            if not why:
                raise
            raise PrerequisiteError(f"pod {name}: {why}", f"is {self._image} an image of k8sdds?") from error
        if done.code:
            said = done.stderr.decode(errors="replace").strip() or self.watch.ended(name) or "it said nothing"
            raise PrerequisiteError(
                f"pod {name}: {SUPERVISOR} facts failed: {said}", f"is {self._image} an image of k8sdds?"
            )
        facts = json.loads(done.stdout)
        status = (self.watch.pod(name) or {"status": {}})["status"]
        address = status.get("podIP", "")
        for interface, one in facts["interfaces"].items():
            if one["address"] == address:
                node = (self.watch.pod(name) or {"spec": {}})["spec"].get("nodeName", slot.node)
                return ReadyPod(name, address, interface, one["mtu_bytes"], node, facts)
        raise PrerequisiteError(
            f"pod {name} has no interface with its address {address}", "see: kubectl get pod -o wide"
        )

    def _each(self, what: Callable[[Any], Any], things: Sequence[Any]) -> list[Any]:
        if not things:
            return []
        with ThreadPoolExecutor(min(WORKERS, len(things))) as pool:
            return list(pool.map(what, things))

    def run(self, slot: Slot, argv: Sequence[str], timeout_s: float = 30) -> exec_stream.CommandResult:
        """A command in the pod of a slot, between trials."""
        return exec_stream.run_command(
            self._client, self._space.namespace, self._members[slot].name, argv, timeout_s
        )

    def run_all(
        self, commands: Sequence[tuple[Slot, Sequence[str]]], timeout_s: float = 30
    ) -> list[exec_stream.CommandResult]:
        """Commands side by side."""
        return self._each(lambda one: self.run(one[0], one[1], timeout_s), commands)

    @contextlib.contextmanager
    def background(self, commands: Sequence[tuple[Slot, Sequence[str]]]):
        """Commands that run as long as the `with`; they must end by themselves."""

        def start(one: tuple[Slot, Sequence[str]]) -> exec_stream.ExecStream:
            name = self._members[one[0]].name
            return exec_stream.ExecStream(self._client, self._space.namespace, name, one[1])

        opened = self._each(start, commands)
        try:
            yield opened
        finally:
            for stream in opened:
                stream.close()
