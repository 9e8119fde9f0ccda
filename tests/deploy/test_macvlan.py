"""Switch a real cluster to macvlan, measure DDS on the pods' second interface, and compare the nodes before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes
from k8sdds.kubernetes import apply
from tests.clusters import Deployed
from tests.deploy import node_facts
from tests.deploy.test_kube_router import KUBECTL, pod

pytestmark = pytest.mark.long

SPACE = "kube-router-test"
"""Namespace of the pods of `test_kube_router.pod`."""
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
MULTUS = "k8s.v1.cni.cncf.io/test"
"""An annotation of nodes by which k8sdds detects Multus."""


def test_dds_is_measured_on_the_second_interface_and_nothing_remains(
    one_machine: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
    control = one_machine.nodes[0]

    def inside(node: str, *argv: str, stdin: str = "") -> str:
        return nodes.run(one_machine.name, node, argv, stdin=stdin, timeout_s=120)

    def apply_objects(objects: list[dict[str, Any]]) -> None:
        inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(objects))

    def facts() -> dict[str, set[str]]:
        return {
            node: node_facts.read(lambda script, node=node: inside(node, "sh", stdin=script))  # type: ignore[misc]
            for node in one_machine.nodes
        }

    def switch(name: str) -> None:
        done = one_machine.k8sdds("network", "switch", one_machine.name, name, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        assert not any(json.loads(done.stdout)["left"].values())
        one_machine.kubectl("wait", "pod", "--all", "-n", SPACE, "--for=condition=Ready", "--timeout=60s")

    apply_objects([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        *(pod(f"on-{node}", node) for node in one_machine.nodes),
    ])  # fmt: skip
    one_machine.kubectl("wait", "pod", "--all", "-n", SPACE, "--for=condition=Ready", "--timeout=60s")
    before = facts()
    try:
        switch("macvlan")
        apply_objects(DEFINITIONS)
        crd = DEFINITIONS[0]["metadata"]["name"]
        one_machine.kubectl("wait", "crd", crd, "--for=condition=Established", "--timeout=30s")
        apply_objects([LAN])
        one_machine.kubectl("annotate", "node", control, f"{MULTUS}=1")
        interfaces = {}
        for index, node in enumerate(one_machine.nodes):
            show = ("ip", "-json", "-details", "address", "show", "dev", "net1")
            (link,) = json.loads(one_machine.kubectl("exec", "-n", SPACE, f"on-{node}", "--", *show))
            assert link["linkinfo"]["info_kind"] == "macvlan" and link["mtu"] == 1500, link
            (own,) = (each for each in link["addr_info"] if each["family"] == "inet")
            assert own["prefixlen"] == 16
            interfaces[node] = own["local"]
            conflist = json.loads(inside(node, "cat", "/etc/cni/net.d/10-k8sdds-host.conflist"))
            ranges = conflist["plugins"][1]["delegate"]["ipam"]["ranges"][0][0]
            assert own["local"].rpartition(".")[0] == ranges["rangeStart"].rpartition(".")[0], (index, ranges)
        assert len({address.rpartition(".")[0] for address in interfaces.values()}) == len(interfaces)

        (tmp_path / "second.yaml").write_text(EXPERIMENT)
        wanted = ("--network", "host", "--network", "macvlan", "--network", "multus")
        done = one_machine.k8sdds(
            "run",
            str(tmp_path / "second.yaml"),
            "--testbed",
            one_machine.name,
            *wanted,
            "-o",
            str(tmp_path / "run"),
        )
        assert done.returncode in (0, 4), done.stdout + done.stderr
        rows = [json.loads(line) for line in (tmp_path / "run/trials.jsonl").read_text().splitlines()]
        # On a busy machine, an attempt may be repeated, but not because of the path.
        reasons = {str(row["reason"]).split(":")[0] for row in rows if not row["valid"]}
        assert reasons <= {"uneven", "lost-samples", "deadline", "peer-lost"}, reasons
        for name in ("macvlan", "multus"):
            valid = [row for row in rows if row["network"] == name and row["valid"]]
            assert {row["transport"] for row in valid} == {"unicast", "multicast"}
            for row in valid:
                found = row["fingerprint"]
                assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == (
                    "none",
                    0,
                    True,
                )
                # Not compared: rules that match, because the node's own traffic to the API server grows their counters.
                assert (found["masqueraded"], found["conntrack"]) == (False, False)
                assert row["mtu_bytes"] == found["path_mtu_bytes"] == 1500
                assert not any(warning.startswith("unproven") for warning in row["warnings"])
            proof = "directly on eth0, no tunnel" if name == "macvlan" else "observed, not known in advance"
            assert all(proof in row["network_proof"] for row in valid)
    finally:
        one_machine.kubectl("annotate", "node", control, f"{MULTUS}-")
        one_machine.kubectl("delete", "crd", "--ignore-not-found", DEFINITIONS[0]["metadata"]["name"])
        switch("flannel-vxlan")
        after = facts()
        one_machine.kubectl("delete", "namespace", SPACE)
    for node in one_machine.nodes:
        assert (after[node] - before[node], before[node] - after[node]) == (set(), set()), node
