"""Verify encrypted networks in the lab: packets on the wire, wrong keys, and foreign listeners."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds.networks import NETWORKS, find
from k8sdds.networks.common import strongswan
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab import encryption
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.testbed import Lab
from tests.lab.building import build
from tests.lab.conftest import Built, address_of, cell, enter, missing_feature, output_of, up

ENCRYPTED = [name for name, network in NETWORKS.items() if network.engines]
POD_NETWORKS = [name for name in NETWORKS if name not in ("baremetal", "host")]
PAYLOAD = b"plain text that must not be seen"

LISTENER = """
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.settimeout(0.05)
print("ready", flush=True)
found, packets, end = 0, 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        packet = s.recv(65535)
    except TimeoutError:
        continue
    packets += 1
    found += sys.argv[1].encode() in packet
    if found:
        break
print(found, packets)
"""
SENDER = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    s.sendto(sys.argv[1].encode(), (sys.argv[2], 7))
    time.sleep(0.01)
"""


def listen(lab_network: LabNetwork, place: str, seconds: float, source: str, target: str) -> tuple[int, int]:
    """Capture in `place` while `source` sends to `target`; return (packets with the payload, all packets)."""
    listener = subprocess.Popen(
        [*enter(lab_network, place), sys.executable, "-c", LISTENER, PAYLOAD.decode(), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    output_of(
        lab_network, source, sys.executable, "-c", SENDER, PAYLOAD.decode(),
        address_of(lab_network, target),
    )  # fmt: skip
    matching, packets = listener.communicate(timeout=seconds + 10)[0].split()
    return int(matching), int(packets)


@pytest.mark.parametrize("network", ["flannel-hostgw", "flannel-vxlan", "weavenet"])
def test_unencrypted_traffic_is_readable_on_the_wire(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    received, _ = listen(lab_networks[network], "switch", 20, "pub0", "sub0")
    assert received


@pytest.mark.parametrize("network", ENCRYPTED)
def test_encrypted_traffic_is_not_readable_on_the_wire(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    received, packets = listen(lab_networks[network], "switch", 5, "pub0", "sub0")
    assert packets >= 20
    assert received == 0


@pytest.fixture(scope="module")
def with_shared_node() -> Iterator[dict[str, LabNetwork]]:
    """Yield a lab network of every network whose two subscribers share a node, by network name."""
    with Lab(f"shared-{os.getpid()}") as lab:
        names = [name for name in ("host", *POD_NETWORKS) if not missing_feature(name)]
        lab.up(cell(name, placement={"pub0": 0, "sub0": 1, "sub1": 1}, nodes=2) for name in names)
        yield Built({item.plan.cell.network: item for item in lab.networks.values()})


def test_a_foreign_pod_on_the_same_node_can_listen_on_host(with_shared_node: dict[str, LabNetwork]) -> None:
    received, _ = listen(with_shared_node["host"], "sub1", 20, "pub0", "sub0")
    assert received


@pytest.mark.parametrize("network", POD_NETWORKS)
def test_a_foreign_pod_on_the_same_node_cannot_listen_on_pod_networks(
    with_shared_node: dict[str, LabNetwork], network: str
) -> None:
    lab_network = with_shared_node[network]
    # The bridge must learn the receiver's port first; before that it floods.
    output_of(lab_network, "pub0", "ping", "-c", "1", address_of(lab_network, "sub0"))
    received, _ = listen(lab_network, "sub1", 1, "pub0", "sub0")
    assert received == 0
    own, _ = listen(lab_network, "sub0", 20, "pub0", "sub0")
    assert own, "the listener must work in the receiver's pod"


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


@pytest.mark.parametrize("network", ["flannel-ipsec", "weavenet-encrypt"])
def test_a_wrong_pre_shared_key_is_reported_when_the_network_is_built(network: str) -> None:
    plan = make_plan(cell(network))
    files = tuple(
        dataclasses.replace(file, text=file.text.replace("$psk", "of another cluster"))
        if file.path.endswith("node1/swanctl.conf")
        else file
        for file in plan.datapath.files
    )
    wrong = dataclasses.replace(plan, datapath=dataclasses.replace(plan.datapath, files=files))
    # Before any trial: `build` itself reports it.
    with pytest.raises(PrerequisiteError, match="pre-shared keys differ") as raised:
        build(wrong)
    assert raised.value.remedy == "give all nodes the same pre-shared key"


def test_the_users_pre_shared_key_is_used() -> None:
    own = "0x" + secrets.token_hex(64)
    with Lab(f"own-key-{os.getpid()}", psk=own) as lab:
        lab_network = up(lab, cell("flannel-ipsec", subscribers=1))
        files = [lab_network.sandbox.path(file.path).read_text() for file in lab_network.plan.datapath.files]
        assert sum(f'secret = "{own}"' in text for text in files) == 2
        assert not any(own.encode() in line for line in command_lines())


def test_the_encryption_proof_rejects_plain_packets(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["flannel-hostgw"]
    (engine,) = [engine for engine in find("flannel-ipsec").engines if engine.name == strongswan.USERSPACE]
    proof = strongswan.encryption_proof(lab_network.plan.topology, engine)
    with (
        pytest.raises(PrerequisiteError, match="packets between nodes were not encrypted"),
        encryption.only_encrypted(lab_network.sandbox, lab_network.plan.topology, proof),
    ):
        output_of(lab_network, "pub0", "ping", "-c", "1", address_of(lab_network, "sub0"))


@pytest.mark.parametrize("network", ENCRYPTED)
def test_the_encryption_proof_requires_encrypted_packets(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network = lab_networks[network]
    proof = lab_network.plan.datapath.encryption_proof
    assert proof is not None
    with (
        pytest.raises(PrerequisiteError, match="no encrypted packet"),
        encryption.only_encrypted(lab_network.sandbox, lab_network.plan.topology, proof),
    ):
        pass


@pytest.mark.parametrize("network", ENCRYPTED)
def test_tunnels_count_decrypted_bytes(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    before, target = (
        lab_network.decrypted_bytes("node1"),
        address_of(lab_network, "sub0"),
    )
    output_of(lab_network, "pub0", "ping", "-q", "-c", "10", "-w", "60", "-i", "0.01", "-s", "1000", target)
    after = lab_network.decrypted_bytes("node1")
    assert before is not None and after is not None and after - before >= 10 * 1000


@pytest.mark.parametrize("network", ENCRYPTED)
def test_keys_are_only_in_private_files(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    keys = set()
    for file in lab_network.plan.datapath.files:
        path = lab_network.sandbox.path(file.path)
        assert path.stat().st_mode & 0o777 == 0o600
        keys |= {
            line.split("=", 1)[1].strip().strip('"')
            for line in path.read_text().splitlines()
            if "secret =" in line or "PrivateKey" in line
        }
    assert keys
    assert all(len(key) >= 40 for key in keys)
    for daemon in lab_network.plan.datapath.daemons:
        text = lab_network.sandbox.path(daemon.log).read_text()
        assert not any(key in text for key in keys)
    assert not any(key.encode() in line for line in command_lines() for key in keys)
