"""What prevents a network switch: images that a node cannot get, and networks that machines cannot run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from k8sdds.deploy import deployed_clusters, profiles
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.images import fetch_images
from k8sdds.deploy.network_switch import cluster_objects
from k8sdds.deploy.network_switch.cluster_objects import ClusterNode
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.deploy.network_switch.switch import _Switch
from k8sdds.kubernetes import apply, exec_stream, objects
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.kubernetes.exec_stream import CommandResult
from k8sdds.model.profile import PodNetwork
from k8sdds.networks import find
from k8sdds.system import parallel
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, ScriptResult
from k8sdds.testbeds.cluster.network_switch import NetworkSwitch, _obstacle
from tests.unit.test_network_manifests import installed, profile


@dataclass
class FakeHost:
    """A node that lists images and pulls those of a registry."""

    name: str
    images: list[str]
    registry: Sequence[str] = ()
    scripts: list[str] = field(default_factory=list)

    def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
        self.scripts.append(script)
        if "uname -m" in script:
            return ScriptResult(0, "\n".join(["x86_64", *self.images]), "")
        refused = [line.split()[5] for line in script.splitlines() if " pull " in line]
        refused = [image for image in refused if image not in self.registry]
        return ScriptResult(int(bool(refused)), "", "".join(f"cannot get {image}\n" for image in refused))


def fetch(*hosts: FakeHost) -> None:
    connections = Connections([])
    connections.hosts.update({host.name: cast(Host, host) for host in hosts})
    wanted = profile("flannel-hostgw")
    names = [host.name for host in hosts]
    fetch_images(wanted, installed("flannel-hostgw"), connections, names, lambda _: None)


def test_images_are_listed_once_and_pulled_only_where_they_are_missing() -> None:
    wanted = installed("flannel-hostgw").images
    complete, empty = FakeHost("a", [*wanted, "other"]), FakeHost("b", ["other"], wanted)
    fetch(complete, empty)
    assert len(complete.scripts) == 1 and len(empty.scripts) == 2
    assert all(f"pull {image} " in empty.scripts[1] for image in wanted)


def test_an_image_that_a_node_cannot_get_prevents_the_switch() -> None:
    wanted = installed("flannel-hostgw").images
    with pytest.raises(
        PrerequisiteError, match=f"b: cannot run flannel-hostgw:\ncannot get {wanted[0]}"
    ) as caught:
        fetch(FakeHost("a", list(wanted)), FakeHost("b", list(wanted[1:])))
    assert "nothing was changed" in caught.value.remedy


PROFILE = """name: lab
provider: {provider}
software: {software}
nodes: [{{name: one, roles: [control-plane]}}, {{name: two}}]
network: flannel-vxlan
networks: [{{name: flannel-ipsec, password_file: key}}]
"""
BARE = ("bridge", "vxlan", "nftables", "dummy", "ip_set", "xt_set")


def machine(*features: str, lacks: tuple[str, ...] = ()) -> Facts:
    return Facts({}, {"feature": features, "lacks": lacks})


@pytest.mark.parametrize("provider", ["local", "ssh"])
def test_machines_need_what_the_daemons_need(provider: str) -> None:
    software = "bundle" if provider == "local" else "packages"
    lab = profiles.parse(PROFILE.format(provider=provider, software=software), "lab.yaml")

    def obstacle(network: str, *features: str) -> str:
        return _obstacle(lab, find(network), None, {"one": machine(*BARE, *features), "two": machine(*BARE)})

    # Not what the lab needs to build these networks: strongSwan, wireguard-tools, nftables at the ingress of a link.
    assert obstacle("flannel-hostgw") == obstacle("flannel-vxlan") == ""
    esp = {name: machine(*BARE, "esp", "wireguard") for name in ("one", "two")}
    assert _obstacle(lab, find("flannel-wireguard"), None, esp) == ""
    assert _obstacle(lab, find("flannel-ipsec"), None, esp) == ""  # the profile names its password file
    # Every machine counts, on local nodes and on others.
    assert obstacle("weavenet", "openvswitch").startswith("two: the kernel does not support openvswitch")
    assert obstacle("weavenet").startswith("one: the kernel does not support openvswitch")
    userspace = _obstacle(lab, find("weavenet"), "sleeve", {"one": machine(*BARE)})
    assert "kernel" not in userspace  # at most an image is missing
    lacking = {"one": machine(*BARE, lacks=("esp no such module",))}
    assert "which flannel-ipsec needs (no such module)" in _obstacle(
        lab, find("flannel-ipsec"), None, lacking
    )
    assert "requires password_file, in `networks` of the profile" in _obstacle(
        lab, find("weavenet-encrypt"), None, {"one": machine(*BARE, "esp", "openvswitch")}
    )


def test_every_mode_that_a_cluster_can_install_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = profiles.parse(PROFILE.format(provider="local", software="bundle"), "lab.yaml")
    machines = {"one": Facts({}, {"feature": BARE, "image": ("own:1 sha256:5",)})}
    monkeypatch.setattr(deployed_clusters, "machines", lambda cluster: machines)
    monkeypatch.setattr(deployed_clusters, "current_network", lambda cluster: ("flannel-vxlan", None))
    monkeypatch.setattr(profiles, "deployed", lambda cluster: lab)
    switch = NetworkSwitch("lab")
    assert "flannel-hostgw" in switch.installable()
    assert "openvswitch" in switch.obstacle("weavenet") and "kernel" not in switch.obstacle(
        "weavenet (sleeve)"
    )
    assert list(switch.images("one")) == ["own:1"] and not switch.images("two")


def test_all_agents_of_50_nodes_are_asked_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [{"metadata": {"name": f"weave-{n:02}"}, "spec": {"nodeName": f"n{n:02}"}} for n in range(50)]
    monkeypatch.setattr(cluster_objects, "agent_pods", lambda *_: pods)
    monkeypatch.setattr(cluster_objects, "is_running", lambda *_: True)
    # The first agents answer only when as many are asked at a time as may be.
    together = threading.Barrier(parallel.THREADS)
    first = {pod["metadata"]["name"] for pod in pods[: parallel.THREADS]}

    def run_command(client: object, namespace: str, pod: str, *_: object, **__: object) -> CommandResult:
        if pod in first:
            together.wait(60)
        line = "-> 192.0.2.7:6783 established fastdp 0e:1f mtu=1376\n"
        return CommandResult(0, (line * (49 if pod not in ("weave-03", "weave-49") else 48)).encode(), b"")

    monkeypatch.setattr(exec_stream, "run_command", run_command)
    few = [message.partition(" of ")[0] for message in switch_of("weavenet", 50)._missing_connections()]
    assert few == ["n03: 48", "n49: 48"]


def test_more_nodes_have_more_time_for_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s: list[float] = []
    monkeypatch.setattr(cluster_objects, "stop_agents", lambda *args: waited_s.append(args[-1]))
    monkeypatch.setattr(objects, "wait_for_replicas", lambda *args: (1, waited_s.append(args[-1]) or 1))
    for name in ("_probe", "_missing", "_missing_connections"):
        monkeypatch.setattr(_Switch, name, lambda self: {})
    monkeypatch.setattr(_Switch, "_on_all_nodes", lambda self, work: {})
    monkeypatch.setattr(_Switch, "_delete_objects", lambda self, names: None)
    network = installed("flannel-vxlan").manifests
    for count in (2, 50):
        switch = switch_of("flannel-vxlan", count)
        switch._remove_all_networks(apply.stamped(network, "flannel-vxlan"))
        switch._wait_until_ready()
    assert waited_s == [100, 190, 340, 430]


def switch_of(network: str, nodes: int) -> _Switch:
    """Return a switch of a cluster with so many nodes, without connections."""
    connections, client = cast(Connections, None), cast(KubernetesClient, None)
    switch = _Switch(profile(network), PodNetwork(name=network), connections, client, lambda _: None)
    switch.nodes = [ClusterNode(f"n{number:02}", (), ()) for number in range(nodes)]
    return switch


@pytest.mark.parametrize("stays", [False, True])
def test_what_a_cni_plugin_creates_after_the_removal_is_removed(
    monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    late = NetworkLeftover("file", "/run/cilium", ("/run/cilium",))
    hosts = {name: FakeHost(name, []) for name in ("n00", "n01")}
    switch = switch_of("host", 2)
    lines: list[str] = []
    switch.progress = lines.append
    switch.connections = Connections([])
    switch.connections.hosts.update({name: cast(Host, host) for name, host in hosts.items()})

    def found() -> dict[str, list[NetworkLeftover]]:
        return {"n00": [], "n01": [late] if stays or not hosts["n01"].scripts else []}

    monkeypatch.setattr(switch, "_foreign_leftovers", found)
    monkeypatch.setattr(switch, "_profile_nodes", lambda: switch.nodes)
    monkeypatch.setattr(switch, "_remove_all_networks", lambda _: {"n00": ["link cilium_host"], "n01": []})
    monkeypatch.setattr(switch, "_install_or_restore", lambda _: None)
    monkeypatch.setattr(switch, "_recreate_pods", tuple)
    monkeypatch.setattr(cluster_objects, "installed", lambda _: [])
    monkeypatch.setattr("k8sdds.deploy.network_switch.switch.fetch_images", lambda *_: None)
    if stays:
        with pytest.raises(PrerequisiteError, match="n01: file /run/cilium"):
            switch.run(dry_run=False)
    else:
        result = switch.run(dry_run=False)
        assert result.removed == {"n00": ["link cilium_host"], "n01": ["file /run/cilium"]}
        assert result.left == {"n00": [], "n01": []}
    assert lines[1:] == ["n01: removing what another network created after its removal: file /run/cilium"]
    assert "rm -rf -- /run/cilium" in hosts["n01"].scripts[0] and "rm" not in hosts["n00"].scripts[0]


def test_an_agent_that_ends_meanwhile_is_not_connected_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"metadata": {"name": "weave-1"}, "spec": {"nodeName": "n00"}}
    monkeypatch.setattr(cluster_objects, "agent_pods", lambda *_: [pod])
    monkeypatch.setattr(cluster_objects, "is_running", lambda *_: True)

    def run_command(*_: object, **__: object) -> None:
        raise ApiError(404, "container not found")

    monkeypatch.setattr(exec_stream, "run_command", run_command)
    (message,) = switch_of("weavenet", 2)._missing_connections()
    assert message.startswith("n00: 0 of 1 connections") and "container not found" in message
