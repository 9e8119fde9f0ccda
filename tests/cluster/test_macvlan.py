"""Switch a real cluster to macvlan, measure DDS on the pods' second interface, and compare the nodes before and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.switched import Switched, switch_by_command, switched_to
from tests.clusters import Deployed
from tests.measuring import experiment

pytestmark = pytest.mark.long

SWEEP = """\
  - networks: [host, macvlan]
    test: [throughput, latency]
    transport: [unicast, multicast]
    payload_bytes: 1024
"""


def test_dds_is_measured_on_the_second_interface_and_nothing_remains(
    one_machine: Deployed, tmp_path: Path
) -> None:
    profile = Path(one_machine.name)
    with switched_to(
        one_machine, profile, lambda: switch_by_command(one_machine, profile, "macvlan")
    ) as switched:
        check_interfaces(switched)
        check_campaign(one_machine, tmp_path)


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
    """Check that a campaign measures the network on the second interface, by unicast and multicast."""
    (folder / "second.yaml").write_text(experiment(SWEEP, baseline="host", duration_s=0.5))
    selected = ("--network", "host", "--network", "macvlan")
    done = cluster.k8sdds(
        "run", str(folder / "second.yaml"), "--testbed", cluster.name, *selected, "-o", str(folder / "run")
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "run/trials.jsonl").read_text().splitlines()]
    # On a busy machine, an attempt may be repeated, but not because of the path.
    reasons = {str(row["reason"]).split(":")[0] for row in rows if not row["valid"]}
    assert reasons <= {"uneven", "lost-samples", "deadline", "peer-lost"}, reasons
    valid = [row for row in rows if row["network"] == "macvlan" and row["valid"]]
    assert {row["transport"] for row in valid} == {"unicast", "multicast"}
    for row in valid:
        found = row["fingerprint"]
        assert (found["outer_protocol"], found["added_bytes"], found["multicast"]) == ("none", 0, True)
        # Not compared: rules that match, because the node's own traffic to the API server grows their counters.
        assert (found["masqueraded"], found["conntrack"]) == (False, False)
        assert row["mtu_bytes"] == found["path_mtu_bytes"] == 1500
        assert not any(warning.startswith("unproven") for warning in row["warnings"])
        assert "directly on eth0, no tunnel" in row["network_proof"]
