"""Run k8sdds-perftest as a user does: real processes on the loopback interface or in network namespaces."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from k8sdds.perftest.command import DOMAINS

ALL_PROTOCOLS, SO_RCVBUFFORCE, CLONE_NEWNET = 3, 33, 0x40000000
REPOSITORY = Path(__file__).resolve().parents[3]
FOLDERS = (Path(os.environ.get("K8SDDS_LIBEXEC", "/nonexistent")), REPOSITORY / "build/native/perftest")
SLOWNESS = float(os.environ.get("K8SDDS_TEST_SLOWNESS", "1"))
"""How many times slower the programs are than usual, such as with sanitizers."""
TIMEOUT_S = 120 * SLOWNESS  # longer than any test takes
A, B = "10.99.0.1", "10.99.0.2"
"""Addresses of the publisher and of the subscriber on a link (fixture `link`)."""


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
        role: str | tuple[object, ...],
        *args: object,
        middleware: str = "cyclonedds",
        nic: str = "lo",
        output: str = "json",
        netns: str | None = None,
        within: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Process:
        roles = [role] if isinstance(role, str) else [str(word) for word in role]
        command = [self.program, *roles, "-nic", nic, "-domain", str(self.domain), "-middleware", middleware]
        command += ["-outputFormat", output]
        if middleware == "raw":
            command += ["-bestEffort"]
            if "-peer" not in args and "-multicast" not in args:
                command += ["-peer", "127.0.0.1"]
        if middleware == "zenoh" and "-transport" not in args:
            command += ["-transport", "UDPv4" if "-bestEffort" in args else "TCPv4"]
        if netns:
            command = ["ip", "netns", "exec", netns, *command]
        process = Process([*within, *command, *map(str, args)], env or {})
        self.processes.append(process)
        return process

    def pub(self, *args: object, time: object = 0.2, warm_up: object = 0.1, **options: object) -> Process:
        args = ("-warmUp", warm_up, "-executionTime", time, *args)
        return self.start("-pub", *args, **options)  # type: ignore[arg-type]

    def sub(self, *args: object, **options: object) -> Process:
        return self.start("-sub", *args, **options)  # type: ignore[arg-type]

    def node(
        self,
        graph: Path,
        name: str,
        *args: object,
        time: object = 0.5,
        warm_up: object = 0.1,
        **options: object,
    ) -> Process:
        """Start a node of a graph."""
        args = ("-warmUp", warm_up, "-executionTime", time, *args)
        return self.start(("-graph", graph, "-node", name), *args, **options)  # type: ignore[arg-type]

    def begin(
        self,
        *both: object,
        pub: tuple = (),
        sub: tuple = (),
        middleware: str | tuple[str, str] = "cyclonedds",
        link: tuple[str, str] | None = None,
        peers: bool = True,
        time: object = 0.2,
        warm_up: object = 0.1,
        **options: object,
    ) -> tuple[Process, Process]:
        """Start a subscriber and a publisher, and return the publisher and the subscriber.

        Args:
            both: Arguments of both; `pub` and `sub` are those of one.
            middleware: That of both, or that of the publisher and that of the subscriber.
            link: Their network namespaces. With `peers`, each has the address of the other one.
            options: More options of `start` for both.
        """
        publishes, subscribes = (middleware, middleware) if isinstance(middleware, str) else middleware
        places = [{"nic": "eth0", "netns": netns} for netns in link] if link else [{}, {}]
        to_sub, to_pub = (("-peer", address) if link and peers else () for address in (B, A))
        subscriber = self.sub(*both, *sub, *to_pub, middleware=subscribes, **places[1], **options)
        times = {"time": time, "warm_up": warm_up}
        publisher = self.pub(*both, *pub, *to_sub, middleware=publishes, **times, **places[0], **options)
        return publisher, subscriber

    def pair(self, *both: object, **options: object) -> tuple[Process, Process]:
        """Run a publisher and a subscriber (`begin`) to their end, and check that both succeed."""
        publisher, subscriber = self.begin(*both, **options)  # type: ignore[arg-type]
        end_all(publisher, subscriber)
        return publisher, subscriber

    def several(
        self, publishers: int, subscribers: int, middleware: str
    ) -> tuple[list[Process], list[Process]]:
        """Run this number of publishers and of subscribers to their end, and check that all succeed."""
        subs = [
            self.sub("-numPublishers", publishers, "-sidMultiSubTest", n, middleware=middleware)
            for n in range(subscribers)
        ]
        pubs = [
            self.pub("-numSubscribers", subscribers, "-pidMultiPubTest", n, middleware=middleware)
            for n in range(publishers)
        ]
        end_all(*pubs, *subs)
        return pubs, subs


def end_all(*processes: Process, codes: Sequence[int] = ()) -> None:
    """Wait for processes and check their exit codes, which are 0 unless given."""
    ended = [process.end() for process in processes]
    assert ended == (list(codes) or [0] * len(processes)), (ended, [process.err for process in processes])


_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
domains = itertools.cycle(list(DOMAINS)[_worker::_workers])
"""DDS domains for the tests of this process. Processes that run tests at the same time have different domains. In higher
domains than those of k8sdds, a port may belong to any socket that let the kernel choose its port."""


def sh(command: str) -> str:
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def route_multicast(link: tuple[str, str]) -> None:
    """Let multicast packets leave by the link."""
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")


def filter_received(netns: str, *rules: str) -> None:
    """Add rules of nft, in a table `t`, for what arrives by the link."""
    chain = "add table netdev t; add chain netdev t in { type filter hook ingress device eth0 priority 0; }"
    sh(
        f"ip netns exec {netns} nft '{'; '.join([chain, *(f'add rule netdev t in {rule}' for rule in rules)])}'"
    )


def multicast_packets(netns: str) -> int:
    lines = [line.split() for line in sh(f"ip netns exec {netns} cat /proc/net/netstat").splitlines()]
    names, values = [line for line in lines if line[0] == "IpExt:"]
    return int(values[names.index("OutMcastPkts")])


def preload(folder: Path, source: str) -> dict[str, str]:
    """Compile a function in C; return the environment in which programs call it in place of that of a library."""
    (folder / "preloaded.c").write_text(f"#define _GNU_SOURCE\n#include <dlfcn.h>\n{source}")
    library = folder / "preloaded.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "preloaded.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


def packet_socket(netns: str) -> socket.socket:
    """Return a socket that receives, without waiting, what eth0 of a network namespace carries."""

    def opened() -> socket.socket:
        with open(f"/run/netns/{netns}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        packets.bind(("eth0", 0))
        packets.setblocking(False)
        return packets

    with ThreadPoolExecutor(1) as thread:  # setns moves only the calling thread
        return thread.submit(opened).result()


def rtps_messages(packets: socket.socket) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the GUID prefix and the submessages of each RTPS message that a socket has received."""
    with contextlib.suppress(BlockingIOError):
        while True:
            packet = packets.recv(65535)
            start, found = packet.find(b"RTPS"), []
            at = start + 20
            while start >= 0 and at + 4 <= len(packet):
                length = int.from_bytes(packet[at + 2 : at + 4], "little" if packet[at + 1] & 1 else "big")
                end = at + 4 + length if length else len(packet)
                found.append(packet[at:end])
                at = end
            yield packet[start + 8 : start + 20], found
