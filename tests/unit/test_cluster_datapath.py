"""Test the path evidence of networks with recorded output of `ip` on real nodes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS
from k8sdds.networks.cluster_install import PathEvidence
from k8sdds.networks.common import strongswan
from k8sdds.results.fingerprint import Fingerprint
from k8sdds.testbeds.cluster import datapath
from k8sdds.testbeds.cluster.datapath import LinkCounters, NodeLink, PathEnd
from k8sdds.testbeds.cluster.fingerprints import Fingerprints, _key
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.verify import ENCRYPTED, PathProof, PathVerifier

RECORDED = Path(__file__).parent / "recorded" / "cluster"
SENT = 40 * 1422


def ends(name: str) -> tuple[PathEnd, PathEnd]:
    """Return two nodes before and after their pods exchanged packets."""
    data: dict[str, dict[str, Any]] = json.loads((RECORDED / f"carried-{name}.json").read_text())
    one, other = (
        PathEnd(
            node,
            recorded["address"],
            datapath.parse_counters(recorded["before"]),
            datapath.parse_counters(recorded["after"]),
        )
        for node, recorded in data.items()
    )
    return one, other


def carrier(network: str) -> PathEvidence:
    install = NETWORKS[network].cluster
    assert install is not None
    return install.path


@pytest.mark.parametrize(
    ("network", "description"),
    [
        ("flannel-vxlan", "carried by flannel.1 (vxlan) over eth0"),
        ("flannel-hostgw", "routed by eth0, no tunnel"),
    ],
)
def test_a_network_shows_its_path(network: str, description: str) -> None:
    one, other = ends(network)
    for interface in ("", "eth0"):
        assert datapath.deviation(carrier(network), one, other, SENT, interface=interface) == ""
    assert datapath.describe(carrier(network), one, other) == description


@pytest.mark.parametrize(
    ("network", "claimed", "interface", "message"),
    [
        ("flannel-vxlan", "flannel-hostgw", "", "by flannel.1, a tunnel (vxlan)"),
        ("flannel-hostgw", "flannel-vxlan", "", "has no flannel.*"),
        ("flannel-vxlan", "flannel-wireguard", "", "has no flannel-wg*"),
        ("flannel-vxlan", "kube-router", "", "are on cni0, not on kube-bridge"),
        ("flannel-hostgw", "weavenet", "", "are on cni0, not on weave"),
        ("flannel-vxlan", "flannel-vxlan", "wlan0", "by eth0, not by wlan0"),
        ("flannel-hostgw", "flannel-hostgw", "wlan0", "by eth0, not by wlan0"),
    ],
)
def test_another_network_or_interface_is_detected(
    network: str, claimed: str, interface: str, message: str
) -> None:
    assert message in datapath.deviation(carrier(claimed), *ends(network), SENT, interface=interface)


def test_a_tunnel_that_carries_nothing_is_a_fallback() -> None:
    """This happens if Weave falls back to userspace, or Flannel uses direct routes."""
    one, other = ends("flannel-vxlan")
    more = 10 * SENT
    output = datapath.deviation(carrier("flannel-vxlan"), one, other, more)
    assert output.startswith(f"flannel.1 of {one.node} has sent") and f"at least {more}" in output
    idle = PathEnd(other.node, other.address, other.after, other.after)
    assert f"flannel.1 of {other.node} has" in datapath.deviation(carrier("flannel-vxlan"), one, idle, SENT)


def test_every_cluster_network_defines_its_path_evidence() -> None:
    for network in NETWORKS.values():
        if network.cluster and network.name != "host":
            one = network.cluster.path
            assert bool(one.bridge) != one.on_node_link, network.name
            overlay = network.encapsulation in ("VXLAN", "WireGuard", "VXLAN in ESP", "IP in IP")
            assert bool(one.tunnels) == overlay, network.name
            # A pod without rights cannot observe ESP.
            assert bool(one.unverified) == ("ESP" in network.encapsulation), network.name


@pytest.mark.parametrize("output", ["", "{", '[{"ifname": "eth0"}]', "[1]", '[] [{"dst": 1}]'])
def test_invalid_output_is_rejected(output: str) -> None:
    with pytest.raises(ValueError):
        datapath.parse_counters(output)


@pytest.mark.parametrize(
    ("cleartext", "unproven"),
    [(False, ""), (None, strongswan.UNVERIFIED), (True, strongswan.UNVERIFIED)],
)
def test_the_fingerprint_proves_the_encryption_that_links_do_not_show(
    cleartext: bool | None, unproven: str
) -> None:
    fingerprints = Fingerprints(None, None)  # type: ignore[arg-type]
    encrypted = Cell(network="flannel-ipsec", test="latency", payload_bytes=1)
    verifier = PathVerifier(None, None, is_encrypted=fingerprints.is_encrypted)  # type: ignore[arg-type]
    key = ((), (), False)
    verifier._key = lambda cell, slots: key  # type: ignore[method-assign]
    verifier._proofs = {key: PathProof("routed by eth0", strongswan.UNVERIFIED)}
    before = verifier.proof(encrypted, {})
    assert before is not None and "not proven: encryption" in before.describe()
    fingerprints._taken[_key(encrypted)] = Fingerprint(cleartext=cleartext)
    after = verifier.proof(encrypted, {})
    assert after is not None and after.unproven == unproven
    assert ("not proven" in after.describe()) == bool(unproven)
    assert (ENCRYPTED in after.describe()) == (not unproven)
    # Another reason stays.
    verifier._proofs = {key: PathProof("whole packets pass", "which links carry it")}
    other = verifier.proof(encrypted, {})
    assert other is not None and other.unproven == "which links carry it"


def test_a_switch_of_the_network_costs_no_evidence_of_trials_on_the_nodes_own_network() -> None:
    readings = iter(range(0, 1000, 100))

    def read_counters(nodes: list[str], addresses: object = ()) -> dict[str, LinkCounters]:
        count = next(readings)
        return {node: LinkCounters({"eth0": NodeLink("", "", count, count)}, {}) for node in nodes}

    probes = SimpleNamespace(read_counters=read_counters, unavailable="")
    pods = SimpleNamespace(pod=lambda slot: SimpleNamespace(node="n1"))
    verifier = PathVerifier(pods, probes)  # type: ignore[arg-type]
    cell = Cell(network="host", test="latency", payload_bytes=1024, placement="same-node")
    slots = {name: Slot(name, "participant", "n1", True) for name in ("pub0", "sub0")}
    verifier._proofs[verifier._key(cell, slots)] = PathProof("not by eth0", links={"n1": ("eth0",)})
    for _ in range(2):
        verifier.verify(cell, slots)
        assert verifier.counters(cell, slots) == ({"uplink_bytes": 200}, "")
        verifier.forget_pod_networks()


@pytest.mark.parametrize(
    ("host", "policies", "named", "admitted"),
    [
        (False, ["deny-all"], True, False),
        (False, ["deny-all", "k8sdds"], True, True),
        (False, ["k8sdds"], False, True),
        (False, [], False, False),
        (True, ["deny-all"], False, False),
    ],
)
def test_policies_can_be_why_a_pod_does_not_answer(
    host: bool, policies: list[str], named: bool, admitted: bool
) -> None:
    pods = SimpleNamespace(policies_of_others=lambda: policies)
    verifier = PathVerifier(pods, None)  # type: ignore[arg-type]
    remedy = verifier._remedy(Slot("sub0", "sub", "n1", host))
    assert ("one of these NetworkPolicies may refuse it: deny-all" in remedy) == named
    assert ("k8sdds init rights --like network-policy" in remedy) == (named and not admitted)
    assert "check that the network's agent is ready" in remedy
