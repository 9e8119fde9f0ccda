"""Measure macvlan next to Flannel on one cluster: the profile installs Multus, which adds the pods' second interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds.kubernetes import apply
from k8sdds.networks.macvlan import multus
from k8sdds.report import caveats, content
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import shared
from tests.cluster.switched import KUBECTL, SPACE, WAIT, facts, inside_of, pod, switch_by_command
from tests.clusters import Deployed
from tests.measuring import experiment, valid_attempts

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

POD = "with-lan"
SWEEPS = """\
  - networks: [flannel-vxlan, macvlan]
    test: [throughput, latency]
    payload_bytes: 1024
    subscribers: 4
  - networks: [macvlan]
    test: [throughput, latency]
    payload_bytes: 1024
    subscribers: 4
    transport: multicast
"""


def attached() -> dict[str, Any]:
    """Return a pod that requests the attachment as any user would."""
    made = pod(POD, "worker1")
    made["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/networks": multus.ATTACHMENT}
    return made


@pytest.fixture
def profile(one_machine: Deployed, tmp_path: Path) -> Iterator[Path]:
    """Deploy a profile with a second network, and the first one again. Everything on the nodes is then as before."""
    inside, first = inside_of(one_machine), shared("profiles") / "one-machine.yaml"
    path = tmp_path / first.name
    path.write_text(f"{first.read_text()}second_network: macvlan\n")

    def deploy(profile: str) -> str:
        done = one_machine.k8sdds("deploy", profile, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # A pod on every node, so that its bridge exists before and after.
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        *(pod(f"on-{node}", node) for node in one_machine.nodes),
    ]
    inside(one_machine.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(made))
    try:
        one_machine.kubectl(*WAIT)
        before = facts(inside, one_machine)
        try:
            assert "smoke test: exchange datagrams between 3 nodes, also on macvlan" in deploy(str(path))
            assert not json.loads(one_machine.k8sdds("deploy", str(path), "--dry-run", "--json").stdout)[
                "actions"
            ]
            yield path
        finally:
            deploy(one_machine.name)
        one_machine.kubectl(*WAIT)
        after = facts(inside, one_machine)
        for node in one_machine.nodes:
            assert (after[node] - before[node], before[node] - after[node]) == (set(), set()), node
        definition = ("get", "crd", "--ignore-not-found", "network-attachment-definitions.k8s.cni.cncf.io")
        assert not one_machine.kubectl(*definition)
    finally:
        one_machine.kubectl("delete", "namespace", SPACE)


def test_macvlan_is_measured_next_to_flannel(profile: Path, one_machine: Deployed, tmp_path: Path) -> None:
    path, folder = tmp_path / "with-multus.yaml", tmp_path / "run"
    path.write_text(experiment(SWEEPS, baseline="flannel-vxlan", duration_s=0.5))
    check_pod(one_machine)
    done = one_machine.k8sdds("run", str(path), "--testbed", one_machine.name, "-o", str(folder))
    assert done.returncode in (0, 4), done.stdout + done.stderr
    rows = valid_attempts(folder)
    of = {name: [row for row in rows if row["network"] == name] for name in ("flannel-vxlan", "macvlan")}
    assert {row["transport"] for row in of["macvlan"]} == {"unicast", "multicast"}
    assert ("latency", "multicast") in {(row["test"], row["transport"]) for row in of["macvlan"]}
    notes = caveats.notes(content.read(RunFolder.open(folder)))
    assert any(note.startswith("Samples of macvlan used net1, the second interface") for note in notes)
    for row in of["macvlan"]:
        found = row["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("none", 0, True)
        assert (found["masqueraded"], found["conntrack"], found["path_mtu_bytes"]) == (False, False, 1500)
        assert "directly on eth0, no tunnel" in row["network_proof"]
    for row in of["flannel-vxlan"]:
        found = row["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("VXLAN", 50, False)
    check_traffic(of)
    switch_by_command(one_machine, profile, "flannel-hostgw")
    check_pod(one_machine)


def check_pod(cluster: Deployed) -> None:
    """Check that Multus has added a macvlan interface with an address of the node's range, and has reported it."""
    stdin = apply.list_document([attached()])
    inside_of(cluster)(cluster.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=stdin)
    cluster.kubectl(*WAIT)
    show = ("exec", "-n", SPACE, POD, "--", "ip", "-json", "-details", "address", "show", "dev", "net1")
    (link,) = json.loads(cluster.kubectl(*show))
    assert link["linkinfo"]["info_kind"] == "macvlan"
    (address,) = (each["local"] for each in link["addr_info"] if each["family"] == "inet")
    reported = json.loads(cluster.kubectl("get", f"pod/{POD}", "-n", SPACE, "-o", "json"))["metadata"][
        "annotations"
    ]
    first, second = json.loads(reported["k8s.v1.cni.cncf.io/network-status"])
    assert (first["default"], second["name"], second["ips"]) == (True, multus.ATTACHMENT, [address])
    cluster.kubectl("delete", "pod", POD, "-n", SPACE)


def check_traffic(of: dict[str, list[dict[str, Any]]]) -> None:
    """Check that a sample to four subscribers on two nodes leaves the publisher's node once by multicast."""
    for row in (row for rows in of.values() for row in rows if row["test"] == "throughput"):
        sent = row["wire_bytes_per_payload_byte"]
        assert sent is not None and (sent < 0.5) == (row["transport"] == "multicast"), (row["network"], sent)
