"""Check that this machine's lab can measure cells, before anything is built. Makes no changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence

from k8sdds import middleware, networks
from k8sdds.deploy import tuning
from k8sdds.model import ip_families
from k8sdds.model.link import KERNEL, USERSPACE, Link
from k8sdds.model.placement import same_node
from k8sdds.model.services import IPTABLES, NFTABLES
from k8sdds.model.settings import NO_TUNING
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.networks.common import kube_proxy
from k8sdds.system import kernel_features, perf
from k8sdds.system.cgroups import CpuResources, PodCgroups
from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.system.kernel_features import Feature
from k8sdds.system.sandbox import unprivileged_remedy
from k8sdds.testbeds.lab import pod_starts
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.topology import key_of, services_of, topology_of
from k8sdds.workloads import outage


def problems(cells: Sequence[Cell]) -> list[Problem]:
    """Return the problems that prevent these cells from being measured on this machine."""
    reason = kernel_features.namespaces_error()
    if reason:
        return [Problem(f"namespaces cannot be created here: {reason}", unprivileged_remedy())]
    labs = {key_of(cell): cell for cell in cells}
    contradictions = [problem for problem in map(_contradiction, labs.values()) if problem]
    if contradictions := contradictions or pod_starts.problems(cells):
        return contradictions
    cell_of = {feature: cell for cell in labs.values() for feature in needed_features(cell)}
    cell_of |= {feature: cell for cell in cells for feature in _process_features(cell)}
    missing = kernel_features.probe(cell_of).missing
    limits = [cell.cpu_resources for cell in labs.values() if cell.cpu_resources]
    return [
        *(perf.problems() if any(cell.profile for cell in cells) else []),
        *limit_problems(limits),
        *([] if os.geteuid() == 0 else _user_problems(cells)),
        *tuning_problems(cell.tuning for cell in cells if cell.tuning != NO_TUNING),
        *(
            Problem(
                f"{cell.network_label} needs {feature.name}: {missing[feature.name]}",
                kernel_features.remedy(feature),
            )
            for feature, cell in cell_of.items()
            if feature.name in missing
        ),
    ]


def _user_problems(cells: Sequence[Cell]) -> list[Problem]:
    if all(cell.users == "same" for cell in cells):
        return []
    what = "users: other: only root may give participants other user ids"
    return [Problem(what, "remove it, run k8sdds as root, or use --testbed cluster")]


def _contradiction(cell: Cell) -> Problem | None:
    """Return why no lab can measure a cell, whatever the machine; None if one can."""
    for what, remedy in _contradictions(cell):
        return Problem(f"{cell.network_label}: {what}", remedy, input=True)
    return None


def _contradictions(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield why no lab can measure a cell, with remedies. Only the first counts: others can follow from it."""
    elsewhere = "measure it on a cluster: --testbed cluster"
    if cell.network not in networks.NETWORKS:
        yield "the lab does not have this network", elsewhere
    network = find(cell.network)
    if network.cluster_engine(cell.network_options.get("engine")):
        yield "the lab does not have this engine", elsewhere
    if cell.network_options.get("attachment"):
        yield "the lab has no NetworkAttachmentDefinitions", "leave out attachment"
    if cell.cpu_resources and not make_plan(cell).datapath.in_pods:
        names = "cpu_quota" if cell.cpu_quota else "cpu_request"
        yield f"{names} needs pods, but this network has none", f"remove {names}, or this network"
    if cell.policies and not network.lab_policies:
        known = ", ".join(other.name for other in networks.NETWORKS.values() if other.lab_policies)
        what = "the lab does not have the rules of this network for policies"
        yield what, f"measure it on a cluster (--testbed cluster), or use policies only on {known}"
    yield from _unfit_services(cell)
    yield from _unfit_link(cell)
    if cell.test == outage.NAME:
        yield from _no_outage(cell)
    places = {pod.participant: pod.node for pod in topology_of(cell).pods}
    if cell.crosses_links and (pair := same_node(cell, places)):
        names = f"{cell.name_of(pair[0])} and {cell.name_of(pair[1])}"
        what = f"{names} are on node {places[pair[0]]}: their samples would not cross a link"
        yield what, "change the placement"


def _unfit_services(cell: Cell) -> Iterator[tuple[str, str]]:
    wanted = services_of(cell)
    if wanted and wanted.proxy not in (IPTABLES, NFTABLES):
        what = f"the lab does not have the rules of kube-proxy in {wanted.proxy} mode"
        either = f"{{name: service, proxy: {IPTABLES}}} or {NFTABLES}"
        yield what, f"use {either}, or measure on a cluster with this mode"
    if wanted and not _translates(cell):
        plain = {"network_options": {}, "policies": 0, "link": Link(), "ip_families": ip_families.DEFAULT}
        others = (cell.model_copy(update={"network": name, **plain}) for name in networks.NETWORKS)
        fitting = ", ".join(other.network for other in others if _translates(other))
        what = "its packets do not pass the rules of kube-proxy, which translate addresses of Services"
        yield what, f"use a network of pods with these rules: {fitting}"


def _unfit_link(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield why the engine of a link cannot impair its packets, or not one by one."""
    link, network = cell.link, find(cell.network)
    exemption = network.loss_exemption_with(cell.network_options)
    if link.loss_percent and link.engine == "auto" and exemption:
        fitting = [engine.name for engine in network.engines if not engine.loss_exemption]
        other = f"use {{name: {cell.network}, engine: {fitting[0]}}}" if fitting else "remove this network"
        what = f"link.loss_percent does not apply to its packets: {exemption}"
        yield what, f"{other}, or remove link.loss_percent"
    if link.engine == "auto" or not link.is_shaped:
        return
    if link.bond:
        what = "the lab cannot impair the members of a LAG, but for rate_mbit, loss_percent and delay_us"
        yield what, "remove link.lag, or the other keys of `link`"
    large = [name for name, on in link.offloads.requested().items() if on and name != "gro"]
    if large and link.engine == USERSPACE:
        names = ", ".join(large)
        lost = "k8sdds-link would lose or delay several packets of the wire as one"
        yield f"link.offloads switches {names} on: {lost}", f"remove {names} from link.offloads"


def _no_outage(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield why what fails in an outage test does not exist in the lab network of a cell."""
    what, datapath = outage.options_of(cell).what, make_plan(cell).datapath
    if what == "agent" and not datapath.daemons:
        why = "no process of its agent runs in the lab: commands have built its datapath, and nothing changes it"
        yield why, _with_agent(cell)
    if what == "address" and datapath.namespaces:
        why = "the lab has no agent that announces a node's new address to the other nodes"
        yield why, "use a network without addresses of pods (host, baremetal)"


def _with_agent(cell: Cell) -> str:
    """Return how the agent of a network can fail, which has none in this lab network."""
    network, options = find(cell.network), cell.network_options
    with_engine = {
        engine.name: cell.model_copy(update={"network_options": options | {"engine": engine.name}})
        for engine in network.engines
    }
    ways = [
        f"use {{name: {cell.network}, engine: {name}}}"
        for name, other in with_engine.items()
        if make_plan(other).datapath.daemons
    ]
    if network.cluster:
        ways.append("measure on a cluster that `k8sdds deploy` built (--testbed NAME)")
    return ", or ".join(ways) or "use another network, or another `what`"


def _translates(cell: Cell) -> bool:
    return kube_proxy.translates(make_plan(cell).datapath, cell.ip_family)


def tuning_problems(names: Iterable[str]) -> list[Problem]:
    """Return the settings of tuning sets that a lab cannot have, because network namespaces do not have them."""
    problems = []
    for name in dict.fromkeys(names):
        tuning_set = tuning.load(name)
        # Another sysctl is that of the whole machine, which the lab never changes.
        own = [key for key in tuning_set.sysctls if key.startswith("net.")]
        script = 'for key; do [ -w "/proc/sys/$key" ] || echo "$key"; done'
        argv = [
            *kernel_features.unshare_argv(),
            "sh",
            "-c",
            script,
            "sh",
            *(key.replace(".", "/") for key in own),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=kernel_features.TIMEOUT_S)
        fixed = done.stdout.split()
        shared = [key for key in tuning_set.sysctls if key not in own or key.replace(".", "/") in fixed]
        interface = [*tuning_set.interface.offloads, *(f"{ring} ring" for ring in tuning_set.interface.rings)]
        if shared or interface:
            problems.append(
                Problem(
                    f"tuning {name}: the nodes of the lab share these settings with this machine:"
                    f" {', '.join([*shared, *interface])}",
                    "measure it on a cluster (--testbed cluster), or use a set that network namespaces have for"
                    " themselves, such as tcp-buffers",
                )
            )
    return problems


def limit_problems(limits: Sequence[CpuResources]) -> list[Problem]:
    """Check, with temporary cgroups, whether these CPU limits can be set on this machine."""
    if not limits:
        return []
    cgroups = PodCgroups(f"check-{os.getpid()}", limited=True)
    try:
        for number, limit in enumerate(limits):
            cgroups.create(f"pod{number}", limit)
    except PrerequisiteError as error:
        return [Problem(error.message, error.remedy)]
    finally:
        cgroups.remove()
    return []


def _process_features(cell: Cell) -> list[Feature]:
    """Return the features that the participants of a cell need, whatever their network."""
    priority = [kernel_features.REALTIME] if cell.realtime_priority else []
    return priority + ([kernel_features.MEMORY_LOCKS] if middleware.locks_memory(cell) else [])


def needed_features(cell: Cell) -> list[Feature]:
    """Return the features of this machine that a cell's network and links need."""
    features = [kernel_features.VETH, *find(cell.network).requirements(cell.network_options)]
    if "ipv6" in cell.ip_families:
        features.append(kernel_features.IPV6)
    features += _link_features(cell.link)
    if wanted := services_of(cell):
        features.append(
            kernel_features.NFT_SERVICES if wanted.proxy == NFTABLES else kernel_features.SERVICES
        )
    if cell.policies:
        features += find(cell.network).lab_policies
    return features


def _link_features(link: Link) -> list[Feature]:
    rate = any(direction.rate for direction in link.directions.values())
    kernel = link.engine == KERNEL
    netem = kernel or (link.engine != USERSPACE and link.delay_us)
    needed = {
        kernel_features.TBF: kernel or (rate and link.engine != USERSPACE),
        kernel_features.NETEM: netem,
        kernel_features.CODEL: kernel,
        kernel_features.NFT_INGRESS: link.loss_percent and link.engine != USERSPACE,
        kernel_features.BONDING: link.bond,
        kernel_features.OFFLOADS: link.offloads.requested() or link.engine == USERSPACE,
    }
    return [feature for feature, is_needed in needed.items() if is_needed]
