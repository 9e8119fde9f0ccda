"""Test the installed experiments and the changes of the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from k8sdds.campaign import experiments, preflight, start
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import Changes
from k8sdds.model.experiment import Experiment
from k8sdds.networks import NETWORKS
from k8sdds.system import units, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.kernel_features import CLANG, IPIP
from tests.sampling import sampled

PAPER_NETWORKS = {"host", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"}


INSTALLED = experiments.EXPERIMENTS.names()


@pytest.mark.parametrize("name", INSTALLED)
def test_installed_experiments_have_no_contradictions(name: str) -> None:
    experiment = experiments.load(name)
    assert experiment.name == name
    assert experiment.title
    assert preflight.contradictions(expand(experiment)) == []


@pytest.mark.parametrize("name", sampled(list(zip(INSTALLED)), every_run=10))
def test_experiments_are_recorded_with_their_cells(name: str) -> None:
    experiment = experiments.load(name)
    again = yaml_text.parse(start.experiment_yaml(experiment), Experiment, "again.yaml")
    assert [cell.cell_id for cell in expand(again).cells] == [
        cell.cell_id for cell in expand(experiment).cells
    ]


def test_the_size_of_messages_is_measured_on_every_network_of_the_lab() -> None:
    """Networks that many machines do not support are left out, because an experiment runs with all or none."""
    measured = {cell.network for cell in expand(experiments.load("message-size")).cells}
    rare = {name for name, network in NETWORKS.items() if {CLANG, IPIP} & set(network.requires)}
    assert measured == set(NETWORKS) - rare - {"baremetal"}


def test_a_network_that_an_experiment_does_not_have_can_be_set() -> None:
    with pytest.raises(InputError, match="--network cilium-vxlan: not in this experiment") as error:
        experiments.changed(experiments.load("quickstart"), Changes(["cilium-vxlan"]))
    assert error.value.remedy == "measure it with --set 'networks=[host, cilium-vxlan]'"
    changed = experiments.changed(
        experiments.load("quickstart"), Changes(["cilium-vxlan"], ["networks=[host, cilium-vxlan]"])
    )
    assert {cell.network for cell in expand(changed).cells} == {"host", "cilium-vxlan"}


def test_the_experiments_of_the_study_are_installed() -> None:
    assert set(experiments.EXPERIMENTS.names()) >= {
        "quickstart", "virtualization-overhead", "cni-overhead", "best-effort",
        "multicast-4sub", "multicast-8sub", "multicast-12sub", "multicast-scaling",
    }  # fmt: skip
    overhead = expand(experiments.load("cni-overhead")).cells
    assert {cell.network for cell in overhead} == PAPER_NETWORKS
    assert {cell.payload_bytes for cell in overhead} == {64, 256, 1024, 4096, 16384}
    assert {cell.test for cell in overhead} == {"throughput", "latency"}
    twelve = expand(experiments.load("multicast-12sub")).cells
    assert {cell.subscribers for cell in twelve} == {12}
    assert {cell.network for cell in twelve if cell.transport == "multicast"} == {"host", "weavenet"}
    assert {cell.network for cell in twelve if cell.transport == "unicast"} == PAPER_NETWORKS


def test_multicast_to_12_subscribers_is_measured_on_the_second_network_alone() -> None:
    cells = expand(experiments.load("second-networks")).cells
    assert {(cell.network, cell.transport) for cell in cells} == {
        ("flannel-vxlan", "unicast"), ("macvlan", "unicast"), ("macvlan", "multicast"),
    }  # fmt: skip
    assert {cell.subscribers for cell in cells} == {12}


def test_quickstart_takes_less_than_three_minutes() -> None:
    assert preflight.estimate_s(expand(experiments.load("quickstart"))) < 180


def changed(*settings: str, name: str = "cni-overhead", **options: object) -> Experiment:
    return experiments.changed(experiments.load(name), Changes(settings=settings, **options))


def test_settings_of_experiment_sweep_and_part() -> None:
    assert changed("repetitions=7").repetitions == 7
    assert changed("link.rate_mbit=100").link[0].rate_mbit == 100
    assert {cell.layout for cell in expand(changed("layout=free")).cells} == {"free"}
    assert changed("networks=[host, kube-router]").sweeps[0].networks[1].name == "kube-router"
    assert changed("placement={pub0: 1, sub0: 0}").placement == {"pub0": 1, "sub0": 0}


def test_numbers_have_units_as_in_reports() -> None:
    written = changed(
        "payload_bytes=[64 B, 1.5KiB]", "rate=15 Hz", "message_bytes=[mtu, 1 KiB]", "flow_period_ms=1 s",
        "duration_s=33.3 ms", "link={rate_mbit: 1 Gbit/s, delay_us: 33.3 ms, loss_percent: 1 %}",
        "test={name: paced, deadline_ms: 0.5 s}", "publish_mode=asynchronous", "flow_bytes=1 MiB",
    )  # fmt: skip
    plain = changed(
        "payload_bytes=[64, 1536]", "rate=15", "message_bytes=[mtu, 1024]", "flow_period_ms=1000",
        "duration_s=0.0333", "link={rate_mbit: 1000, delay_us: 33300, loss_percent: 1}",
        "test={name: paced, deadline_ms: 500}", "publish_mode=asynchronous", "flow_bytes=1048576",
    )  # fmt: skip
    assert written == plain
    assert expand(written).cells[0].cell_id == expand(plain).cells[0].cell_id


def test_the_schema_for_editors_accepts_units_where_a_key_has_one() -> None:
    keys = units.allow(experiments.json_schema())["$defs"]["Sweep"]["properties"]
    payload = keys["payload_bytes"]["items"]
    assert payload["type"] == ["integer", "string"]
    assert [bool(re.search(payload["pattern"], text)) for text in ("1.5 KiB", "64B", "1 KB")] == [1, 1, 0]
    assert keys["publishers"]["items"]["type"] == "integer"


def test_durations() -> None:
    assert changed().duration_s == 3
    assert changed(paper=True).duration_s == 120
    assert changed(paper=True, duration_s=2).duration_s == 2
    assert changed(repetitions=9).repetitions == 9


def test_networks_keep_the_baseline_and_drop_sweeps_without_them() -> None:
    both = expand(changed(name="multicast-4sub", networks=["weavenet"])).cells
    assert {(c.network, c.transport) for c in both} == {
        (network, transport) for network in ("host", "weavenet") for transport in ("unicast", "multicast")
    }
    unicast = expand(changed(name="multicast-4sub", networks=["kube-router"])).cells
    assert {(c.network, c.transport) for c in unicast} == {("host", "unicast"), ("kube-router", "unicast")}


@pytest.mark.parametrize("written", ["[host, flannel-vxlan, kube-router]", "[{name: flannel-vxlan}, host]"])
def test_networks_can_be_set_and_selected_at_once(written: str) -> None:
    both = changed(f"networks={written}", networks=["flannel-vxlan"])
    assert {choice.name for sweep in both.sweeps for choice in sweep.networks} == {"host", "flannel-vxlan"}
    with pytest.raises(InputError, match="networks"):
        changed("networks=[7]", networks=["host"])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("transport: multicast", "kube-router carries no multicast between nodes"),
        ("qos: lossless", "there is no QoS profile 'lossless' for cyclonedds"),
    ],
)
def test_contradictions_name_file_and_line(tmp_path: Path, key: str, message: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        f"name: mine\nsweeps:\n  - networks: host\n  - networks: [host, kube-router]\n    {key}\n"
    )
    for selected in ((), ("kube-router",)):
        experiment = experiments.changed(experiments.load(str(mine)), Changes(selected))
        (problem,) = preflight.contradictions(expand(experiment))
        assert problem.what == f"{mine}:4: {message}"


def test_raw_sends_only_samples_that_fit_in_a_packet_with_message_bytes_mtu() -> None:
    raw = ("middleware=raw", "reliability=best-effort", "message_bytes=mtu", "test=throughput")
    problems = preflight.contradictions(expand(changed(*raw, "payload_bytes=1450")))
    assert [problem.what.split(" is ")[-1] for problem in problems] == ["1422 here", "1410 here"]
    assert all("raw sends a sample as one datagram" in problem.what for problem in problems)
    assert preflight.contradictions(expand(changed(*raw, "payload_bytes=1410"))) == []
    divided = (word.replace("raw", "cyclonedds") for word in raw)
    assert preflight.contradictions(expand(changed(*divided, "payload_bytes=1450"))) == []


def test_files_by_path(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\nsweeps:\n  - networks: [host]\n")
    assert experiments.load(str(mine)).name == "mine"
    mine.write_text("name: mine\nsweeps:\n  - networks:\n      - hosst\n")
    with pytest.raises(InputError) as caught:
        experiments.load(str(mine))
    assert caught.value.message.startswith(
        f"{mine}:4: networks: unknown network 'hosst' (did you mean 'host'"
    )
    assert caught.value.remedy == "see: k8sdds docs experiments"
    mine.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        experiments.load(str(mine))
    with pytest.raises(InputError, match="cannot read"):
        experiments.load(str(tmp_path))


def test_a_note_names_the_duration_that_the_99th_percentile_needs() -> None:
    assert preflight.notes(expand(experiments.load("camera-4sub"))) == []
    short = expand(changed(name="camera-4sub", duration_s=3))
    assert preflight.notes(short) == [
        "paced at 30/s times 90 values per trial at a participant; the 99th percentile needs at least 1000:"
        " set duration_s to 34 or more"
    ]
    assert preflight.notes(expand(experiments.load("cni-overhead"))) == []
