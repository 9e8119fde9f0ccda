"""Test that programs on a real arm64 kernel and on this machine exchange samples, with every middleware."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from k8sdds.middleware import BACKENDS
from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox
from tests.lab.vm import arm64, machine

pytestmark = [
    # Booting the emulated machine takes minutes, as does building its programs.
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="a tap needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the other architecture is arm64"),
]
SAMPLES = 500
CASES = [(middleware, role) for middleware in BACKENDS for role in ("-pub", "-sub")]
"""Middleware, and the role of the arm64 machine."""
FACTS = len(CASES)
FOLDER = "/opt/k8sdds"
"""Folder of the programs in the image."""


def arguments(case: int, role: str, nic: str, peer: str) -> Sequence[str]:
    """Return perftest's arguments. Both sides run the cases in the same order, each in a domain of its own."""
    middleware, _ = CASES[case]
    kind = ["-bestEffort"] if middleware == "raw" else []
    sends = ["-numIter", str(SAMPLES), "-pubRate", "200:sleep", "-dataLen", "1024"] if role == "-pub" else []
    return (
        role, "-middleware", middleware, "-domain", str(20 + case), "-peer", peer, "-nic", nic, *kind, *sends,
        "-discoveryTimeout", str(machine.TIMEOUT_S), "-peerTimeout", "60", "-noPrintIntervals", "-outputFormat", "json",
    )  # fmt: skip


def guest_command() -> str:
    """Return the script for the arm64 machine, which prints the facts and each result as one line of JSON."""

    def printed(case: int, *argv: str) -> str:
        program = shlex.join([f"{FOLDER}/{argv[0]}", *argv[1:]])
        return f'output=$({program} | tr -d \'\\n\')\necho \'{{"case": {case}, "output":\' "${{output:-null}}" }}'

    lines = [printed(FACTS, "k8sdds-supervisor", "facts")]
    for case, (_, role) in enumerate(CASES):
        lines.append(printed(case, "k8sdds-perftest", *arguments(case, role, machine.NIC, machine.HOST)))
    return "\n".join(lines)


def host_runs(sandbox: Sandbox) -> list[subprocess.CompletedProcess[str]]:
    """Run this machine's side of each case."""
    runs = []
    for case, (_, role) in enumerate(CASES):
        other = "-sub" if role == "-pub" else "-pub"
        program = native_program("k8sdds-perftest")
        argv = [*sandbox.enter(), program, *arguments(case, other, machine.TAP, machine.GUEST)]
        timeout_s = 2 * machine.TIMEOUT_S
        runs.append(
            subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
        )
    return runs


@dataclass(frozen=True)
class Exchange:
    """What both machines printed."""

    guest: dict[int, Any]
    """Results of the arm64 machine by case; None if a program failed."""
    host: Sequence[subprocess.CompletedProcess[str]]
    console: str


@pytest.fixture(scope="module")
def exchange() -> Iterator[Exchange]:
    """Boot the arm64 machine, and run all cases."""
    sandbox = machine.sandbox("arm64-vm")
    try:
        with ThreadPoolExecutor(1) as side:
            host = side.submit(host_runs, sandbox)
            results, console = arm64.run(sandbox, guest_command())
            yield Exchange({result["case"]: result["output"] for result in results}, host.result(), console)
    finally:
        sandbox.close()


def test_the_machine_has_an_arm64_kernel(exchange: Exchange) -> None:
    facts = exchange.guest[FACTS]
    assert facts["architecture"] == "aarch64", exchange.console
    assert facts["kernel"] != platform.release()


@pytest.mark.parametrize(("case", "middleware", "role"), [(case, *both) for case, both in enumerate(CASES)])
def test_samples_cross_the_architectures(exchange: Exchange, case: int, middleware: str, role: str) -> None:
    own = exchange.host[case]
    assert own.returncode == 0 and exchange.guest[case], own.stderr + exchange.console
    host, guest = json.loads(own.stdout)["k8sdds"], exchange.guest[case]["k8sdds"]
    publisher, subscriber = (guest, host) if role == "-pub" else (host, guest)
    assert publisher["sent"] == subscriber["sent"] == SAMPLES
    assert subscriber["received"] + subscriber["lost"] == SAMPLES
    assert subscriber["received"] == SAMPLES or middleware == "raw"
    assert subscriber["received"] > 0.8 * SAMPLES
    assert host["middleware"] == guest["middleware"]
