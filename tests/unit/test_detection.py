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


@pytest.mark.parametrize(
    ("signs", "name", "version"),
    [
        (Signs(annotations={"projectcalico.org/IPv4Address": "192.0.2.1/24"}, daemonsets=running("calico-node")), "calico-bgp", ""),
        (
            Signs(
                annotations={
                    "projectcalico.org/IPv4Address": "192.0.2.1/24",
                    "projectcalico.org/IPv4VXLANTunnelAddr": "10.1.2.0",
                },
                daemonsets={"calico-node": agent("docker.io/calico/node:v3.29.1")},
            ),
            "calico-vxlan",
            "v3.29.1",
        ),
        (
            Signs(
                annotations={"projectcalico.org/IPv4IPIPTunnelAddr": "10.1.2.0"}, daemonsets=running("calico-node")
            ),
            "calico-ipip",
            "",
        ),
        (Signs(reasons=frozenset(["CiliumIsUp"]), daemonsets={"cilium": agent(CILIUM)}), "cilium", "v1.16.5"),
        (
            Signs(
                daemonsets={"cilium": agent(CILIUM), "kube-proxy": agent("registry.k8s.io/kube-proxy:v1.33.1")},
                config_maps={"kube-system/cilium-config": {"routing-mode": "tunnel", "tunnel-protocol": "geneve"}},
            ),
            "cilium-geneve",
            "v1.16.5",
        ),
        (
            Signs(
                daemonsets=running("cilium"),
                config_maps={"kube-system/cilium-config": {"routing-mode": "native"}},
            ),
            "cilium-native",
            "",
        ),
        (
            Signs(
                daemonsets=running("antrea-agent"),
                config_maps={"kube-system/antrea-config": {"antrea-agent.conf": "tunnelType: geneve\n"}},
            ),
            "antrea-geneve",
            "",
        ),
        (
            Signs(
                annotations={BACKEND: "vxlan", "projectcalico.org/IPv4Address": "192.0.2.1/24"},
                daemonsets={"canal": agent("docker.io/calico/node:v3.29.1")},
            ),
            "canal-vxlan",
            "",
        ),
        (Signs(daemonsets=running("ovnkube-node")), "ovn-kubernetes", ""),
        (Signs(labels={"vpc.amazonaws.com/has-trunk-attached": "false"}, daemonsets=running("aws-node")), "aws-vpc", ""),
        (Signs(labels={"kubernetes.azure.com/ebpf-dataplane": "cilium"}, daemonsets=running("cilium")), "azure-cilium", ""),
        (Signs(labels={"kubernetes.azure.com/podnetwork-type": "overlay"}, daemonsets=running("azure-cns")), "azure", ""),
        (Signs(labels={"cloud.google.com/gke-netd-ready": "true"}, daemonsets=running("netd")), "gke", ""),
        (Signs(daemonsets={"kindnet": agent("docker.io/kindest/kindnetd:v20250512-df8de77b")}), "kindnet", "v20250512-df8de77b"),
        (Signs(daemonsets={"weave-net": agent("weaveworks/weave-kube:2.8.1")}), "weavenet", "2.8.1"),
        (
            Signs(daemonsets={"weave-net": agent("weaveworks/weave-kube:2.8.1", WEAVE_PASSWORD="x")}),
            "weavenet-encrypt",
            "2.8.1",
        ),
        (Signs(daemonsets={"kube-router": agent("docker.io/cloudnativelabs/kube-router:v2.5.0")}), "kube-router", "v2.5.0"),
        (Signs(), UNKNOWN, ""),
        (Signs(images=frozenset(["docker.io/kindest/kindnetd:1", CILIUM])), UNKNOWN, ""),
    ],
)  # fmt: skip
def test_a_plugin_is_detected_by_its_signs(signs: Signs, name: str, version: str) -> None:
    found = detection.detect(signs)
    assert (found.name, found.version) == (name, version)
    assert bool(found.signs) == (name != UNKNOWN)
    assert networks.find(name).name == name


REMAINS = (
    Signs(annotations={BACKEND: "vxlan", "kube-router.io/peer.ips": "192.0.2.2"}),
    Signs(reasons=frozenset(["FlannelIsUp"])),
    Signs(reasons=frozenset(["CiliumIsUp"]), images=frozenset([CILIUM])),
    Signs(images=frozenset(["ghcr.io/flannel-io/flannel:v0.28.4"])),
    Signs(labels={"vpc.amazonaws.com/has-trunk-attached": "false"}),
    Signs(
        annotations={"projectcalico.org/IPv4Address": "192.0.2.1/24"}, labels={"node.kubernetes.io/x": "y"}
    ),
    Signs(annotations={"k3s.io/hostname": "n1"}, reasons=frozenset(["FlannelIsUp"])),
)


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


def test_annotations_that_remain_after_a_change_of_the_network_do_not_count() -> None:
    cilium = Signs(annotations={BACKEND: "vxlan"}, daemonsets=running("cilium"))
    assert (detection.detect(cilium).name, detection.detect(cilium).remains) == (
        "cilium",
        (f"annotation {BACKEND}",),
    )
    kindnet = Signs(annotations={BACKEND: "vxlan"}, daemonsets=running("kindnet"))
    assert detection.detect(kindnet).name == "kindnet"


def test_a_backend_that_k8sdds_does_not_have_is_unknown_but_named() -> None:
    flannel = running("kube-flannel-ds")
    assert detection.detect(Signs(annotations={BACKEND: "udp"}, daemonsets=flannel)).name == "flannel-udp"
    assert detection.detect(Signs(annotations={BACKEND: "alivpc"}, daemonsets=flannel)).name == "flannel"
    assert networks.find("flannel-udp").fidelity == "real"


def test_the_encryption_of_a_network_that_others_installed_is_unknown() -> None:
    assert all(
        networks.find(name).encryption is None for name in networks.known_names() if name not in NETWORKS
    )
    assert None not in [network.encryption for network in NETWORKS.values()]


def test_secondary_interfaces_are_named_next_to_the_network() -> None:
    found = detection.detect(Signs(daemonsets=running("kube-multus-ds", "kindnet")))
    assert (found.name, found.secondary) == ("kindnet", ("multus",))
    assert "also multus" in found.describe()


def test_only_config_maps_of_plugins_that_run_are_read() -> None:
    assert detection.config_maps(Signs(daemonsets=running("cilium"))) == ["kube-system/cilium-config"]
    assert detection.config_maps(Signs(reasons=frozenset(["CiliumIsUp"]))) == []
    assert detection.config_maps(Signs()) == []


def test_every_name_is_a_network_and_a_label() -> None:
    for name in networks.known_names():
        network = networks.find(name)
        assert network.name == name and network.title
        assert NETWORKS.get(name, network) is network
    assert len({plugin.name for plugin in PLUGINS}) == len(PLUGINS)
