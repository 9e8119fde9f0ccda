"""Run k8sdds-perftest as a user does: real processes on the loopback interface or in network namespaces."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from k8sdds.perftest.command import DOMAINS

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDERS = (Path(os.environ.get("K8SDDS_LIBEXEC", "/nonexistent")), REPOSITORY / "build/native/perftest")
SLOWNESS = float(os.environ.get("K8SDDS_TEST_SLOWNESS", "1"))
"""How many times slower the programs are than usual, such as with sanitizers."""
TIMEOUT_S = 120 * SLOWNESS  # longer than any test takes


def tool(name: str) -> Path:
    for folder in FOLDERS:
        if (folder / name).is_file():
            return folder / name
    pytest.fail(f"{name} is not built; run make setup, or set K8SDDS_LIBEXEC to its folder")


class Process:
    """One perftest process and its phase signals."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.phase, child_end = os.pipe()
        self.popen = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env, "K8SDDS_PHASE_FD": str(child_end)},
            pass_fds=(child_end,),
        )
        os.close(child_end)
        self.out = self.err = ""

    def wait_for_phase(self, letter: str) -> None:
        assert os.read(self.phase, 1).decode() == letter, self.popen.communicate(timeout=TIMEOUT_S)

    def phases(self) -> str:
        return os.read(self.phase, 10).decode()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def stop(self) -> None:
        """Return when the process has stopped."""
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.popen.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)

    def end(self) -> int:
        """Wait for the process and return its exit code. A process that hangs fails the test."""
        if self.popen.returncode is None:
            self.out, self.err = self.popen.communicate(timeout=TIMEOUT_S)
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


class BackendTool:
    """A participant of a middleware that does what a test requests (perftest/tests/backend_tool.cpp)."""

    def __init__(
        self, domain: int, role: str, middleware: str, *args: object, env: dict[str, str] | None = None
    ) -> None:
        fixed = ("-nic", "lo", "-domain", domain, "-middleware", middleware, "-receive", "waitset")
        self.popen = subprocess.Popen(
            [str(word) for word in (tool("k8sdds-backend-tool"), role, *fixed, *args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def request(self, *words: object) -> int:
        """Make a request when the participant has found a peer, and return its result."""
        assert self.popen.stdin is not None and self.popen.stdout is not None
        print(*words, file=self.popen.stdin, flush=True)
        return int(self.popen.stdout.readline())

    def close(self) -> None:
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.popen.stdin.close()
        self.popen.wait(TIMEOUT_S)
        self.popen.stdout.close()


class Perftest:
    """Start processes in the DDS domain of this test."""

    def __init__(self, domain: int) -> None:
        self.program = str(tool("k8sdds-perftest"))
        self.domain = domain
        self.processes: list[Process] = []

    def run(self, *args: object) -> subprocess.CompletedProcess[str]:
        """Run the program to its end with only the given arguments."""
        return subprocess.run(
            [self.program, *map(str, args)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    def start(
        self,
        role: str,
        *args: object,
        middleware: str = "cyclonedds",
        nic: str = "lo",
        output: str = "json",
        netns: str | None = None,
        within: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Process:
        command = [self.program, role, "-nic", nic, "-domain", str(self.domain), "-middleware", middleware]
        command += ["-outputFormat", output]
        if middleware == "raw":
            command += ["-bestEffort"]
            if "-peer" not in args and "-multicast" not in args:
                command += ["-peer", "127.0.0.1"]
        if netns:
            command = ["ip", "netns", "exec", netns, *command]
        process = Process([*within, *command, *map(str, args)], env or {})
        self.processes.append(process)
        return process

    def pub(self, *args: object, time: object = 0.3, warm_up: object = 0.1, **options: object) -> Process:
        args = ("-warmUp", warm_up, "-executionTime", time, *args)
        return self.start("-pub", *args, **options)  # type: ignore[arg-type]

    def sub(self, *args: object, **options: object) -> Process:
        return self.start("-sub", *args, **options)  # type: ignore[arg-type]

    def pair(
        self,
        *both: object,
        pub: tuple = (),
        sub: tuple = (),
        time: object = 0.3,
        warm_up: object = 0.1,
        **options: object,
    ) -> tuple[Process, Process]:
        """Run a publisher and a subscriber to their end, and check that both succeed."""
        subscriber = self.sub(*both, *sub, **options)
        publisher = self.pub(*both, *pub, time=time, warm_up=warm_up, **options)
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        return publisher, subscriber


_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
domains = itertools.cycle(list(DOMAINS)[_worker::_workers])
"""DDS domains for the tests of this process. Processes that run tests at the same time have different domains. In higher
domains than those of k8sdds, a port may belong to any socket that let the kernel choose its port."""


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def multicast_packets(netns: str) -> int:
    """Return the number of multicast packets that the namespace has sent."""
    lines = [line.split() for line in sh(f"ip netns exec {netns} cat /proc/net/netstat").splitlines()]
    names, values = [line for line in lines if line[0] == "IpExt:"]
    return int(values[names.index("OutMcastPkts")])
