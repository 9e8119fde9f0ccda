"""Build and remove networks with Mininet on request of lab.py.

The script runs with the system's Python, for which Debian's package `mininet` is installed, in the namespaces
of a sandbox and never on the host. It reads one JSON object per line, {"do": "up" | "prove" | "down", …}, and
answers with the seconds.
"""

import contextlib
import json
import subprocess
import sys
import time
from typing import Any

from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo

# Otherwise the first start raises limits of the whole machine with sysctl.
Mininet.inited = True


def topology(shape: str, places: list[int]) -> Topo:
    """Return a network with a host for each place.

    `star`: all hosts are on one switch. `tree`: one switch per node has its hosts, and one switch connects the nodes.
    """
    topo = Topo()
    if shape == "star":
        nodes = dict.fromkeys(places, topo.addSwitch("s1"))
    else:
        middle = topo.addSwitch("s0")
        nodes = {node: topo.addSwitch(f"s{node + 1}") for node in sorted(set(places))}
        for switch in nodes.values():
            topo.addLink(switch, middle)
    for index, node in enumerate(places):
        topo.addLink(topo.addHost(f"h{index}"), nodes[node])
    return topo


def up(shape: str, places: list[int]) -> Mininet:
    """Create the network and wait until Mininet has started it."""
    net = Mininet(topo=topology(shape, places), switch=LinuxBridge, controller=None)
    net.start()
    return net


def prove(net: Mininet) -> None:
    """Send full-MTU pings from the first host to all others in parallel, like the lab's verification."""
    first, *others = net.hosts
    pings = [
        first.popen(["ping", "-n", "-q", "-c", "1", "-W", "5", "-M", "do", "-s", "1472", other.IP()])
        for other in others
    ]
    for ping in pings:
        ping.communicate()
        if ping.returncode:
            raise RuntimeError("a host does not reply")


def main() -> None:
    net: Any = None
    shells: list[Any] = []
    for line in sys.stdin:
        order = json.loads(line)
        begun = time.monotonic()
        if order["do"] == "up":
            net = up(order["shape"], order["places"])
            took = time.monotonic() - begun
            shells = [node.shell for node in [*net.hosts, *net.switches]]
        elif order["do"] == "prove":
            prove(net)
            took = time.monotonic() - begun
        else:
            net.stop()
            took = time.monotonic() - begun
            for shell in filter(None, shells):
                # Not timed: the next step requires that the namespaces of the shells are being removed.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    shell.wait(timeout=10)
        print(json.dumps({"seconds": took}), flush=True)


if __name__ == "__main__":
    main()
