"""Zenoh as a middleware: command lines, profiles, router, protections, and the files for applications."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds import middleware, versions
from k8sdds.campaign import applications, contradictions, launches, memory_path, node_cpu, preflight, validity
from k8sdds.campaign.expansion import expand
from k8sdds.discovery import Service
from k8sdds.middleware import files as profiles
from k8sdds.middleware.files import Configuration
from k8sdds.middleware.zenoh import ROUTER, Zenoh
from k8sdds.model.measurement import OutsideCpu
from k8sdds.model.security import Protection
from k8sdds.model.trial import DISCOVERY_SERVER, Cell
from k8sdds.recommend import files
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.testbeds.lab.topology import topology_of
from k8sdds.workloads import TrialOutputs
from tests.applications import application
from tests.unit import builders
from tests.unit.test_command import line, value, values
from tests.unit.test_recommendation import answered

UDP = {"middleware": "zenoh-udp", "reliability": "best-effort"}
QUIC = {"middleware": "zenoh-quic", "security": "EncryptRTPS"}
SHARED = {"transport": "shared-memory"}


def cell(**changes: Any) -> Cell:
    return builders.cell(**{"middleware": "zenoh"} | changes)


def json5(text: str) -> Any:
    """Return the content of JSON5, of which YAML has all but the comments."""
    return yaml_text.plain(yaml_text.load(re.sub(r"(^|\s)//.*", "", text), "JSON5"))


@pytest.mark.parametrize(
    ("settings", "transport"),
    [
        ({}, "TCPv4"),
        ({"ip_families": ["ipv6"]}, "TCPv6"),
        (UDP, "UDPv4"),
        (QUIC | {"ip_families": ["ipv6"]}, "QUICv6"),
        (SHARED, "SHMEM"),
    ],
)
def test_the_transport_is_that_of_the_name(settings: dict[str, Any], transport: str) -> None:
    args = line(**{"middleware": "zenoh"} | settings)
    assert value(args, "-transport") == transport
    assert value(args, "-middleware") == "zenoh" and "-qosFile" not in args
    assert contradictions.unsupported(cell(**settings)) is None


def test_subscribers_connect_to_publishers() -> None:
    both = {"middleware": "zenoh", "publishers": 2, "subscribers": 2}
    assert values(line("sub1", **both), "-peer") == ["10.0.0.0", "10.0.0.1"]
    assert not values(line("pub0", **both), "-peer")
    through = line("sub0", **both, discovery="server")
    assert values(through, "-discoveryServer") == ["10.0.0.4:7447"] and "-peer" not in through


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"transport": "multicast"}, "transport must be unicast"),
        (SHARED | {"discovery": "server"}, "discovery must be peers or multicast"),
        (SHARED | {"security": "EncryptRTPS"}, "does not encrypt shared memory"),
        (SHARED | {"realtime_priority": 50}, "leave out realtime_priority"),
        (SHARED | UDP, "zenoh-udp has no shared memory"),
        ({"middleware": "zenoh-udp"}, "reliability must be best-effort"),
        (UDP | {"security": "EncryptRTPS"}, "security must be none"),
        ({"middleware": "zenoh-quic"}, "QUIC always encrypts"),
        (QUIC | {"discovery": "server"}, "the discovery server has no credentials"),
        ({"publish_mode": "asynchronous"}, "leave out publish_mode"),
        ({"fragment_bytes": "max"}, "give message_bytes"),
        ({"batch_bytes": 70_000}, "at most 65535"),
        ({"batch_bytes": 8192, "message_bytes": "mtu"}, "leave one of them out"),
        ({"instances": 6000, "topics": 2}, "at most 10000 instances"),
        ({"publishers": 101}, "100 publishers"),
        ({"capture": True}, "leave it out"),
        ({"qos": "reliable-block", "middleware_config": "a.json5"}, "leave out qos or middleware_config"),
    ],
)
def test_what_zenoh_cannot_do_is_refused(settings: dict[str, Any], why: str) -> None:
    assert why in str(contradictions.unsupported(cell(**settings)))


# -- QoS profiles ---------------------------------------------------------------------------------------


def test_a_profile_is_a_configuration() -> None:
    args = line(middleware="zenoh", qos="reliable-block")
    assert value(args, "-middlewareConfig").endswith("qos/reliable-block.json5")
    assert "-middlewareConfig" not in line(middleware="zenoh")


@pytest.mark.parametrize(
    ("name", "profile", "fitting"),
    [
        ("zenoh", "strict-reliable", "reliable-block, rmw-zenoh, zenoh-default"),
        ("zenoh", "mine.xml", "rmw-zenoh"),
        ("cyclonedds", "rmw-zenoh", "best-effort, dds-default"),
        ("fastdds", "mine.json5", "strict-reliable"),
    ],
)
def test_profiles_of_another_format_are_refused(
    name: str, profile: str, fitting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / profile).touch()
    with pytest.raises(InputError, match=f"'{profile}' for {name}") as refused:
        middleware.qos_file(cell(middleware=name, qos=profile))
    assert fitting in refused.value.remedy
    (problem,) = contradictions._cell_problems(cell(middleware=name, qos=profile))
    assert profile in problem.what


def test_other_files_next_to_the_profiles_are_not_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(shared("qos"), tmp_path / "qos")
    (tmp_path / "qos" / "README").touch()
    monkeypatch.setattr(profiles, "shared", lambda name: tmp_path / name)
    assert middleware.qos_file(cell(qos="rmw-zenoh")) == tmp_path / "qos" / "rmw-zenoh.json5"


@pytest.mark.parametrize("name", ["reliable-block", "rmw-zenoh", "zenoh-default"])
def test_profiles_contain_what_the_program_accepts(name: str) -> None:
    text = (shared("qos") / f"{name}.json5").read_text()
    assert "rmw_zenoh 0.2.10" in text or name != "rmw-zenoh"
    content = json5(text)
    assert content.keys() == {"qos", "transport"}
    assert content["transport"].keys() <= {"link", "unicast"}
    assert content["transport"]["link"].keys() <= {"tx", "rx"}
    (publication,) = content["qos"]["publication"]
    drops = publication["config"]["congestion_control"] == "drop"
    assert drops == (name != "reliable-block") and publication["key_exprs"] == ["**"]


def test_rmw_zenoh_differs_from_zenoh_in_what_is_marked() -> None:
    default, rmw = ((shared("qos") / f"{name}.json5").read_text() for name in ("zenoh-default", "rmw-zenoh"))
    marked = {
        row.partition("//")[0].strip()
        for row in rmw.splitlines()
        if "; Zenoh: " in row or "// Zenoh: " in row
    }
    rows = [{row.partition("//")[0].strip() for row in text.splitlines()} for text in (default, rmw)]
    assert rows[1] - rows[0] == marked and len(marked) == len(rows[0] - rows[1]) == 7


def test_a_configuration_is_text() -> None:
    with pytest.raises(InputError, match="mine: is not UTF-8"):
        Zenoh().check_config(b"\xff{}", "mine")


# -- the router -----------------------------------------------------------------------------------------


def test_the_router_listens_before_participants_start(tmp_path: Path) -> None:
    trial = builders.trial(cell(discovery="server"))
    launch = launches._discovery(trial, DISCOVERY_SERVER, tmp_path, "10.0.0.9")
    assert str(launch.listens) == "TCP port 7447"
    options = ["tcp/10.0.0.9:7447", "udp/10.0.0.9:7447"]
    assert values(list(launch.argv), "--listen") == options
    assert "--no-multicast-scouting" in launch.argv and not any("rest" in word for word in launch.argv)


def test_a_router_in_the_lab_is_where_all_samples_stay_if_they_stay_on_a_node() -> None:
    def nodes(**settings: Any) -> dict[str, int]:
        return {pod.name: pod.node for pod in topology_of(cell(discovery="server", **settings)).pods}

    assert nodes() == {"pub0": 0, "sub0": 1, "discovery": 1}
    assert nodes(placement="same-node") == {"pub0": 0, "sub0": 0, "discovery": 0}


def test_a_router_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_LIBEXEC", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    trial = builders.trial(cell(discovery="server"))
    monkeypatch.setattr(Zenoh, "problems", lambda *_: [])
    (problem,) = preflight._program_problems([trial], "lab")
    assert "zenohd is not installed" in problem.what and "lab-zenoh" in problem.remedy
    for folder in (tmp_path / "bin", tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "zenohd").touch(0o755)
        assert ROUTER.path == str(folder / "zenohd")
    assert not preflight._program_problems([trial], "lab")


@pytest.mark.parametrize("service", [ROUTER, ROUTER.at("", host=True)])
def test_a_router_on_a_cluster_listens_at_its_own_address(service: Service) -> None:
    pod = service.objects("mine")[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod.get("hostNetwork", False) == service.host
    assert [word for word in container["args"] if "listen" in word] == [
        "--listen=tcp/$(POD_IP):7447",
        "--listen=udp/$(POD_IP):7447",
    ]
    assert container["env"] == [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def outputs(settings: dict[str, Any], outside: dict[str, OutsideCpu], **used_s: float) -> TrialOutputs:
    """Return what was metered of a trial of 2 s with a warm-up of 0.5 s, on one machine."""
    machine = {"cpus": 4, "softirq_s": 0.0, "idle_s": 0.0, "iowait_s": 0.0, "steal_s": 0.0}
    meters = {
        name: {"interval": {"duration_s": 2.0}, "cpu_s": used, "machine": machine}
        for name, used in used_s.items()
    }
    trial = builders.trial(cell(**settings), duration_s=2, warmup_s=0.5)
    nodes = {name: (f"node{name[:3]}", "m") for name in used_s}
    return builders.outputs(trial, meters, nodes=nodes, outside=outside)


def test_the_router_is_a_part_of_the_cost_in_the_lab() -> None:
    seen = outputs({"discovery": "server"}, {}, pub0=0.2, sub0=0.4, discovery=1.0)
    assert node_cpu.of_services(seen) == 40.0
    found = node_cpu.by_node(seen)
    assert found is not None and found["nodedis"]["participants"] == 40.0
    assert node_cpu.total(found) == 10 + 20 + 40
    assert node_cpu.of_services(outputs({}, {}, pub0=0.2, sub0=0.4)) is None


def test_the_router_is_a_part_of_the_cost_on_clusters() -> None:
    outside = {"m": OutsideCpu(services=6.0), "edge": OutsideCpu(services=30.0)}
    seen = outputs({"discovery": "server"}, outside, pub0=0.2, sub0=0.4)
    assert node_cpu.of_services(seen) == 36.0
    found = node_cpu.by_node(seen)
    assert found is not None and found["edge"] == {"participants": 0.0, "shared": 30.0}
    assert node_cpu.total(found) == pytest.approx(10 + 20 + 36)


# -- publishers that drop all samples --------------------------------------------------------------------

SAMPLES, WRITTEN = 10, 10_000_000
"""What a publisher wrote for each subscriber."""


@pytest.mark.parametrize(
    ("discovery", "sent", "delivered", "arrived", "proven"),
    [
        ("peers", 6_000_000, (0,), (6_000_000,), True),
        ("peers", 10_100_000, (0,), (6_000_000,), False),  # lost on the way
        ("peers", 20_000, (0,), (5_000,), False),  # a connection that did not work
        # Each subscriber needs its own proof.
        ("peers", 16_000_000, (10, 0), (10_100_000, 5_900_000), True),
        ("peers", 10_100_000, (10, 0), (10_100_000, 5_000), False),
        # The first one got all bytes, but no sample.
        ("peers", 16_000_000, (0, 0), (10_100_000, 5_900_000), False),
        ("peers", 8_000_000, (0, 0), (4_000_000, 4_000_000), True),
        ("peers", 6_000_000, (10,), (10_100_000,), False),  # none is silent
        # A router forwards whole samples.
        ("server", 6_000_000, (0, 0), (5_000, 5_000), True),
        ("server", 10_100_000, (0, 0), (5_000, 5_000), False),
        ("server", 20_000, (0, 0), (5_000, 5_000), False),
        ("server", 6_000_000, (5, 0), (5_100_000, 5_000), False),
    ],
)
def test_publishers_drop_samples_of_which_parts_arrived(
    discovery: str, sent: int, delivered: tuple[int, ...], arrived: tuple[int, ...], proven: bool
) -> None:
    settings = {"payload_bytes": WRITTEN // SAMPLES, "subscribers": len(delivered), "discovery": discovery}
    counters = {"pub0": {"tx_bytes": sent}, **{f"sub{i}": {"rx_bytes": n} for i, n in enumerate(arrived)}}
    received = {"pub0": {"sent": SAMPLES}, **{f"sub{i}": {"received": n} for i, n in enumerate(delivered)}}
    meters = {name: {"interfaces": {"eth0": read}} for name, read in counters.items()}
    seen = builders.outputs(builders.trial(cell(**settings), duration_s=2), meters, received)
    assert validity._dropped_parts(seen) == proven


# -- shared memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "payload_bytes", "per_sample", "proven"),
    [
        ("zenoh", 65536, 300, True),
        ("zenoh", 65536, 65536 * 0.05, False),
        ("zenoh", 1024, 300, True),
        ("zenoh", 1024, 1024 * 0.5, False),
        ("fastdds", 1024, 0, True),
        ("fastdds", 1024, 300, False),
    ],
)
def test_interfaces_carry_only_where_samples_in_memory_are(
    name: str, payload_bytes: int, per_sample: float, proven: bool
) -> None:
    settings = SHARED | {"middleware": name, "payload_bytes": payload_bytes}
    interfaces = {"lo": {"tx_bytes": round(1000 * per_sample)}, "eth0": {"tx_bytes": 100_000}}
    meters: dict[str, Any] = {"pub0": {"interfaces": interfaces}, "sub0": {}}
    summaries = {"pub0": {"sent": 1000}, "sub0": {"received": 1000}}
    seen = builders.outputs(builders.trial(cell(**settings), duration_s=2), meters, summaries)
    found = memory_path.invalid(seen)
    assert found is None if proven else found is not None and found.code == "not-in-memory"


def test_only_trials_by_shared_memory_of_zenoh_may_lock_it() -> None:
    assert middleware.capabilities(cell(**SHARED)) == {"IPC_LOCK": "zenoh"}
    for other in ({}, SHARED | {"middleware": "fastdds"}):
        assert middleware.capabilities(cell(**other)) == {}


# -- protection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protection", "why"),
    [
        (Protection(rtps="ENCRYPT"), ""),
        (Protection(rtps="ENCRYPT", allow_unauthenticated=True), "peers with certificates"),
        (Protection(rtps="ENCRYPT", access_control=False), "no access control"),
        (Protection(rtps="SIGN"), "Zenoh has TLS"),
        (Protection(rtps="ENCRYPT", payload="ENCRYPT"), "Zenoh has TLS"),
        (Protection(rtps="ENCRYPT_WITH_ORIGIN_AUTHENTICATION"), "Zenoh has TLS"),
        (Protection(rtps="ENCRYPT", aes_bits=128), "AES-256"),
    ],
)
def test_tls_protects_whole_connections(protection: Protection, why: str) -> None:
    refused = Zenoh().unsupported_protection(protection)
    assert refused is None if not why else refused is not None and why in refused[0]


# -- recommendations ------------------------------------------------------------------------------------


def test_zenoh_is_a_choice_by_name_or_as_any() -> None:
    assert middleware.OFFERED == ("cyclonedds", "fastdds", "zenoh")

    def of(choice: Any) -> set[str]:
        known = application(
            choices={"networks": ["host"], "receive_mode": ["listener"], "middleware": choice}
        )
        return {each.middleware for each in expand(applications.experiment(known)).cells}

    assert of("any") == set(middleware.OFFERED) and of(["zenoh", "any"]) == set(middleware.OFFERED)
    assert of("zenoh") == {"zenoh"}
    # It is measured only with the transports that it has.
    known = applications.experiment(application(choices={"networks": ["host"], "middleware": "any"}))
    transports = {(each.middleware, each.transport) for each in expand(known).cells}
    assert ("zenoh", "unicast") in transports and ("zenoh", "multicast") not in transports


def test_the_files_of_a_recommendation(tmp_path: Path) -> None:
    found = answered(tmp_path, middleware="zenoh", message_bytes=["max"])
    paths = {path.name: path for path in files.write(found, tmp_path / "out")}
    assert {"zenoh.json5", "zenoh-router.yaml", "confirm.yaml"} <= paths.keys()
    assert not any(name.startswith("qos-") for name in paths)
    content = json5(paths["zenoh.json5"].read_text())
    assert content["transport"]["link"]["tx"]["batch_size"] == 65500
    assert content["qos"]["publication"][0]["config"]["congestion_control"] == "block"
    assert content["connect"]["endpoints"] == ["tcp/k8sdds-zenoh:7447"]
    assert "middleware_config" not in paths["confirm.yaml"].read_text()
    assert "RMW_IMPLEMENTATION=rmw_zenoh_cpp" in paths["README.md"].read_text()
    router = yaml_text.load_all(paths["zenoh-router.yaml"].read_text())
    (container,) = router[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == versions.ZENOH_IMAGE and container["command"] == ["/zenohd"]
    assert all("namespace" not in each["metadata"] for each in router)


def test_protected_sessions_have_certificates() -> None:
    plain = Configuration(None, reliable=False, multicast=False, carries_multicast=True)
    assert json5(Zenoh()._config(plain))["scouting"]["multicast"]["enabled"] is True
    assert "access_control" not in json5(Zenoh()._config(plain))
    protected = replace(plain, protected=True)
    secure = json5(Zenoh()._config(protected))
    access = secure["access_control"]
    assert access["enabled"] is True and access["default_permission"] == "deny"
    rules = {rule["id"]: rule for rule in access["rules"]}
    assert [
        name for name, rule in rules.items() if "put" in rule["messages"] and "ingress" in rule["flows"]
    ] == ["receive-1"]
    assert rules["receive-1"]["key_exprs"] == ["TOPIC/**"]
    assert access["subjects"][0]["cert_common_names"] == ["NAME"]
    assert set(access["policies"][0]["rules"]) == rules.keys()
    purposes = [Zenoh().ready_files(known)[0].purpose for known in (plain, protected)]
    assert ["Replace NAME and TOPIC" in purpose for purpose in purposes] == [False, True]
    assert secure["listen"]["endpoints"] == ["tls/[::]:0"]
    assert secure["transport"]["link"]["tls"]["listen_private_key"] == "/etc/dds/key.pem"
