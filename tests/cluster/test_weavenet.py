"""Run the real daemons of WeaveNet, from archives of their images, on a real cluster, by the datapath in userspace (sleeve).

weaver sets the MTU of its bridge with a dummy link, which the kernel must have. The fast datapath is tested in the virtual
machine (tests/lab/vm).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds import networks, versions
from k8sdds.deploy import deployed_clusters, limits, network_install, profiles
from k8sdds.networks.weave import WEAVENET
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.kernel_features import Feature, available
from tests import image_archives
from tests.cluster.switched import (
    Switched,
    check_network_policies,
    profile_with_bundle,
    switched_to,
)
from tests.clusters import Deployed
from tests.measuring import experiment, valid_attempts

FEATURES = (
    Feature("openvswitch", ("openvswitch",), "the fast datapath", "modprobe --dry-run openvswitch"),
    Feature("dummy", ("dummy",), "the MTU of the bridge", "ip link add d0 type dummy"),
)
HAS = {feature.name: available(feature) for feature in FEATURES}
STATUS = ("/home/weave/weave", "--local", "status", "connections")
SWEEP = """\
  - networks: [host, {name: weavenet, engine: sleeve}]
    test: {name: paced, deadline_ms: 1000}
    rate: 200
    payload_bytes: 256
    subscribers: 2
    transport: multicast
"""


def without_features(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave out the preflight check for features of the kernel."""

    def reduced(install: Any) -> Any:
        kept = tuple(feature for feature in install.node_features if feature.name not in names)
        return replace(install, node_features=kept)

    assert WEAVENET.cluster is not None
    engines = tuple(replace(engine, install=reduced(engine.install)) for engine in WEAVENET.cluster_engines)
    weavenet = replace(WEAVENET, cluster=reduced(WEAVENET.cluster), cluster_engines=engines)
    patch.setitem(networks.NETWORKS, "weavenet", weavenet)


def switch(cluster: Deployed, profile: Path, engine: str | None, *unchecked: str) -> dict[str, Any]:
    """Switch to WeaveNet like the command, but without the check for some features of the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(cluster.state))
        without_features(patch, *unchecked)
        loaded = profiles.load(str(profile))
        network = network_install.choose_network(loaded, "weavenet", engine=engine)
        result = deployed_clusters.switch_and_verify(loaded, network, False, print)
    return asdict(result)


@pytest.fixture(scope="module")
def profile(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the profile of the cluster with a bundle that contains WeaveNet."""
    if not HAS["dummy"]:
        pytest.skip("this kernel has no dummy links, which weaver needs")
    folder = tmp_path_factory.mktemp("weavenet")
    return profile_with_bundle(one_machine, folder, image_archives.options("weavenet"))


@pytest.fixture(scope="module")
def switched(one_machine: Deployed, profile: Path) -> Iterator[Switched]:
    """Switch the cluster from flannel-vxlan to WeaveNet, and at the end back. Nothing on a node may have changed."""
    with switched_to(one_machine, profile, lambda: switch(one_machine, profile, "sleeve")) as cluster:
        yield cluster


def agents(cluster: Deployed) -> list[str]:
    options = ("-n", versions.NETWORK_NAMESPACE, "-l", "app.kubernetes.io/name=weave")
    items = json.loads(cluster.kubectl("get", "pods", *options, "-o", "json"))["items"]
    return [item["metadata"]["name"] for item in items]


def connections(cluster: Deployed, agent: str) -> list[str]:
    """Return the lines about the peers of an agent."""
    exec_ = ("exec", "-n", versions.NETWORK_NAMESPACE, agent, "-c", "weave", "--")
    lines = cluster.kubectl(*exec_, *STATUS).splitlines()
    return [line for line in lines if line and "cannot connect to ourself" not in line]


@pytest.mark.parametrize(("engine", "feature"), [((), "openvswitch"), (("--engine", "sleeve"), "dummy")])
def test_a_kernel_that_lacks_a_feature_is_refused(
    one_machine: Deployed, engine: tuple[str, ...], feature: str
) -> None:
    if HAS[feature]:
        pytest.skip(f"this kernel has {feature}")
    done = one_machine.k8sdds("network", "switch", one_machine.name, "weavenet", *engine, "--yes")
    assert done.returncode == 3, done.stderr
    assert f"all 3 nodes: the kernel does not support {feature}, which weavenet needs" in done.stderr
    assert ("engine: sleeve" in done.stderr) == (not engine)
    installed = one_machine.kubectl("get", "daemonsets", "-n", versions.NETWORK_NAMESPACE, "-o", "name")
    assert installed.split() == ["daemonset.apps/flannel"]


@pytest.mark.long
@pytest.mark.skipif(HAS["openvswitch"], reason="this kernel has Open vSwitch")
def test_after_a_fallback_to_sleeve_the_previous_network_is_restored(
    one_machine: Deployed, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """weaver itself falls back without an error."""
    monkeypatch.setattr(limits, "READY_S", 25)
    with pytest.raises(PrerequisiteError) as caught:
        switch(one_machine, profile, None, "openvswitch")
    assert "missing link datapath" in caught.value.message
    assert "established sleeve" in caught.value.message
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
        assert deployed_clusters.current_network(one_machine.name) == ("flannel-vxlan", None)
    assert (
        "no changes" in one_machine.k8sdds("network", "switch", str(profile), "flannel-vxlan", "--yes").stdout
    )


@pytest.mark.long
def test_all_nodes_are_connected_by_sleeve(switched: Switched) -> None:
    found = agents(switched.cluster)
    assert len(found) == 3
    for agent in found:
        lines = connections(switched.cluster, agent)
        assert len(lines) == 2 and all(re.search(r"established +sleeve", line) for line in lines), lines
    mtus = {switched.exec(f"on-{node}", "cat", "/sys/class/net/eth0/mtu") for node in switched.cluster.nodes}
    assert {mtu.strip() for mtu in mtus} == {"1438"}


@pytest.mark.long
def test_network_policies_are_enforced(switched: Switched) -> None:
    check_network_policies(switched)


@pytest.mark.long
def test_multicast_reaches_both_receivers_completely(switched: Switched, tmp_path: Path) -> None:
    path, folder = tmp_path / "multicast.yaml", tmp_path / "run"
    path.write_text(experiment(SWEEP, baseline="host", warmup_s=0.3))
    on_cluster = ("--testbed", switched.cluster.name, "-o", str(folder))
    done = switched.cluster.k8sdds("run", str(path), *on_cluster)
    assert done.returncode in (0, 4), done.stderr
    (row,) = (row for row in valid_attempts(folder) if row["network"] == "weavenet")
    print(json.dumps(row)[:4000])
    assert row["engine"] == "userspace sleeve" and row["fidelity"] == "real" and row["mtu_bytes"] == 1438
    assert row["network_label"] == "weavenet (userspace sleeve)"
    assert "vethwe-pcap" in row["network_proof"]
    assert row["fingerprint"]["multicast"] is True


@pytest.mark.long
def test_a_restart_of_the_agents_keeps_the_network(switched: Switched) -> None:
    """Without WEAVE_NO_FASTDP, weaver would refuse its own bridge where the kernel has no Open vSwitch."""
    before = set(agents(switched.cluster))
    switched.cluster.kubectl("delete", "pod", "-n", versions.NETWORK_NAMESPACE, *before)
    rollout = ("rollout", "status", "daemonset/weave", "-n", versions.NETWORK_NAMESPACE, "--timeout=180s")
    switched.cluster.kubectl(*rollout)
    assert not before & set(agents(switched.cluster))
    switched.await_answers("on-worker2", switched.addresses()["on-worker1"], True)
