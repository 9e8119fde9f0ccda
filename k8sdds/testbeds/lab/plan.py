"""Plan a lab network: all commands that build it, as data, for `LabNetwork.build` and `lab plan`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from k8sdds.deploy import tuning
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.settings import NO_TUNING
from k8sdds.model.trial import FIRST_SUBSCRIBER, Cell
from k8sdds.networks import find
from k8sdds.networks.common import kube_proxy
from k8sdds.networks.datapath import SWITCH_SYSCTLS, Batch, Datapath, Topology, dual_stack
from k8sdds.system.sandbox import RULE_LOADERS
from k8sdds.testbeds.lab.topology import SWITCH, links, services_of, topology_of
from k8sdds.workloads import transactions

COMPILE_BPF = ("clang", "-O2", "-g", "-target", "bpf", "-x", "c", "-c", "-", "-o")
"""Command that compiles a C text from its stdin to the object file that is its last argument."""


@dataclass(frozen=True)
class Plan:
    """One lab network: its nodes, switch, pods and datapath."""

    cell: Cell
    """A cell that it was planned for."""
    topology: Topology
    namespaces: tuple[str, ...]
    sysctls: tuple[tuple[str, str, str], ...]
    batches: tuple[Batch, ...]
    services: tuple[Batch, ...]
    """To apply when the network exists: sequentially within a namespace."""
    datapath: Datapath
    tuning: Mapping[str, str]
    """Sysctls of the tuning set, which are also part of `sysctls`."""


def make_plan(cell: Cell) -> Plan:
    """Return the plan of a cell's lab network. A pure function: it does not depend on the machine.

    Raises InputError: there is no such tuning set.
    """
    network = find(cell.network)
    topology = topology_of(cell)
    mtu, engine = network.mtu(cell.datapath_options), network.engine_for(cell.network_options)
    datapath, *second = (network.lab(topology.in_family(family), mtu, engine) for family in cell.ip_families)
    for other in second:
        datapath = dual_stack(datapath, other)
    tuning_set = None if cell.tuning == NO_TUNING else tuning.load(cell.tuning)
    settings = {key: str(value) for key, value in tuning_set.sysctls.items()} if tuning_set else {}
    namespaces = (SWITCH, *(node.name for node in topology.nodes), *datapath.namespaces)
    return Plan(
        cell=cell,
        topology=topology,
        namespaces=namespaces,
        sysctls=(
            *_ipv6_sysctls(namespaces, cell.ip_families),
            *datapath.sysctls,
            *((SWITCH, *setting) for setting in SWITCH_SYSCTLS.items()),
            *((name, *setting) for name in namespaces if name != SWITCH for setting in settings.items()),
        ),
        batches=tuple(_joined([*links(topology, cell.ip_families, cell.link), *datapath.batches])),
        services=tuple(_services(cell, topology, datapath)),
        datapath=datapath,
        tuning=settings,
    )


def _services(cell: Cell, topology: Topology, datapath: Datapath) -> Iterator[Batch]:
    """Return the rules of the Services, whose endpoint is the server's pod."""
    if wanted := services_of(cell):
        endpoint = datapath.attachments[FIRST_SUBSCRIBER.name].address
        for node in topology.nodes:
            yield from kube_proxy.batches(node, wanted, endpoint, transactions.PORT)


def _ipv6_sysctls(namespaces: Sequence[str], families: Sequence[IpFamily]) -> Iterator[tuple[str, str, str]]:
    """Yield the sysctls that keep router solicitation and duplicate address detection from disturbing a trial."""
    for name in namespaces:
        if "ipv6" not in families or name == SWITCH:
            yield name, "net.ipv6.conf.all.disable_ipv6", "1"
            continue
        for key in ("accept_dad", "accept_ra", "router_solicitations"):
            yield name, f"net.ipv6.conf.default.{key}", "0"
        yield name, "net.ipv6.conf.all.accept_dad", "0"


def _joined(batches: list[Batch]) -> list[Batch]:
    """Join all `ip` lines of a namespace into its first batch, which halves the number of commands.

    The `ip` lines of a network may therefore depend on earlier lines of the same namespace and on devices
    that an earlier namespace moved in, but not on a batch of another tool between them. Equal lines, which the plans
    of two IP families have in common, run once.
    """
    lines: dict[str, list[str]] = {}
    for batch in batches:
        if batch.tool == "ip":
            lines.setdefault(batch.namespace, []).extend(batch.lines)
    first = [Batch(namespace, "ip", tuple(dict.fromkeys(joined))) for namespace, joined in lines.items()]
    return first + [batch for batch in batches if batch.tool != "ip" and batch.lines]


def script(plan: Plan) -> str:
    """Format the plan as a shell script that can be run as root."""
    lines = [
        "#!/bin/sh -e",
        f"# {plan.cell.network_label}: {len(plan.topology.nodes)} nodes, {len(plan.topology.pods)} pods",
    ]
    lines += [f"ip netns add {name}" for name in plan.namespaces]
    lines += [_set(sysctl) for sysctl in plan.sysctls]
    for compiled in plan.datapath.bpf_objects:
        lines += ["", f"{shlex.join(COMPILE_BPF)} {compiled.path} <<'EOF'", compiled.source.strip(), "EOF"]
    for batch in (*plan.batches, *plan.services):
        lines += ["", *_batch(batch)]
    lines += [_set(sysctl) for sysctl in plan.datapath.link_sysctls]
    return "\n".join([*lines, *_daemons(plan.datapath)]) + "\n"


def _set(sysctl: tuple[str, str, str]) -> str:
    namespace, key, value = sysctl
    # The keys of br_netfilter are missing if it is not loaded, and the switch needs them only if it is.
    ignoring_missing = "e" if namespace == SWITCH else ""
    return f"ip netns exec {namespace} sysctl -q{ignoring_missing}w {key}={value}"


def _batch(batch: Batch) -> list[str]:
    if batch.tool in RULE_LOADERS:
        body = "\n".join(batch.lines).strip()
        return [f"ip netns exec {batch.namespace} {RULE_LOADERS[batch.tool]} <<'EOF'", body, "EOF"]
    if batch.tool in ("swanctl", "wg"):
        return [f"ip netns exec {batch.namespace} {batch.tool} {line}" for line in batch.lines]
    return [f"{batch.tool} -n {batch.namespace} {line}" for line in batch.lines]


def _daemons(datapath: Datapath) -> list[str]:
    """Return the shell lines for files, daemons and later commands. The script generates its keys."""
    lines = ["", "umask 077"] if datapath.files else []
    names = {name for file in datapath.files for name in re.findall(r"\$(\w+)", file.text)}
    # Private keys first, because public keys are derived from them.
    if "psk" in names:
        lines.append("psk=$(head -c 48 /dev/urandom | od -An -v -tx1 | tr -d ' \\n')")
    for kind, command in (("private", "wg genkey"), ("public", "echo $private_{} | wg pubkey")):
        owners = sorted(name.partition("_")[2] for name in names if name.startswith(f"{kind}_"))
        lines += [f"{kind}_{owner}=$({command.format(owner)})" for owner in owners]
    for file in datapath.files:
        lines += [f"mkdir -p {file.path.rpartition('/')[0]}", f"cat >{file.path} <<EOF", file.text.strip()]
        lines += ["EOF"]
    for daemon in datapath.daemons:
        argv = [f"{key}={value}" for key, value in daemon.environment] + list(daemon.argv)
        enter = f"ip netns exec {daemon.namespace}"
        lines += [f"{enter} env {shlex.join(argv)} >{daemon.log} 2>&1 &"]
        lines += [f"until {enter} {shlex.join(daemon.ready)}; do sleep 0.1; done"]
    return lines + [line for batch in datapath.tunnels for line in _batch(batch)]
