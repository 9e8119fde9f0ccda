"""Keep the pods of a campaign: create them when a trial needs them, reuse them, replace lost ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from k8sdds import versions
from k8sdds.kubernetes import exec_stream, leases
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.model.ip_families import TITLES, IpFamily, address_of
from k8sdds.system import reading
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.pods import SUPERVISOR, Slot
from k8sdds.testbeds.cluster.watch import PodWatch

WORKERS = 16
"""Number of concurrent requests."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ReadyPod:
    """A ready pod and the facts that its supervisor reported."""

    name: str
    address: str
    interface: str
    mtu_bytes: int | None
    node: str
    facts: dict[str, Any]
    node_address: str = ""
    """Address of the node; empty: unknown."""

    @property
    def machine(self) -> str:
        """Identifies the kernel that the pod runs on."""
        return str(self.facts.get("boot_id") or self.node)


class PodPool:
    """The pods of a campaign by slot."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: CampaignNamespace,
        image: str,
        memory: tuple[int, int],
        campaign: str,
        extra_volumes: Mapping[str, Any] | None = None,
        tolerations: Sequence[dict[str, str]] = (),
    ) -> None:
        """Start to watch the namespace. Image, memory, volumes and tolerations apply to every pod, see `pods.pod`."""
        self._client = client
        self._namespace = namespace
        self._image = image
        self._memory = memory
        self._campaign = campaign
        self._extra_volumes = extra_volumes
        self._tolerations = tolerations
        self._names: dict[Slot, str] = {}
        """Names of the existing pods."""
        self._ready: dict[Slot, ReadyPod] = {}
        self._discarded: set[Slot] = set()
        """Slots whose pod the next `ensure` replaces."""
        self._created = 0
        self._invalid = False
        self.watch = PodWatch(client, namespace.name, namespace.selector)

    def pod(self, slot: Slot) -> ReadyPod:
        """Return the pod of a slot that `ensure` prepared."""
        return self._ready[slot]

    def ready_pods(self) -> dict[Slot, ReadyPod]:
        """Return all ready pods."""
        return dict(self._ready)

    def invalidate(self) -> None:
        """Make the next `ensure` query every pod again, because a pod may have been lost."""
        self._invalid = True

    def discard(self, slots: Iterable[Slot]) -> None:
        """Make the next `ensure` replace the pods of these slots."""
        self._discarded.update(slot for slot in slots if slot in self._names)

    def failed_part(self, within_s: float) -> str:
        """Return which ready pod has failed or is being deleted; empty: none within this time."""
        failures = self.watch.wait_failures((pod.name for pod in self._ready.values()), within_s)
        return next((f"pod {name}: {failure}" for name, failure in failures.items()), "")

    def ensure(self, slots: Iterable[Slot]) -> None:
        """Wait until every slot has a ready pod whose facts are known. Ready pods are reused.

        Raises:
            PrerequisiteError: a pod cannot be created or does not become ready.
            PartFailed: a pod was killed meanwhile.
        """
        needed = list(dict.fromkeys(slots))
        self.create(needed)
        unknown = needed if self._invalid else [slot for slot in needed if slot not in self._ready]
        for slot, pod in zip(unknown, parallel(self._query_facts, unknown), strict=True):
            self._ready[slot] = pod
        self._invalid = False

    def create(self, slots: Sequence[Slot]) -> None:
        """Create missing pods, replace failed ones and wait until all are ready. Raises like `ensure`."""
        self._delete([slot for slot in slots if slot in self._names and not self._is_usable(slot)])
        missing = [(slot, self.new_name(slot)) for slot in slots if slot not in self._names]
        parallel(lambda item: self._create(*item), missing)
        self.watch.wait_ready(self._names[slot] for slot in slots)

    def delete_unless(self, keep: Callable[[Slot], bool]) -> None:
        """Delete all pods except those to keep, for example before their network is replaced."""
        self._delete([slot for slot in self._names if not keep(slot)])

    def close(self) -> None:
        """Stop watching. The pods are deleted with their namespace."""
        self.watch.close()

    def _is_usable(self, slot: Slot) -> bool:
        if slot in self._discarded:
            return False
        pod = self.watch.pod(self._names[slot])
        # The watch may not know a new pod yet.
        return slot not in self._ready if pod is None else not pods.failure(pod)

    def new_name(self, slot: Slot) -> str:
        """Return a name that no pod had before."""
        self._created += 1
        kind = "host" if slot.host else "pod"
        return f"{slot.participant}-{kind}-{self._created}-{self._namespace.campaign[-6:]}"

    def _create(self, slot: Slot, name: str) -> None:
        self.post(self.manifest(slot, name))
        self._names[slot] = name

    def manifest(self, slot: Slot, name: str) -> dict[str, Any]:
        """Return the manifest of a pod of this campaign."""
        body = pods.pod(
            name, slot, self._image, self._namespace.campaign, self._memory, self._extra_volumes,
            self._tolerations,
        )  # fmt: skip
        body["metadata"]["annotations"] |= {
            versions.OWNER_ANNOTATION: leases.owner(),
            versions.NAME_ANNOTATION: self._campaign,
        }
        return body

    def post(self, body: dict[str, Any]) -> None:
        """Create a pod in the campaign's namespace. Raises PrerequisiteError if this is refused."""
        try:
            self._client.create(self._namespace.pods, body)
        except ApiError as error:
            raise PrerequisiteError(
                f"cannot create pod {body['metadata']['name']}: {error.message}",
                f"check the quotas and admission policies of namespace {self._namespace.name}",
            ) from error

    def _delete(self, slots: Sequence[Slot]) -> None:
        names = [self._names[slot] for slot in slots]
        for slot in slots:
            del self._names[slot]
            self._ready.pop(slot, None)
            self._discarded.discard(slot)
        self.remove(names)

    def remove(self, names: Sequence[str]) -> None:
        """Delete pods and wait until none of them exists."""
        parallel(lambda name: self._client.delete(f"{self._namespace.pods}/{name}", grace_s=0), names)
        self.watch.wait_deleted(names)

    def _query_facts(self, slot: Slot) -> ReadyPod:
        """Query the interfaces and the machine of a ready pod."""
        name = self._names[slot]
        remedy = f"check that {self._image} is an image of k8sdds"
        try:
            result = exec_stream.run_command(
                self._client,
                self._namespace.name,
                name,
                [SUPERVISOR, "facts"],
                container=slot.containers[0],
            )
        except PrerequisiteError as error:
            failure = self._failure(name)
            if not failure:
                raise
            raise PrerequisiteError(f"pod {name}: {failure}", remedy) from error
        if result.code:
            message = result.stderr.decode(errors="replace").strip() or self._failure(name)
            raise PrerequisiteError(
                f"pod {name}: {SUPERVISOR} facts failed: {message or 'it printed nothing'}", remedy
            )
        try:
            facts = reading.json_object(result.stdout, f"pod {name}: {SUPERVISOR} facts")
            interfaces = {key: ([str(address) for address in value["addresses"]], int(value["mtu_bytes"]))
                          for key, value in facts["interfaces"].items()}  # fmt: skip
        except (reading.UnreadableError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise PrerequisiteError(
                f"pod {name}: {SUPERVISOR} facts printed something else: {error!r}", remedy
            ) from error
        pod = self.watch.pod(name) or {"spec": {}, "status": {}}
        reported = pods.addresses(pod)
        address = _select(slot.ip_family, reported)
        for interface, (own, mtu_bytes) in interfaces.items():
            if interface == slot.interface:
                address = _select(slot.ip_family, own)
            elif slot.interface or address not in own:
                continue
            if address:
                node = pod["spec"].get("nodeName", slot.node)
                node_address = _select(slot.ip_family, pods.node_addresses(pod))
                return ReadyPod(name, address, interface, mtu_bytes, node, facts, node_address)
        family = f"{TITLES[slot.ip_family]} " if slot.ip_family else ""
        where = f" on {slot.interface}" if slot.interface else f", only {', '.join(reported) or 'none'}"
        raise PrerequisiteError(
            f"pod {name} has no interface with an {family}address{where}",
            "inspect it: kubectl get pod -o yaml; and select the cluster's ip_families in the experiment",
        )

    def _failure(self, name: str) -> str:
        """Return why a pod that was ready has failed; empty: no failure is reported.

        Raises:
            PartFailed: it was killed.
        """
        failure = self.watch.wait_failures([name]).get(name, "")
        pod = self.watch.pod(name)
        if failure and (pod is None or pods.was_killed(pod)):
            raise PartFailed(f"pod {name}: {failure}")
        return failure

    def run(self, slot: Slot, argv: Sequence[str], timeout_s: float = 30) -> exec_stream.CommandResult:
        """Run a command in the first container of a slot's pod. Not during a trial."""
        return exec_stream.run_command(
            self._client, self._namespace.name, self._ready[slot].name, argv, timeout_s, slot.containers[0]
        )

    def run_all(
        self, commands: Sequence[tuple[Slot, Sequence[str]]], timeout_s: float = 30
    ) -> list[exec_stream.CommandResult]:
        """Run commands in parallel."""
        return parallel(lambda command: self.run(command[0], command[1], timeout_s), commands)

    def stream(self, slot: Slot, argv: Sequence[str]) -> exec_stream.ExecStream:
        """Start a command in a slot's pod, with a standard input that ends it. Not during a trial."""
        return self._stream(slot, argv, stdin=True)

    def _stream(self, slot: Slot, argv: Sequence[str], stdin: bool = False) -> exec_stream.ExecStream:
        pod, container = self._ready[slot].name, slot.containers[0]
        return exec_stream.ExecStream(self._client, self._namespace.name, pod, argv, stdin, container)

    @contextlib.contextmanager
    def background(
        self, commands: Sequence[tuple[Slot, Sequence[str]]]
    ) -> Iterator[list[exec_stream.ExecStream]]:
        """Run commands while the `with` block runs. The commands must end without a signal."""
        streams = parallel(lambda command: self._stream(*command), commands)
        try:
            yield streams
        finally:
            for stream in streams:
                stream.close()


def _select(family: IpFamily | None, addresses: Sequence[str]) -> str:
    """Return the first address of a family, or of any; empty: there is none."""
    return address_of(family, addresses) if family else next(iter(addresses), "")


def parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results of a function for all items, of which `WORKERS` run at a time."""
    if not items:
        return []
    with ThreadPoolExecutor(min(WORKERS, len(items))) as executor:
        try:
            return list(executor.map(function, items))
        except BaseException:
            # After Ctrl-C too, what has not begun never does.
            executor.shutdown(wait=False, cancel_futures=True)
            raise
