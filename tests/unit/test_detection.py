"""Test that the network of a cluster is detected by the signs that its plugin leaves there."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds import networks
from k8sdds.networks import NETWORKS, detection
from k8sdds.networks.detection import PLUGINS, UNKNOWN, Signs, detect


def agent(image: str, **env: str) -> dict[str, Any]:
    """Return a DaemonSet whose pods run an image."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"spec": {"template": {"spec": {"containers": [{"image": image, "env": variables}]}}}}


CILIUM = "quay.io/cilium/cilium:v1.16.5@sha256:0123"
BACKEND = "flannel.alpha.coreos.com/backend-type"


@pytest.mark.parametrize(
    ("signs", "name", "version"),
    [
        (Signs(annotations={"projectcalico.org/IPv4Address": "192.0.2.1/24"}), "calico-bgp", ""),
        (
            Signs(
                annotations={
                    "projectcalico.org/IPv4Address": "192.0.2.1/24",
                    "projectcalico.org/IPv4VXLANTunnelAddr": "10.1.2.0",
                },
                images=frozenset(["docker.io/calico/node:v3.29.1", "docker.io/calico/cni:v3.29.1"]),
            ),
            "calico-vxlan",
            "v3.29.1",
        ),
        (
            Signs(
                annotations={"projectcalico.org/IPv4IPIPTunnelAddr": "10.1.2.0"}, reasons=frozenset(["CalicoIsUp"])
            ),
            "calico-ipip",
            "",
        ),
        (Signs(reasons=frozenset(["CiliumIsUp"]), images=frozenset([CILIUM])), "cilium", "v1.16.5"),
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
                reasons=frozenset(["CiliumIsUp"]),
                config_maps={"kube-system/cilium-config": {"routing-mode": "native"}},
            ),
            "cilium-native",
            "",
        ),
        (
            Signs(
                annotations={"node.antrea.io/mac-address": "02:00:00:00:00:01"},
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
        (Signs(annotations={"k8s.ovn.org/node-subnets": "{}"}), "ovn-kubernetes", ""),
        (Signs(labels={"vpc.amazonaws.com/has-trunk-attached": "false"}), "aws-vpc", ""),
        (Signs(labels={"kubernetes.azure.com/ebpf-dataplane": "cilium"}), "azure-cilium", ""),
        (Signs(labels={"kubernetes.azure.com/podnetwork-type": "overlay"}), "azure", ""),
        (Signs(labels={"cloud.google.com/gke-netd-ready": "true"}), "gke", ""),
        (Signs(daemonsets={"kindnet": agent("docker.io/kindest/kindnetd:v20250512-df8de77b")}), "kindnet", "v20250512-df8de77b"),
        (Signs(images=frozenset(["docker.io/kindest/kindnetd:v20250512-df8de77b"])), "kindnet", "v20250512-df8de77b"),
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
    found = detect(signs)
    assert (found.name, found.version) == (name, version)
    assert bool(found.signs) == (name != UNKNOWN)
    assert networks.find(name).name == name


def test_annotations_of_flannel_name_a_network_of_k8sdds() -> None:
    annotations = {BACKEND: "host-gw", "k3s.io/hostname": "n1"}
    found = detect(Signs(annotations=annotations, reasons=frozenset(["FlannelIsUp"])))
    assert (found.name, found.title) == ("flannel-hostgw", "Flannel, of k3s")
    assert networks.find(found.name) is NETWORKS["flannel-hostgw"]


def test_annotations_that_remain_after_a_change_of_the_network_do_not_count() -> None:
    signs = Signs(annotations={BACKEND: "vxlan"}, reasons=frozenset(["CiliumIsUp"]))
    assert detect(signs).name == "cilium"
    kindnet = Signs(annotations={BACKEND: "vxlan"}, daemonsets={"kindnet": agent("kindnetd")})
    assert detect(kindnet).name == "kindnet"


def test_a_backend_that_k8sdds_does_not_have_is_unknown_but_named() -> None:
    assert detect(Signs(annotations={BACKEND: "udp"})).name == "flannel-udp"
    assert detect(Signs(annotations={BACKEND: "alivpc"})).name == "flannel"
    assert networks.find("flannel-udp").fidelity == "real"


def test_an_image_does_not_count_if_no_daemonset_runs_it() -> None:
    images = frozenset(["docker.io/flannel/flannel:v0.28.0"])
    assert detect(Signs(images=images)).name == "flannel"
    assert detect(Signs(images=images, daemonsets={"kube-proxy": agent("kube-proxy:1")})).name == UNKNOWN


def test_secondary_interfaces_are_named_next_to_the_network() -> None:
    multus = {
        "kube-multus-ds": agent("ghcr.io/k8snetworkplumbingwg/multus-cni:v4.1.4"),
        "kindnet": agent("kindnetd"),
    }
    found = detect(Signs(daemonsets=multus))
    assert (found.name, found.secondary) == ("kindnet", ("multus",))
    assert "also multus" in found.describe()


def test_only_config_maps_of_plugins_with_signs_are_read() -> None:
    assert detection.config_maps(Signs(reasons=frozenset(["CiliumIsUp"]))) == ["kube-system/cilium-config"]
    assert detection.config_maps(Signs()) == []


def test_every_name_is_a_network_and_a_label() -> None:
    for name in networks.known_names():
        network = networks.find(name)
        assert network.name == name and network.title
        assert NETWORKS.get(name, network) is network
    assert len({plugin.name for plugin in PLUGINS}) == len(PLUGINS)
