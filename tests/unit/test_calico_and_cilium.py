"""Calico and Cilium as k8sdds installs them on clusters, without a cluster."""

import json
from ipaddress import IPv4Network
from typing import Any

import pytest

from k8sdds import networks, versions
from k8sdds.deploy.network_install import choose_network, read_manifests
from k8sdds.deploy.network_switch import footprint
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS
from k8sdds.networks.cluster_install import InstallOptions, Manifest, container, find
from k8sdds.system.kernel_features import NOTRACK
from k8sdds.testbeds.cluster.verify import _path_evidence
from k8sdds.testbeds.lab.plan import make_plan
from tests.unit.test_network_manifests import profile
from tests.unit.test_second_interface import cell

PODS, SERVICES = IPv4Network("10.244.0.0/16"), IPv4Network("10.96.0.0/12")
NODES = ["10.88.0.11", "10.88.0.12"]


def rendered(name: str, engine: str | None = None, **options: Any) -> list[Manifest]:
    install = networks.find(name).install_for(engine)
    assert install is not None
    return install.render(
        InstallOptions((PODS,), (SERVICES,), **options), read_manifests(install.manifest_folder)
    )


@pytest.mark.parametrize(
    ("name", "backend", "vxlan", "ipip"),
    [
        ("calico-bgp", "bird", "Never", "Never"),
        ("calico-vxlan", "vxlan", "Always", "Never"),
        ("calico-ipip", "bird", "Never", "Always"),
    ],
)
def test_the_agent_of_calico_gets_the_mode_and_the_options(
    name: str, backend: str, vxlan: str, ipip: str
) -> None:
    manifests = rendered(name, mtu_bytes=1400, interface="eth1")
    agent = container(find(manifests, "DaemonSet", "calico"), "calico-node")
    values = {variable["name"]: variable.get("value") for variable in agent["env"]}
    assert values["CALICO_NETWORKING_BACKEND"] == backend
    assert (values["CALICO_IPV4POOL_VXLAN"], values["CALICO_IPV4POOL_IPIP"]) == (vxlan, ipip)
    assert values["CALICO_IPV4POOL_CIDR"] == str(PODS)
    assert values["IP_AUTODETECTION_METHOD"] == "interface=^eth1$"
    assert values["FELIX_VXLANMTU"] == values["FELIX_IPINIPMTU"] == "1400"
    cni = json.loads(find(manifests, "ConfigMap", "calico-cni")["data"]["cni.json"])
    assert cni["plugins"][0]["mtu"] == 1400


def test_the_agent_of_cilium_gets_the_mode_and_the_options() -> None:
    def config(name: str, **options: Any) -> dict[str, str]:
        data: dict[str, str] = find(rendered(name, **options), "ConfigMap", "cilium-config")["data"]
        assert all(isinstance(value, str) for value in data.values())
        return data

    native = config("cilium-native")
    assert (native["routing-mode"], native["ipv4-native-routing-cidr"]) == ("native", str(PODS))
    assert "mtu" not in native and "devices" not in native
    # The agent subtracts the headers of the tunnel from its option to get the MTU of the pods' routes.
    assert config("cilium-native", mtu_bytes=1400)["mtu"] == "1400"
    vxlan = config("cilium-vxlan", mtu_bytes=1400, interface="eth1")
    assert (vxlan["routing-mode"], vxlan["tunnel-protocol"], vxlan["mtu"]) == ("tunnel", "vxlan", "1450")
    assert vxlan["devices"] == vxlan["direct-routing-device"] == "eth1"


@pytest.mark.parametrize("name", ["cilium-native", "cilium-vxlan"])
def test_cilium_leaves_the_services_to_kube_proxy_on_request(name: str) -> None:
    options = ("kube-proxy-replacement", "enable-bpf-masquerade", "k8s-service-proxy-name")
    for engine, expected in ((None, ("true", "true", None)), ("kube-proxy", ("false", "false", "cilium"))):
        manifests = rendered(name, engine)
        config = find(manifests, "ConfigMap", "cilium-config")["data"]
        assert tuple(map(config.get, options)) == expected
        annotations = find(manifests, "DaemonSet", "cilium")["metadata"].get("annotations", {})
        assert annotations.get(versions.ENGINE_ANNOTATION) == engine
    network = networks.find(name)
    titles = [
        network.engine_title({"engine": engine}, True, by_others)
        for engine in (None, "kube-proxy")
        for by_others in (False, True)
    ]
    # Others may have configured Cilium in either way.
    assert titles == ["kube-proxy replacement", None, "kube-proxy", "kube-proxy"]
    # WeaveNet's devices show its engine, whoever installed it.
    assert networks.find("weavenet").engine_title({}, True, by_others=True) == "Open vSwitch"
    of_kube_proxy = profile(name, ", engine: kube-proxy")
    assert choose_network(of_kube_proxy, name).engine == "kube-proxy"
    assert choose_network(of_kube_proxy, name, engine="kube-proxy-replacement").engine is None


@pytest.mark.parametrize("name", NETWORKS)
def test_rules_that_exempt_packets_from_connection_tracking_are_required(name: str) -> None:
    datapath = make_plan(Cell(network=name, test="latency", payload_bytes=64, nodes=2)).datapath
    requirements = networks.find(name).requirements({})
    assert ("-j CT --notrack" in str(datapath)) == (NOTRACK in requirements)


@pytest.mark.parametrize("name", ["calico-bgp", "cilium-native"])
def test_the_agent_may_use_only_resources_whose_definitions_exist(name: str) -> None:
    manifests = rendered(name)
    defined = {
        manifest["spec"]["names"]["plural"]
        for manifest in manifests
        if manifest["kind"] == "CustomResourceDefinition"
    }
    rules = [rule for manifest in manifests for rule in manifest.get("rules", ())]
    groups = ("crd.projectcalico.org", "policy.networking.k8s.io", "cilium.io")
    own = [rule for rule in rules if rule["apiGroups"][0] in groups]
    used = {resource.partition("/")[0] for rule in own for resource in rule["resources"]}
    # Calico looks for the data of an old version in a kind that new clusters do not have.
    assert used and used - {"globalfelixconfigs"} <= defined


def test_felix_may_list_all_policies_that_it_waits_for() -> None:
    manifests = rendered("calico-bgp")
    rules = [rule for manifest in manifests for rule in manifest.get("rules", ())]
    for kind in ("adminnetworkpolicies", "baselineadminnetworkpolicies"):
        definition = find(manifests, "CustomResourceDefinition", f"{kind}.policy.networking.k8s.io")
        assert definition["metadata"]["annotations"]["api-approved.kubernetes.io"].startswith("unapproved")
        assert any(kind in rule["resources"] and rule["verbs"] == ["list", "watch"] for rule in rules)


def test_only_addresses_of_pods_are_removed_from_the_kernels_tunnel() -> None:
    def local(address: str) -> dict[str, str]:
        return {"type": "local", "dst": address, "dev": "tunl0", "table": "local", "protocol": "kernel"}

    state = NodeState(links=({"ifname": "tunl0"},), routes=(local("10.244.0.64"), local("192.168.7.1")))
    (found,) = footprint.leftovers(state, NODES, [PODS])
    assert str(found) == "tunnel address 10.244.0.64 on tunl0"
    script = footprint.removal_script([found])
    assert "ip address delete 10.244.0.64/32 dev tunl0\n" in script and "ip link set tunl0 down" in script


def test_the_rule_of_local_addresses_returns_before_its_copy_is_deleted() -> None:
    rule = {"priority": 100, "src": "all", "table": "local"}
    (found,) = footprint.leftovers(NodeState(policy_rules=(rule,)), NODES, [PODS])
    lines = footprint.removal_script([found]).splitlines()
    added = next(index for index, line in enumerate(lines) if "ip rule add priority 0 lookup local" in line)
    assert lines.index("ip rule delete priority 100") > added
    own = {"priority": 100, "src": "10.0.0.0", "table": "local"}
    assert not footprint.leftovers(NodeState(policy_rules=(own,)), NODES, [PODS])


def test_the_path_of_an_installation_by_others_is_not_known_in_advance() -> None:
    """Tunnels may lead to other subnets only, as the operator of Calico configures by default."""
    one = cell().model_copy(update={"network": "calico-vxlan", "network_options": {}})
    assert _path_evidence(one, deployed=True) is not None and _path_evidence(one, deployed=False) is None
    flannel = one.model_copy(update={"network": "flannel-vxlan"})
    assert _path_evidence(flannel, deployed=False) is not None
