"""Test that the network of a cluster is detected by the signs that its plugin leaves there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from k8sdds import networks, versions
from k8sdds.networks import NETWORKS, PLUGINS, UNKNOWN, detection
from k8sdds.networks.plugin import Signs


def agent(image: str, ready: int = 3, **env: str) -> dict[str, Any]:
    """Return a DaemonSet whose pods run an image."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    template = {"spec": {"containers": [{"image": image, "env": variables}]}}
    return {"spec": {"template": template}, "status": {"numberReady": ready}}


def running(*names: str) -> dict[str, dict[str, Any]]:
    """Return DaemonSets with these names, whose pods are ready."""
    return {name: agent("registry.test/agent") for name in names}


CILIUM = "quay.io/cilium/cilium:v1.16.5@sha256:0123"
BACKEND = "flannel.alpha.coreos.com/backend-type"


def calico(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"projectcalico.org/{name}": address for name, address in annotations.items()}}


def config(name: str, **data: str) -> dict[str, Any]:
    return {
        "config_maps": {f"kube-system/{name}": {key.replace("_", "-"): value for key, value in data.items()}}
    }


CANAL = {BACKEND: "vxlan", "projectcalico.org/IPv4Address": "192.0.2.1/24"}
OLD_FLANNEL = {"annotations": {BACKEND: "vxlan"}}
"""The annotation remains after a change of the network."""


@pytest.mark.parametrize(
    ("daemonsets", "signs", "name", "version"),
    [
        ({"calico-node": ""}, calico(IPv4Address="192.0.2.1/24"), "calico-bgp", ""),
        ({"calico-node": "docker.io/calico/node:v3.29.1"},
         calico(IPv4Address="192.0.2.1/24", IPv4VXLANTunnelAddr="10.1.2.0"), "calico-vxlan", "v3.29.1"),
        ({"calico-node": ""}, calico(IPv4IPIPTunnelAddr="10.1.2.0"), "calico-ipip", ""),
        ({"cilium": CILIUM}, {"reasons": frozenset(["CiliumIsUp"])}, "cilium", "v1.16.5"),
        ({"cilium": CILIUM, "kube-proxy": "registry.k8s.io/kube-proxy:v1.33.1"},
         config("cilium-config", routing_mode="tunnel", tunnel_protocol="geneve"), "cilium-geneve", "v1.16.5"),
        ({"cilium": ""}, config("cilium-config", routing_mode="native"), "cilium-native", ""),
        ({"cilium": ""}, OLD_FLANNEL, "cilium", ""),
        ({"antrea-agent": ""}, config("antrea-config", **{"antrea-agent.conf": "tunnelType: geneve\n"}), "antrea-geneve", ""),
        ({"canal": "docker.io/calico/node:v3.29.1"}, {"annotations": CANAL}, "canal-vxlan", ""),
        ({"ovnkube-node": ""}, {}, "ovn-kubernetes", ""),
        ({"aws-node": ""}, {"labels": {"vpc.amazonaws.com/has-trunk-attached": "false"}}, "aws-vpc", ""),
        ({"cilium": ""}, {"labels": {"kubernetes.azure.com/ebpf-dataplane": "cilium"}}, "azure-cilium", ""),
        # Next to the agents of clouds, others enforce policies only.
        ({"aws-node": "", "calico-node": "quay.io/calico/node:v3.29.1"}, {}, "aws-vpc", ""),
        ({"aws-node": "", "cilium": CILIUM}, config("cilium-config", cni_chaining_mode="aws-cni"), "aws-vpc", ""),
        ({"azure-cns": "", "calico-node": ""}, {}, "azure", ""),
        ({"azure-cns": "", "cilium": ""}, {"labels": {"kubernetes.azure.com/ebpf-dataplane": "cilium"}}, "azure-cilium", ""),
        ({"aws-node": "", "antrea-agent": ""}, config("antrea-config", **{"antrea-agent.conf": "trafficEncapMode: networkPolicyOnly\n"}), "antrea-networkpolicyonly", ""),
        ({"azure-cns": ""}, {"labels": {"kubernetes.azure.com/podnetwork-type": "overlay"}}, "azure", ""),
        ({"netd": ""}, {"labels": {"cloud.google.com/gke-netd-ready": "true"}}, "gke", ""),
        ({"netd": "", "calico-node": ""}, {}, "calico", ""),
        ({"kindnet": "docker.io/kindest/kindnetd:v20250512-df8de77b"}, OLD_FLANNEL, "kindnet", "v20250512-df8de77b"),
        ({"weave-net": "weaveworks/weave-kube:2.8.1"}, {}, "weavenet", "2.8.1"),
        ({"kube-router": "docker.io/cloudnativelabs/kube-router:v2.5.0"}, {}, "kube-router", "v2.5.0"),
        # A backend that k8sdds does not have is unknown, but named.
        ({"kube-flannel-ds": ""}, {"annotations": {BACKEND: "udp"}}, "flannel-udp", ""),
        ({"kube-flannel-ds": ""}, {"annotations": {BACKEND: "alivpc"}}, "flannel", ""),
        ({}, {}, UNKNOWN, ""),
        ({}, {"images": frozenset(["docker.io/kindest/kindnetd:1", CILIUM])}, UNKNOWN, ""),
    ],
)  # fmt: skip
def test_a_plugin_is_detected_by_its_signs(
    daemonsets: dict[str, str], signs: dict[str, Any], name: str, version: str
) -> None:
    running = {agent_name: agent(image or "registry.test/agent") for agent_name, image in daemonsets.items()}
    found = detection.detect(Signs(daemonsets=running, **signs))
    assert (found.name, found.version) == (name, version)
    assert bool(found.signs) == (name != UNKNOWN)
    assert networks.find(name).name == name
    if signs is OLD_FLANNEL:
        assert found.remains == (f"annotation {BACKEND}",)


def test_a_password_and_secondary_interfaces_are_signs() -> None:
    weave = {"weave-net": agent("weaveworks/weave-kube:2.8.1", WEAVE_PASSWORD="x")}
    assert detection.detect(Signs(daemonsets=weave)).name == "weavenet-encrypt"
    found = detection.detect(Signs(daemonsets=running("kube-multus-ds", "kindnet")))
    assert (found.name, found.secondary) == ("kindnet", ("multus",))
    assert "also multus" in found.describe()


def test_multus_of_a_profile_is_next_to_its_network() -> None:
    agents = running("flannel", "multus")
    for manifest in agents.values():
        manifest["metadata"] = {"labels": {versions.NETWORK_LABEL: "flannel-vxlan"}}
    found = detection.detect(Signs(daemonsets=agents))
    assert (found.name, found.signs, found.secondary) == (
        "flannel-vxlan",
        ("DaemonSet flannel",),
        ("multus",),
    )


def test_every_name_is_a_network() -> None:
    for name in networks.known_names():
        network = networks.find(name)
        assert network.name == name and network.title
        assert NETWORKS.get(name, network) is network
        # The encryption of a network that others installed is unknown.
        assert (network.encryption is None) == (name not in NETWORKS)
    assert len({plugin.name for plugin in PLUGINS}) == len(PLUGINS)
    assert networks.find("flannel-udp").fidelity == "real"


REMAINS = (
    Signs(annotations={BACKEND: "vxlan", "kube-router.io/peer.ips": "192.0.2.2"}),
    Signs(reasons=frozenset(["FlannelIsUp"])),
    Signs(reasons=frozenset(["CiliumIsUp"]), images=frozenset([CILIUM])),
    Signs(images=frozenset(["ghcr.io/flannel-io/flannel:v0.28.4"])),
    Signs(labels={"vpc.amazonaws.com/has-trunk-attached": "false"}),
    Signs(annotations={"projectcalico.org/IPv4Address": "192.0.2.1/24"}, labels={"node.kubernetes.io/x": "y"}),
    Signs(annotations={"k3s.io/hostname": "n1"}, reasons=frozenset(["FlannelIsUp"])),
)  # fmt: skip


@pytest.mark.parametrize("signs", REMAINS)
@pytest.mark.parametrize(
    "daemonsets", [None, {}, running("kube-proxy"), {"kube-flannel-ds": agent("flannel", ready=0)}]
)
def test_remains_of_a_network_never_name_it(signs: Signs, daemonsets: dict[str, Any] | None) -> None:
    found = detection.detect(replace(signs, daemonsets=daemonsets))
    assert (found.name, found.version, found.signs) == (UNKNOWN, "", ())
    assert found.remains


def test_flannel_in_the_process_of_k3s_names_a_network_of_k8sdds() -> None:
    annotations = {BACKEND: "host-gw", "k3s.io/hostname": "n1"}
    found = detection.detect(Signs(annotations=annotations, reasons=frozenset(["FlannelIsUp"])))
    assert (found.name, found.title) == ("flannel-hostgw", "Flannel, of k3s")
    assert networks.find(found.name) is NETWORKS["flannel-hostgw"]


def test_an_agent_that_k8sdds_installed_names_its_network() -> None:
    daemonset = agent("docker.io/cloudnativelabs/kube-router:v2.5.0")
    daemonset["metadata"] = {"name": "router", "labels": {versions.NETWORK_LABEL: "kube-router"}}
    signs = Signs(annotations={BACKEND: "vxlan"}, daemonsets={"router": daemonset})
    found = detection.detect(signs)
    assert (found.name, found.version, found.signs) == ("kube-router", "v2.5.0", ("DaemonSet router",))
    assert found.remains == (f"annotation {BACKEND}",)
    daemonset["metadata"]["labels"][versions.NETWORK_LABEL] = "of-another-version"
    assert detection.detect(signs).name == UNKNOWN
    daemonset["metadata"]["labels"][versions.NETWORK_LABEL] = "kube-router"
    daemonset["status"]["numberReady"] = 0
    assert detection.detect(signs).name == UNKNOWN


def test_only_config_maps_of_plugins_that_run_are_read() -> None:
    assert detection.config_maps(Signs(daemonsets=running("cilium"))) == ["kube-system/cilium-config"]
    assert detection.config_maps(Signs(reasons=frozenset(["CiliumIsUp"]))) == []
    assert detection.config_maps(Signs()) == []
