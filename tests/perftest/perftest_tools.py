"""k8sdds-perftest as a user would run it: real processes on the loopback or in namespaces of our own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = (Path(os.environ.get("K8SDDS_LIBEXEC", "/nonexistent")), REPOSITORY / "build/native/perftest")
LIMIT_S = 40  # nothing here takes that long; what does hangs


def tool(name: str) -> Path:
    for folder in FOLDERS:
        if (folder / name).is_file():
            return folder / name
    pytest.fail(f"{name} is not built: make setup, or set K8SDDS_LIBEXEC to the folder that holds it")


class Process:
    """One perftest process, with its phase signals."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.phase, theirs = os.pipe()
        self.popen = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env, "K8SDDS_PHASE_FD": str(theirs)},
            pass_fds=(theirs,),
        )
        os.close(theirs)
        self.out = self.err = ""

    def wait_for_phase(self, letter: str) -> None:
        assert os.read(self.phase, 1).decode() == letter, self.popen.communicate(timeout=LIMIT_S)

    def phases(self) -> str:
        return os.read(self.phase, 10).decode()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def end(self) -> int:
        """Wait for the end; a process that hangs fails the test."""
        if self.popen.returncode is None:
            self.out, self.err = self.popen.communicate(timeout=LIMIT_S)
        return self.popen.returncode

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
        self.popen.communicate()
        os.close(self.phase)

    @property
    def json(self) -> dict:
        self.end()
        return json.loads(self.out)

    @property
    def k8sdds(self) -> dict:
        return self.json["k8sdds"]


class Perftest:
    """Starts processes in one domain that is this test's own."""

    def __init__(self, domain: int) -> None:
        self.program = str(tool("k8sdds-perftest"))
        self.domain = domain
        self.processes: list[Process] = []

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run to the end, the given words and no others."""
        return subprocess.run(
            [self.program, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def start(
        self,
        role: str,
        *words: object,
        middleware: str = "cyclonedds",
        nic: str = "lo",
        output: str = "json",
        netns: str | None = None,
        env: dict[str, str] | None = None,
    ) -> Process:
        command = [self.program, role, "-nic", nic, "-domain", str(self.domain), "-middleware", middleware]
        command += ["-outputFormat", output]
        if middleware == "raw":
            command += ["-bestEffort"]
            if "-peer" not in words and "-multicast" not in words:
                command += ["-peer", "127.0.0.1"]
        if netns:
            command = ["ip", "netns", "exec", netns, *command]
        process = Process([*command, *map(str, words)], env or {})
        self.processes.append(process)
        return process

    def pub(self, *words: object, time: object = 0.3, warm_up: object = 0.1, **options: object) -> Process:
        words = ("-warmUp", warm_up, "-executionTime", time, *words)
        return self.start("-pub", *words, **options)  # type: ignore[arg-type]

    def sub(self, *words: object, **options: object) -> Process:
        return self.start("-sub", *words, **options)  # type: ignore[arg-type]

    def pair(
        self,
        *both: object,
        pub: tuple = (),
        sub: tuple = (),
        time: object = 0.3,
        warm_up: object = 0.1,
        **options: object,
    ) -> tuple[Process, Process]:
        """A publisher and a subscriber to their end, which has to be an orderly one."""
        subscriber = self.sub(*both, *sub, **options)
        publisher = self.pub(*both, *pub, time=time, warm_up=warm_up, **options)
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        return publisher, subscriber


domains = itertools.count(os.getpid() * 7)


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def multicast_packets(netns: str) -> int:
    """Multicast packets that left the namespace so far."""
    lines = [line.split() for line in sh(f"ip netns exec {netns} cat /proc/net/netstat").splitlines()]
    names, values = [line for line in lines if line[0] == "IpExt:"]
    return int(values[names.index("OutMcastPkts")])
