"""A stand-in for RTI's perftest_cpp, which cannot be had here: it takes the same words and prints the same formats.

It is no DDS: the publisher sends that many datagrams of -dataLen bytes to its peers, the subscriber counts
them, and both print PerfTest's tables around those numbers. Latencies are the recorded ones of tests/importing.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

from k8sdds.perftest.connext import options
from tests.importing import logs

VERSION = (4, 1)
BANNER = "RTI Perftest 4.1.0 stand-in (RTI Connext DDS 7.2.0)"
RATE = 2000
END = b"end"


def main() -> int:
    words = sys.argv[1:]
    if words == ["-help"]:
        print(BANNER, file=sys.stderr)
        return 0
    publishes = "-pub" in words
    why = options.refusal(words, VERSION, "publisher" if publishes else "subscriber")
    if why:
        print(f"[Error] {why}", file=sys.stderr)
        return 255
    given = {name: words[place + 1] for place, name in enumerate(words[:-1]) if options.OPTIONS.get(name)}
    peers = [words[place + 1] for place, word in enumerate(words) if word == "-peer"]
    size = int(given["-dataLen"])
    said = logs.configuration(publishes, version="4.1.0", product="RTI Connext DDS 7.2.0", size=size,
                              latency="-latencyTest" in words)  # fmt: skip
    sys.stderr.write(said)
    if publishes:
        _publish(peers, given, size)
        print(logs.csv_latency(cpu=False).replace("1024", f"{size:4}"), end="")
    else:
        samples, seconds = _subscribe(int(given["-domain"]), int(given["-sidMultiSubTest"]))
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


def _port(domain: int, number: int) -> int:
    return 7400 + 250 * domain + 11 + 2 * number


def _publish(peers: list[str], given: dict[str, str], size: int) -> None:
    numbers = range(int(given["-numSubscribers"]))
    targets = [(peer, _port(int(given["-domain"]), number)) for peer in peers for number in numbers]
    began, sent = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:

        def send(data: bytes) -> None:
            for target in targets:
                # Nobody with that number may be at that address.
                with contextlib.suppress(ConnectionRefusedError):
                    out.sendto(data, target)

        time.sleep(0.5)  # where the real one discovers
        while time.monotonic() - began < float(given["-executionTime"]):
            send(b"\1" * size)
            sent += 1
            time.sleep(max(0.0, began + sent / RATE - time.monotonic()))
        for _ in range(5):
            send(END)
            time.sleep(0.05)


def _subscribe(domain: int, number: int) -> tuple[int, float]:
    samples, first = 0, 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        into.bind(("0.0.0.0", _port(domain, number)))
        into.settimeout(20)
        while into.recv(65536) != END:
            samples += 1
            first = first or time.monotonic()
    return samples, max(time.monotonic() - first, 0.001)


if __name__ == "__main__":
    sys.exit(main())
