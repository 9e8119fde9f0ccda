"""Services of the lab: the rules of kube-proxy, the address of the client, and the proof that rules translated it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds import middleware
from k8sdds.campaign import contradictions
from k8sdds.model.measurement import ParticipantPaths
from k8sdds.model.services import MAX_SERVICES, cluster_ip
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.testbeds.lab import preflight
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.topology import LabNetworkKey
from k8sdds.workloads import TrialOutputs, find
from k8sdds.workloads.program import Surroundings


def cell(services: int = 1, network: str = "flannel-vxlan", **values: Any) -> Cell:
    options = {"test_options": {"services": services}}
    return Cell(**({"network": network, "test": "service", "payload_bytes": 1} | options | values))


def rules(own: Cell, node: str = "node0") -> list[str]:
    plan = make_plan(own)
    batches = (*plan.batches, *plan.services)
    own_rules = [batch.lines for batch in batches if batch.namespace == node and "tables" in batch.tool]
    return [line for lines in own_rules for line in lines]


def test_a_service_has_the_rules_of_kube_proxy() -> None:
    added = [line for line in rules(cell()) if line not in rules(cell(test="tcp-crr", test_options={}))]
    portal = '-d 10.96.0.10/32 -p tcp -m comment --comment "k8sdds/service-0 cluster IP" -m tcp --dport 5202'
    chains = [line.split()[0][1:] for line in added if line.startswith(":")]
    service, endpoint = chains
    assert service.startswith("KUBE-SVC-") and endpoint.startswith("KUBE-SEP-")
    address = make_plan(cell()).datapath.attachments["sub0"].address
    assert added[2:] == [
        f"-I KUBE-SERVICES 1 {portal} -j {service}",
        f"-A {service} ! -s 10.244.0.0/16 {portal} -j KUBE-MARK-MASQ",
        f'-A {service} -m comment --comment "k8sdds/service-0 -> {address}:5202" -j {endpoint}',
        f'-A {endpoint} -s {address}/32 -m comment --comment "k8sdds/service-0" -j KUBE-MARK-MASQ',
        f'-A {endpoint} -p tcp -m comment --comment "k8sdds/service-0" -m tcp -j DNAT'
        f" --to-destination {address}:5202",
    ]
    assert all(len(chain) == len("KUBE-SVC-") + 16 for chain in chains)


def test_the_measured_service_comes_after_all_others() -> None:
    many = rules(cell(MAX_SERVICES))
    inserted = [line for line in many if line.startswith("-I KUBE-SERVICES 1 ")]
    assert len(inserted) == MAX_SERVICES == len({line.split("-d ")[1].split()[0] for line in inserted})
    # Each is inserted before those that were inserted earlier.
    assert "-d 10.96.0.10/32" in inserted[0]
    assert not any("k8sdds/service" in line for line in many)  # as kube-proxy with many endpoints


def test_services_of_ipv6() -> None:
    six = rules(cell(ip_families=("ipv6",)))
    assert any("-d fd00:10:96::a/128" in line for line in six)
    assert any("--to-destination [fd00:10:244:" in line for line in six)


def test_cells_with_other_services_have_another_lab_network() -> None:
    keys = {LabNetworkKey.of(cell(1)), LabNetworkKey.of(cell(2)), LabNetworkKey.of(cell(test="tcp-crr"))}
    assert len(keys) == 3


def test_only_the_client_uses_the_address_of_the_service() -> None:
    trial = Trial(cell=cell(), testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    endpoints = {"pub0": Endpoint("10.0.0.1", "eth0", None), "sub0": Endpoint("10.0.0.2", "eth0", None)}
    surroundings = Surroundings(endpoints, 1, ParticipantPaths("k8sdds-perftest", Path("out"), None))
    program = middleware.program_of(trial.cell)
    client, server = (
        program.command(trial, Participant.named(name), surroundings).argv for name in ("pub0", "sub0")
    )
    assert client[client.index("--address") + 1] == cluster_ip("ipv4", 0) == "10.96.0.10"
    assert server[server.index("--address") + 1] == "10.0.0.2"
    assert "--new-connections" in client
    (problem,) = program.problems([trial], "cluster")
    assert "no Services on a cluster" in problem.what


@pytest.mark.parametrize("network", ["host", "baremetal", "cilium-vxlan", "weavenet"])
def test_networks_without_the_rules_are_refused(network: str) -> None:
    problem = preflight._contradiction(cell(network=network))
    assert problem is not None and "kube-proxy in iptables mode" in problem.what
    assert preflight._contradiction(cell()) is None


def test_a_service_on_one_node_is_refused() -> None:
    refused = contradictions.unsupported(cell(placement="same-node"))
    assert refused == "a service test needs client and server on two nodes: leave out placement"


@pytest.mark.parametrize(("translated", "valid"), [(None, False), (0, False), (109, False), (110, True)])
def test_connections_that_no_rule_translated_are_not_valid(
    translated: int | None, valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8sdds.workloads.tools.round_trips.incomplete", lambda *_: None)
    trial = Trial(cell=cell(), testbed="lab", repetition=0, duration_s=1, warmup_s=0.1)
    counts = {"delivered_bytes": 100, "warmup_delivered_bytes": 10, "measured_s": 1.0, "sent": 100}
    measurement = SimpleNamespace(service_connections=translated, outcomes={})
    client = {Participant.named("pub0"): Summary(counts)}
    outputs = TrialOutputs(trial, cast(Any, measurement), Path(), client)
    reason = find("service").invalid(outputs)
    assert (reason is None) == valid
    assert valid or (reason or "").startswith("not-translated: ")
    lossy = replace(outputs, summaries={})
    assert find("service").invalid(lossy) is None
