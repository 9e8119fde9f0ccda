"""Run the real weaver with Open vSwitch on three nodes inside the virtual machine; print one line of JSON.

Each node is a network namespace. Programs run in the file system of the image of WeaveNet, which the first argument names.
weave-npc requires an API server, so it does not run: one rule that accepts replaces its rules for pods. Pods join by
Weave's own CNI plugin.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from k8sdds.deploy.network_switch import footprint, node_state
from tests.lab.vm import image

ROOT = sys.argv[1]
NODES = tuple(f"node{number}" for number in range(3))
ADDRESSES = {node: f"10.88.0.{11 + number}" for number, node in enumerate(NODES)}
PODS = IPv4Network("10.32.0.0/12")
MTU = 1438
READY_S = 150
DATAGRAMS = 100
FAST = re.compile("established +fastdp")

COUNTER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.7.7") + socket.inet_aton(sys.argv[1]))
s.settimeout(20)
print("ready", flush=True)
seen = set()
try:
    while len(seen) < int(sys.argv[2]):
        seen.add(s.recv(64))
except TimeoutError:
    pass
print(len(seen))
"""
PACED = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
for number in range(int(sys.argv[2])):
    s.sendto(str(number).encode(), ("239.255.7.7", 7777))
    time.sleep(0.02)
"""


def run(*argv: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


def in_image(node: str, *argv: str) -> list[str]:
    return image.command(ROOT, node, *argv)


def build() -> None:
    """Create the nodes, connected by a switch, with a chain of kube-proxy, and a network namespace for a pod of each."""
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    for node in NODES:
        run("ip", "netns", "add", node)
        run("ip", "netns", "add", f"pod-{node}")
        run("ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", node)
        run("ip", "link", "set", f"to-{node}", "master", "switch", "up")
        inside = ("ip", "netns", "exec", node)
        run(*inside, "ip", "address", "add", f"{ADDRESSES[node]}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run(*inside, "ip", "link", "set", link, "up")
        run(*inside, "ip", "route", "add", "default", "via", "10.88.0.1", "onlink", "dev", "eth0")
        for rule in ("-N KUBE-FORWARD", "-A FORWARD -j KUBE-FORWARD"):
            run(*inside, "iptables-nft", *rule.split())


def start(node: str, number: int) -> subprocess.Popen[bytes]:
    """Start weaver with the options of its start script."""
    run("mkdir", "-p", f"/run/db-{node}")
    options = (
        "--port=6783", "--datapath=datapath", f"--mtu={MTU}", f"--name=02:00:00:00:00:{number:02x}",
        f"--nickname={node}", "--http-addr=127.0.0.1:6784", "--docker-api=", "--no-dns",
        f"--db-prefix=/run/db-{node}/weave-net", f"--ipalloc-range={PODS}", "--ipalloc-init=consensus=3",
        "--conn-limit=200", "--expect-npc", "--no-masq-local",
    )  # fmt: skip
    with open(f"/run/{node}.log", "wb") as log:
        argv = in_image(node, "/home/weave/weaver", *options, *ADDRESSES.values())
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def connections(node: str) -> list[str]:
    lines = run(*in_image(node, "/home/weave/weave", "--local", "status", "connections"), check=False)
    return [line for line in lines.splitlines() if line and "cannot connect to ourself" not in line]


def await_connections() -> dict[str, list[str]]:
    """Return the connections of all nodes as soon as each has an established one to both peers."""
    deadline = time.monotonic() + READY_S
    while True:
        found = {node: connections(node) for node in NODES}
        counts = [sum(bool(FAST.search(line)) for line in lines) for lines in found.values()]
        if counts == [2] * len(NODES):
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(2)


def join(node: str) -> str:
    """Attach a pod with Weave's CNI plugin and return its address."""
    config = json.dumps({"cniVersion": "0.3.0", "name": "weave", "type": "weave-net", "hairpinMode": True})
    variables = (
        "CNI_COMMAND=ADD", f"CNI_CONTAINERID=pod-{node}", f"CNI_NETNS=/run/netns/pod-{node}", "CNI_IFNAME=eth0",
        "CNI_PATH=/opt/cni/bin",
    )  # fmt: skip
    answer = run(*in_image(node, "env", *variables, "/opt/cni/bin/weave-net"), stdin=config)
    address: str = json.loads(answer)["ips"][0]["address"]
    run("ip", "netns", "exec", node, "iptables-nft", "-A", "WEAVE-NPC", "-j", "ACCEPT")
    return address.partition("/")[0]


def heard(pods: dict[str, str]) -> dict[str, int]:
    """Return how many datagrams of the first node's pod the other pods receive by multicast."""
    sender, *receivers = NODES
    listening = {}
    for node in receivers:
        argv = [sys.executable, "-c", COUNTER, pods[node], str(DATAGRAMS)]
        listening[node] = subprocess.Popen(
            ["ip", "netns", "exec", f"pod-{node}", *argv], stdout=subprocess.PIPE, text=True
        )
        output = listening[node].stdout
        assert output is not None
        output.readline()
    run("ip", "netns", "exec", f"pod-{sender}", sys.executable, "-c", PACED, pods[sender], str(DATAGRAMS))
    return {node: int(process.communicate(timeout=60)[0]) for node, process in listening.items()}


def removed(node: str) -> dict[str, list[str]]:
    """Return what the network left on a node, and what remains after its removal.

    The device of Open vSwitch is removed as on a cluster, by a program in the image.
    """

    def left() -> list[footprint.NetworkLeftover]:
        state = node_state.parse(run("ip", "netns", "exec", node, "sh", stdin=footprint.probe_script()))
        return footprint.leftovers(state, ADDRESSES.values(), [PODS], ["weavenet"])

    made = left()
    (device,) = (item for item in made if item.kind == "device")
    others = [item for item in made if item is not device]
    run("ip", "netns", "exec", node, "sh", stdin=footprint.removal_script(others), check=False)
    run(*in_image(node, *device.arguments[1:]))
    return {"made": [str(item) for item in made], "left": [str(item) for item in left()]}


def observe() -> dict[str, Any]:
    build()
    daemons = [start(node, number) for number, node in enumerate(NODES)]
    result: dict[str, Any] = {}
    try:
        result["connections"] = await_connections()
        pods = {node: join(node) for node in NODES}
        first, second, _ = NODES
        size = str(MTU - 28)
        inside = ("ip", "netns", "exec", f"pod-{first}")
        ping = run(
            *inside, "ping", "-q", "-M", "do", "-s", size, "-c", "5", "-i", "0.2", pods[second], check=False
        )
        result["ping"] = ping
        result["multicast"] = heard(pods)
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        logs = {node: Path(f"/run/{node}.log").read_text(errors="replace")[-1500:] for node in NODES}
        if "multicast" not in result or not FAST.search(str(result["connections"])):
            print(json.dumps({"logs": logs, **result}), flush=True)
    result["removal"] = removed(NODES[0])
    return result


print(json.dumps({"case": "weave", **observe()}), flush=True)
