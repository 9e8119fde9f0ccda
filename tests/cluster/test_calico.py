"""Run the real agent of Calico, from archives of its images, on a real cluster, and compare the nodes before and after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import image_archives
from tests.cluster.switched import (
    Switched,
    check_network_policies,
    profile_with_bundle,
    switch_by_command,
    switched_to,
)
from tests.clusters import Deployed
from tests.measuring import experiment, measured

pytestmark = pytest.mark.long
PLUGINS = "cd /opt/cni/bin && find . -type f ! -name 'calico*' -exec sha256sum {} + | sort"
"""Prints the plugins of a node that are not Calico's, with their checksums."""


@dataclass(frozen=True)
class Installed:
    """Calico on the cluster."""

    network: str
    cluster: Switched
    plugins_before: str
    """What `PLUGINS` printed on the first node before Calico was installed."""

    @property
    def has_tunnel(self) -> bool:
        return self.network == "calico-vxlan"

    @property
    def mtu_bytes(self) -> int:
        return 1450 if self.has_tunnel else 1500

    def routes(self, node: str) -> list[dict[str, Any]]:
        """Return the routes of a node to the blocks of addresses of the others."""
        found = json.loads(self.cluster.inside(node, "ip", "-j", "route"))
        return [route for route in found if "/26" in route["dst"] and "gateway" in route]


@pytest.fixture(scope="module")
def profile(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the cluster with a bundle that contains Calico's images."""
    archives = image_archives.options("calico-vxlan")
    return profile_with_bundle(one_machine, tmp_path_factory.mktemp("calico"), archives)


@pytest.fixture(scope="module", params=["calico-vxlan", "calico-bgp"])
def switched(request: pytest.FixtureRequest, one_machine: Deployed, profile: Path) -> Iterator[Installed]:
    """Switch the cluster from flannel-vxlan to Calico, and at the end back. Nothing on a node may have changed."""
    plugins = one_machine.k8sdds("nodes", "exec", f"{one_machine.name}/control", "--", "sh", "-c", PLUGINS)
    assert plugins.returncode == 0 and plugins.stdout, plugins.stderr
    with switched_to(
        one_machine, profile, lambda: switch_by_command(one_machine, profile, request.param)
    ) as cluster:
        yield Installed(request.param, cluster, plugins.stdout)


def test_the_agent_connects_all_nodes(switched: Installed) -> None:
    cluster = switched.cluster
    device, protocol = ("vxlan.calico", "boot") if switched.has_tunnel else ("eth0", "bird")
    for node in cluster.cluster.nodes:
        routes = switched.routes(node)
        assert {(route["dev"], route.get("protocol", "boot")) for route in routes} == {(device, protocol)}
        assert len({route["gateway"] for route in routes}) == len(cluster.cluster.nodes) - 1
    assert cluster.exec("on-worker1", "cat", "/sys/class/net/eth0/mtu").strip() == str(switched.mtu_bytes)
    # The plugins of the nodes were not replaced by those of the image.
    assert cluster.inside("control", "sh", "-c", PLUGINS) == switched.plugins_before


def test_network_policies_are_enforced(switched: Installed) -> None:
    check_network_policies(switched.cluster)


def test_a_campaign_measures_it(switched: Installed, tmp_path: Path) -> None:
    sweep = f"{{networks: {switched.network}, test: [throughput, latency], payload_bytes: [64, 8192]}}"
    text = experiment(f"  - {sweep}\n", baseline=switched.network)
    cluster = switched.cluster.cluster
    tunnel = ("VXLAN", 50, 1450) if switched.has_tunnel else ("none", 0, 1500)
    for record in measured(cluster.k8sdds, tmp_path, text, "--testbed", cluster.name):
        assert (record["fidelity"], record["mtu_bytes"]) == ("real", switched.mtu_bytes)
        assert not any(warning.startswith("unproven") for warning in record["warnings"])
        found = record["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["path_mtu_bytes"]) == tunnel
        assert (found["masqueraded"], found["conntrack"], found["multicast"]) == (False, True, False)
        assert found["rules_matched"] > 0
