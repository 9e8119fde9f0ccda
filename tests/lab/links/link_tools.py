"""Run k8sdds-link between two network namespaces, and its decisions without sockets."""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30
PROTOCOL = 0x88B5  # of local experiments (IEEE 802)
LINK = "node0"

T = TypeVar("T")
Values = dict[str, Any]


def config(up: Values | None = None, down: Values | None = None, **more: Any) -> Values:
    """Return a configuration with one link; `more` are keys of the document."""
    link = {"name": LINK, "near": "near", "far": "far", "up": up or {}, "down": down or {}}
    return {"seed": 7, "links": [link], **more}


# -- decisions without sockets ------------------------------------------------------------------------------


def decide(
    folder: Path,
    values: Values,
    packets: Iterable[tuple[float, int, str]],
    direction: str = "up",
    start_us: float = 0,
) -> tuple[list[str | list[int]], Values]:
    """Return what happens to packets (arrival in µs, bytes, `udp` or `other`), and the statistics.

    Lines with `outage STATE` instead of a kind change the state of the link.

    What happens is the planned departures in ns (two for a duplicated packet), or why it is dropped.
    """
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    tool = next(
        path
        for path in (Path(native_program("k8sdds-link")).parent, REPOSITORY / "build/native/link")
        if (path / "k8sdds-link-tool").is_file()
    )
    done = subprocess.run(
        [tool / "k8sdds-link-tool", path, LINK, direction, f"{start_us:f}"],
        input="".join(f"{us:.3f} {size} {kind}\n" for us, size, kind in packets),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    fates = [
        [int(ns) for ns in line.split()[1:]] if line.startswith("passes") else line
        for line in done.stdout.splitlines()
    ]
    return fates, json.loads(done.stderr)


def evenly(
    count: int, every_us: float = 10, size: int = 100, kind: str = "udp"
) -> list[tuple[float, int, str]]:
    """Return packets at equal distances."""
    return [(number * every_us, size, kind) for number in range(count)]


# -- real packets -------------------------------------------------------------------------------------------

_SETUP = """
set -e
for namespace in a switch b; do ip netns add $namespace; ip -n $namespace link set lo up; done
ip -n switch link add near type veth peer name eth0 netns a
ip -n switch link add far type veth peer name eth0 netns b
for place in "a eth0" "switch near" "switch far" "b eth0"; do
    set -- $place
    ip netns exec $1 sysctl -qw net.ipv6.conf.$2.disable_ipv6=1
    ip netns exec $1 ethtool -K $2 gro off OFFLOADS >/dev/null
    ip -n $1 link set $2 up
done
ip -n a addr add 10.9.0.1/24 dev eth0
ip -n b addr add 10.9.0.2/24 dev eth0
A=$(ip -n a -br link show eth0 | awk '{print $3}')
B=$(ip -n b -br link show eth0 | awk '{print $3}')
ip -n a neigh add 10.9.0.2 lladdr $B dev eth0
ip -n b neigh add 10.9.0.1 lladdr $A dev eth0
"""


class Wire:
    """Two namespaces, `a` and `b`, and k8sdds-link between their interfaces in a third one.

    `up` is the direction from `a` to `b`. No packet is sent except those of the test.
    """

    def __init__(self, folder: Path, offloads: bool = False) -> None:
        self.folder = folder
        self.sandbox = Sandbox("test-link")
        self.process: subprocess.Popen[str] | None = None
        try:
            state = "on" if offloads else "off"
            self.sandbox.run(["sh"], _SETUP.replace("OFFLOADS", f"tso {state} gso {state}"))
        except BaseException:
            self.sandbox.close()
            raise

    def start(self, values: Values) -> None:
        """Start the program and wait until its sockets are open."""
        path = self.folder / "config.json"
        path.write_text(json.dumps(values))
        self.process = subprocess.Popen(
            [*self.sandbox.enter("switch"), native_program("k8sdds-link"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line == "ready\n", line

    def write(self, line: str) -> None:
        assert self.process is not None and self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def ask(self, line: str) -> str:
        """Send a command and return its answer."""
        self.write(line)
        return self.answer()

    def answer(self) -> str:
        """Return the answer to the last command."""
        assert self.process is not None and self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], TIMEOUT_S)[0], "no answer"
        return self.process.stdout.readline()

    def stop(self, direction: str = "up") -> Values:
        """Return the statistics of a direction since `start`."""
        return json.loads(self.ask("stop"))["links"][LINK][direction]

    def end(self, **more: Any) -> tuple[int, str]:
        """Close standard input, or send the last input; return the exit code and the errors."""
        assert self.process is not None
        _, errors = self.process.communicate(timeout=TIMEOUT_S, **more)
        return self.process.returncode, errors

    def within(self, namespace: str, action: Callable[[], T]) -> T:
        """Return the result of an action of a thread in a namespace, such as a socket. Requires root."""
        results: list[T] = []

        def run() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with self.sandbox.path(f"/run/netns/{namespace}").open() as file:
                if libc.setns(file.fileno(), 0x40000000):
                    raise OSError(ctypes.get_errno(), "setns")
            results.append(action())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return results[0]

    def raw(self, namespace: str, protocol: int = PROTOCOL) -> socket.socket:
        """Return a packet socket on the interface of `a` or `b`, with room for many frames."""

        def opened() -> socket.socket:
            new = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
            new.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            new.bind(("eth0", protocol))
            new.settimeout(TIMEOUT_S)
            return new

        return self.within(namespace, opened)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.sandbox.close()


def frame(number: int, size: int = 60) -> bytes:
    """Return an Ethernet frame that contains a number."""
    head = b"\xff" * 6 + b"\x02" + b"\0" * 4 + b"\1" + PROTOCOL.to_bytes(2, "big")
    return (head + number.to_bytes(4, "big")).ljust(size, b"\0")


def number_of(data: bytes) -> int:
    """Return the number in a frame."""
    return int.from_bytes(data[14:18], "big")


def received(receiver: socket.socket, count: int) -> list[int]:
    """Return the numbers of so many frames, in the order of their arrival."""
    return [number_of(receiver.recv(1 << 16)) for _ in range(count)]


def is_silent(receiver: socket.socket) -> bool:
    """Return whether nothing else has arrived."""
    return not select.select([receiver], [], [], 0.1)[0]


def is_root() -> bool:
    return os.geteuid() == 0
