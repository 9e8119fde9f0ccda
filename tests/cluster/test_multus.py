"""Measure macvlan next to Flannel on one cluster: the real Multus, from its Go module, adds the pods' second interface."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, Program
from k8sdds.kubernetes import apply
from tests.cluster.switched import KUBECTL, SPACE, WAIT, facts, inside_of, pod
from tests.clusters import Deployed
from tests.measuring import valid_attempts

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

VERSION, MODULE = "4.2.2", "gopkg.in/k8snetworkplumbingwg/multus-cni.v4"
PROGRAMS = [
    Program(
        name, VERSION, str(Path(__file__).parent / "multus"), f"{MODULE}/cmd/{name}",
        ((f"{MODULE}/pkg/multus.version", f"v{VERSION}"),),
    )
    for name in ("multus", "thin_entrypoint")
]  # fmt: skip
FOLDER = "/opt/multus"
"""Folder of the programs on a node, in place of an image."""
API_SERVER = "::ffff:10.96.0.1"
"""Address of the Service of the API server. The agent puts it in brackets, where Go 1.26 accepts only IPv6."""
GROUP, ATTACHMENT = "k8s.cni.cncf.io", "lan"
POD = "with-lan"
AGENT = ("-n", "kube-system", "daemonset/kube-multus-ds")
CONFIGURATIONS = "/etc/cni/multus/net.d"
"""Folder where Multus looks for the configuration of an attachment that contains none."""
MADE = (
    FOLDER, "/etc/cni/multus", "/etc/cni/net.d/00-multus.conf*", "/etc/cni/net.d/multus.d", "/opt/cni/bin/multus",
    "/var/lib/cni/multus", f"/var/lib/cni/networks/{ATTACHMENT}",
)  # fmt: skip
"""Files of this test and of Multus on a node."""
EXPERIMENT = f"""\
name: with-multus
title: What does the second interface change?
baseline: flannel-vxlan
repetitions: 1
duration_s: 0.5
warmup_s: 0.2
sweeps:
  - networks: [flannel-vxlan, {{name: multus, attachment: default/{ATTACHMENT}}}]
    test: [throughput, latency]
    payload_bytes: 1024
    subscribers: 4
  - networks: [{{name: multus, attachment: default/{ATTACHMENT}}}]
    test: [throughput, latency]
    payload_bytes: 1024
    subscribers: 4
    transport: multicast
"""


def attachment(node: int) -> dict[str, Any]:
    """Return the node's own CNI configuration of the attachment, with addresses that no other node assigns."""
    own = {
        "subnet": "10.246.0.0/16",
        "rangeStart": f"10.246.{node}.10",
        "rangeEnd": f"10.246.{node}.200",
    }
    return {
        "cniVersion": "1.0.0", "name": ATTACHMENT, "type": "macvlan", "mode": "bridge", "master": "eth0",
        "ipam": {"type": "host-local", "ranges": [[own]]},
    }  # fmt: skip


def objects() -> list[dict[str, Any]]:
    """Return the objects of Multus' own manifest, with the programs of the node instead of its image.

    The attachment contains no configuration: Multus reads that of the node.
    """
    account = {"name": "multus", "namespace": "kube-system"}
    rights = [
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "update"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "multus"}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "multus"}, "rules": rights},
        {
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "multus"}, "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
        agent(),
        {"apiVersion": f"{GROUP}/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": ATTACHMENT, "namespace": "default"}},
    ]  # fmt: skip


def agent() -> dict[str, Any]:
    """Return the DaemonSet: it copies the plugin, and writes a configuration that calls the one of Flannel."""
    folders = {"cni": "/etc/cni/net.d", "plugins": "/opt/cni/bin", "programs": FOLDER}
    host = {name: f"/host{path}" for name, path in folders.items()}
    container = {
        "name": "kube-multus", "image": versions.TOOLS_IMAGE, "imagePullPolicy": "Never",
        "command": [
            f"{host['programs']}/thin_entrypoint", f"--multus-bin-file={host['programs']}/multus", "--multus-conf-file=auto",
            "--cleanup-config-on-exit=true",
        ],
        "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": API_SERVER}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in host.items()],
    }  # fmt: skip
    labels = {"name": "multus"}
    spec = {
        "hostNetwork": True, "serviceAccountName": "multus", "tolerations": [{"operator": "Exists"}],
        "containers": [container], "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "kube-multus-ds", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip


def definition() -> dict[str, Any]:
    """Return the kind of attachments."""
    spec = {"type": "object", "properties": {"config": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    kind = {
        "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
        "kind": "NetworkAttachmentDefinition",
    }  # fmt: skip
    versions_ = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": kind, "versions": versions_},
    }  # fmt: skip


def attached() -> dict[str, Any]:
    """Return a pod that requests the attachment as any user would."""
    made = pod(POD, "worker1")
    made["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/networks": f"default/{ATTACHMENT}"}
    return made


@pytest.fixture
def multus(one_machine: Deployed) -> Iterator[None]:
    """Install Multus next to Flannel, and remove it. Everything on the nodes is then the same as before."""
    inside, crd = inside_of(one_machine), f"crd/{definition()['metadata']['name']}"

    def create(*made: dict[str, Any]) -> None:
        inside(one_machine.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(list(made)))

    # A pod on every node, so that its bridge exists before and after.
    create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        *(pod(f"on-{node}", node) for node in one_machine.nodes),
    )
    try:
        one_machine.kubectl(*WAIT, timeout_s=200)
        before = facts(inside, one_machine)
        try:
            prepare_nodes(inside, one_machine)
            create(definition())
            one_machine.kubectl("wait", crd, "--for=condition=Established", "--timeout=180s", timeout_s=200)
            create(*objects())
            one_machine.kubectl("rollout", "status", *AGENT, "--timeout=180s", timeout_s=200)
            for node in one_machine.nodes:
                await_configuration(inside, node)
            create(attached())
            one_machine.kubectl(*WAIT, timeout_s=200)
            yield
        finally:
            one_machine.kubectl("delete", "pod", POD, "-n", SPACE, "--ignore-not-found")
            one_machine.kubectl("delete", *AGENT, "--cascade=foreground", "--ignore-not-found")
            others = (crd, "clusterrole/multus", "clusterrolebinding/multus")
            one_machine.kubectl("delete", *others, "--ignore-not-found")
            one_machine.kubectl("delete", "serviceaccount/multus", "-n", "kube-system", "--ignore-not-found")
            for node in one_machine.nodes:
                inside(node, "sh", "-c", f"rm -rf {' '.join(MADE)}")
        after = facts(inside, one_machine)
        for node in one_machine.nodes:
            assert (after[node] - before[node], before[node] - after[node]) == (set(), set()), node
    finally:
        one_machine.kubectl("delete", "namespace", SPACE)


def prepare_nodes(inside: Callable[..., str], cluster: Deployed) -> None:
    """Copy the programs to the nodes, and write the node's configuration of the attachment."""
    programs = {each.name: golang.build(each, HOST_ARCH, print).read_bytes() for each in PROGRAMS}
    texts = {name: base64.b64encode(gzip.compress(content)).decode() for name, content in programs.items()}
    for index, node in enumerate(cluster.nodes):
        inside(node, "mkdir", "-p", FOLDER, CONFIGURATIONS)
        file = f"{CONFIGURATIONS}/{ATTACHMENT}.conf"
        inside(node, "sh", "-c", f"cat > {file}", stdin=json.dumps(attachment(index)))
        for name, text in texts.items():
            path = f"{FOLDER}/{name}"
            inside(node, "sh", "-c", f"base64 -d | gzip -d > {path} && chmod 755 {path}", stdin=text)


def await_configuration(inside: Callable[..., str], node: str) -> None:
    """Wait until the agent has written the configuration that the container runtime uses."""
    deadline = time.monotonic() + 60
    while "multus" not in inside(node, "sh", "-c", "cat $(ls /etc/cni/net.d/*.conf* | head -n 1)"):
        assert time.monotonic() < deadline, node
        time.sleep(0.5)


def test_macvlan_is_measured_next_to_flannel(multus: None, one_machine: Deployed, tmp_path: Path) -> None:
    experiment, folder = tmp_path / "with-multus.yaml", tmp_path / "run"
    experiment.write_text(EXPERIMENT)
    check_pod(one_machine)
    done = one_machine.k8sdds("run", str(experiment), "--testbed", one_machine.name, "-o", str(folder))
    assert done.returncode in (0, 4), done.stdout + done.stderr
    rows = valid_attempts(folder)
    of = {name: [row for row in rows if row["network"] == name] for name in ("flannel-vxlan", "multus")}
    assert {row["transport"] for row in of["multus"]} == {"unicast", "multicast"}
    for row in of["multus"]:
        found = row["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("none", 0, True)
        assert (found["masqueraded"], found["conntrack"], found["path_mtu_bytes"]) == (False, False, 1500)
        assert "observed, not known in advance" in row["network_proof"]
    for row in of["flannel-vxlan"]:
        found = row["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("VXLAN", 50, False)
    check_traffic(of)


def check_pod(cluster: Deployed) -> None:
    """Check that Multus has added a macvlan interface with an address of the node's range, and has reported it."""
    show = ("exec", "-n", SPACE, POD, "--", "ip", "-json", "-details", "address", "show", "dev", "net1")
    (link,) = json.loads(cluster.kubectl(*show))
    assert link["linkinfo"]["info_kind"] == "macvlan"
    (address,) = (each["local"] for each in link["addr_info"] if each["family"] == "inet")
    reported = json.loads(cluster.kubectl("get", f"pod/{POD}", "-n", SPACE, "-o", "json"))["metadata"][
        "annotations"
    ]
    first, second = json.loads(reported["k8s.v1.cni.cncf.io/network-status"])
    assert (first["default"], second["name"], second["ips"]) == (True, f"default/{ATTACHMENT}", [address])


def check_traffic(of: dict[str, list[dict[str, Any]]]) -> None:
    """Check that a sample to four subscribers on two nodes leaves the publisher's node once by multicast."""
    for row in (row for rows in of.values() for row in rows if row["test"] == "throughput"):
        sent = row["wire_bytes_per_payload_byte"]
        assert sent is not None and (sent < 0.5) == (row["transport"] == "multicast"), (row["network"], sent)
