"""Measure networks that k8sdds does not install: a plugin from a public Go module, installed by hand on every node.

The plugin `ptp` gives each pod a veth pair to its node, without a bridge; static routes lead to the pods of other nodes.
With their DaemonSets, labels and annotations, it also looks like the networks of clouds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes, versions
from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, Program
from k8sdds.kubernetes.apply import list_document
from k8sdds.testbeds.cluster.network_switch import NetworkSwitch
from k8sdds.testbeds.cluster.pods import SUPERVISOR
from tests.cluster.conftest import Command, User
from tests.cluster.switched import KUBECTL
from tests.clusters import Deployed
from tests.measuring import valid_attempts

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

PTP = Program("ptp", versions.CNI_PLUGINS, "cni", "github.com/containernetworking/plugins/plugins/main/ptp")
FILE = "/etc/cni/net.d/05-by-hand.conflist"
"""The container runtime uses the first file in the order of the names."""
MTU = 1400


def subnet(index: int) -> IPv4Network:
    return IPv4Network(f"10.99.{index}.0/24")


REMAINS = {
    "type": "NetworkUnavailable",
    "status": "False",
    "reason": "FlannelIsUp",
    "message": "Flannel is running",
}
ANNOTATION = "flannel.alpha.coreos.com/backend-type"


def leave_remains(cluster: Deployed, node: str) -> None:
    """Leave the condition and the annotation of Flannel on a node, which has its image, too."""
    patch = json.dumps({"status": {"conditions": [REMAINS]}})
    cluster.kubectl("patch", "node", node, "--subresource=status", "-p", patch)
    cluster.kubectl("annotate", "node", node, "--overwrite", f"{ANNOTATION}=vxlan")
    shown = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["status"]
    assert any("/flannel:" in name for image in shown["images"] for name in image.get("names") or ())


@pytest.fixture
def by_hand(one_machine: Deployed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove Flannel and install the plugin on every node; restore Flannel at the end."""
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    plugin = base64.b64encode(golang.build(PTP, HOST_ARCH, print).read_bytes()).decode()
    switch = NetworkSwitch(one_machine.name)
    switch.install("host", {})

    def run(node: str, *argv: str, stdin: str = "") -> str:
        return nodes.run(one_machine.name, node, argv, stdin)

    addresses = {}
    for node in one_machine.nodes:
        (device,) = json.loads(run(node, "ip", "-json", "-4", "addr", "show", "dev", "eth0"))
        addresses[node] = device["addr_info"][0]["local"]
    for index, node in enumerate(one_machine.nodes):
        ipam = {"type": "host-local", "subnet": str(subnet(index)), "routes": [{"dst": "0.0.0.0/0"}]}
        plugins = [{"type": "ptp", "mtu": MTU, "ipam": ipam}]
        conflist = {"cniVersion": "1.0.0", "name": "by-hand", "plugins": plugins}
        run(node, "sh", "-c", "base64 -d > /opt/cni/bin/ptp && chmod 755 /opt/cni/bin/ptp", stdin=plugin)
        for other, peer in enumerate(one_machine.nodes):
            if peer != node:
                run(node, "ip", "route", "add", str(subnet(other)), "via", addresses[peer], "dev", "eth0")
        run(node, "sh", "-c", f"cat > {FILE}", stdin=json.dumps(conflist))
        leave_remains(one_machine, node)
    # The agent names the network that k8sdds installed.
    one_machine.kubectl("delete", "daemonset", "host", "--namespace", versions.NETWORK_NAMESPACE)
    yield
    for index, node in enumerate(one_machine.nodes):
        run(node, "rm", "-rf", FILE, "/opt/cni/bin/ptp", "/var/lib/cni/networks/by-hand")
        for other in set(range(len(one_machine.nodes))) - {index}:
            run(node, "ip", "route", "del", str(subnet(other)))
    switch.restore()


def test_an_unknown_network_is_observed_and_measured(
    by_hand: None, k8sdds: Command, user: User, tmp_path: Path
) -> None:
    args = ("--repeat", "1", "--duration", "0.5", "--set", "test=latency", "-o", "run")
    done = k8sdds("run", "quickstart", *user.options, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["network"]: row for row in valid_attempts(tmp_path / "run")}
    assert set(rows) == {"host", "unknown"}
    found = rows["unknown"]["fingerprint"]
    assert (found["outer_protocol"], found["added_bytes"], found["cleartext"]) == ("none", 0, True)
    assert (found["path_mtu_bytes"], found["multicast"], found["masqueraded"]) == (MTU, False, False)
    assert found["conntrack"] is True and 0 < found["rules_matched"] < found["rules"]
    assert (found["uplink"], found["not_observed"]) == ("eth0", {})
    campaign = json.loads((tmp_path / "run/campaign.json").read_text())
    facts = campaign["testbed"]["facts"]
    assert (facts["installed_network"], facts["installed_network_facts"]["version"]) == ("unknown", None)
    assert {"condition FlannelIsUp", f"annotation {ANNOTATION}"} <= set(
        facts["installed_network_facts"]["remains"]
    )
    assert campaign["networks"]["unknown"]["encryption"] is None
    assert rows["unknown"]["network_software"]["agents"] == "no agent that k8sdds knows runs on the cluster"
    report = (tmp_path / "run/report/report.html").read_text()
    assert "Observed on the link" in report and '<td class="text">unknown</td>' in report


@dataclass(frozen=True)
class Looks:
    """What a cluster with a network of others shows of it."""

    name: str
    """As k8sdds names the network."""
    agents: Mapping[str, str]
    """DaemonSets in kube-system with the names of their images."""
    label: str = ""
    """Of a node: KEY=VALUE."""
    annotation: str = ""
    version: str | None = None


ECR = "602401143452.dkr.ecr.us-west-2.amazonaws.com"
AZURE_CNS = "mcr.microsoft.com/containernetworking/azure-cns:v1.6.1"
NETWORKS = (
    # Calico enforces only policies here.
    Looks("aws-vpc", {"aws-node": f"{ECR}/amazon-k8s-cni:v1.18.5", "calico-node": "quay.io/calico/node:v3.29.1"},
          "vpc.amazonaws.com/has-trunk-attached=false", version="v1.18.5"),
    Looks("gke", {"netd": "gke.gcr.io/netd:v1"}, "cloud.google.com/gke-netd-ready=true"),
    Looks("gke-dataplane-v2", {"anetd": "gke.gcr.io/cilium/cilium:v1", "netd": "gke.gcr.io/netd:v1"},
          "cloud.google.com/gke-netd-ready=true"),
    Looks("azure", {"azure-cns": AZURE_CNS}, "kubernetes.azure.com/podnetwork-type=overlay", version="v1.6.1"),
    Looks("azure-cilium", {"cilium": "mcr.microsoft.com/oss/cilium/cilium:v1.16.5", "azure-cns": AZURE_CNS},
          "kubernetes.azure.com/ebpf-dataplane=cilium"),
    Looks("antrea", {"antrea-agent": "docker.io/antrea/antrea-agent-ubuntu:v2.2.0"}, annotation="node.antrea.io/mac-address=x",
          version="v2.2.0"),
    Looks("ovn-kubernetes", {"ovnkube-node": "ghcr.io/ovn-kubernetes/ovn-kubernetes/ovn-kube-ubuntu:v1.0.0"},
          annotation="k8s.ovn.org/node-subnets=x", version="v1.0.0"),
    Looks("kube-ovn", {"kube-ovn-cni": "docker.io/kubeovn/kube-ovn:v1.13.0"},
          annotation="ovn.kubernetes.io/allocated=true", version="v1.13.0"),
)  # fmt: skip


@contextmanager
def looking_like(cluster: Deployed, network: Looks) -> Iterator[None]:
    """Run agents with these names, which do nothing, and label and annotate a node."""
    node = cluster.nodes[1]
    for image in network.agents.values():
        for each in cluster.nodes:
            nodes.run(
                cluster.name,
                each,
                ["ctr", "-n", "k8s.io", "images", "tag", "--force", versions.PERFTEST_IMAGE, image],
            )
    kinds = [("label", network.label)] * bool(network.label) + [("annotate", network.annotation)] * bool(
        network.annotation
    )
    for kind, text in kinds:
        cluster.kubectl(kind, "node", node, text)
    names = [f"daemonset/{name}" for name in network.agents]
    try:
        made = list_document([agent(name, image) for name, image in network.agents.items()])
        nodes.run(cluster.name, cluster.nodes[0], [*KUBECTL, "apply", "-f", "-"], made)
        for name in names:
            cluster.kubectl("-n", "kube-system", "rollout", "status", name, "--timeout=180s")
        yield
    finally:
        cluster.kubectl("-n", "kube-system", "delete", "--cascade=foreground", "--wait", *names)
        for kind, text in kinds:
            cluster.kubectl(kind, "node", node, f"{text.partition('=')[0]}-")
        for each in cluster.nodes:
            nodes.run(cluster.name, each, ["ctr", "-n", "k8s.io", "images", "rm", *network.agents.values()])


def agent(name: str, image: str) -> dict[str, Any]:
    labels = {"looks-like": name}
    container = {"name": name, "image": image, "imagePullPolicy": "Never", "command": [SUPERVISOR, "pause"]}
    pod = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def test_networks_of_others_are_named_in_the_result(
    by_hand: None, one_machine: Deployed, k8sdds: Command, user: User, tmp_path: Path
) -> None:
    for network in NETWORKS:
        folder = tmp_path / network.name
        named = ("--set", f"networks={network.name}", "--set", f"baseline={network.name}")
        args = ("--repeat", "1", "--duration", "0.5", "--set", "test=latency", *named, "-o", str(folder))
        with looking_like(one_machine, network):
            done = k8sdds("run", "quickstart", *user.options, *args)
        assert done.returncode == 0, done.stdout + done.stderr
        (row,) = valid_attempts(folder)
        assert (row["network"], row["fingerprint"]["outer_protocol"]) == (network.name, "none")
        images = " ".join(row["network_software"].values())
        assert all(image in images for image in network.agents.values()), images
        facts = json.loads((folder / "campaign.json").read_text())["testbed"]["facts"]
        shown = facts["installed_network_facts"]
        assert (facts["installed_network"], shown["version"]) == (network.name, network.version)
        sign = (
            f"label {network.label}"
            if network.name == "azure-cilium"
            else f"DaemonSet {next(iter(network.agents))}"
        )
        assert sign in shown["signs"]
