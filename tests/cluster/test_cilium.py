"""Run the real agent of Cilium, built from its Go module, on a real cluster, and compare the nodes before and after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
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
from tests.clusters import Deployed
from tests.measuring import measured

pytestmark = pytest.mark.long
MODES = ("cilium-vxlan", "cilium-native")
OBJECTS = "cat /sys/fs/bpf/progs.debug /sys/fs/bpf/maps.debug; find /sys/fs/bpf | sed 's,.*/,,'"
"""Prints the names of all BPF programs and maps of the kernel, and of those that the node has pinned."""


@pytest.fixture(scope="module")
def profile(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the cluster with a bundle that contains Cilium's image."""
    folder = tmp_path_factory.mktemp("cilium")
    return profile_with_bundle(
        one_machine, folder, [f"--image={MODES[0]}={cilium_image.archive(folder / 'image')}"]
    )


@pytest.fixture(scope="module", params=MODES)
def switched(
    request: pytest.FixtureRequest, one_machine: Deployed, profile: Path
) -> Iterator[tuple[str, Switched]]:
    """Switch the cluster from flannel-vxlan to Cilium, and at the end back. Nothing on a node may have changed."""
    with switched_to(
        one_machine, profile, lambda: switch_by_command(one_machine, profile, request.param)
    ) as cluster:
        yield request.param, cluster
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


def test_programs_of_the_agent_carry_the_packets(switched: tuple[str, Switched]) -> None:
    network, cluster = switched
    for node in cluster.cluster.nodes:
        own = own_objects(cluster.inside(node, "sh", "-c", OBJECTS))
        assert {"cil_from_container", "cil_from_netdev", "cil_sock4_connect", "cilium_ct4_global"} <= set(own)
        assert ("cil_from_overlay" in own) == (network == "cilium-vxlan")
        # The agent has not changed what applies to the whole kernel, which the local nodes share with this machine.
        assert cluster.inside(node, "cat", "/proc/sys/net/ipv4/fib_multipath_use_neigh").strip() == "0"
    route = cluster.exec("on-worker1", "ip", "route", "show", "default")
    assert ("mtu 1450" in route) == (network == "cilium-vxlan")


def test_network_policies_are_enforced(switched: tuple[str, Switched]) -> None:
    check_network_policies(switched[1])


def test_a_campaign_measures_it(switched: tuple[str, Switched], tmp_path: Path) -> None:
    network, cluster = switched
    mtu = 1450 if network == "cilium-vxlan" else 1500
    settings = {"baseline": network, "repetitions": 1, "duration_s": 1, "warmup_s": 0.2}
    sweep = {"networks": [network], "test": ["throughput", "latency"], "payload_bytes": [64, 8192]}
    text = json.dumps({"name": "c", **settings, "sweeps": [sweep]})
    for record in measured(cluster.cluster.k8sdds, tmp_path, text, "--testbed", cluster.cluster.name):
        assert (record["fidelity"], record["mtu_bytes"]) == ("real", mtu)
        assert not any(warning.startswith("unproven") for warning in record["warnings"])
        check_fingerprint(record["fingerprint"], network)


def check_fingerprint(found: dict[str, Any], network: str) -> None:
    """Check what was observed: BPF host routing bypasses connection tracking of the nodes, except for the tunnel's packets."""
    tunnel = ("VXLAN", 50, 1450) if network == "cilium-vxlan" else ("none", 0, 1500)
    assert (found["outer_protocol"], found["added_bytes"], found["path_mtu_bytes"]) == tunnel
    assert (found["masqueraded"], found["conntrack"]) == (False, network == "cilium-vxlan")
    assert found["multicast"] is False


def test_packets_pass_while_an_agent_restarts(switched: tuple[str, Switched]) -> None:
    _, cluster = switched
    target, space = cluster.addresses()["on-worker1"], ("-n", versions.NETWORK_NAMESPACE)
    selector = ("--field-selector", "spec.nodeName=worker1", "-l", "app.kubernetes.io/name=cilium")
    (agent,) = json.loads(cluster.cluster.kubectl("get", "pods", *space, *selector, "-o", "json"))["items"]
    cluster.cluster.kubectl("delete", "pod", *space, agent["metadata"]["name"], "--wait=false")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert cluster.answers("on-worker2", target)
        time.sleep(0.2)
    cluster.cluster.kubectl("rollout", "status", "daemonset/cilium", *space, "--timeout=180s", timeout_s=200)
    cluster.await_answers("on-worker2", target, True)
