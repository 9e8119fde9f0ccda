"""The match of two new pods, with real supervisors and DDS; a process replaces the stream of the API server."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds.model.measurement import Launch
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.trial import Endpoint
from k8sdds.perftest import command
from k8sdds.system.paths import native_program
from k8sdds.testbeds.cluster import exec as exec_
from k8sdds.testbeds.cluster import matching
from k8sdds.testbeds.cluster.matching import Match, Programs
from k8sdds.testbeds.cluster.pods import OUTPUT, PERFTEST, SUPERVISOR
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.testbeds.lab.topology import key_of
from k8sdds.workloads.pod_start import PAIR
from tests.lab.conftest import cell


class LocalStream:
    """A supervisor that runs in a pod of the lab."""

    exit_code: int | None = None

    def __init__(self, lab_network: LabNetwork, _: str, pod: str, argv: list[str], **__: Any) -> None:
        programs = {
            SUPERVISOR: native_program("k8sdds-supervisor"),
            PERFTEST: native_program("k8sdds-perftest"),
        }
        started = [*lab_network.enter(pod), *(programs.get(word, word) for word in argv)]
        self._process = subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read_line(self, end: float) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip(b"\n")

    def read_bytes(self, count: int, end: float) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.read(count)

    def close(self) -> None:
        self._process.communicate(timeout=60)


def matched(
    lab: Lab, dds: str, folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: str = ""
) -> Match | Reason:
    """Let two pods match; `wrong`: an address at which the publisher looks for the subscriber instead."""
    monkeypatch.setattr(exec_, "ExecStream", LocalStream)
    own = cell("flannel-vxlan", subscribers=1)
    lab.up([own])
    lab_network = lab.networks[key_of(own)]

    def execute(pod: str, launch: Launch, deadline_s: float) -> exec_.ParticipantExec:
        # The folders of pods of the lab are those of this machine.
        own_files = [word.replace(OUTPUT, str(folder / "pods" / pod)) for word in launch.argv]
        started = replace(launch, argv=tuple(own_files))
        monkeypatch.setattr(exec_, "OUTPUT", f"{folder}/pods/{pod}")
        return exec_.ParticipantExec(cast(Any, lab_network), "", pod, started, deadline_s)

    attachments = lab_network.plan.datapath.attachments
    endpoints = {
        name: Endpoint(wrong or attachments[name].address, attachments[name].interface, None, 1450)
        for name in ("pub0", "sub0")
    }
    attempt = folder / "0123-cluster-r0" / "1"
    names = {participant: participant.name for participant in PAIR}
    programs = Programs(matching.cell(network=own.network, middleware=dds), names, endpoints, 1)
    return matching.match(programs, attempt, execute)


@pytest.mark.parametrize("dds", ["cyclonedds", "fastdds"])
def test_two_pods_match(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dds: str) -> None:
    began_s = time.monotonic()
    match = matched(lab, dds, tmp_path, monkeypatch)
    assert isinstance(match, Match), match
    assert began_s < match.matched_s < time.monotonic()
    assert match.received > 0 and match.clock_error_s < 1


def test_pods_that_do_not_match(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "DISCOVERY_TIMEOUT_S", 2)
    match = matched(lab, "cyclonedds", tmp_path, monkeypatch, wrong="10.244.9.9")
    assert isinstance(match, Reason) and match.code == NO_MATCH
    assert "did not discover each other" in match.text
