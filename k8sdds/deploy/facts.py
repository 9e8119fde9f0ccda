"""Gather the facts of machines: what they are, what is installed on them, and the state of their cluster."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import CACHE_FOLDER, HASHES, LOCK
from k8sdds.deploy.scripts import shell
from k8sdds.model.ip_families import IpFamily, address_of
from k8sdds.networks.macvlan import multus
from k8sdds.system.errors import K8sddsError
from k8sdds.system.ssh import Connections, Host, HostError

MARKER = "/etc/k8sdds/cluster"
"""File with the name of the cluster that a machine belongs to."""

# Prints targets of symbolic links and hashes of other files. Deploy records the hash of each installed file with its
# inode, size and times; a file for which these are unchanged is not read again.
FILE_HASHES = shell("file_hashes", HASHES=HASHES)

# The script makes no changes, except that probing a kernel feature, in a temporary network namespace, may load
# its module.
_BEGIN = shell("facts_begin")

_MACHINE = shell("machine_facts", FILE_HASHES=FILE_HASHES)

OBJECTS = (
    "namespaces,serviceaccounts,configmaps,secrets,services,daemonsets.apps,deployments.apps,statefulsets.apps,"
    "poddisruptionbudgets.policy,networkpolicies.networking.k8s.io,priorityclasses.scheduling.k8s.io,"
    "clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io,"
    "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,apiservices.apiregistration.k8s.io,"
    "customresourcedefinitions.apiextensions.k8s.io"
)
"""Kinds of objects that k8sdds creates on a cluster."""

# Runs on the control plane and prints what the API server reports. Of Secrets it prints the names only.
CLUSTER = shell(
    "cluster_facts", SELECTOR=f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY}", OBJECTS=OBJECTS,
    FOLDER=CACHE_FOLDER, DEFINITION=multus.DEFINITION,
)  # fmt: skip

BUSY_TIMEOUT_S = 600
"""How long to wait for a script that an interrupted deploy left running on a machine."""
BUSY_EXIT_CODE = 75
"""Exit code of the probe if such a script is running."""

ETCD_DATA = "/var/lib/etcd/member"
"""Folder of etcd's data, which is the state of the cluster, on the control plane."""

DEFAULT_ROUTES: dict[IpFamily, str] = {"ipv4": "route", "ipv6": "route_ipv6"}
"""Facts with the default route of each family."""

_DPKG_ARCHITECTURES = {"armhf": "arm", "armel": "arm"}


@dataclass(frozen=True)
class Facts:
    """Facts of one machine, as the probe printed them. Sizes are in KiB."""

    values: dict[str, str]
    """Facts with one value."""
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Facts with several values."""
    clock_ahead_s: float = 0.0
    """Estimate of how far the machine's clock is ahead of this machine's."""
    clock_error_s: float = 0.0
    """Maximum error of the estimate: half of the time that the probe's transport took, mostly connecting."""

    @property
    def architecture(self) -> str:
        """amd64, arm64, arm, or the machine name that uname reports."""
        machine = self.values.get("machine", "")
        return versions.ARCHITECTURE_OF_MACHINE.get(machine, machine)

    @property
    def userland(self) -> str:
        """Architecture of the installed programs; empty if dpkg does not report it."""
        reported = self.values.get("userland", "")
        return _DPKG_ARCHITECTURES.get(reported, reported)

    def number(self, key: str) -> int:
        """Return a fact that is a whole number; 0 if it is missing."""
        text = self.values.get(key, "")
        return int(text) if text.isdigit() else 0

    def all(self, key: str) -> tuple[str, ...]:
        """Return all values of a fact."""
        return self.lists.get(key, ())

    def pairs(self, key: str) -> dict[str, str]:
        """Return a fact whose values have the form `name rest`, as a mapping from name to rest."""
        return {name: rest for name, _, rest in (value.partition(" ") for value in self.all(key))}

    def default_interface(self, family: IpFamily) -> str:
        """Return the interface of the default route; empty if there is no default route."""
        found = re.search(r"\bdev (\S+)", self.values.get(DEFAULT_ROUTES[family], ""))
        return found[1] if found else ""

    def address(self, family: IpFamily, interface: str | None) -> str:
        """Return the address of an interface, by default that of the default route; empty if it has none."""
        name = interface or self.default_interface(family)
        addresses = [
            line.split()[1].partition("/")[0] for line in self.all("address") if line.split()[0] == name
        ]
        return address_of(family, addresses)

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON data, with the keys that `k8sdds status --json` prints.

        Hashes of files are left out: a weak password in a file could be guessed from them.
        """
        return {
            "one": self.values,
            "many": {key: entries for key, entries in self.lists.items() if key != "file"},
            "clock_ahead_s": self.clock_ahead_s,
            "clock_error_s": self.clock_error_s,
        }

    def has(self, feature: str) -> bool:
        """Return whether a kernel feature works on the machine."""
        return feature in self.all("feature")


LIST_KEYS = (
    "free_kib", "listens", "unit", "program", "leftover", "link", "address", "feature", "lacks", "resolves",
    "sysctl", "file", "symlink", "image", "flag", "tuning", "swap", "swap_by", "kube.node", "kube.object",
    "kube.taints", "kube.definition",
)  # fmt: skip
"""Facts that may have several values."""
_LINE = re.compile(r"^([A-Za-z0-9_.]+)\t(.*)$")


def parse(text: str, sent_s: float | None = None, received_s: float | None = None) -> Facts:
    """Return the facts in the output of the probe.

    `sent_s` and `received_s` are the times on this machine's clock, since 1970, at which the probe was sent and its
    output was complete.
    """
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        key, value = match[1], match[2].strip()
        if key in LIST_KEYS:
            lists[key].append(value)
        else:
            values[key] = value
    ahead_s = error_s = 0.0
    if sent_s is not None and received_s is not None and "epoch" in values:
        # The probe read its clock first after `sent_s` and last before `received_s`.
        most_s = float(values["epoch"]) - sent_s
        least_s = float(values.get("ended", values["epoch"])) - received_s
        ahead_s, error_s = (most_s + least_s) / 2, (most_s - least_s) / 2
    return Facts(values, {key: tuple(entries) for key, entries in lists.items()}, ahead_s, error_s)


def probe_script(
    names: tuple[str, ...] = (), sysctls: tuple[str, ...] = (), files: tuple[str, ...] = (), extra: str = ""
) -> str:
    """Return the script that gathers facts, and prints lines of the form `key<tab>value`.

    It resolves `names`, reads `sysctls`, hashes `files`, and runs `extra` at the same time.
    """
    variables = {"NAMES": names, "SYSCTLS": sysctls, "FILES": files}
    assignments = "".join(f"{key}='{' '.join(values)}'\n" for key, values in variables.items())
    # The additional script writes to a file, so that the lines of the two do not mix; in memory, since a disk may
    # be full.
    begin = (
        "work=$(mktemp -d -p /run) || exit 1\ntrap 'rm -rf $work' EXIT\ntrap 'exit 1' HUP PIPE TERM\n"
        f"(\n:\n{extra}\n) >$work/extra &\n"
    )
    end = 'wait\ncat $work/extra\nsay ended "$(date +%s.%N)"\n'
    return assignments + _BEGIN + begin + _MACHINE + end


def gather(
    connections: Connections,
    sysctls: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    extra_script: Callable[[str], str] = lambda name: "",
) -> tuple[dict[str, Facts], dict[str, K8sddsError]]:
    """Gather the facts of all machines in parallel; return by machine its facts, or why they could not be gathered.

    `files` are hashed, or read if they are symbolic links. `extra_script` returns an addition to a machine's script.
    """

    def probe_machine(host: Host) -> Facts:
        # Resolve only the machine's own name: resolving a name that no server knows takes seconds.
        script = probe_script((host.name,), sysctls, files, extra_script(host.name))
        check_free = f"flock --shared --nonblock {LOCK} true\n[ $? != 1 ] || exit {BUSY_EXIT_CODE}\n"
        sent_s = time.time()
        done = host.run(check_free + script, timeout_s=60)
        if done.code == BUSY_EXIT_CODE:
            _await_free(host)
            sent_s = time.time()
            done = host.run(script, timeout_s=60)
        facts = parse(done.out, sent_s, time.time())
        if done.code != 0 or "machine" not in facts.values:
            message = (done.err.strip().splitlines() or ["the probe printed nothing"])[-1]
            raise HostError(
                host.name, f"its facts could not be gathered: {message}", "check that it runs Linux"
            )
        return facts

    return connections.each(probe_machine, connections.hosts)


def _await_free(host: Host) -> None:
    done = host.run(f"flock --shared --timeout {BUSY_TIMEOUT_S} {LOCK} true", timeout_s=BUSY_TIMEOUT_S + 30)
    if done.code == 1:
        raise HostError(
            host.name, "a script of an interrupted command is still running", "try again in a minute"
        )


WORKLOADS = ("DaemonSet/", "Deployment/", "StatefulSet/")


@dataclass
class ClusterState:
    """State of the cluster as its API server reported it. Objects are named KIND/NAMESPACE/NAME."""

    up: bool = False
    ready: dict[str, bool] = field(default_factory=dict)
    """By node: whether it is ready."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node: all its labels."""
    own_labels: dict[str, set[str]] = field(default_factory=dict)
    """By node: names of the labels that deploy set."""
    taints: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node: all its taints, KEY:EFFECT to KEY=VALUE:EFFECT."""
    own_taints: dict[str, set[str]] = field(default_factory=dict)
    """By node: KEY:EFFECT of the taints that deploy set."""
    objects: dict[str, str] = field(default_factory=dict)
    """By object of k8sdds: hash of its content as applied."""
    not_ready: set[str] = field(default_factory=set)
    """Workloads with fewer ready pods than required."""
    networks: set[str] = field(default_factory=set)
    """Names of the networks whose DaemonSets exist."""
    proven: str = ""
    """What the last smoke test proved; empty if none passed."""


def cluster_state(facts: Facts | None) -> ClusterState:
    """Return the state of the cluster, which is empty when the API server did not answer."""
    if facts is None or facts.values.get("kube.api") != "ready":
        return ClusterState()
    state = ClusterState(up=True)
    for line in facts.all("kube.node"):
        name, is_ready, own, text = line.split(" ", 3)
        state.ready[name], state.labels[name] = is_ready == "True", json.loads(text)
        state.own_labels[name] = {*own.split(",")} - {""}
    for line in facts.all("kube.taints"):
        name, own, text = (*line.split(" ", 2), "", "")[:3]
        state.taints[name] = {
            f"{taint['key']}:{taint['effect']}": f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in json.loads(text or "[]")
        }
        state.own_taints[name] = {*own.split(",")} - {""}
    for line in facts.all("kube.object"):
        identity, sha256, counts, network, proof = (*line.split(" "), "", "", "", "")[:5]
        state.objects[identity] = sha256
        count, _, required = counts.partition("/")
        if identity.startswith(WORKLOADS) and (count or "0") != (required or "0"):
            state.not_ready.add(identity)
        if identity.startswith("DaemonSet/") and network:
            state.networks.add(network)
        if identity == f"Namespace//{versions.SYSTEM_NAMESPACE}":
            state.proven = proof
    return state
