"""Send the frames of a capture by one end of a veth pair while the supervisor counts them; run in a new network namespace."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from k8sdds.networks import packets


def main(supervisor: str, capture: str) -> None:
    # Without IPv6, the interface sends nothing of its own.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    subprocess.run(["ip", "link", "add", "left", "type", "veth", "peer", "name", "right"], check=True)
    for name in ("left", "right"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    # Until the kernel has noticed that both ends are up, it drops what is sent.
    while b'"operstate":"UP"' not in subprocess.check_output(["ip", "-json", "link", "show", "left"]):
        time.sleep(0.01)
    command = [supervisor, "count-kinds", "--interface", "left"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as counting,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as replier,
    ):
        assert counting.stderr is not None and counting.stderr.readline() == b"ready\n"
        sender.bind(("left", 0))
        replier.bind(("right", 0))
        for stored, _, _ in packets.frames(Path(capture).read_bytes()):
            sender.send(stored)
            # What arrives does not count.
            replier.send(stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
