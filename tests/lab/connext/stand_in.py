"""Replace RTI's perftest_cpp in tests: accept the same options and print the same formats.

It contains no DDS: the publisher sends datagrams of -dataLen bytes to its peers, the subscriber counts them, and
both print these numbers in PerfTest's tables. Latencies are those recorded in tests/unit/importing. Without a list of
peers it queries the servers in NDDS_DISCOVERY_PEERS, which must be cloud_stand_in.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.unit.importing import logs

# Only this module: an image with the stand-ins contains Python, but none of the libraries that its package needs.
sys.path.append(str(Path(__file__).parents[3] / "k8sdds/middleware/connext"))
import options

VERSION = (4, 1)
PRODUCT = "RTI Connext DDS 7.2.0"
BANNER = f"RTI Perftest 4.1.0 stand-in ({PRODUCT})"
RATE = 2000
END = b"end"
PEERS = "NDDS_DISCOVERY_PEERS"
DISCOVER_S = 10


def main() -> int:
    args = sys.argv[1:]
    if args == ["-help"]:
        print(BANNER, file=sys.stderr)
        return 0
    publishes = "-pub" in args
    why = options.refusal(args, VERSION, "publisher" if publishes else "subscriber") or license_problem()
    if why:
        print(f"[Error] {why}", file=sys.stderr)
        return 255
    given = {name: args[place + 1] for place, name in enumerate(args[:-1]) if options.OPTIONS.get(name)}
    peers = [args[place + 1] for place, word in enumerate(args) if word == "-peer"]
    size = int(given["-dataLen"])
    text = logs.configuration(publishes, version="4.1.0", commit="stand-in", product=PRODUCT, size=size,
                              latency="-latencyTest" in args)  # fmt: skip
    sys.stderr.write(text)
    if publishes:
        _publish(peers, given, size)
        print(logs.csv_latency(cpu=False).replace("1024", f"{size:4}"), end="")
    else:
        samples, seconds = _subscribe(int(given["-domain"]), int(given["-sidMultiSubTest"]), not peers)
        rate = round(samples / seconds)
        print("Throughput Summary:")
        print(
            "Sample Size (Bytes), Total Samples, Avg Samples/s,    Avg Mbps, Lost Samples, Lost Samples (%)"
        )
        print(
            f"{size:19}, {samples:13}, {rate:13}, {rate * size * 8e-6:11.1f},            0,             0.00"
        )
    sys.stderr.write(logs.END)
    return 0


def license_problem() -> str:
    """Return why a Connext that requires a license would not start, judged by the license file."""
    path = os.environ.get("RTI_LICENSE_FILE")
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            return "" if file.read() else f"{path} is empty"
    except OSError as error:
        return f"no license: {error}"


def _servers() -> list[tuple[str, int]]:
    """Return the servers of NDDS_DISCOVERY_PEERS, each `rtps@udpv4://HOST:PORT`."""
    servers = []
    for peer in filter(None, os.environ.get(PEERS, "").split(",")):
        host, _, port = peer.removeprefix("rtps@udpv4://").rpartition(":")
        servers.append((host, int(port)))
    return servers


def _port(domain: int, number: int) -> int:
    return 7400 + 250 * domain + 11 + 2 * number


def _discovered(domain: str, count: int) -> list[str]:
    """Return the addresses of the subscribers that registered with a server."""
    participants: set[str] = set()
    end = time.monotonic() + DISCOVER_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.3)
        while len(participants) < count and time.monotonic() < end:
            for server in _servers():
                with contextlib.suppress(TimeoutError):
                    asking.sendto(f"who {domain}".encode(), server)
                    participants |= set(asking.recv(65536).decode().split())
    return sorted(participants)


def _publish(peers: list[str], given: dict[str, str], size: int) -> None:
    domain, count = given["-domain"], int(given["-numSubscribers"])
    addresses = peers or _discovered(domain, count)
    targets = [(peer, _port(int(domain), number)) for peer in addresses for number in range(count)]
    began, sent = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:

        def send(data: bytes) -> None:
            for target in targets:
                # There may be no participant with this number at this address.
                with contextlib.suppress(ConnectionRefusedError):
                    out.sendto(data, target)

        time.sleep(0.5)  # RTI PerfTest discovers the subscribers meanwhile
        while time.monotonic() - began < float(given["-executionTime"]):
            send(b"\1" * size)
            sent += 1
            time.sleep(max(0.0, began + sent / RATE - time.monotonic()))
        for _ in range(5):
            send(END)
            time.sleep(0.05)


def _subscribe(domain: int, number: int, by_server: bool) -> tuple[int, float]:
    samples, first = 0, 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        into.bind(("0.0.0.0", _port(domain, number)))
        data = _announced(into, domain) if by_server else _patient(into)
        while (one := next(data)) != END:
            samples += 1 if one else 0
            first = first or time.monotonic()
    return samples, max(time.monotonic() - first, 0.001)


def _patient(into: socket.socket) -> Iterator[bytes]:
    into.settimeout(20)
    while True:
        yield into.recv(65536)


def _announced(into: socket.socket, domain: int) -> Iterator[bytes]:
    """What comes, after telling the servers where we are until it does."""
    into.settimeout(0.2)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for server in _servers():
            into.sendto(f"here {domain}".encode(), server)
        with contextlib.suppress(TimeoutError):
            yield into.recv(65536)
            break
    yield from _patient(into)


if __name__ == "__main__":
    sys.exit(main())
