"""Switch a real cluster to macvlan, measure DDS on the pods' second interface, and compare the nodes before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes import apply
from tests.cluster.switched import KUBECTL, Switched, switch_by_command, switched_to
from tests.clusters import Deployed

pytestmark = pytest.mark.long

EXPERIMENT = """\
name: second-interface
title: Does DDS use the second interface?
baseline: host
repetitions: 1
duration_s: 0.5
warmup_s: 0.2
sweeps:
  - networks: [host, macvlan, {name: multus, attachment: default/lan}]
    test: [throughput, latency]
    transport: [unicast, multicast]
    payload_bytes: 1024
"""
# Stands for Multus, which is not available here: the pods of macvlan have an interface `net1` as with the annotation.
DEFINITIONS: list[dict[str, Any]] = [
    {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition",
            },
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
                }},
            }],
        },
    },
]  # fmt: skip
LAN = {
    "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "lan", "namespace": "default"}, "spec": {"config": ""},
}  # fmt: skip
AGENT: dict[str, Any] = {
    "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-multus-ds", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"name": "multus"}},
        "template": {
            "metadata": {"labels": {"name": "multus"}},
            "spec": {
                "hostNetwork": True, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "kube-multus", "image": versions.TOOLS_IMAGE, "imagePullPolicy": "Never",
                    "command": ["k8sdds-probe", "listen", "--udp", "7001"],
                }],
            },
        },
    },
}  # fmt: skip
"""k8sdds detects Multus by its agent, which must run."""
AGENT_NAME = ("-n", "kube-system", f"daemonset/{AGENT['metadata']['name']}")


def test_dds_is_measured_on_the_second_interface_and_nothing_remains(
    one_machine: Deployed, tmp_path: Path
) -> None:
    profile = Path(one_machine.name)
    with switched_to(
        one_machine, profile, lambda: switch_by_command(one_machine, profile, "macvlan")
    ) as switched:
        check_interfaces(switched)
        control, (definition,) = one_machine.nodes[0], DEFINITIONS
        try:
            switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(DEFINITIONS))
            crd = f"crd/{definition['metadata']['name']}"
            one_machine.kubectl("wait", crd, "--for=condition=Established", "--timeout=180s")
            switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document([LAN, AGENT]))
            one_machine.kubectl("rollout", "status", *AGENT_NAME, "--timeout=180s", timeout_s=200)
            check_campaign(one_machine, tmp_path)
        finally:
            one_machine.kubectl("delete", *AGENT_NAME, "--ignore-not-found", "--cascade=foreground")
            one_machine.kubectl("delete", "crd", "--ignore-not-found", definition["metadata"]["name"])


def check_interfaces(switched: Switched) -> None:
    """Check that the pods have macvlan interfaces with addresses of their nodes' ranges."""
    ranges = set()
    for node in switched.cluster.nodes:
        show = ("ip", "-json", "-details", "address", "show", "dev", "net1")
        (link,) = json.loads(switched.exec(f"on-{node}", *show))
        assert link["linkinfo"]["info_kind"] == "macvlan" and link["mtu"] == 1500, link
        (own,) = (each for each in link["addr_info"] if each["family"] == "inet")
        conflist = json.loads(switched.inside(node, "cat", "/etc/cni/net.d/10-k8sdds-host.conflist"))
        (one,) = conflist["plugins"][1]["delegate"]["ipam"]["ranges"][0]
        assert own["prefixlen"] == 16
        assert own["local"].rpartition(".")[0] == one["rangeStart"].rpartition(".")[0], one
        ranges.add(one["rangeStart"])
    assert len(ranges) == len(switched.cluster.nodes)


def check_campaign(cluster: Deployed, folder: Path) -> None:
    """Check that a campaign measures both networks on the second interface, by unicast and multicast."""
    (folder / "second.yaml").write_text(EXPERIMENT)
    selected = [option for name in ("host", "macvlan", "multus") for option in ("--network", name)]
    run = ("run", str(folder / "second.yaml"), "--testbed", cluster.name, *selected)
    done = cluster.k8sdds(*run, "-o", str(folder / "run"))
    assert done.returncode in (0, 4), done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "run/trials.jsonl").read_text().splitlines()]
    # On a busy machine, an attempt may be repeated, but not because of the path.
    reasons = {str(row["reason"]).split(":")[0] for row in rows if not row["valid"]}
    assert reasons <= {"uneven", "lost-samples", "deadline", "peer-lost"}, reasons
    for name in ("macvlan", "multus"):
        valid = [row for row in rows if row["network"] == name and row["valid"]]
        assert {row["transport"] for row in valid} == {"unicast", "multicast"}
        for row in valid:
            found = row["fingerprint"]
            assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("none", 0, True)
            # Not compared: rules that match, because the node's own traffic to the API server grows their counters.
            assert (found["masqueraded"], found["conntrack"]) == (False, False)
            assert row["mtu_bytes"] == found["path_mtu_bytes"] == 1500
            assert not any(warning.startswith("unproven") for warning in row["warnings"])
        proof = "directly on eth0, no tunnel" if name == "macvlan" else "observed, not known in advance"
        assert all(proof in row["network_proof"] for row in valid)
