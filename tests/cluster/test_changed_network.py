"""A running campaign protects its cluster with a Lease, and reports a network that was switched in spite of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes import leases
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import shared
from tests.cluster.conftest import ENDS_S, running, wait
from tests.clusters import Deployed
from tests.measuring import valid_attempts


def held_leases(cluster: Deployed) -> list[dict[str, Any]]:
    text = cluster.kubectl("get", "leases", "--all-namespaces", "-l", leases.SELECTOR, "-o", "json")
    items: list[dict[str, Any]] = json.loads(text)["items"]
    return items


def test_commands_that_change_the_cluster_refuse_and_a_forced_switch_ends_the_campaign(
    one_machine: Deployed, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    settings = ("--set", "networks=[host, flannel-vxlan]", "--set", "test=latency", "--duration", "1")
    args = ("quickstart", "--testbed", one_machine.name, *settings, "--repeat", "200", "-o", "run")
    with running(tmp_path, *args, K8SDDS_STATE_DIR=str(one_machine.state)) as process:
        wait((folder / "trials.jsonl").exists, process, "the first trial")
        name = RunFolder.open(folder).campaign["campaign"]
        (lease,) = held_leases(one_machine)
        assert lease["spec"]["leaseDurationSeconds"] == leases.DURATION_S
        switch = ("network", "switch", one_machine.name, "flannel-hostgw", "--yes")
        labeled = tmp_path / "one-machine.yaml"
        text = (shared("profiles") / "one-machine.yaml").read_text()
        labeled.write_text(
            text.replace("name: worker1", "name: worker1\n    labels: {k8sdds.io/test: changed}")
        )
        deploy = ("deploy", str(labeled), "--yes")
        # A switch to the installed network changes nothing.
        same = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan", "--yes")
        assert same.returncode == 0 and same.stdout.startswith("no changes"), same.stdout + same.stderr
        for command in (switch, deploy, ("destroy", one_machine.name, "--yes")):
            refused = one_machine.k8sdds(*command)
            message = " ".join(refused.stderr.split())
            assert refused.returncode == 3, message
            assert f"a campaign is running on this cluster: {name} in namespace k8sdds-" in message
            assert f"process {process.pid}, since 2" in message and "--force" in message
        assert process.poll() is None
        forced = one_machine.k8sdds(*switch, "--force")
        assert forced.returncode == 0, forced.stderr
        assert "it stops if its network changes" in " ".join(forced.stderr.split())
        _, errors = process.communicate(timeout=ENDS_S)
    try:
        message = " ".join(errors.split())
        assert process.returncode == 5, message
        assert "the network of the cluster was changed while the campaign ran" in message
        # Depends on how far the switch was when the campaign noticed.
        assert re.search(
            "flannel-vxlan was (removed|replaced by flannel-hostgw);|flannel was installed again or updated;",
            message,
        ), message
        assert "dmesg" not in message
        assert held_leases(one_machine) == []
        # The campaign leaves the network that somebody else has installed.
        same = one_machine.k8sdds(*switch)
        assert same.returncode == 0 and same.stdout.startswith("no changes"), same.stdout + same.stderr
    finally:
        back = one_machine.k8sdds("network", "switch", one_machine.name, "flannel-vxlan", "--yes")
    assert back.returncode == 0, back.stderr


@pytest.mark.long
def test_facts_of_every_network_are_those_of_its_own_block(one_machine: Deployed, tmp_path: Path) -> None:
    settings = ("--set", "networks=[host, flannel-vxlan, flannel-hostgw]", "--set", "test=latency")
    options = ("--testbed", one_machine.name, "--repeat", "1", "--duration", "0.5")
    done = one_machine.k8sdds("run", "quickstart", *settings, *options, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunFolder.open(tmp_path / "run")
    valid = valid_attempts(run.path)
    assert {row["network"] for row in valid} == {"host", "flannel-vxlan", "flannel-hostgw"}
    starts = {"flannel-vxlan": "carried by flannel.1 (vxlan)", "flannel-hostgw": "routed by eth0, no tunnel"}
    for row in valid:
        facts = run.networks[row["network_label"]]
        assert (facts["network_proof"], facts["mtu_bytes"]) == (row["network_proof"], row["mtu_bytes"])
        assert row["network_proof"].startswith(starts.get(row["network"], "routed by eth0, no tunnel"))
        assert row["network"] in ("host", row["installed_network"])
        software = row["network_software"]
        agent = software["k8sdds-network/flannel flanneld"]
        assert versions.FLANNEL in agent and "sha256:" in agent
        assert "kube-proxy:v" in software["kube-system/kube-proxy kube-proxy"]
        assert {"CNI plugin flannel", "CNI plugin bridge", "CNI plugin host-local"} <= software.keys()
    report = (run.path / "report/report.html").read_text()
    assert "flannel-hostgw (block" in report and "k8sdds-network/flannel flanneld" in report
