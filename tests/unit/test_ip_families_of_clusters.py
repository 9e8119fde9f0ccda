"""Clusters with IPv6 and with both IP families: what a profile says, and what is rendered from it."""

from __future__ import annotations

import base64
import json

import pytest

from k8sdds.bundle import Bundle
from k8sdds.deploy import facts, preflight, smoke_test
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.network_switch import footprint, node_state, readiness
from k8sdds.deploy.network_switch.cluster_objects import ClusterNode, node_of
from k8sdds.deploy.phases import kubeadm, proxy
from k8sdds.deploy.phases.machine import runtime
from k8sdds.model.kubernetes import Kubernetes
from k8sdds.networks.cluster_install import PathEvidence, container, find
from k8sdds.system.errors import InputError
from k8sdds.testbeds.cluster import datapath, pods
from tests.unit.test_deploy_plan import bundle, desired
from tests.unit.test_network_manifests import installed, profile
from tests.unit.test_preflight import changed, parsed

__all__ = ["bundle"]

FAMILIES = {
    "ipv6": "kubernetes: {ip_families: [ipv6]}\n",
    "dual": "kubernetes: {ip_families: [ipv4, ipv6]}\n",
    "dual6": "kubernetes: {ip_families: [ipv6, ipv4]}\n",
}
TWO_NODES = (
    "name: mine\nnodes:\n  - {name: master, roles: [control-plane]}\n  - {name: pi1}\nsoftware: bundle\n"
)
ROUTE6 = "default via fd00::1 dev eth0 metric 1024 pref medium"


def machine(number: int, **values: str) -> Facts:
    """Return a machine with an address of each family."""
    text = changed(route="default via 10.0.0.1 dev eth0", route_ipv6=ROUTE6, **values)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("address\t"))
    return facts.parse(f"{text}\naddress\teth0 10.0.0.{number}/24\naddress\teth0 fd00::{number}/64\n")


@pytest.mark.parametrize(
    ("families", "addresses", "pods_", "services"),
    [
        ("ipv6", "fd00::{}", "fd00:10:244::/48", "fd00:10:96::/112"),
        ("dual", "10.0.0.{0},fd00::{0}", "10.244.0.0/16,fd00:10:244::/48", "10.96.0.0/12,fd00:10:96::/112"),
        ("dual6", "fd00::{0},10.0.0.{0}", "fd00:10:244::/48,10.244.0.0/16", "fd00:10:96::/112,10.96.0.0/12"),
    ],
)
def test_kubeadm_gets_ranges_and_addresses_of_all_families(
    bundle: Bundle, families: str, addresses: str, pods_: str, services: str
) -> None:
    machines = {"master": machine(1), "pi1": machine(2)}
    state = desired(bundle, TWO_NODES + FAMILIES[families], machines)
    init, cluster, *_ = map(json.loads, kubeadm.configuration(state).split("---\n"))
    own = addresses.format(1).split(",")
    assert cluster["networking"] == {"podSubnet": pods_, "serviceSubnet": services}
    assert cluster["apiServer"]["certSANs"] == ["127.0.0.1", "localhost", *own]
    assert init["localAPIEndpoint"]["advertiseAddress"] == own[0]
    arguments = kubeadm.node_registration(state, state.profile.node("pi1"))["kubeletExtraArgs"]
    assert arguments == [{"name": "node-ip", "value": addresses.format(2)}]
    assert state.api_server == (f"[{own[0]}]:6443" if ":" in own[0] else f"{own[0]}:6443")
    assert {*pods_.split(","), *services.split(","), *own} <= set(proxy.no_proxy(state))
    (kernel, *_) = runtime(state, state.profile.node("pi1"))
    assert "sysctl -qw net.ipv6.conf.all.forwarding=1\n" in kernel.script
    plain = desired(bundle, TWO_NODES, machines)
    assert "ipv6" not in runtime(plain, plain.profile.node("pi1"))[0].script


def test_preflight_needs_an_address_of_each_family() -> None:
    profiles = {name: parsed(TWO_NODES + text) for name, text in FAMILIES.items()}
    both, plain = machine(1), facts.parse(changed())
    for one in profiles.values():
        assert preflight.check(one, {"master": both}) == []
    (problem,) = preflight.check(profiles["dual"], {"pi1": plain})
    assert "does not have an IPv6 default route" in str(problem)
    without = facts.parse(changed(route_ipv6=ROUTE6))
    (problem,) = preflight.check(profiles["ipv6"], {"pi1": without})
    assert "the interface eth0 has no IPv6 address" in str(problem)


def test_a_route_that_forwarding_would_remove_is_refused() -> None:
    learned = "default via fe80::1 dev eth0 proto ra metric 1024 expires 1797sec pref medium"
    for accept_ra, count in (("1", 1), ("2", 0)):
        found = machine(1, accept_ra=accept_ra)
        found.values["route_ipv6"] = learned
        problems = preflight.check(parsed(TWO_NODES + FAMILIES["ipv6"]), {"pi1": found})
        assert len(problems) == count and preflight.check(parsed(TWO_NODES), {"pi1": found}) == []
        assert all("net.ipv6.conf.eth0.accept_ra=2" in str(problem) for problem in problems)


def test_the_families_of_an_existing_cluster_cannot_be_changed() -> None:
    existing = {"marker": "mine", "flag": "initialised", "pod_subnets": "10.244.0.0/16"}
    found = facts.parse(changed(**existing) + "resolves\tmaster\n")
    assert not [p for p in preflight.check(parsed(TWO_NODES), {"master": found}) if "pod addresses" in p.what]
    other = machine(1, **existing)
    (problem,) = preflight.check(parsed(TWO_NODES + FAMILIES["dual"]), {"master": other})
    assert "has the pod addresses 10.244.0.0/16, which cannot be changed" in problem.what and problem.input


@pytest.mark.parametrize(
    ("families", "ranges"),
    [
        ("ipv6", {"EnableIPv4": False, "EnableIPv6": True, "IPv6Network": "fd00:10:244::/48"}),
        ("dual", {"EnableIPv4": True, "EnableIPv6": True, "Network": "10.244.0.0/16", "IPv6Network": "fd00:10:244::/48"}),
    ],
)  # fmt: skip
def test_flannel_gets_the_families(families: str, ranges: dict[str, object]) -> None:
    for name, mtu in (("flannel-vxlan", 1430), ("flannel-hostgw", None)):
        network = installed(name, more=FAMILIES[families])
        secret = find(list(network.manifests), "Secret", "flannel-net")["data"]["net-conf.json"]
        net = json.loads(base64.b64decode(secret))
        assert {key: net[key] for key in net if key not in ("Backend", "EnableNFTables")} == ranges
        text = find(list(network.manifests), "ConfigMap", "flannel-cni")["data"]["10-flannel.conflist"]
        assert json.loads(text)["plugins"][0]["delegate"].get("mtu") == mtu
        assert network.mtu_bytes == (mtu or 1500)


def test_kube_router_and_host_get_the_families() -> None:
    arguments = {
        name: container(
            find(list(installed("kube-router", more=text).manifests), "DaemonSet", "kube-router"),
            "kube-router",
        )["args"]
        for name, text in FAMILIES.items()
    }
    assert {"--enable-ipv6=true", "--enable-ipv4=false", "--router-id=generate"} <= set(arguments["ipv6"])
    assert {"--enable-ipv6=true", "--enable-ipv4=true"} <= set(arguments["dual"])
    assert "--router-id=generate" not in arguments["dual"] and "--router-id=generate" in arguments["dual6"]
    assert "--service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112" in arguments["dual"]
    host = find(list(installed("host", more=FAMILIES["dual"]).manifests), "DaemonSet", "host")
    assert container(host, "routes")["args"] == ["--pods=10.244.0.0/16,fd00:10:244::/48"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("weavenet", "WeaveNet has no IPv6"),
        ("flannel-ipsec", "IPsec backend has no IPv6"),
        ("flannel-wireguard", "WireGuard backend"),
        ("macvlan", "second interfaces"),
        ("calico-vxlan", "IPv4 alone"),
        ("cilium-native", "IPv4 alone"),
    ],
)
def test_networks_that_cannot_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        installed(name, more=FAMILIES["dual"])
    assert f"{name} cannot be installed: mine has ip_families" in str(caught.value)
    assert reason in str(caught.value)
    # Preflight reports this once, and nothing else that the network needs.
    wanted = profile(name, more=FAMILIES["dual"])
    (problem,) = preflight.check(wanted, {"master": machine(1), "pi1": machine(2)})
    assert problem.what.startswith("master: ") and reason in problem.what and problem.input
    assert "flannel-hostgw" in caught.value.remedy and profile(name)


def node(name: str, number: int) -> dict[str, object]:
    addresses = [f"10.0.0.{number}", f"fd00::{number}"]
    return {
        "metadata": {"name": name},
        "spec": {"podCIDR": f"10.244.{number}.0/24", "podCIDRs": [f"10.244.{number}.0/24", f"fd00:10:244:{number}::/64"]},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }  # fmt: skip


def test_a_network_is_ready_when_it_routes_all_families() -> None:
    nodes: list[ClusterNode] = [node_of(node("one", 1)), node_of(node("two", 2))]
    assert nodes[1].addresses == ("10.0.0.2", "fd00::2")
    ready = readiness.ReadyCondition(links=("flannel*.1",), routes_to_peers=True, sessions_to_peers=179)
    text = 'links\t[{"ifname":"flannel-v6.1"}]\nsession\t[fd00::1]:4000 [fd00::2]:179\nroutes\t'
    four, six = '{"dst":"10.244.2.0/24"}', '{"dst":"fd00:10:244:2::/64"}'
    both = node_state.parse(f"{text}[{four},{six}]")
    assert readiness.missing(ready, nodes[0], both, nodes) == []
    one = node_state.parse(f"{text}[{four}]")
    (message,) = readiness.missing(ready, nodes[0], one, nodes)
    assert "route to the pods of two (10.244.2.0/24 and fd00:10:244:2::/64)" in message
    ranges = Kubernetes(ip_families=("ipv4", "ipv6")).pod_cidrs
    status = {"podIP": "10.244.1.5", "podIPs": [{"ip": "10.244.1.5"}, {"ip": "fd00:10:244:1::5"}]}
    pod = {"metadata": {"namespace": "a", "name": "b"}, "spec": {"nodeName": "one"}, "status": status}
    assert readiness.pods_without_address([pod], ranges) == []
    status["podIPs"] = [{"ip": "10.244.1.5"}]
    assert readiness.pods_without_address([pod], ranges) == ["a/b on one has 10.244.1.5"]
    assert pods.addresses(pod) == ["10.244.1.5"] and pods.node_addresses(pod) == []


def test_traces_in_ipv6_are_leftovers() -> None:
    state = node_state.parse(
        'policy_rules_ipv6\t[{"priority":32764,"src":"all","table":"77"}]\n'
        'routes\t[{"dst":"fd00:10:244:1::/64","gateway":"fd00::2","dev":"eth0","protocol":"17"},'
        '{"dst":"fe80::/64","dev":"eth0","protocol":"kernel"}]\n'
        "nft_table\tip6 k8sdds-host\n"
    )
    ranges = Kubernetes(ip_families=("ipv6",)).pod_cidrs
    found = footprint.leftovers(state, ["fd00::1", "fd00::2"], ranges)
    assert {leftover.kind for leftover in found} == {"IPv6 routing rule", "route", "nft table"}
    script = footprint.removal_script(found)
    assert "ip -6 rule delete priority 32764\n" in script
    assert "ip route delete fd00:10:244:1::/64 via fd00::2 dev eth0 proto 17\n" in script


def test_the_smoke_test_covers_each_family() -> None:
    script = smoke_test.script(["a", "b"], "macvlan", "x", ("ipv4",))
    assert "239.255.0.1:7000" in script and "podIPs" not in script
    script = smoke_test.script(["a", "b"], "flannel-vxlan", "x", ("ipv6", "ipv4"))
    assert script.index(".status.podIPs[1].ip") < script.index(".status.podIPs[0].ip")
    assert "ff05::7000" in script


def test_the_tunnel_of_the_family_carries_the_packets() -> None:
    links = {name: datapath.NodeLink("vxlan", "eth0", 0, 0) for name in ("flannel.1", "flannel-v6.1")}
    routes = {"fd00:10:244:1::5": "flannel-v6.1", "10.244.1.5": "flannel.1", "10.32.0.5": "weave"}
    counters = datapath.LinkCounters(links, routes)
    evidence = PathEvidence(tunnels=("flannel.*", "flannel-v6.*"))
    for address, expected in (("fd00:10:244:1::5", ("flannel-v6.1",)), ("10.244.1.5", ("flannel.1",))):
        assert datapath.path_links(evidence, counters, address) == expected
    # A route to a bridge does not show which tunnel is behind it.
    assert datapath.path_links(evidence, counters, "10.32.0.5") == ("flannel.1", "flannel-v6.1")
