"""Networks of a real cluster replaced by others, there and back, with pods of every kind on it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from k8sdds import networks, nodes, versions
from k8sdds.deploy.network_install import install, with_network
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.profiles import load
from k8sdds.kubernetes import apply
from k8sdds.model.profile import PodNetwork
from tests.cluster import secured
from tests.clusters import K8SDDS, Deployed

POD_CIDR = IPv4Network("10.244.0.0/16")
KUBECTL = ("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf")
SPACE = "switching"
SECRET = "0123456789abcdef" * 6
IN_STEPS = ("checking the images of", "removing", "installing", "recreating .* pods")
"""What a switch says when it begins a step."""


@pytest.fixture
def inside(one_machine: Deployed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in a node without ssh, with what it reads."""
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))

    def run(node: str, *argv: str, stdin: str = "") -> str:
        return nodes.run(one_machine.name, node, argv, stdin=stdin, timeout_s=120)

    return run


@pytest.fixture
def pods(one_machine: Deployed, inside: Callable[..., str]) -> Iterator[None]:
    """A single pod, one of a DaemonSet on every node, one on its node's network, and one that has ended."""
    container = {
        "name": "c", "image": versions.TOOLS_IMAGE, "imagePullPolicy": "Never", "command": ["k8sdds-probe", "listen", "--udp", "7000"],
    }  # fmt: skip
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    done = {**spec, "restartPolicy": "Never", "containers": [{**container, "command": ["true"]}]}
    template = {
        "metadata": {"labels": {"of": "many"}},
        "spec": {**spec, "tolerations": [{"operator": "Exists"}]},
    }
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        pod("alone", {**spec, "nodeName": one_machine.nodes[1], "serviceAccountName": "mine"}),
        pod("on-host", {**spec, "nodeName": one_machine.nodes[1], "hostNetwork": True, "serviceAccountName": "mine"}),
        pod("ended", {**done, "nodeName": one_machine.nodes[1], "serviceAccountName": "mine"}),
        {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "many", "namespace": SPACE},
            "spec": {"selector": {"matchLabels": {"of": "many"}}, "template": template},
        },
    ]  # fmt: skip
    inside(one_machine.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(objects))
    await_pods(one_machine)
    yield
    one_machine.kubectl("delete", "namespace", SPACE)


def pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": SPACE, "labels": {"is": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def found(cluster: Deployed) -> dict[str, dict[str, Any]]:
    items = json.loads(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "json"))["items"]
    return {one["metadata"]["name"]: one for one in items}


def await_pods(cluster: Deployed) -> dict[str, dict[str, Any]]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        there = found(cluster)
        if len(there) == 3 + len(cluster.nodes) and all(
            one["status"]["phase"] == ("Succeeded" if name == "ended" else "Running")
            for name, one in there.items()
        ):
            return there
        time.sleep(0.5)
    raise AssertionError({name: one["status"] for name, one in there.items()})


def uids(there: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in there.items()}


def left(
    inside: Callable[..., str], cluster: Deployed, names: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Traces on every node, without the names that change with each pod."""
    seen = {node: node_state.parse(inside(node, "sh", stdin=footprint.probe_script())) for node in cluster.nodes}
    addresses = [f"10.88.0.{11 + number}" for number in range(len(cluster.nodes))]
    return {
        node: sorted(
            {
                re.sub(r"-[0-9a-f]{64}-eth0|(?<= veth)[0-9a-f]{8}", "", str(one))
                for one in footprint.leftovers(what, addresses, POD_CIDR, names)
            }
        )
        for node, what in seen.items()
    }


def without_pods(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Without what is on a node only while a pod is there: DNS may be on another node than before."""
    of_pods = ("/var/lib/cni/", "pod link", "link cni0", "dev cni0")
    return {
        node: [one for one in lines if not any(sign in one for sign in of_pods)]
        for node, lines in found.items()
    }


def switched(cluster: Deployed, name: str) -> dict[str, Any]:
    done = cluster.k8sdds("network", "switch", cluster.name, name, "--json", timeout_s=900)
    assert done.returncode == 0, done.stderr
    assert "exchange datagrams" in done.stderr  # the smoke test, which must pass
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["network"] == name and answer["changed"]
    assert set(answer["left"]) == set(cluster.nodes) and not any(answer["left"].values())
    assert all(answer["removed"].values())
    return answer


def test_there_and_back(
    one_machine: Deployed, inside: Callable[..., str], pods: None, tmp_path: Path
) -> None:
    first = left(inside, one_machine)
    before = await_pods(one_machine)
    for name, links, annotated in (
        ("flannel-hostgw", {"cni0"}, True),
        ("host", {"k8sdds0"}, False),
    ):
        answer = switched(one_machine, name)
        after = await_pods(one_machine)
        # Every pod with a network of its own is a new one, has an address, and the others are as they were.
        kept = {"on-host", "ended"}
        same = {one for one in after if uids(before).get(one) == after[one]["metadata"]["uid"]}
        assert same == kept
        assert f"{SPACE}/alone" in answer["recreated"] and f"{SPACE}/on-host" not in answer["recreated"]
        assert after["alone"]["spec"]["nodeName"] == one_machine.nodes[1]
        assert after["alone"]["metadata"]["labels"] == {"is": "alone"}
        for pod_name, one in after.items():
            if pod_name not in kept:
                assert IPv4Address(one["status"]["podIP"]) in POD_CIDR
        # The nodes: only the new one's links, and its annotations or none.
        there = left(inside, one_machine)
        for node in one_machine.nodes:
            made = {line.removeprefix("link ") for line in there[node] if line.startswith("link ")}
            assert made == links, (node, made)
            # No end of an old pod's cable: every one is in a bridge of the new network.
            cables = json.loads(inside(node, "ip", "-j", "link", "show", "type", "veth"))
            loose = {link["ifname"] for link in cables if link.get("master") not in links}
            assert loose == {"eth0"}
        text = one_machine.kubectl("get", "nodes", "-o", "json")
        assert ("flannel.alpha.coreos.com" in text) == annotated
        label = f"k8sdds.io/network={name}"
        others = one_machine.kubectl(
            "get", "daemonsets,configmaps,secrets,serviceaccounts,clusterroles,clusterrolebindings", "-A",
            "-l", "k8sdds.io/network,k8sdds.io/network!=" + name, "-o", "name",
        )  # fmt: skip
        assert others == "" and one_machine.kubectl("get", "daemonsets", "-A", "-l", label, "-o", "name")
        if name == secured.NETWORK:
            assert_measured_in_secret(one_machine, tmp_path)
        before = after
    # The profile has not changed: deploying it brings its own network back, and says so.
    plan = json.loads(one_machine.k8sdds("deploy", one_machine.name, "--plan", "--json").stdout)
    titles = [action["title"] for action in plan["actions"] if action["phase"] == "network"]
    assert titles == ["replace host by flannel-vxlan, and recreate all pods"]
    done = one_machine.k8sdds("deploy", one_machine.name, "--yes")
    assert done.returncode == 0, done.stderr
    assert "smoke test: exchange datagrams" in done.stdout + done.stderr
    after = await_pods(one_machine)
    assert {one for one in after if uids(before).get(one) == after[one]["metadata"]["uid"]} == {
        "on-host",
        "ended",
    }
    assert left(inside, one_machine) == first
    assert one_machine.k8sdds("deploy", one_machine.name, "--yes").stdout == "no changes\n"


def assert_measured_in_secret(cluster: Deployed, folder: Path) -> None:
    """DDS Security on a network that is there for a moment; all levels: tests/cluster/test_security.py."""
    found = secured.measure(cluster, folder, ["EncryptRTPS"])
    assert {(row["network"], row["test"]) for row in found if row["valid"]} == {
        (secured.NETWORK, "latency"), (secured.NETWORK, "throughput"),
    }  # fmt: skip
    assert all(row["network_proof"].startswith("routed by eth0, no tunnel") for row in found)


def test_a_switch_to_what_is_there_changes_nothing(one_machine: Deployed) -> None:
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan")
    assert done.returncode == 0 and done.stdout.startswith("no changes"), done.stderr


def interrupted(one_machine: Deployed, inside: Callable[..., str], step: str) -> None:
    """The command is killed as soon as it says that a step begins; the same command goes on, another goes back."""
    said = rf"^{step}"
    words = [str(K8SDDS), "network", "switch", one_machine.name, "flannel-hostgw"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, "K8SDDS_STATE_DIR": str(one_machine.state)}, start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        for line in command.stderr:
            if re.match(said, line):
                break
        else:
            raise AssertionError(f"it never said {step}")
        time.sleep(random.Random(step).uniform(0, 2))
        os.killpg(command.pid, signal.SIGKILL)
    for name in ("flannel-hostgw", "flannel-vxlan"):
        done = one_machine.k8sdds("network", "switch", one_machine.name, name)
        assert done.returncode == 0, done.stderr
        assert left(inside, one_machine, [name]) == left(inside, one_machine)


@pytest.mark.long
def test_what_an_interrupted_deploy_has_left_of_another_network_is_removed(
    one_machine: Deployed, inside: Callable[..., str]
) -> None:
    before = without_pods(left(inside, one_machine))
    inside(one_machine.nodes[1], "sh", "-e", stdin="ip link add weave type bridge\nmkdir -p /var/lib/weave\n")
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan", "--json")
    assert done.returncode == 0, done.stderr
    assert {"link weave", "file /var/lib/weave"} <= set(
        json.loads(done.stdout)["removed"][one_machine.nodes[1]]
    )
    assert without_pods(left(inside, one_machine)) == before


@pytest.mark.long
@pytest.mark.parametrize("step", IN_STEPS)
def test_a_switch_that_is_interrupted_in_any_step(
    one_machine: Deployed, inside: Callable[..., str], step: str
) -> None:
    interrupted(one_machine, inside, step)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weavenet", "the kernel cannot do openvswitch|cannot get docker.io/rajchaudhuri/weave"),
        ("kube-router", "cannot get docker.io/cloudnativelabs/kube-router"),
    ],
)
def test_what_cannot_be_installed_here_is_refused_before_anything_is_removed(
    one_machine: Deployed, inside: Callable[..., str], name: str, said: str
) -> None:
    before = left(inside, one_machine)
    done = one_machine.k8sdds("network", "switch", one_machine.name, name)
    assert done.returncode == 3 and re.search(said, done.stderr), done.stderr
    assert left(inside, one_machine) == before


def test_wireguard_is_for_kernels_that_have_it(one_machine: Deployed, inside: Callable[..., str]) -> None:
    before = left(inside, one_machine)
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-wireguard")
    if "the kernel cannot do wireguard" in done.stderr:
        assert done.returncode == 3 and left(inside, one_machine) == before
    else:
        assert done.returncode == 0, done.stderr
        assert all("link flannel-wg" in lines for lines in left(inside, one_machine).values())
        switched(one_machine, "flannel-vxlan")
        assert without_pods(left(inside, one_machine)) == without_pods(before)


@pytest.mark.parametrize("name", [one.name for one in networks.NETWORKS.values() if one.cluster])
@pytest.mark.parametrize("source", ["bundle", "packages"])
def test_the_real_api_server_takes_every_networks_objects(
    one_machine: Deployed, inside: Callable[..., str], name: str, source: str
) -> None:
    """Strictly validated, down to unknown fields, without being made."""
    secret = {"password_file": "psk"} if networks.pod_networks()[name] else {}
    profile = with_network(load("one-machine"), PodNetwork(name=name, mtu=1300, interface="eth0", **secret))  # type: ignore[arg-type]
    software = profile.software.model_copy(update={"source": source, "bundle": None})
    made = install(profile.model_copy(update={"software": software}), SECRET if secret else None)
    objects = apply.stamped(made.manifests, name)
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-")
    said = inside(one_machine.nodes[0], *KUBECTL, *words, stdin=apply.list_document(objects))
    assert said.count("(server dry run)") == len(objects), said
