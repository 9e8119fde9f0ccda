"""The software of a network, from objects of an API server as users with different rights see them."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds import versions
from k8sdds.deploy import cni_plugins
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.system.errors import NetworkChanged
from k8sdds.testbeds.cluster import installed
from k8sdds.testbeds.cluster.nodes import NodeInfo

FLANNEL = "ghcr.io/flannel-io/flannel:v0.28.4"
PLUGIN = "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1"
PROXY = "registry.k8s.io/kube-proxy:v1.36.3"
A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def daemonset(namespace: str, name: str, uid: str, init: dict[str, str], **containers: str) -> dict[str, Any]:
    pod = {
        "initContainers": [{"name": key, "image": image} for key, image in init.items()],
        "containers": [{"name": key, "image": image} for key, image in containers.items()],
    }
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "generation": 1, "labels": {}},
        "spec": {"template": {"spec": pod}},
        "status": {"numberReady": 3},
    }


def pod(uid: str, init: dict[str, str], **image_ids: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "ownerReferences": [{"uid": uid}]},
        "status": {
            "initContainerStatuses": [{"name": key, "imageID": value} for key, value in init.items()],
            "containerStatuses": [{"name": key, "imageID": value} for key, value in image_ids.items()],
        },
    }


AGENT = daemonset("kube-flannel", "kube-flannel-ds", "1", {"install-cni": PLUGIN}, flanneld=FLANNEL)
KUBE_PROXY = daemonset("kube-system", "kube-proxy", "2", {}, **{"kube-proxy": PROXY})
MULTUS = daemonset("kube-system", "kube-multus-ds", "4", {}, multus="multus:4")
OTHER = daemonset("monitoring", "exporter", "3", {}, exporter="exporter:1")
PODS = {
    "kube-flannel": [
        pod("1", {"install-cni": f"ghcr.io/flannel-io/flannel-cni-plugin@{B}"}, flanneld=f"ghcr.io/flannel-io/flannel@{A}"),
        pod("9", {}, flanneld=f"somebody@{C}"),
    ],
    "kube-system": [pod("2", {}, **{"kube-proxy": A}), pod("2", {}, **{"kube-proxy": f"somewhere@{C}"})],
}  # fmt: skip


class Cluster:
    """An API server with these objects, for a user who may list some of them."""

    def __init__(self, *allowed: str, daemonsets: list[dict[str, Any]] | None = None) -> None:
        self.allowed = allowed
        self.daemonsets = [AGENT, KUBE_PROXY, OTHER] if daemonsets is None else daemonsets

    def get(self, path: str) -> dict[str, Any]:
        if path.rpartition("/")[2] not in self.allowed:
            raise ApiError(403, "forbidden")
        listed: Any = self.daemonsets if path.endswith("daemonsets") else PODS[path.split("/")[-2]]
        return {"items": listed}


def read(*allowed: str, nodes: tuple[NodeInfo, ...] = (), **more: Any) -> installed.InstalledSoftware:
    client: KubernetesClient = Cluster(*allowed, **more)  # type: ignore[assignment]
    return installed.read(client, nodes)


def node(*names: str) -> NodeInfo:
    return NodeInfo.parse({"metadata": {"name": "n"}, "status": {"images": [{"names": list(names)}]}})


def test_pods_show_the_digests_of_agents_of_cni_plugins_and_of_kube_proxy() -> None:
    assert read("daemonsets", "pods").describe() == {
        "kube-flannel/kube-flannel-ds install-cni": f"{PLUGIN}@{B}",
        "kube-flannel/kube-flannel-ds flanneld": f"{FLANNEL}@{A}",
        # Imported on one node, pulled on the other.
        "kube-system/kube-proxy kube-proxy": f"{PROXY} (image ID {A}) and {PROXY}@{C}",
    }


def test_without_access_to_pods_the_nodes_list_digests() -> None:
    nodes = (node(f"ghcr.io/flannel-io/flannel@{A}", FLANNEL), node(PLUGIN))
    assert read("daemonsets", nodes=nodes).describe() == {
        "kube-flannel/kube-flannel-ds install-cni": f"{PLUGIN} (digest not readable)",
        "kube-flannel/kube-flannel-ds flanneld": f"{FLANNEL}@{A}",
        "kube-system/kube-proxy kube-proxy": f"{PROXY} (digest not readable)",
    }


def test_a_user_without_rights_sees_that_nothing_is_readable() -> None:
    assert read().describe() == {"agents": installed.NOT_READABLE}
    unknown = read("daemonsets", "pods", daemonsets=[KUBE_PROXY, OTHER]).describe()
    assert unknown["agents"] == installed.NO_AGENT and "kube-system/kube-proxy kube-proxy" in unknown


def deployed(network: str, uid: str = "1", generation: int = 1) -> dict[str, Any]:
    agent = copy.deepcopy(AGENT)
    agent["metadata"] |= {
        "labels": {versions.NETWORK_LABEL: network}, "name": network, "uid": uid, "generation": generation,
    }  # fmt: skip
    return agent


UPDATED = "kube-flannel/flannel-vxlan was installed again or updated"


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ([deployed("flannel-vxlan"), OTHER], ""),
        ([deployed("kube-router", uid="8")], "flannel-vxlan was replaced by kube-router"),
        ([OTHER], "flannel-vxlan was removed"),
        ([deployed("flannel-vxlan", uid="8")], UPDATED),
        ([deployed("flannel-vxlan", generation=2)], UPDATED),
        ([deployed("flannel-vxlan"), MULTUS], "kube-system/kube-multus-ds was added"),
    ],
)
def test_a_change_of_the_network_is_noticed_by_its_agents(after: list[dict[str, Any]], change: str) -> None:
    before = read("daemonsets", daemonsets=[deployed("flannel-vxlan"), KUBE_PROXY])
    assert before.change(read("daemonsets", daemonsets=after)) == change


class Switch:
    """What a campaign knows of a cluster that k8sdds deployed."""

    abandoned = False

    def cni_plugins(self) -> dict[str, str]:
        return {"CNI plugin bridge": "v1.9.1"}

    def abandon(self) -> None:
        self.abandoned = True


def test_a_network_that_others_replaced_is_not_restored() -> None:
    cluster, switch = Cluster("daemonsets", daemonsets=[deployed("flannel-vxlan")]), Switch()
    network = installed.InstalledNetwork(cluster, (), switch, "flannel-vxlan")  # type: ignore[arg-type]
    network.require_unchanged()
    network.read()
    network.require_unchanged()
    facts = network.facts()
    assert facts["installed_network"] == "flannel-vxlan"
    assert facts["network_software"]["CNI plugin bridge"] == "v1.9.1"
    cluster.daemonsets = [deployed("kube-router")]
    with pytest.raises(NetworkChanged, match="flannel-vxlan was replaced by kube-router") as raised:
        network.require_unchanged()
    assert switch.abandoned and "no campaign runs" in raised.value.remedy


def test_a_switch_of_the_campaign_that_fails_is_not_a_change_by_others() -> None:
    cluster, switch = Cluster("daemonsets", daemonsets=[deployed("flannel-vxlan")]), Switch()
    network = installed.InstalledNetwork(cluster, (), switch, "flannel-vxlan")  # type: ignore[arg-type]
    network.read()
    network.forget()
    cluster.daemonsets = []
    network.require_unchanged()
    assert not switch.abandoned


def test_a_change_is_not_claimed_without_the_right_to_see_it() -> None:
    before = read("daemonsets", daemonsets=[AGENT])
    assert before.change(read()) == read().change(before) == ""


@pytest.mark.parametrize(
    ("name", "content", "plugins"),
    [
        (
            "10-flannel.conflist",
            {"plugins": [{"type": "flannel", "delegate": {"hairpinMode": True}}, {"type": "portmap"}]},
            ["bridge", "flannel", "host-local", "portmap"],
        ),
        ("10-bridge.json", {"type": "bridge", "ipam": {"type": "host-local"}}, ["bridge", "host-local"]),
        ("10-ptp.conf", {"type": "ptp"}, []),  # not in the folder of plugins
        ("10-none.conf", {}, []),
    ],
)  # fmt: skip
def test_a_node_lists_the_plugins_that_its_runtime_calls(
    tmp_path: Path, name: str, content: dict[str, Any], plugins: list[str]
) -> None:
    configurations, folder = tmp_path / "net.d", tmp_path / "bin"
    configurations.mkdir()
    folder.mkdir()
    (configurations / name).write_text(json.dumps(content))
    # The runtime uses only the first configuration.
    (configurations / "20-later.conflist").write_text('{"plugins": [{"type": "macvlan"}]}')
    for plugin in ("bridge", "flannel", "host-local", "macvlan", "portmap"):
        (folder / plugin).write_text(f"#!/bin/sh\necho CNI {plugin} plugin v1.9.1 >&2\n")
        (folder / plugin).chmod(0o755)
    script = cni_plugins.script(str(configurations), str(folder))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = cni_plugins.parse([done.stdout])
    assert list(found) == [f"CNI plugin {plugin}" for plugin in plugins]
    assert all(f"{plugin} plugin v1.9.1 (sha256:" in found[f"CNI plugin {plugin}"] for plugin in plugins)


def test_the_plugins_of_all_nodes_are_listed_once() -> None:
    same = "bridge 0a1b CNI bridge plugin v1.9.1\nhost-local 77 CNI host-local plugin v1.9.1\n"
    assert cni_plugins.parse([same, same, "bridge ffff \n"]) == {
        "CNI plugin bridge": "CNI bridge plugin v1.9.1 (sha256:0a1b) and version not reported (sha256:ffff)",
        "CNI plugin host-local": "CNI host-local plugin v1.9.1 (sha256:77)",
    }
    assert cni_plugins.parse(["", ""]) == {}


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ("kind: KubeProxyConfiguration\nmode: nftables\n", "nftables"),
        ('mode: ""\n', "iptables"),
        ("mode: userspace\n", None),
        ("metricsBindAddress: ''\n", "iptables"),
        ("[", None),
        (None, None),
    ],
)
def test_the_mode_of_kube_proxy_is_detected(config: str | None, mode: str | None) -> None:
    def get(path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/kube-system/configmaps/kube-proxy"
        if config is None:
            raise ApiError(404, "not found")
        return {"data": {"config.conf": config}}

    client = SimpleNamespace(get=get)
    assert installed.proxy_mode(cast(KubernetesClient, client)) == mode
