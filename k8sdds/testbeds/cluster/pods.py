"""Build the manifest of a participant's pod and interpret the state of a pod. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds import middleware, versions
from k8sdds.kubernetes import objects
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.settings import SHARED_MEMORY
from k8sdds.model.trial import PUBLISHER, SHORT_ROLES, SUBSCRIBER, Cell, Participant
from k8sdds.networks import find
from k8sdds.networks.macvlan import multus
from k8sdds.system import processes
from k8sdds.system.cgroups import CPU_REQUEST, CpuResources

SUPERVISOR = "/opt/k8sdds/k8sdds-supervisor"
PERFTEST = "/opt/k8sdds/k8sdds-perftest"
OUTPUT = "/out"
MIB = 2**20

FINAL = ("ErrImageNeverPull", "InvalidImageName", "ImagePullBackOff", "CrashLoopBackOff", "RunContainerError",
         "CreateContainerConfigError", "CreateContainerError", "StartError")  # fmt: skip
"""Reasons of a waiting container that do not resolve with time."""

NODE_PROBE = "probe"
"""Role of pods that read what a node does, which no trial uses."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OPPOSITE = {SHORT_ROLES[PUBLISHER]: SHORT_ROLES[SUBSCRIBER], SHORT_ROLES[SUBSCRIBER]: SHORT_ROLES[PUBLISHER]}


@dataclass(frozen=True)
class Slot:
    """The properties that distinguish pods. Trials that need the same slot share a pod for a whole block."""

    participant: str
    role: str
    """The role's short name, for a label: `pub` or `sub`; `all` if the participants share memory."""
    node: str
    """Name of the node; empty if the scheduler selects one without participants of the opposite role."""
    host: bool
    """Whether the pod uses the node's own network."""
    cpu_resources: CpuResources = field(default_factory=CpuResources)
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that the pod has; none unless a trial requests them."""
    users: tuple[int, ...] = ()
    """User ids of its containers; empty if they have that of the pod."""
    sharing: tuple[str, ...] = ()
    """Participants in a pod with a volume in memory as `/dev/shm`, which its containers share; empty if it has none."""
    shares_with_node: bool = False
    """Whether this volume is that of the pod `memory_holder` of its node, so that it shares it with other pods."""
    interface: str = ""
    """Interface of the pod that is measured; empty means the one with the pod's address."""
    ip_family: IpFamily | None = None
    """Family of the pod's address; None means its first one."""
    attachment: str = ""
    """NetworkAttachmentDefinition of this interface, as NAMESPACE/NAME; empty if the pod need not request it."""
    sysctls: tuple[tuple[str, str], ...] = ()
    """Safe sysctls of the pod's network: (name, value)."""
    sees_processes: bool = False
    """Whether the pod sees the node's processes."""
    labels: tuple[tuple[str, str], ...] = ()
    """Further labels of the pod: (name, value)."""

    @classmethod
    def of(cls, participant: Participant, node: str, host: bool, cell: Cell) -> Slot:
        """Return the slot of a participant. Those that are to share memory are in one pod."""
        members = cell.participants if cell.in_one_pod else () if cell.uses_network else (participant,)
        return cls(
            participant=SHARED_MEMORY if cell.in_one_pod else participant.name,
            role="all" if cell.in_one_pod else participant.short_role,
            node=node,
            host=host,
            cpu_resources=cell.cpu_resources_of(participant.name),
            capabilities=tuple(middleware.capabilities(cell)),
            users=tuple(user for member in members if (user := cell.user_of(member)) is not None),
            sharing=tuple(member.name for member in members),
            shares_with_node=cell.shares_memory_of_node,
            interface=find(cell.network).pod_interface,
            ip_family=cell.ip_family,
            attachment=cell.network_options.get("attachment", ""),
            sysctls=() if host else tuple(middleware.program_of(cell).sysctls.items()),
        )

    @property
    def kind(self) -> str:
        """The kind of its network, for a label: `host` or `pod`."""
        return "host" if self.host else "pod"

    @property
    def containers(self) -> tuple[str, ...]:
        """The names of the pod's containers: those of its participants."""
        return self.sharing or (self.participant,)


def memory_holder(node: str) -> Slot:
    """Return the slot of the pod whose volume in memory other pods of a node share."""
    return Slot(participant="shm", role="shm", node=node, host=False, sharing=("shm",))


def memory_folder(holder: Mapping[str, Any]) -> str:
    """Return where the kubelet keeps the volume of a `memory_holder`, until it has deleted the pod."""
    uid = holder["metadata"]["uid"]
    return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/{SHARED_MEMORY}"


def addresses(pod: dict[str, Any]) -> list[str]:
    """Return the IP addresses of a pod: those of the cluster's first family first."""
    return _ips(pod["status"], "podIP")


def node_addresses(pod: dict[str, Any]) -> list[str]:
    """Return the IP addresses of a pod's node."""
    return _ips(pod["status"], "hostIP")


def _ips(status: dict[str, Any], key: str) -> list[str]:
    several = [entry.get("ip") for entry in status.get(f"{key}s") or ()]
    return list(filter(None, several or [status.get(key)]))


def memory_bytes(cells: Iterable[Cell]) -> tuple[int, int]:
    """Return the memory (request, limit) for the largest sample of these cells, queues included."""
    largest = max((cell.payload_bytes for cell in cells), default=0)
    return 64 * MIB + 8 * largest, 512 * MIB + 128 * largest


def pod(
    name: str,
    slot: Slot,
    image: str,
    campaign: str,
    memory: tuple[int, int],
    extra_volumes: Mapping[str, Any] | None = None,
    tolerations: Sequence[dict[str, str]] = (),
    node_memory: str = "",
) -> dict[str, Any]:
    """Return the manifest of a slot's pod.

    On a pod network it satisfies Pod Security `restricted`, unless the slot has capabilities or shares with its node.

    `memory`: request and limit in bytes. `extra_volumes`: `volumes` and `volumeMounts` to add. `tolerations`: taints of
    nodes to tolerate. `node_memory`: the `memory_folder` of its node, if the slot shares it.
    """
    extra = extra_volumes or {}
    labels = {
        versions.MANAGED_BY_LABEL: versions.MANAGED_BY,
        versions.CAMPAIGN_LABEL: campaign,
        versions.PARTICIPANT_LABEL: slot.participant,
        versions.ROLE_LABEL: slot.role,
        versions.KIND_LABEL: slot.kind,
        **dict(slot.labels),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": multus.request(slot.attachment)},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "dnsPolicy": "ClusterFirstWithHostNet" if slot.host else "ClusterFirst",
            "securityContext": _security(slot),
            "affinity": _affinity(slot, campaign),
            "tolerations": list(tolerations),
            "containers": [
                _container(index, slot, image, memory, extra.get("volumeMounts", []))
                for index in range(len(slot.containers))
            ],
            "volumes": [*_volumes(slot, memory[1], node_memory), *extra.get("volumes", [])],
            **({"hostNetwork": True} if slot.host else {}),
            **({"hostPID": True} if slot.sees_processes else {}),
        },
    }


def _security(slot: Slot) -> dict[str, Any]:
    # Only root keeps added capabilities when it executes a program.
    user = 0 if slot.capabilities else versions.UNPRIVILEGED_USER
    context: dict[str, Any] = {
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if slot.sysctls:
        context["sysctls"] = [{"name": name, "value": value} for name, value in slot.sysctls]
    return context


def _container(
    index: int, slot: Slot, image: str, memory: tuple[int, int], extra_mounts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    name = slot.containers[index]
    request, limit = map(_quantity, memory)
    quota = slot.cpu_resources.quota
    if quota and quota == slot.cpu_resources.request and float(quota).is_integer():
        # The pod is of the class Guaranteed, and the kubelet can give it whole cores of its own.
        request = limit
    limits = {"memory": limit} | ({} if quota is None else {"cpu": _cpus(quota)})
    # A request above the limit is refused.
    cpus = slot.cpu_resources.request or min(CPU_REQUEST, quota or CPU_REQUEST)
    added = {"add": list(slot.capabilities)} if slot.capabilities else {}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [SUPERVISOR, "pause"],
        # The last log lines, such as `exec format error`, become the reason of the failure.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": _cpus(cpus), "memory": request}, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]} | added,
            **({"runAsUser": slot.users[index]} if slot.users else {}),
        },
        "volumeMounts": [
            {"name": f"output-{name}", "mountPath": OUTPUT},
            {"name": f"private-{name}", "mountPath": "/run/k8sdds"},
            *([{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}] if slot.sharing else []),
            *extra_mounts,
        ],
    }


def _volumes(slot: Slot, memory_limit: int, node_memory: str) -> list[dict[str, Any]]:
    """Return the volumes of a pod. Keys of participants stay in memory and are deleted with the pod."""
    outputs: list[dict[str, Any]] = [{"name": f"output-{name}", "emptyDir": {}} for name in slot.containers]
    keys = [_memory_volume(f"private-{name}", "16Mi") for name in slot.containers]
    # What a participant writes counts as memory of its container.
    if slot.shares_with_node:
        shared = [{"name": SHARED_MEMORY, "hostPath": {"path": node_memory, "type": "Directory"}}]
    else:
        shared = [_memory_volume(SHARED_MEMORY, _quantity(memory_limit))] if slot.sharing else []
    return [*outputs, *keys, *shared]


def _memory_volume(name: str, size: str) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def _quantity(size: float) -> str:
    return f"{math.ceil(size / MIB)}Mi"


def _cpus(count: float) -> str:
    return f"{round(count * 1000)}m"


def _affinity(slot: Slot, campaign: str) -> dict[str, Any]:
    if slot.node:
        # Match the node's name, not the hostname label, which may differ from it. The scheduler still
        # applies taints and resource requests, and reports why a pod is pending.
        field = {"key": "metadata.name", "operator": "In", "values": [slot.node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"nodeAffinity": {_REQUIRED: terms}}
    if len(slot.containers) > 1:
        return {}  # one pod has all participants

    def same_node_as(labels: dict[str, str]) -> dict[str, Any]:
        selector = {versions.CAMPAIGN_LABEL: campaign, **labels}
        return {"labelSelector": {"matchLabels": selector}, "topologyKey": "kubernetes.io/hostname"}

    same = {versions.PARTICIPANT_LABEL: slot.participant}
    role = {versions.ROLE_LABEL: slot.role, versions.KIND_LABEL: slot.kind}
    return {
        # Prefer the node where the same participant runs on other networks, for comparable results.
        "podAffinity": {_PREFERRED: [{"weight": 100, "podAffinityTerm": same_node_as(same)}]},
        "podAntiAffinity": {
            _REQUIRED: [same_node_as({**role, versions.ROLE_LABEL: _OPPOSITE[slot.role]})],
            _PREFERRED: [{"weight": 50, "podAffinityTerm": same_node_as(role)}],
        },
    }


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether commands can run in a pod."""
    status = pod.get("status", {})
    terminating = "deletionTimestamp" in pod["metadata"]
    ready = objects.condition(pod, "Ready").get("status") == "True"
    return not terminating and status.get("phase") == "Running" and ready


def failure(pod: dict[str, Any]) -> str:
    """Return why a pod cannot become ready by waiting; empty if it still can."""
    if "deletionTimestamp" in pod["metadata"]:
        return "it is being deleted"
    for waiting in _states(pod, "waiting"):
        if waiting.get("reason") in FINAL:
            return _reason(waiting)
    for terminated in _states(pod, "terminated"):
        return f"its container exited with code {terminated.get('exitCode')}: {_reason(terminated)}"
    status = pod.get("status", {})
    if status.get("phase") in ("Failed", "Succeeded"):
        return _reason(status) or f"it is {status['phase']}"
    return ""


def was_killed(pod: dict[str, Any]) -> bool:
    """Return whether a pod is being deleted, or another process ended its container, which never ends by itself."""
    codes = [terminated.get("exitCode") or 0 for terminated in _states(pod, "terminated")]
    return "deletionTimestamp" in pod["metadata"] or any(map(processes.was_stopped, codes))


def exceeded_memory(pod: dict[str, Any]) -> bool:
    """Return whether the kernel ended a pod's container because it exceeded its memory limit."""
    return any(terminated.get("reason") == "OOMKilled" for terminated in _states(pod, "terminated"))


def _states(pod: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the state of a kind, such as `waiting`, of each container that is in it."""
    states = [container.get("state", {}) for container in pod.get("status", {}).get("containerStatuses", [])]
    return [state[kind] for state in states if state.get(kind)]


def unscheduled_reason(pod: dict[str, Any]) -> str:
    """Return the scheduler's reason why no node fits a pod; empty if the pod is scheduled."""
    scheduled = objects.condition(pod, "PodScheduled")
    refused = scheduled.get("status") == "False"
    return str(scheduled.get("message") or scheduled.get("reason") or "") if refused else ""


def _reason(state: dict[str, Any]) -> str:
    text = ": ".join(str(state[key]) for key in ("reason", "message") if state.get(key))
    if "exec format error" in text:
        text += " (the image is for another architecture than the node's)"
    return text
