"""Check that trials can run on a cluster, before anything is created there. Makes no changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from k8sdds import discovery, middleware, versions, workloads
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.ip_families import TITLES, IpFamily
from k8sdds.model.link import KERNEL
from k8sdds.model.options import PodStartOptions
from k8sdds.model.placement import same_node
from k8sdds.model.services import ProxyMode
from k8sdds.model.settings import HOST, SAME_NODE, NetworkChoice
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.networks.policies import API_GROUP
from k8sdds.system import perf
from k8sdds.system.cgroups import CpuResources
from k8sdds.system.errors import InputError, Problem
from k8sdds.testbeds.cluster import permissions, placement, pods
from k8sdds.testbeds.cluster.nodes import NodeInfo, usable
from k8sdds.testbeds.cluster.placement import assign, of_service
from k8sdds.testbeds.cluster.pod_pool import not_created
from k8sdds.workloads import outage

BAREMETAL = "baremetal"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
POLICY_RIGHTS = (("create", API_GROUP, "networkpolicies"), ("delete", API_GROUP, "networkpolicies"))
SERVICE_RIGHTS = (
    ("create", "", "services"), ("delete", "", "services"), ("create", "discovery.k8s.io", "endpointslices"),
)  # fmt: skip
SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
REFUSALS = (400, 403, 422)
"""Statuses of admission: of webhooks without a code, of Pod Security and quotas, of ValidatingAdmissionPolicies."""
NO_DRY_RUN = "does not support dry run"
"""Part of the message if a webhook might change something, so that the API server does not ask it."""
UNKNOWN_UID = "0"
"""Id in the path of a pod whose memory others would share: the API server refuses an empty path."""
ATTACHMENTS = ("k8s.cni.cncf.io", "network-attachment-definitions")
"""API group and resource of Multus' definitions of networks."""


def unsupported(cells: Sequence[Cell], can_switch: bool) -> list[Problem]:
    """Return the settings that no trial on a cluster supports. `can_switch`: whether k8sdds can replace its network."""
    found = dict.fromkeys(pair for cell in cells for pair in _unsupported(cell, can_switch))
    return [Problem(what, remedy, input=True) for what, remedy in found]


def _unsupported(cell: Cell, can_switch: bool) -> Iterator[tuple[str, str]]:
    label = cell.network_label
    if cell.network == BAREMETAL:
        yield (
            "baremetal runs outside of pods, so a cluster cannot measure it",
            "remove it, or use --testbed lab",
        )
    if cell.link.is_shaped or cell.link.engine != "auto":
        yield from _unsupported_link(cell, can_switch)
    if cell.test == outage.NAME:
        yield from _unsupported_outage(cell, can_switch)
    services = workloads.find(cell.test).services(cell)
    network = find(cell.network)
    # Others may have configured the network to leave the Services to kube-proxy: the trial shows it.
    if services and services.proxy and can_switch and network.replaces_kube_proxy(cell.network_options):
        what = f"{label}: the network handles the Services, so no mode of kube-proxy can be measured"
        own = [engine.name for engine in network.cluster_engines if not engine.install.replaces_kube_proxy]
        yield (
            what,
            "leave out proxy" + "".join(f", or select `engine: {name}` of the network" for name in own),
        )
    if cell.link.bond:
        what = f"{cell.link.bond.describe()}: k8sdds bonds links only in the lab"
        yield what, "remove `lag`, or use --testbed lab"
    if find(cell.network).pod_interface and cell.discovery_kind == discovery.SERVER:
        what = f"{label}: the discovery server has no interface on this network"
        yield what, "use `discovery: auto`, or another network"
    if cell.discovery_servers > 1:
        what = "discovery_servers: on clusters, there are always two servers of Fast DDS"
        yield what, "leave it out, or use --testbed lab"
    if cell.services:
        yield from middleware.find(cell.middleware).service_problems()
    if "mtu" in cell.network_options and not can_switch:
        what = f"{label}: the mtu of an existing cluster network cannot be changed"
        yield what, "remove it, or measure on a cluster that `k8sdds deploy` built"
    if cell.users != "same":
        for capability, cause in middleware.capabilities(cell).items():
            what = f"users: other: only root keeps {capability} in a container, which {cause} needs"
            yield what, f"leave out {cause} or users: other, or use --testbed lab"
    for name, value in (("cpu_period_ms", CpuResources.period_ms), ("cpu_burst_ms", CpuResources.burst_ms)):
        if getattr(cell, name) != value:
            what = (
                f"{name}: the kubelet of a node has one period for all pods (cpuCFSQuotaPeriod), and no burst"
            )
            yield what, f"remove {name}, or use --testbed lab"
    if cell.capture:
        yield "`capture` is available only in the lab", "remove it, or use --testbed lab"


def _unsupported_outage(cell: Cell, can_switch: bool) -> Iterator[tuple[str, str]]:
    what = outage.options_of(cell).what
    test = f"{cell.test} with what: {what}"
    if what == "address":
        why = "the address of a node of a cluster is part of its certificates, so that k8sdds does not change it"
        yield f"{test}: {why}", "use another kind, or --testbed lab"
    if what == "agent" and not find(cell.network).cluster:
        yield f"{cell.network_label}: {test}: k8sdds does not deploy this network", "use another network"
    elif what == "agent" and not can_switch:
        why = "k8sdds deletes no pods of the network of a cluster that it did not deploy"
        yield f"{test}: {why}", "measure on a cluster that `k8sdds deploy` built"


def _unsupported_link(cell: Cell, can_switch: bool) -> Iterator[tuple[str, str]]:
    what, in_lab = cell.link.describe(), "remove `link`, or use --testbed lab"
    if not can_switch:
        why = f"{what}: k8sdds has no access to the nodes of a cluster that it did not deploy"
        yield why, f"{in_lab}, or measure on a cluster that `k8sdds deploy` built"
    if cell.link.engine == KERNEL:
        yield f"{what}: on clusters, k8sdds-link emulates links, not netem", "leave out `engine: kernel`"
    if cell.network.startswith("cilium"):
        yield f"{what}: Cilium takes packets before k8sdds-link can", "use another network, or --testbed lab"


def reduce_networks(
    experiment: Experiment, available: Sequence[str], requested: Sequence[str], installed: str | None = None
) -> tuple[Experiment, list[str]]:
    """Remove the networks that are not available from an experiment, and measure the installed one in their place.

    Networks that the user requested by name remain, so that the check reports them. If the baseline is not available,
    nothing is removed. `installed`: the network of a cluster that others deployed; None if k8sdds can replace it.
    Returns the experiment and the labels of the removed networks.
    """
    removed: dict[str, None] = {}
    sweeps = []
    for sweep in experiment.sweeps:
        kept = [
            choice
            for choice in sweep.networks
            if find(choice.name).mode_name({"engine": choice.engine}) in available or choice.name in requested
        ]
        removed |= dict.fromkeys(
            choice.label or choice.name for choice in sweep.networks if choice not in kept
        )
        missing = [choice for choice in sweep.networks if choice not in kept and choice.name != BAREMETAL]
        if installed and missing and all(choice.name == HOST for choice in kept):
            kept.append(NetworkChoice(name=installed))
        if kept:
            sweeps.append(sweep.model_copy(update={"networks": kept}).at(sweep.where))
    if isinstance(experiment, ApplicationExperiment) and sweeps:
        return experiment.with_sweeps(sweeps), list(removed)
    labels = {choice.label or choice.name for sweep in sweeps for choice in sweep.networks}
    if experiment.baseline not in labels:
        return experiment, []
    return experiment.model_copy(update={"sweeps": sweeps}), list(removed)


def missing_networks(
    cells: Sequence[Cell], available: Sequence[str], obstacle: Callable[[str], str] = lambda name: ""
) -> list[Problem]:
    """Return problems for networks that are not available; `obstacle` returns why one cannot be installed, if known."""
    modes = dict.fromkeys(find(cell.network).mode_name(cell.network_options) for cell in cells)
    missing = [name for name in modes if name not in available]
    names = ", ".join(available)
    obstacles = [
        Problem(f"{name} cannot be installed on this cluster: {reason}", f"remove it; available: {names}")
        for name in missing
        if (reason := obstacle(name))
    ]
    if obstacles or not missing:
        return obstacles
    plural = "s" if len(missing) > 1 else ""
    return [
        Problem(
            f"this cluster does not have the network{plural} {', '.join(missing)} (it has: {names})",
            "select others with --network; if the detected network is wrong, name it with --pod-network",
        )
    ]


def attachment_problems(cells: Sequence[Cell], client: KubernetesClient) -> list[Problem]:
    """Return problems for NetworkAttachmentDefinitions that do not exist, as far as this user may read them."""
    group, resource = ATTACHMENTS

    def is_missing(attachment: str) -> bool:
        namespace, _, name = attachment.partition("/")
        path = f"/apis/{group}/v1/namespaces/{namespace}/{resource}/{name}"
        may_read = client.is_allowed("get", *ATTACHMENTS, namespace=namespace, name=name)
        return may_read and client.find(path) is None

    requested = dict.fromkeys(cell.network_options.get("attachment", "") for cell in cells)
    return [
        Problem(
            f"this cluster has no NetworkAttachmentDefinition {attachment}",
            f"list them: kubectl get {resource} -A",
            input=True,
        )
        for attachment in requested
        if attachment and is_missing(attachment)
    ]


def family_problems(cells: Sequence[Cell], nodes: Sequence[NodeInfo]) -> list[Problem]:
    """Return problems for IP families that pods on the cluster's nodes do not have.

    Nothing is checked if this user may not list nodes, no node can run participants, or none states addresses.
    """
    known = [node.ip_families for node in usable(nodes) if node.ip_families]
    if not known:
        return []
    carried = frozenset[IpFamily](TITLES).intersection(*known)
    requested = dict.fromkeys(cell.ip_families for cell in cells if cell.uses_network)
    return [
        Problem(
            f"ip_families [{', '.join(families)}]: pods of this cluster have no"
            f" {' and no '.join(TITLES[family] for family in missing)} address",
            f"select what it has: --set ip_families={','.join(sorted(carried))}; or deploy a profile with these"
            " kubernetes.ip_families",
            input=True,
        )
        for families in requested
        if (missing := [family for family in families if family not in carried])
    ]


def service_problems(
    cells: Sequence[Cell], client: KubernetesClient, namespace: str | None, mode: ProxyMode | None
) -> list[Problem]:
    """Return problems of cells that need Services: the mode of kube-proxy, missing rights, too few addresses."""
    wanted = [
        (cell.ip_family, services)
        for cell in cells
        if (services := workloads.find(cell.test).services(cell)) is not None
    ]
    if not wanted:
        return []
    modes = {services.proxy for _, services in wanted if services.proxy} - {mode}
    problems = [_other_mode(requested, mode) for requested in sorted(modes)]
    if missing := permissions.missing_in_campaign(client, namespace, SERVICE_RIGHTS):
        what = f"test service: not allowed: {', '.join(missing)}"
        problems.append(Problem(what, "let an administrator grant it (k8sdds init rights)"))
    ranges = permissions.readable(client, SERVICE_CIDRS)
    cidrs = [ip_network(cidr) for one in (ranges or {}).get("items", ()) for cidr in one["spec"]["cidrs"]]
    for family in dict.fromkeys(family for family, _ in wanted):
        count = max(services.count for used, services in wanted if used == family)
        own = [cidr for cidr in cidrs if TITLES[family] == f"IPv{cidr.version}"]
        available = sum(cidr.num_addresses for cidr in own)
        if own and count > available:
            what = f"{count} Services need as many addresses, but {', '.join(map(str, own))} has {available}"
            remedy = "use fewer `services`, or deploy a profile with a larger kubernetes.service_cidr"
            problems.append(Problem(f"test service: {what}", remedy, input=True))
    return problems


def _other_mode(requested: ProxyMode, mode: ProxyMode | None) -> Problem:
    if mode is None:
        why = (
            "the mode of the cluster's kube-proxy is unknown: there is no ConfigMap kube-system/kube-proxy, or this"
            " user may not read it"
        )
        remedy = "leave out proxy, to measure what the cluster has"
    else:
        why = f"kube-proxy of this cluster runs in {mode} mode"
        remedy = f"leave out proxy, or deploy a profile with kubernetes.kube_proxy: {requested}"
    return Problem(f"test service: proxy {requested}: {why}", remedy, input=True)


def placement_problems(
    cells: Sequence[Cell],
    nodes: Sequence[NodeInfo],
    image: str,
    imported: Callable[[str], Collection[str]] = lambda node: (),
    *,
    tolerated: Collection[str] = (),
) -> list[Problem]:
    """Return problems of the cells' placements, and of the image on the nodes, as far as this user may list them.

    `imported` returns the images that the runtime of a node has, if they can be read. `tolerated`: the taints that the
    user named.
    """
    if not nodes:
        return _need_nodes(cells)
    candidates = usable(nodes)
    fitting = [node for node in candidates if node.arch in versions.ARCHITECTURES]
    problems: dict[str, Problem] = {}
    used_names: set[str] = set()
    for cell in cells:
        try:
            places = assign(cell, fitting)
            of_service(cell, fitting)
        except InputError as error:
            unused = [node for node in nodes if node not in candidates]
            reasons = "; ".join(f"{node.name}: {node.unusable or f'is {node.arch}'}" for node in unused)
            what = error.message + (f" (not used: {reasons})" if reasons else "")
            problems.setdefault(what, Problem(what, error.remedy + _tolerate(unused, tolerated)))
            continue
        pair = same_node(cell, places)
        if pair and cell.crosses_links:
            names = f"{cell.name_of(pair[0])} and {cell.name_of(pair[1])}"
            what = (
                f"{cell.describe()}: {names} are both on node {places[pair[0]]},"
                " so samples would not cross a link"
            )
            problems.setdefault(what, Problem(what, "change the placement, or add a node", input=True))
        used_names |= set(places.values())
    used = [node for node in candidates if node.name in used_names]
    return [*problems.values(), *_image_problems(used, image, imported)]


def _tolerate(unused: Iterable[NodeInfo], tolerated: Iterable[str]) -> str:
    """Return the option with which nodes that have taints can be used; empty if there are no such nodes."""
    taints = {taint for node in unused if node.is_reserved for taint in node.untolerated}
    if not taints:
        return ""
    return f"; or use nodes with taints: --tolerate {','.join(sorted(taints.union(tolerated)))}"


def _need_nodes(cells: Sequence[Cell]) -> list[Problem]:
    settings = {
        "placement same-node": any(cell.placement == SAME_NODE for cell in cells),
        "transport shared-memory between pods": any(
            not cell.uses_network and not cell.in_one_pod for cell in cells
        ),
        "background": any(cell.background for cell in cells),
    }
    return [
        Problem(
            f"{setting}: this user may not list nodes, so that k8sdds cannot select them",
            "remove it, or get the right to list nodes",
        )
        for setting, is_used in settings.items()
        if is_used
    ]


def _image_problems(
    nodes: Sequence[NodeInfo], image: str, imported: Callable[[str], Collection[str]]
) -> list[Problem]:
    if not image.startswith(versions.LOCAL_REGISTRY):
        return []
    foreign = next((arch for arch in versions.BUNDLE_ARCHITECTURES if image.endswith(f"-{arch}")), "")
    other = [node.name for node in nodes if foreign and node.arch != foreign]
    if other:
        what = f"the image {image} runs on {foreign} only, but {', '.join(other)} have another architecture"
        return [Problem(what, f"use --image {image.removesuffix(f'-{foreign}')}", input=True)]
    # The kubelet reports an image up to a minute after it was imported, and at most 50 images, so the runtime decides.
    unreported = [node.name for node in nodes if node.reports_images and image not in node.images]
    without = [name for name in unreported if image not in imported(name)]
    if without:
        remedy = (
            "load it with `k8sdds images load`; if you just have, wait a minute; see k8sdds docs your-cluster"
        )
        return [Problem(f"the image {image} is not on {', '.join(without)}", remedy)]
    return []


def profile_problems(cells: Sequence[Cell], nodes: Sequence[NodeInfo]) -> list[Problem]:
    """Return why the requested profiles of the nodes cannot be recorded. Makes no changes."""
    if not any(cell.profile for cell in cells):
        return []
    own = BOOT_ID.read_text().strip()
    elsewhere = [node.name for node in nodes if node.boot_id != own]
    if nodes and not elsewhere:
        return perf.problems()
    where = f"{', '.join(elsewhere)} run another kernel" if nodes else "its nodes cannot be listed"
    return [
        Problem(
            f"--profile records the kernel of this machine, but {where}",
            "leave out --profile, or use the lab or a cluster on this machine",
            input=True,
        )
    ]


def pod_start_problems(cells: Sequence[Cell]) -> list[Problem]:
    """Return the cells whose new pods cannot match over DDS."""
    return [
        Problem(
            f"{cell.network_label}: dds: the address of a new pod on its second interface is not known",
            "leave out dds, or use another network",
            input=True,
        )
        for cell in cells
        if workloads.find(cell.test).started_pods(cell)
        and PodStartOptions(**cell.test_options).dds
        and find(cell.network).pod_interface
    ]


def admission_problems(
    cells: Sequence[Cell], client: KubernetesClient, namespace: str | None, image: str
) -> list[Problem]:
    """Return why a prepared namespace does not admit pods of these cells, each alone. None is created for the check."""
    if namespace is None:
        return []
    slots = {
        (
            slot.host, slot.capabilities, slot.cpu_resources, slot.sysctls, len(slot.sharing),
            slot.shares_with_node, bool(slot.users),
        ): slot
        for cell in cells
        for slot in placement.slots(cell, nodes=None).values()
    }  # fmt: skip
    memory, folder = pods.memory_bytes(cells), pods.memory_folder({"metadata": {"uid": UNKNOWN_UID}})
    bodies = [
        pods.pod(f"{slot.participant}-{slot.kind}", slot, image, "", memory, node_memory=folder)
        for slot in slots.values()
    ]
    return [problem for body in bodies if (problem := _not_admitted(body, client, namespace))]


def _not_admitted(body: dict[str, Any], client: KubernetesClient, namespace: str) -> Problem | None:
    try:
        client.create(f"{permissions.NAMESPACES}/{namespace}/pods", body, dryRun="All")
    except ApiError as error:
        if error.status in REFUSALS and NO_DRY_RUN not in error.message:
            found = not_created(body, namespace, error)
            return Problem(found.message, found.remedy)
    return None


def policy_rights(client: KubernetesClient, namespace: str | None) -> list[Problem]:
    """Return a problem if this user may not create and delete policies."""
    missing = permissions.missing_in_campaign(client, namespace, POLICY_RIGHTS)
    remedy = "let an administrator grant it (k8sdds init rights), or set policies to 0"
    return [Problem(f"policies: this user may not {' and '.join(missing)}", remedy)] if missing else []
