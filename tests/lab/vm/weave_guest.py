"""Run the real weaver with Open vSwitch on three nodes inside the virtual machine; print one line of JSON.

Each node is a network namespace. Programs run in the file system of the image of WeaveNet, which the first argument
names. The second is the network: `weavenet-encrypt` sets a password. weave-npc and kube-proxy do not run: one rule that accepts replaces the rules
of weave-npc for pods, and the rules of kube-proxy are those of the lab. Pods join by Weave's own CNI plugin.
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
from k8sdds.networks import find
from k8sdds.networks.common import bridge_cni, iptables
from k8sdds.networks.datapath import LabNode
from tests import kernel_objects
from tests.lab import building
from tests.lab.vm import image

ROOT, NETWORK = sys.argv[1:]
NODES = tuple(f"node{number}" for number in range(3))
ADDRESSES = {node: f"10.88.0.{11 + number}" for number, node in enumerate(NODES)}
PODS = IPv4Network("10.32.0.0/12")
MTU = {"weavenet": 1438, "weavenet-encrypt": 1414}
READY_S = 600
DATAGRAMS = 100
CONNECTION = {
    "weavenet": re.compile("established +fastdp"),
    "weavenet-encrypt": re.compile("established +encrypted +fastdp"),
}

NOT_RUN = re.compile(r"(^iptables \w+ |-j )WEAVE-NPC")
"""Rules of weave-npc, which does not run in the machine."""
RULES = iptables.kubernetes_batch(LabNode(0)).lines
COUNTER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7777))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.7.7") + socket.inet_aton(sys.argv[1]))
s.settimeout(60)
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
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=300)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


def in_image(node: str, *argv: str) -> list[str]:
    return image.command(ROOT, node, *argv)


def inside(netns: str, *argv: str, stdin: str = "", check: bool = True) -> str:
    return run("ip", "netns", "exec", netns, *argv, stdin=stdin, check=check)


def build() -> None:
    """Create the nodes, connected by a switch, with the rules of kube-proxy, and a network namespace for a pod of each."""
    run("ip", "link", "add", "switch", "type", "bridge")
    run("ip", "link", "set", "switch", "up")
    for node in NODES:
        run("ip", "netns", "add", node)
        run("ip", "netns", "add", f"pod-{node}")
        run("ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", node)
        run("ip", "link", "set", f"to-{node}", "master", "switch", "up")
        inside(node, "ip", "address", "add", f"{ADDRESSES[node]}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            inside(node, "ip", "link", "set", link, "up")
        inside(f"pod-{node}", "ip", "link", "set", "lo", "up")
        inside(
            node, "sysctl", "--write", *(f"{key}={value}" for key, value in bridge_cni.NODE_SYSCTLS["ipv4"])
        )
        inside(node, "ip", "route", "add", "default", "via", "10.88.0.1", "onlink", "dev", "eth0")
        inside(node, "iptables-nft-restore", "--noflush", stdin="\n".join(RULES))


def start(network: str, node: str, number: int) -> subprocess.Popen[bytes]:
    """Start weaver with the options of its start script."""
    folder = f"/run/{network}-{node}"
    run("mkdir", folder)
    options = (
        "--port=6783", "--datapath=datapath", f"--mtu={MTU[network]}", f"--name=02:00:00:00:00:{number:02x}",
        f"--nickname={node}", "--http-addr=127.0.0.1:6784", "--docker-api=", "--no-dns",
        f"--db-prefix={folder}/weave-net", f"--ipalloc-range={PODS}", "--ipalloc-init=consensus=3",
        "--conn-limit=200", "--expect-npc", "--no-masq-local",
    )  # fmt: skip
    variables = ["env", "WEAVE_PASSWORD=a-secret-of-this-test"] if network == "weavenet-encrypt" else []
    with open(f"/run/{node}.log", "wb") as log:
        argv = in_image(node, *variables, "/home/weave/weaver", *options, *ADDRESSES.values())
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def connections(node: str) -> list[str]:
    """Return the lines of `weave status connections`, which take longer by Weave's script."""
    get = ("curl", "--silent", "http://127.0.0.1:6784/status/connections")
    lines = run(*in_image(node, *get), check=False).splitlines()
    return [line for line in lines if line and "cannot connect to ourself" not in line]


def await_connections(expected: re.Pattern[str]) -> dict[str, list[str]]:
    """Return the connections of all nodes as soon as each has one as expected to both peers, or after a timeout."""
    deadline = time.monotonic() + READY_S
    while True:
        found = {node: connections(node) for node in NODES}
        counts = [sum(bool(expected.search(line)) for line in lines) for lines in found.values()]
        if counts == [2] * len(NODES) or time.monotonic() > deadline:
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
    inside(node, "iptables-nft", "-A", "WEAVE-NPC", "-j", "ACCEPT")
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
    inside(f"pod-{sender}", sys.executable, "-c", PACED, pods[sender], str(DATAGRAMS))
    return {node: int(process.communicate(timeout=300)[0]) for node, process in listening.items()}


def removed(network: str, node: str) -> dict[str, list[str]]:
    """Return what the network left on a node, and what remains after its removal.

    The device of Open vSwitch is removed as on a cluster, by a program in the image.
    """

    def left() -> list[footprint.NetworkLeftover]:
        state = node_state.parse(inside(node, "sh", stdin=footprint.probe_script()))
        return footprint.leftovers(state, ADDRESSES.values(), [PODS], [network])

    made = left()
    (device,) = (item for item in made if item.kind == "device")
    others = [item for item in made if item is not device]
    inside(node, "sh", stdin=footprint.removal_script(others), check=False)
    run(*in_image(node, *device.arguments[1:]))
    return {"made": [str(item) for item in made], "left": [str(item) for item in left()]}


def observe(network: str) -> dict[str, Any]:
    """Run the daemons of a network, and return what they made, how packets passed, and what remains after removal."""
    build()
    daemons = [start(network, node, number) for number, node in enumerate(NODES)]
    result: dict[str, Any] = {}
    try:
        result["connections"] = await_connections(CONNECTION[network])
        pods = {node: join(node) for node in NODES}
        first, second, _ = NODES
        ping = ("ping", "-q", "-M", "do", "-s", str(MTU[network] - 28), "-c", "5", "-i", "0.2", pods[second])
        result["ping"] = inside(f"pod-{first}", *ping, check=False)
        result["multicast"] = heard(pods)
        result["xfrm"] = [inside(first, "ip", "-o", "xfrm", kind) for kind in ("state", "policy")]
        if find(network).kernel_differences:
            result["objects"] = objects(first, pods[first])
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        if "xfrm" not in result:
            logs = {node: Path(f"/run/{node}.log").read_text(errors="replace")[-1500:] for node in NODES}
            print(json.dumps({"failed": network, "logs": logs, **result}), flush=True)
    result["removal"] = removed(network, NODES[0])
    return result


def objects(node: str, pod_address: str) -> list[str]:
    """Return the kernel objects of a node and its pod."""
    place = kernel_objects.Place(
        lambda script: inside(node, "sh", stdin=script), ADDRESSES[node],
        lambda script: inside(f"pod-{node}", "sh", stdin=script), pod_address,
    )  # fmt: skip
    return [line for line in kernel_objects.read(place) if not NOT_RUN.search(line)]


def in_lab(network: str) -> list[str]:
    """Return the same objects of the lab, which is built in the same machine."""
    return [line for line in building.objects(network) if not NOT_RUN.search(line)]


observed = {"network": NETWORK, **observe(NETWORK)}
if "objects" in observed:
    observed["lab"] = in_lab(NETWORK)
print(json.dumps(observed), flush=True)
