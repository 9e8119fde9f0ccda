"""Keep the pods of a campaign: create them when a trial needs them, run commands in them, replace lost ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from k8sdds import versions
from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import ApiError
from k8sdds.kubernetes.exec_stream import CommandResult, ExecStream, StreamLost, run_command
from k8sdds.model.background import STRESSOR
from k8sdds.model.ip_families import TITLES, IpFamily, address_of
from k8sdds.model.trial import LOAD_SOURCE, Cell
from k8sdds.networks.policies import API_GROUP, API_VERSION
from k8sdds.system import reading
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds.cluster import permissions, pods
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.pods import SUPERVISOR, Slot
from k8sdds.testbeds.cluster.watch import PodWatch
from k8sdds.testbeds.probing import Place, Stop

READY_TIMEOUT_S, END_TIMEOUT_S = 20, 20
"""How long a command may take until it prints `ready`, and until it ends."""

POD_SECURITY = "violates PodSecurity"
"""Part of the message if the level of Pod Security of a namespace refuses a pod."""
ADMITTING_POLICY = "k8sdds"
"""Name of the NetworkPolicy in deploy/rights/network-policy.yaml."""


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
    """Address of the node; empty if unknown."""

    @property
    def machine(self) -> str:
        """Identifies the kernel that the pod runs on."""
        return str(self.facts.get("boot_id") or self.node)


class PodPool:
    """The pods of a campaign by slot, all with one image, in a namespace that is watched from now on.

    `memory`: request and limit of every pod, in bytes. `extra_volumes`: their `volumes` and `volumeMounts`.
    """

    def __init__(
        self,
        namespace: CampaignNamespace,
        image: str,
        memory: tuple[int, int],
        extra_volumes: Mapping[str, Any] | None = None,
        tolerations: Sequence[dict[str, str]] = (),
    ) -> None:
        self._namespace, self._client, self._image = namespace, namespace.client, image
        self._memory, self._extra_volumes, self._tolerations = memory, extra_volumes, tolerations
        self._names: dict[Slot, str] = {}
        """Names of the existing pods."""
        self._ready: dict[Slot, ReadyPod] = {}
        self._discarded: set[Slot] = set()
        """Slots whose pod the next `ensure` replaces."""
        self._created = 0
        self._invalid = False
        self.watch = PodWatch(namespace)

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
        """Return which ready pod has failed or is being deleted; empty if there is none within this time."""
        failures = self.watch.wait_failures((pod.name for pod in self._ready.values()), within_s)
        return next((f"pod {name}: {failure}" for name, failure in failures.items()), "")

    def ensure(self, slots: Iterable[Slot]) -> None:
        """Wait until every slot has a ready pod whose facts are known. Ready pods are reused, failed ones replaced.

        Raises PrerequisiteError if a pod cannot be created or does not become ready.
        """
        needed = list(dict.fromkeys(slots))
        self._ensure_node_memory(needed)
        self._ensure(needed)
        self._invalid = False

    def _ensure_node_memory(self, needed: Sequence[Slot]) -> None:
        """Wait until the pods run whose memory these slots share; discard the pods that share that of a lost one."""
        holders = list(
            dict.fromkeys(pods.memory_holder(slot.node) for slot in needed if slot.shares_with_node)
        )
        for holder in holders:
            if holder not in self._names or not self._is_usable(holder):
                self.discard(
                    slot for slot in self._names if slot.shares_with_node and slot.node == holder.node
                )
        if holders:
            self._ensure(holders)

    def _ensure(self, needed: Sequence[Slot]) -> None:
        self._delete([slot for slot in needed if slot in self._names and not self._is_usable(slot)])
        missing = [(slot, self.new_name(slot)) for slot in needed if slot not in self._names]
        in_threads(lambda item: self._create(*item), missing)
        self.watch.wait_ready(self._names[slot] for slot in needed)
        unknown = needed if self._invalid else [slot for slot in needed if slot not in self._ready]
        for slot, pod in zip(unknown, in_threads(self._query_facts, unknown), strict=True):
            self._ready[slot] = pod

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

    # -- creating and deleting pods ---------------------------------------------------------------------

    def new_name(self, slot: Slot) -> str:
        """Return a name that no pod had before."""
        self._created += 1
        return f"{slot.participant}-{slot.kind}-{self._created}-{self._namespace.campaign[-6:]}"

    def _create(self, slot: Slot, name: str) -> None:
        self.post(self.manifest(slot, name))
        self._names[slot] = name

    def manifest(self, slot: Slot, name: str) -> dict[str, Any]:
        """Return the manifest of a pod of this campaign."""
        campaign = self._namespace.campaign
        holder = self.watch.pod(self._names[pods.memory_holder(slot.node)]) if slot.shares_with_node else None
        body = pods.pod(
            name, slot, self._image, campaign, self._memory, self._extra_volumes, self._tolerations,
            pods.memory_folder(holder) if holder else "",
        )  # fmt: skip
        body["metadata"]["annotations"] |= {
            versions.OWNER_ANNOTATION: leases.owner(),
            versions.NAME_ANNOTATION: self._namespace.title,
        }
        self._namespace.pull_with_login(body["spec"])
        return body

    def post(self, body: dict[str, Any]) -> None:
        """Create a pod in the campaign's namespace. Raises PrerequisiteError if this is refused."""
        try:
            self._client.create(self._namespace.pods, body)
        except ApiError as error:
            raise not_created(body, self._namespace.name, error) from error

    def policies_of_others(self) -> list[str]:
        """Return the NetworkPolicies of the namespace that no campaign created; none if they cannot be listed."""
        path = f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{self._namespace.name}/networkpolicies"
        listed = permissions.readable_at_once(self._client, path, labelSelector=f"!{versions.CAMPAIGN_LABEL}")
        return [policy["metadata"]["name"] for policy in (listed or {}).get("items", ())]

    def _delete(self, slots: Sequence[Slot]) -> None:
        names = [self._names[slot] for slot in slots]
        for slot in slots:
            del self._names[slot]
            self._ready.pop(slot, None)
            self._discarded.discard(slot)
        self.remove(names)

    def remove(self, names: Sequence[str]) -> None:
        """Delete pods and wait until none of them exists."""
        in_threads(lambda name: self._client.delete(f"{self._namespace.pods}/{name}", grace_s=0), names)
        self.watch.wait_deleted(names)

    # -- facts ------------------------------------------------------------------------------------------

    def _query_facts(self, slot: Slot) -> ReadyPod:
        """Query the interfaces and the machine of a ready pod."""
        name = self._names[slot]
        try:
            facts = self._read_facts(name, slot.containers[0])
            interfaces = {
                interface: ([str(address) for address in value["addresses"]], int(value["mtu_bytes"]))
                for interface, value in facts["interfaces"].items()
            }
        except (reading.UnreadableError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise PrerequisiteError(
                f"pod {name}: {SUPERVISOR} facts printed something else: {error!r}", self._image_remedy
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

    @property
    def _image_remedy(self) -> str:
        return f"check that {self._image} is an image of k8sdds"

    def _read_facts(self, name: str, container: str) -> dict[str, Any]:
        argv = [SUPERVISOR, "facts"]
        try:
            result = run_command(self._client, self._namespace.name, name, argv, container=container)
        except PrerequisiteError as error:
            failure = self._failure(name)
            if not failure:
                raise
            raise PrerequisiteError(f"pod {name}: {failure}", self._image_remedy) from error
        if result.code:
            message = result.stderr.decode(errors="replace").strip() or self._failure(name)
            raise PrerequisiteError(
                f"pod {name}: {SUPERVISOR} facts failed: {message or 'it printed nothing'}",
                self._image_remedy,
            )
        return reading.json_object(result.stdout, f"pod {name}: {SUPERVISOR} facts")

    def _failure(self, name: str) -> str:
        """Return why a pod that was ready has failed, if a reason is reported. Raises PartFailed if it was killed."""
        failure = self.watch.wait_failures([name]).get(name, "")
        pod = self.watch.pod(name)
        if failure and (pod is None or pods.was_killed(pod)):
            raise PartFailed(f"pod {name}: {failure}")
        return failure

    # -- commands, which do not run during a trial ------------------------------------------------------

    def run(self, slot: Slot, argv: Sequence[str], timeout_s: float = 30) -> CommandResult:
        """Run a command in the first container of a slot's pod."""
        pod = self._ready[slot].name
        return run_command(self._client, self._namespace.name, pod, argv, timeout_s, slot.containers[0])

    def run_all(
        self, commands: Sequence[tuple[Slot, Sequence[str]]], timeout_s: float = 30
    ) -> list[CommandResult]:
        """Run commands in parallel."""
        return in_threads(lambda command: self.run(*command, timeout_s), commands)

    def stream(self, slot: Slot, argv: Sequence[str], stdin: bool = True) -> ExecStream:
        """Start a command in the first container of a slot's pod. With a standard input, its end ends the command."""
        pod, container = self._ready[slot].name, slot.containers[0]
        return ExecStream(self._client, self._namespace.name, pod, argv, stdin, container)

    @contextmanager
    def background(self, commands: Sequence[tuple[Slot, Sequence[str]]]) -> Iterator[list[ExecStream]]:
        """Run commands while the context lasts. They must end without a signal."""
        streams = in_threads(lambda command: self.stream(*command, stdin=False), commands)
        with contextlib.ExitStack() as stack:
            for stream in streams:
                stack.enter_context(stream)
            yield streams


def not_created(pod: Mapping[str, Any], namespace: str, error: ApiError) -> PrerequisiteError:
    """Return the error if a pod, given by its manifest, cannot be created."""
    remedy = f"check the quotas and admission policies of namespace {namespace}"
    is_probe = pod["metadata"]["labels"].get(versions.ROLE_LABEL) == pods.NODE_PROBE
    if POD_SECURITY in error.message and pod["spec"].get("hostNetwork") and not is_probe:
        remedy += (
            "; to measure without `host`, the nodes' own network, set the installed one: --set networks=NETWORK"
            " --set baseline=NETWORK"
        )
    return PrerequisiteError(f"cannot create pod {pod['metadata']['name']}: {error.message}", remedy)


class PodPlace(Place):
    """A pod, or a node through a pod on its own network. Its slot must be ready when commands run."""

    supervisor = SUPERVISOR

    def __init__(self, pool: PodPool, slot: Slot) -> None:
        self._pool = pool
        self._slot = slot

    @override
    def run(self, argv: Sequence[str]) -> bytes:
        return self._output(self._pool.run(self._slot, argv))

    @override
    @contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[Stop]:
        with self._pool.stream(self._slot, argv) as stream:
            self._wait_ready(stream)

            def stop() -> bytes:
                stream.write(b"\n")
                try:
                    result = stream.wait(time.monotonic() + END_TIMEOUT_S)
                except TimeoutError:
                    raise self._late("end") from None
                return self._output(result)

            yield stop

    def _wait_ready(self, stream: ExecStream) -> None:
        try:
            stream.wait_ready(time.monotonic() + READY_TIMEOUT_S)
        except StreamLost:
            if stream.exit_code is None:
                raise
            self._output(CommandResult(stream.exit_code, b"", stream.stderr))
        except TimeoutError:
            raise self._late("start") from None

    def _late(self, what: str) -> PrerequisiteError:
        return PrerequisiteError(
            f"{self._slot.participant}: a command did not {what} in time",
            "check the load of its node and of the API server: kubectl top nodes; retry",
        )

    def _output(self, result: CommandResult) -> bytes:
        if result.code:
            message = reading.one_line(result.stderr.decode(errors="replace"), 300)
            raise PrerequisiteError(f"{self._slot.participant}: {message or f'exit code {result.code}'}")
        return result.stdout


def _select(family: IpFamily | None, addresses: Sequence[str]) -> str:
    """Return the first address of a family, or of any; empty if there is none."""
    return address_of(family, addresses) if family else next(iter(addresses), "")


def require_abilities(cell: Cell, slots: Mapping[str, Slot], pool: PodPool) -> None:
    """Check that the pods of a cell, which must be ready, can run what it requires of kernel, cores and image."""
    for slot in slots.values() if cell.realtime_priority else ():
        pod = pool.pod(slot)
        if reason := pod.facts.get("realtime_refusal"):
            raise PrerequisiteError(
                f"node {pod.node}: its kernel refuses SCHED_FIFO in pods with the capability SYS_NICE: {reason}",
                "leave out realtime_priority, or use --testbed lab; a kernel with CONFIG_RT_GROUP_SCHED gives"
                " pods no real-time share (cpu.rt_runtime_us)",
            )
    if cell.background.cpus:
        slot = slots[LOAD_SOURCE.name]
        require_cores(cell, pool.pod(slot))
        if pool.run(slot, ["sh", "-c", f"command -v {STRESSOR}"]).code:
            raise PrerequisiteError(
                f"background.cpus: the image of pod {pool.pod(slot).name} does not have {STRESSOR}",
                "load or build the image of this version of k8sdds: k8sdds images load",
            )


def require_cores(cell: Cell, pod: ReadyPod) -> None:
    """Check that a pod may use the cores of the background, which no manifest can request. Raises PrerequisiteError."""
    available = pod.facts["cpus"]
    if unknown := [cpu for cpu in cell.background.cpus if cpu not in available]:
        raise PrerequisiteError(
            f"background.cpus: pods on node {pod.node} cannot use core {unknown[0]}, only"
            f" {', '.join(map(str, available))}",
            "name other cores, or place pub0 on a node that has them; the static CPU manager of a kubelet keeps the"
            " cores of other pods from this one",
        )
