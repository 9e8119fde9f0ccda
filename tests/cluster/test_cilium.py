"""Run the real agent of Cilium, built from its Go module, on a real cluster, and compare the nodes before and after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from tests.cluster import cilium_image
from tests.cluster.switched import (
    Switched,
    check_network_policies,
    inside_of,
    profile_with_bundle,
    switch_by_command,
    switched_to,
)
from tests.cluster.test_killed_parts import survives
from tests.clusters import Deployed
from tests.measuring import experiment, measured

pytestmark = pytest.mark.long
NETWORKS, ENGINES = ("cilium-vxlan", "cilium-native"), ("kube-proxy-replacement", "kube-proxy")
OBJECTS = "cat /sys/fs/bpf/progs.debug /sys/fs/bpf/maps.debug; find /sys/fs/bpf | sed 's,.*/,,'"
"""Prints the names of all BPF programs and maps of the kernel, and of those that the node has pinned."""


@pytest.fixture(scope="module")
def profile(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the cluster with a bundle that contains Cilium's image."""
    folder = tmp_path_factory.mktemp("cilium")
    return profile_with_bundle(
        one_machine, folder, [f"--image={NETWORKS[0]}={cilium_image.archive(folder / 'image')}"]
    )


@dataclass(frozen=True)
class Installed:
    """Cilium on the cluster."""

    network: str
    engine: str
    """What handles the Services."""
    cluster: Switched

    @property
    def replaces_kube_proxy(self) -> bool:
        return self.engine == ENGINES[0]

    @property
    def has_tunnel(self) -> bool:
        return self.network == "cilium-vxlan"

    @property
    def choice(self) -> dict[str, str]:
        """The network in an experiment."""
        return {"name": self.network} | ({} if self.replaces_kube_proxy else {"engine": self.engine})

    def campaign(self, folder: Path, **sweep: Any) -> list[dict[str, Any]]:
        """Measure one sweep on the network, and return the last attempts, which must all be valid."""
        sweeps = f"  - {json.dumps({'networks': [self.choice], **sweep})}\n"
        text = experiment(sweeps, baseline=self.network)
        return measured(self.cluster.cluster.k8sdds, folder, text, "--testbed", self.cluster.cluster.name)


@pytest.fixture(scope="module", params=product(NETWORKS, ENGINES), ids="-".join)
def switched(request: pytest.FixtureRequest, one_machine: Deployed, profile: Path) -> Iterator[Installed]:
    """Switch the cluster from flannel-vxlan to Cilium, and at the end back. Nothing on a node may have changed."""
    network, engine = request.param
    switch = partial(switch_by_command, one_machine, profile, network, "--engine", engine)
    with switched_to(one_machine, profile, switch) as cluster:
        yield Installed(network, engine, cluster)
    inside = inside_of(one_machine)
    for node in one_machine.nodes:
        deadline = time.monotonic() + 60
        while own := own_objects(
            inside(node, "sh", "-c", OBJECTS)
        ):  # The kernel frees them after a grace period.
            assert time.monotonic() < deadline, (node, own)
            time.sleep(0.5)


def own_objects(text: str) -> list[str]:
    """Return the BPF objects with names of Cilium."""
    return [word for word in text.split() if word.startswith(("cil_", "cilium_")) or word == "cilium"]


def test_programs_of_the_agent_carry_the_packets(switched: Installed) -> None:
    cluster = switched.cluster
    for node in cluster.cluster.nodes:
        own = own_objects(cluster.inside(node, "sh", "-c", OBJECTS))
        assert {"cil_from_container", "cil_from_netdev", "cilium_ct4_global"} <= set(own)
        assert ("cil_from_overlay" in own) == switched.has_tunnel
        # It translates the addresses of Services when a program connects.
        assert ("cil_sock4_connect" in own) == switched.replaces_kube_proxy
        # The agent has not changed what applies to the whole kernel, which the local nodes share with this machine.
        assert cluster.inside(node, "cat", "/proc/sys/net/ipv4/fib_multipath_use_neigh").strip() == "0"
    route = cluster.exec("on-worker1", "ip", "route", "show", "default")
    assert ("mtu 1450" in route) == switched.has_tunnel


def test_network_policies_are_enforced(switched: Installed) -> None:
    check_network_policies(switched.cluster)


def test_a_campaign_measures_it(switched: Installed, tmp_path: Path) -> None:
    mtu = 1450 if switched.has_tunnel else 1500
    for record in switched.campaign(tmp_path, test=["throughput", "latency"], payload_bytes=[64, 8192]):
        assert (record["fidelity"], record["mtu_bytes"]) == ("real", mtu)
        assert record["engine"] == switched.engine.replace("proxy-", "proxy ")
        assert not any(warning.startswith("unproven") for warning in record["warnings"])
        check_fingerprint(record["fingerprint"], switched)


def check_fingerprint(found: dict[str, Any], switched: Installed) -> None:
    """Check what was observed: BPF host routing bypasses connection tracking of the nodes, except for the tunnel's packets."""
    tunnel = ("VXLAN", 50, 1450) if switched.has_tunnel else ("none", 0, 1500)
    assert (found["outer_protocol"], found["added_bytes"], found["path_mtu_bytes"]) == tunnel
    conntrack = switched.has_tunnel or not switched.replaces_kube_proxy
    assert (found["masqueraded"], found["conntrack"]) == (False, conntrack)
    assert found["multicast"] is False
    # With legacy host routing, packets pass the rules of the nodes.
    assert switched.replaces_kube_proxy or found["rules_matched"] > 0


def test_kube_proxy_translates_connections_if_it_is_kept(switched: Installed, tmp_path: Path) -> None:
    ways = [{"name": "service", "via": via} for via in ("cluster-ip", "node-port")]
    for record in switched.campaign(tmp_path, test=ways, payload_bytes=1):
        opened = record["connections_per_s"] * record["measured_s"]
        unobserved = any("translation not observed" in warning for warning in record["warnings"])
        assert opened > 0 and unobserved == switched.replaces_kube_proxy
        if switched.replaces_kube_proxy:
            assert record["proxy"] is None
        else:
            assert record["proxy"] == "iptables" and record["service_connections"] >= opened


def test_packets_pass_while_an_agent_restarts(switched: Installed) -> None:
    cluster = switched.cluster
    target, space = cluster.addresses()["on-worker1"], ("-n", versions.NETWORK_NAMESPACE)
    selector = ("--field-selector", "spec.nodeName=worker1", "-l", "app.kubernetes.io/name=cilium")
    (agent,) = json.loads(cluster.cluster.kubectl("get", "pods", *space, *selector, "-o", "json"))["items"]
    cluster.cluster.kubectl("delete", "pod", *space, agent["metadata"]["name"], "--wait=false")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert cluster.answers("on-worker2", target)
        time.sleep(0.2)
    cluster.cluster.kubectl("rollout", "status", "daemonset/cilium", *space, "--timeout=180s")
    cluster.await_answers("on-worker2", target, True)


def test_killed_agents_cost_no_attempt(switched: Installed, tmp_path: Path) -> None:
    campaign = survives(switched.cluster.cluster, tmp_path, json.dumps(switched.choice), seed=0)
    assert campaign.killed["cilium-agent"]
