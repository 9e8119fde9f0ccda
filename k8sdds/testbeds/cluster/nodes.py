"""Describe the nodes of a cluster, from the Node objects of the API server. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.metrics.quantities import parse_time_s
from k8sdds.kubernetes.objects import condition
from k8sdds.model.ip_families import IpFamily, family_of
from k8sdds.model.profile import toleration

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
TEMPORARY = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedBy")
"""Starts of taints for conditions such as disk-pressure, for nodes that a cloud still prepares, and for nodes that an
autoscaler is about to delete."""
NO_NETWORK = ("NetworkPluginNotReady", "node.kubernetes.io/not-ready:")
"""Parts of why a node is unusable: the kubelet's reason if its runtime has no pod network, and a taint that stays for a
moment longer."""
NETWORK_WAIT_S = 30
"""Longer than it takes until a kubelet asks its runtime again (5 s) and reports the answer (10 s)."""
REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away."""
MAX_REPORTED_IMAGES = 50
"""Images in the status of a node, unless the kubelet is configured otherwise."""


@dataclass(frozen=True)
class NodeInfo:
    """A node as the API server describes it."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    arch: str
    boot_id: str
    info: dict[str, Any]
    """`status.nodeInfo` of the Node object."""
    ip_families: frozenset[IpFamily]
    """IP families of pods on the node."""
    image_names: tuple[tuple[str, ...], ...]
    """Names of each image, with tags and with digests."""
    reports_images: bool
    """Whether these are all images of the node, apart from the latest."""
    network_reason: str
    """Why the node's network is available or not, as its plugin reports it, such as `CiliumIsUp`; empty if unknown."""
    tolerated: frozenset[str]
    """KEY:EFFECT of the taints that `deploy` set or the user names, which the pods of k8sdds tolerate."""
    address: str
    """Its first internal address; empty if unknown."""
    max_pods: int | None
    """How many pods its kubelet runs; None if it is unknown."""
    cores: int | None
    """Number of cores of its machine; None if it is unknown."""
    pod_ranges: tuple[str, ...]
    """Ranges of addresses of its pods that Kubernetes has assigned."""
    untolerated: tuple[str, ...]
    """KEY:EFFECT of the taints that keep pods of k8sdds away; empty if there are none, or another reason does."""
    unusable: str
    """Why participants cannot run on the node; empty if they can."""
    changed_at_s: float
    """Unix time at which it became ready or not ready; 0 if unknown."""

    @property
    def is_reserved(self) -> bool:
        """Whether participants could run here if the user tolerated the taints, of which none is temporary."""
        return bool(self.untolerated) and not any(taint.startswith(TEMPORARY) for taint in self.untolerated)

    @property
    def images(self) -> frozenset[str]:
        """Names of all images."""
        return frozenset(name for names in self.image_names for name in names)

    def awaits_network(self, now_s: float) -> bool:
        """Return whether the node cannot run participants because its pod network has just been replaced.

        `now_s`: Unix time. A node that has not been ready for longer awaits none.
        """
        is_recent = abs(now_s - self.changed_at_s) < NETWORK_WAIT_S
        return is_recent and any(sign in self.unusable for sign in NO_NETWORK)

    @classmethod
    def parse(cls, node: dict[str, Any], taints: Iterable[str] = ()) -> NodeInfo:
        """Parse a Node object. `taints`: KEY:EFFECT of those that the user tolerates."""
        metadata, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
        info = status.get("nodeInfo", {})
        listed = metadata.get("annotations", {}).get(versions.NODE_TAINTS_ANNOTATION, "")
        tolerated = frozenset((*listed.split(","), *taints)) - {""}
        ready = condition(node, "Ready")
        unusable, changed_at = _unusable(spec, ready), ready.get("lastTransitionTime")
        untolerated = () if unusable else _untolerated(spec, tolerated)
        return cls(
            name=metadata["name"],
            labels=metadata.get("labels", {}),
            annotations=metadata.get("annotations", {}),
            arch=info.get("architecture", ""),
            boot_id=info.get("bootID", ""),
            info=info,
            ip_families=_ip_families(spec, status),
            image_names=tuple(tuple(image.get("names") or ()) for image in status.get("images", [])),
            reports_images=0 < len(status.get("images", [])) < MAX_REPORTED_IMAGES,
            network_reason=condition(node, "NetworkUnavailable").get("reason") or "",
            tolerated=tolerated,
            address=next(iter(_internal_addresses(status)), ""),
            max_pods=_number(status.get("allocatable", {}).get("pods")),
            cores=_number(status.get("capacity", {}).get("cpu")),
            pod_ranges=_pod_ranges(spec),
            untolerated=untolerated,
            unusable=unusable or " and ".join(f"taint {taint}" for taint in untolerated),
            changed_at_s=parse_time_s(changed_at) if changed_at else 0,
        )


def _number(quantity: Any) -> int | None:
    """Return a quantity that is a whole number, or None."""
    return int(quantity) if str(quantity).isdecimal() else None


def cores(nodes: Sequence[NodeInfo]) -> int:
    """Return the number of cores of the machines of all usable nodes; 0 if that of one is unknown."""
    of_machine = {node.boot_id or node.name: node.cores for node in nodes if not node.unusable}
    return sum(filter(None, of_machine.values())) if all(of_machine.values()) else 0


def _internal_addresses(status: dict[str, Any]) -> list[str]:
    return [entry["address"] for entry in status.get("addresses", []) if entry.get("type") == "InternalIP"]


def _ip_families(spec: dict[str, Any], status: dict[str, Any]) -> frozenset[IpFamily]:
    """Return the families of the node's ranges of pods; without ranges, those of its addresses."""
    ranges = [text.partition("/")[0] for text in _pod_ranges(spec)]
    return frozenset(map(family_of, ranges or _internal_addresses(status)))


def _pod_ranges(spec: dict[str, Any]) -> tuple[str, ...]:
    return tuple(filter(None, spec.get("podCIDRs") or [spec.get("podCIDR")]))


def _unusable(spec: dict[str, Any], ready: dict[str, Any]) -> str:
    if ready.get("status") != "True":
        return f"not ready: {ready.get('message') or ready.get('reason') or 'its kubelet does not report'}"
    if spec.get("unschedulable"):
        return "cordoned"
    return ""


def _untolerated(spec: dict[str, Any], tolerated: frozenset[str]) -> tuple[str, ...]:
    taints = ((each["key"], each.get("effect")) for each in spec.get("taints", []))
    repelling = (f"{key}:{effect}" for key, effect in taints if effect in REPELLING_EFFECTS)
    return tuple(taint for taint in repelling if taint not in tolerated)


def tolerations(nodes: Sequence[NodeInfo], taints: Iterable[str] = ()) -> list[dict[str, str]]:
    """Return tolerations of the taints that pods tolerate on these nodes, and of those that the user names."""
    tolerated = frozenset(taints).union(*(node.tolerated for node in nodes))
    return [toleration(taint) for taint in sorted(tolerated)]


def usable(
    nodes: Sequence[NodeInfo], architectures: Sequence[str] = versions.BUNDLE_ARCHITECTURES
) -> list[NodeInfo]:
    """Return the nodes that participants can run on: workers, then control planes, each sorted by name."""
    candidates = [node for node in nodes if not node.unusable and node.arch in architectures]
    return sorted(candidates, key=lambda node: (CONTROL_PLANE in node.labels, node.name))


def one_kernel(nodes: Sequence[NodeInfo]) -> bool:
    """Return whether several nodes share one kernel."""
    return len(nodes) > 1 and len({node.boot_id for node in nodes}) == 1
