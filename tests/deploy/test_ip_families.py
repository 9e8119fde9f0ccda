"""Real clusters with IPv6 alone and with both IP families: deploy, measure on several networks, destroy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from k8sdds.model.ip_families import IpFamily
from tests import image_archives
from tests.deploy.test_ordinary_machines import NAME, assert_same, machines
from tests.measuring import experiment, valid_attempts

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"), pytest.mark.long]

NETWORKS = {"host": 1500, "flannel-vxlan": 1430, "flannel-hostgw": 1500, "kube-router": 1500}
"""MTU of pods by network."""
SWEEPS = """\
  - networks: [{networks}]
    test: latency
    payload_bytes: 8192
    middleware: [cyclonedds, fastdds]
    ip_families: [ipv6]
  - networks: host
    test: latency
    payload_bytes: 1024
    transport: multicast
    ip_families: [ipv6]
"""
BY_IPV4 = """\
  - networks: [{networks}]
    test: latency
    payload_bytes: 8192
    ip_families: [ipv4, ipv6]
"""


@pytest.mark.parametrize("families", [("ipv6",), ("ipv4", "ipv6")], ids=["ipv6", "dual-stack"])
def test_a_cluster_with_ipv6_measures_and_leaves_nothing(
    tmp_path: Path, state: Path, families: tuple[IpFamily, ...]
) -> None:
    dual = len(families) > 1
    with machines(state, families) as site:
        bundle, profile = tmp_path / "bundle", str(site.profile)
        site.k8sdds(
            "bundle", "create", str(bundle), "--suite", "none", *image_archives.options("kube-router")
        )
        with site.profile.open("a") as file:
            file.write(f"kubernetes: {{ip_families: [{', '.join(families)}]}}\n")
            file.write(f"software: {{source: bundle, bundle: {bundle}}}\n")
        before = site.machine_states()
        site.deploy()
        assert site.deploy() == "no changes\n"
        assert json.loads(site.k8sdds("status", profile, "--json").stdout)["problems"] == []
        # A network that cannot is refused, and so are other families, before anything changes.
        refused = site.run("network", "switch", profile, "weavenet", "--yes")
        assert refused.returncode == 2 and "WeaveNet has no IPv6" in refused.stderr, refused.stderr
        other = site.profile.with_name("other.yaml")
        listed = f"ip_families: [{', '.join(families)}]"
        other.write_text(site.profile.read_text().replace(listed, "ip_families: [ipv4]"))
        refused = site.run("deploy", str(other), "--yes")
        # With IPv6 alone, the machines have no IPv4 addresses either, which is not a mistake in the profile.
        assert refused.returncode == (2 if dual else 3), refused.stderr
        assert "cannot be changed" in refused.stderr
        path = tmp_path / "families.yaml"
        sweeps = SWEEPS + (BY_IPV4 if dual else "")
        path.write_text(experiment_on(sweeps, NETWORKS))
        if not dual:
            wrong = site.run("run", str(path), "--testbed", NAME, "--set", "ip_families=ipv4")
            assert wrong.returncode == 2 and "no IPv4 address" in wrong.stderr, wrong.stderr
        done = site.run("run", str(path), "--testbed", NAME, "-o", str(tmp_path / "run"))
        assert done.returncode in (0, 4), done.stdout + done.stderr
        check(tmp_path / "run", NETWORKS, dual)
        # The same by a kubeconfig, as on a cluster that others deployed.
        networks = ("host", "flannel-vxlan")
        path.write_text(experiment_on(sweeps, networks))
        user = site.user(NAME, "head")
        done = site.run("run", str(path), *user.options, "-o", str(tmp_path / "other"))
        assert done.returncode in (0, 4), done.stdout + done.stderr
        check(tmp_path / "other", networks, dual)
        site.k8sdds("destroy", profile, "--yes")
        assert_same(site.machine_states(), before)


def experiment_on(sweeps: str, networks: Iterable[str]) -> str:
    return experiment(sweeps.format(networks=", ".join(networks)), baseline="host", duration_s=0.5)


def check(folder: Path, networks: Iterable[str], dual: bool) -> None:
    """Check that each network carried valid trials of each family, on the path of that family."""
    valid = valid_attempts(folder)
    expected = {(name, family) for name in networks for family in ("ipv6", *(["ipv4+ipv6"] if dual else []))}
    assert {(record["network"], record["ip_families"]) for record in valid} == expected
    assert "multicast" in {record["transport"] for record in valid}
    for record in valid:
        network, ipv6, found = record["network"], record["ip_families"] == "ipv6", record["fingerprint"]
        device = "flannel-v6.1" if ipv6 else "flannel.1"
        path = (
            f"carried by {device} (vxlan) over eth0"
            if network == "flannel-vxlan"
            else "routed by eth0, no tunnel"
        )
        assert record["network_proof"] == f"{path}; whole packets of {NETWORKS[network]} bytes pass"
        assert record["mtu_bytes"] == found["path_mtu_bytes"] == NETWORKS[network]
        outer = ("VXLAN", 70 if ipv6 else 50) if network == "flannel-vxlan" else ("none", 0)
        assert (found["outer_protocol"], found["added_bytes"]) == outer
        assert found["not_observed"] == {} and found["multicast"] == (network == "host")
