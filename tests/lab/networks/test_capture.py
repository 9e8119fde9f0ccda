"""Count the IP fragments of a sample on a real link; the study reports 12 and 11 at MTU 1480 and 1500."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest

from k8sdds.networks import packets
from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds.lab import evidence
from tests.conftest import Command
from tests.measuring import valid_attempts

SAMPLE = 16384
UDP, IP = 8, 20


def needed(mtu: int) -> int:
    """Return the fragments of a sample in one datagram: all but the last carry a multiple of 8 bytes."""
    return math.ceil((SAMPLE + UDP) / ((mtu - IP) // 8 * 8))


def test_a_sample_of_16_kib_is_12_fragments_at_both_mtus(
    k8sdds: Command, tmp_path: Path, nothing_left: None
) -> None:
    done = k8sdds("run", "ip-fragments", "-o", "out", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    valid = valid_attempts(tmp_path / "out")
    counted = {record["network"]: record["ip_fragments_per_sample"] for record in valid}
    assert counted == {"host": needed(1500), "flannel-hostgw": needed(1500), "kube-router": needed(1480)}
    assert set(counted.values()) == {12}
    assert all(record["latency_p90_us"] is None for record in RunFolder.open(tmp_path / "out").attempts())
    claims = json.loads(k8sdds("claims", "out", "--only", "fragments-explain-latency", "--json").stdout)
    (judged,) = claims["judged"]
    assert judged["verdict"] == "contradicted"
    assert "counted 12, claimed 11" in judged["reason"]


@pytest.mark.long
def test_other_mtus_and_sizes_give_other_counts(k8sdds: Command, tmp_path: Path) -> None:
    args = ["--set", "networks=[{name: host}, {name: flannel-hostgw, mtu: 1000}]", "--repeat", "1"]
    done = k8sdds("run", "ip-fragments", "-o", "out", *args)
    assert done.returncode == 0, done.stderr
    counted = {r["network"]: r["ip_fragments_per_sample"] for r in valid_attempts(tmp_path / "out")}
    assert counted == {"host": needed(1500), "flannel-hostgw": needed(1000)}
    (pcap, _) = sorted((tmp_path / "out" / "raw").rglob(evidence.CAPTURE))
    whole = pcap.read_bytes()
    for end in (0, 10, 24, 30, len(whole) // 2, len(whole) - 1):
        (tmp_path / "torn").write_bytes(whole[:end])
        assert set(evidence.fragments_per_sample(tmp_path / "torn", SAMPLE)) <= set(counted.values())


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_only_complete_datagrams_count(tmp_path: Path, order: list[int]) -> None:
    def record(offset: int, length: int, more: bool, identity: int = 7) -> bytes:
        flags = (0x2000 if more else 0) | offset // 8
        ip = b"\x45\0" + struct.pack(">HHH", 20 + length, identity, flags)
        packet = bytes(12) + b"\x08\x00" + ip + bytes([64, 17]) + bytes(10)
        return packets.PCAP_RECORD.pack(0, 0, len(packet), len(packet)) + packet

    parts = [record(0, 1480, True), record(1480, 1480, True), record(2960, 40, False)]
    lone = record(0, 1480, True, identity=8)
    path = tmp_path / "x.pcap"
    header = packets.PCAP_HEADER.pack(packets.PCAP_MAGIC, 2, 4, 0, 0, 64, packets.ETHERNET)
    path.write_bytes(header + b"".join([*(parts[i] for i in order), lone]))
    assert evidence.fragments_per_sample(path, 2000) == [3]
    assert evidence.fragments_per_sample(path, 4000) == []
