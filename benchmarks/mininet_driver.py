"""Builds and removes networks with Mininet, on command: the other side of lab.py.

Run by the system's Python, which Debian's package `mininet` belongs to, in a sandbox's namespaces: never
on the host. Reads one JSON object a line, {"do": "up" | "prove" | "down", …}; answers with the seconds.
"""

import contextlib
import json
import subprocess
import sys
import time

from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo

# Its first start raises limits of the whole machine by sysctl. Without that nothing is changed outside.
Mininet.inited = True


class Star(Topo):
    """All hosts on one switch."""

    def build(self, places, **_):
        switch = self.addSwitch("s1")
        for index, _node in enumerate(places):
            self.addLink(self.addHost(f"h{index}"), switch)


class Tree(Topo):
    """A switch for each node with its hosts on it, and one switch between the nodes."""

    def build(self, places, **_):
        middle = self.addSwitch("s0")
        nodes = {node: self.addSwitch(f"s{node + 1}") for node in sorted(set(places))}
        for switch in nodes.values():
            self.addLink(switch, middle)
        for index, node in enumerate(places):
            self.addLink(self.addHost(f"h{index}"), nodes[node])


def up(shape, places):
    """Make the network; returns when Mininet says that it has started."""
    topo = {"star": Star, "tree": Tree}[shape](places=places)
    net = Mininet(topo=topo, switch=LinuxBridge, controller=None)
    net.start()
    return net


def prove(net):
    """Full-MTU pings from the first host to each other, at the same time, as the lab's proof does."""
    first, *others = net.hosts
    pings = [
        first.popen(["ping", "-n", "-q", "-c", "1", "-W", "5", "-M", "do", "-s", "1472", other.IP()])
        for other in others
    ]
    for ping in pings:
        ping.communicate()
        if ping.returncode:
            raise RuntimeError("a host does not answer")


def main():
    net, shells = None, []
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
                # Beside the time: what comes next must find the shells' namespaces on their way out.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    shell.wait(timeout=10)
        print(json.dumps({"seconds": took}), flush=True)


if __name__ == "__main__":
    main()
