"""Switch the network of a real cluster with pods of every kind, in both directions and interrupted."""

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
from typing import Any

import pytest

from k8sdds import networks, versions
from k8sdds.deploy.network_install import render, with_network
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.profiles import load
from k8sdds.kubernetes import apply
from k8sdds.model.profile import PodNetwork
from tests.cluster import lab_objects
from tests.cluster.switched import KUBECTL, inside_of
from tests.clusters import Deployed
from tests.commands import K8SDDS

POD_CIDR = IPv4Network("10.244.0.0/16")
SPACE = "switching"
SECRET = "0123456789abcdef" * 6
STEPS = ("checking the images of", "removing", "installing", "recreating .* pods")
"""Start of the line that a switch prints at each step, as a regular expression."""


@pytest.fixture
def inside(one_machine: Deployed) -> Callable[..., str]:
    """Run a command in a node without SSH, with `stdin` as its input."""
    return inside_of(one_machine)


@pytest.fixture
def pods(one_machine: Deployed, inside: Callable[..., str]) -> Iterator[None]:
    """Create a single pod, a DaemonSet, a pod with hostNetwork and a completed pod."""
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


def pods_of(cluster: Deployed) -> dict[str, dict[str, Any]]:
    items = json.loads(cluster.kubectl("get", "pods", "-n", SPACE, "-o", "json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def await_pods(cluster: Deployed) -> dict[str, dict[str, Any]]:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        pods_by_name = pods_of(cluster)
        if len(pods_by_name) == 3 + len(cluster.nodes) and all(
            item["status"]["phase"] == ("Succeeded" if name == "ended" else "Running")
            for name, item in pods_by_name.items()
        ):
            return pods_by_name
        time.sleep(0.5)
    raise AssertionError({name: item["status"] for name, item in pods_by_name.items()})


def uids(pods: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: item["metadata"]["uid"] for name, item in pods.items()}


def leftovers(
    inside: Callable[..., str], cluster: Deployed, names: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Return the leftovers on every node, with the parts of names removed that change with each pod."""
    states = {
        node: node_state.parse(inside(node, "sh", stdin=footprint.probe_script())) for node in cluster.nodes
    }
    addresses = [f"10.88.0.{11 + number}" for number in range(len(cluster.nodes))]
    return {
        node: sorted(
            {
                re.sub(r"-[0-9a-f]{64}-eth0|(?<= veth)[0-9a-f]{8}", "", str(leftover))
                for leftover in footprint.leftovers(state, addresses, [POD_CIDR], names)
            }
        )
        for node, state in states.items()
    }


def without_pods(lines_by_node: dict[str, list[str]]) -> dict[str, list[str]]:
    """Drop what a node has only while a pod runs there: CoreDNS may move, and pods of other tests may end late."""
    pod_dependent = ("/var/lib/cni/", "pod link", "link cni0", "dev cni0")
    return {
        node: [item for item in lines if not any(pattern in item for pattern in pod_dependent)]
        for node, lines in lines_by_node.items()
    }


def switched(cluster: Deployed, name: str) -> dict[str, Any]:
    planned = cluster.k8sdds("network", "switch", cluster.name, name, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    done = cluster.k8sdds("network", "switch", cluster.name, name, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert "exchange datagrams" in done.stderr  # the smoke test, which must pass
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["network"] == name and answer["changed"]
    assert set(answer["left"]) == set(cluster.nodes) and not any(answer["left"].values())
    assert all(answer["removed"].values())
    plan = json.loads(planned.stdout)
    assert (plan["changed"], plan["removed"]) == (True, answer["removed"])
    return answer


@pytest.mark.long
def test_switch_through_all_networks_and_back(
    one_machine: Deployed, inside: Callable[..., str], pods: None
) -> None:
    first = leftovers(inside, one_machine)
    before = await_pods(one_machine)
    for name, links, annotated in (
        ("flannel-hostgw", {"cni0"}, True),
        ("host", {"k8sdds0"}, False),
    ):
        answer = switched(one_machine, name)
        after = await_pods(one_machine)
        # Every pod on the pod network was recreated and has an address; the other pods are unchanged.
        kept = {"on-host", "ended"}
        same = {item for item in after if uids(before).get(item) == after[item]["metadata"]["uid"]}
        assert same == kept
        assert f"{SPACE}/alone" in answer["recreated"] and f"{SPACE}/on-host" not in answer["recreated"]
        assert after["alone"]["spec"]["nodeName"] == one_machine.nodes[1]
        assert after["alone"]["metadata"]["labels"] == {"is": "alone"}
        for pod_name, item in after.items():
            if pod_name not in kept:
                assert IPv4Address(item["status"]["podIP"]) in POD_CIDR
        # The nodes have only the links and annotations of the new network.
        remaining = leftovers(inside, one_machine)
        for node in one_machine.nodes:
            created = {line.removeprefix("link ") for line in remaining[node] if line.startswith("link ")}
            assert created == links, (node, created)
            # No veth of an old pod remains: each is attached to a bridge of the new network.
            veths = json.loads(inside(node, "ip", "-j", "link", "show", "type", "veth"))
            loose = {link["ifname"] for link in veths if link.get("master") not in links}
            assert loose == {"eth0"}
        text = one_machine.kubectl("get", "nodes", "-o", "json")
        assert ("flannel.alpha.coreos.com" in text) == ("NetworkUnavailable" in text) == annotated
        label = f"k8sdds.io/network={name}"
        others = one_machine.kubectl(
            "get", "daemonsets,configmaps,secrets,serviceaccounts,clusterroles,clusterrolebindings", "-A",
            "-l", "k8sdds.io/network,k8sdds.io/network!=" + name, "-o", "name",
        )  # fmt: skip
        assert others == "" and one_machine.kubectl("get", "daemonsets", "-A", "-l", label, "-o", "name")
        if networks.find(name).kernel_differences:
            assert lab_objects.undeclared(name, one_machine, inside) == []
        before = after
    # The profile is unchanged: a deploy installs its network again, and shows this in the plan.
    plan = json.loads(one_machine.k8sdds("deploy", one_machine.name, "--dry-run", "--json").stdout)
    titles = [action["title"] for action in plan["actions"] if action["phase"] == "network"]
    assert titles == ["replace host by flannel-vxlan, and recreate all pods"]
    done = one_machine.k8sdds("deploy", one_machine.name, "--yes")
    assert done.returncode == 0, done.stderr
    assert "smoke test: exchange datagrams" in done.stdout + done.stderr
    after = await_pods(one_machine)
    assert {item for item in after if uids(before).get(item) == after[item]["metadata"]["uid"]} == {
        "on-host",
        "ended",
    }
    assert leftovers(inside, one_machine) == first
    assert one_machine.k8sdds("deploy", one_machine.name, "--yes").stdout == "no changes\n"


def interrupted(one_machine: Deployed, inside: Callable[..., str], step: str) -> None:
    """Kill the command when a step begins; complete it with the same command, then switch back."""
    argv = [str(K8SDDS), "network", "switch", one_machine.name, "flannel-hostgw", "--yes"]
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, "K8SDDS_STATE_DIR": str(one_machine.state)}, start_new_session=True,
    ) as command:  # fmt: skip
        assert command.stderr is not None
        for line in command.stderr:
            if re.match(step, line):
                break
        else:
            raise AssertionError(f"no line matches {step}")
        time.sleep(random.Random(step).uniform(0, 2))
        os.killpg(command.pid, signal.SIGKILL)
    for name in ("flannel-hostgw", "flannel-vxlan"):
        done = one_machine.k8sdds("network", "switch", one_machine.name, name, "--yes")
        assert done.returncode == 0, done.stderr
        assert leftovers(inside, one_machine, [name]) == leftovers(inside, one_machine)


@pytest.mark.long
def test_leftovers_of_an_interrupted_deploy_are_removed(
    one_machine: Deployed, inside: Callable[..., str]
) -> None:
    before = without_pods(leftovers(inside, one_machine))
    inside(one_machine.nodes[1], "sh", "-e", stdin="ip link add weave type bridge\nmkdir -p /var/lib/weave\n")
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert {"link weave", "file /var/lib/weave"} <= set(
        json.loads(done.stdout)["removed"][one_machine.nodes[1]]
    )
    assert without_pods(leftovers(inside, one_machine)) == before


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_switch_interrupted_in_any_step_can_be_completed(
    one_machine: Deployed, inside: Callable[..., str], step: str
) -> None:
    interrupted(one_machine, inside, step)


def test_a_network_that_cannot_run_is_rejected_before_the_removal(
    one_machine: Deployed, inside: Callable[..., str]
) -> None:
    message = "the kernel does not support openvswitch|cannot get docker.io/rajchaudhuri/weave"
    before = without_pods(leftovers(inside, one_machine))
    done = one_machine.k8sdds("network", "switch", one_machine.name, "weavenet", "--yes")
    assert done.returncode == 3 and re.search(message, done.stderr), done.stderr
    assert without_pods(leftovers(inside, one_machine)) == before


def test_wireguard_requires_its_kernel_module(one_machine: Deployed, inside: Callable[..., str]) -> None:
    before = without_pods(leftovers(inside, one_machine))
    done = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-wireguard", "--yes")
    if "the kernel does not support wireguard" in done.stderr:
        assert done.returncode == 3 and without_pods(leftovers(inside, one_machine)) == before
    else:
        assert done.returncode == 0, done.stderr
        assert all("link flannel-wg" in lines for lines in leftovers(inside, one_machine).values())
        switched(one_machine, "flannel-vxlan")
        assert without_pods(leftovers(inside, one_machine)) == before


@pytest.mark.parametrize("source", ["bundle", "packages"])
def test_the_api_server_accepts_the_objects_of_every_network(
    one_machine: Deployed, inside: Callable[..., str], source: str
) -> None:
    """Validates strictly, including unknown fields, in a server-side dry run."""
    objects: list[dict[str, Any]] = []
    for name, encrypts in networks.pod_networks().items():
        secret = {"password_file": "psk"} if encrypts else {}
        network = PodNetwork(name=name, mtu=1300, interface="eth0", **secret)  # type: ignore[arg-type]
        profile = with_network(load("one-machine"), network)
        software = profile.software.model_copy(update={"source": source, "bundle": None})
        rendered = render(profile.model_copy(update={"software": software}), SECRET if encrypts else None)
        objects += apply.stamped(rendered.manifests, name)
    argv = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-")
    output = inside(one_machine.nodes[0], *KUBECTL, *argv, stdin=apply.list_document(objects))
    assert output.count("(server dry run)") == len(objects), output
