"""Run the real kube-router on three nodes in two subnets inside the virtual machine; print one line of JSON.

Each node is a network namespace, and a router connects the subnets, and the nodes with the API server outside of the
machine. Pods join by the CNI plugin `bridge`, with the configuration that kube-router completes. The first argument is
the folder with the image of kube-router, the kubeconfig, and `plan.json`, which the test writes: this program imports
nothing of k8sdds, because that takes a minute in emulation.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
PLAN = json.loads((FOLDER / "plan.json").read_text())
NODES, PODS = PLAN["nodes"], PLAN["pods"]
"""Addresses of the nodes, and the subnets of their pods."""
READY_S = 400
COUNTERS = """
table ip seen {
    chain forward {
        type filter hook forward priority 0
        ip protocol 4 counter
        icmp type echo-request counter
    }
}
"""


def run(*argv: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


def inside(netns: str, *argv: str, stdin: str = "", check: bool = True) -> str:
    return run("ip", "netns", "exec", netns, *argv, stdin=stdin, check=check)


def in_image(node: str, *argv: str) -> list[str]:
    return [*PLAN["in_image"][node], *argv]


def build() -> None:
    """Create the router with a bridge per subnet, the nodes, and a network namespace for a pod of each."""
    run("ip", "address", "add", PLAN["address"], "dev", PLAN["nic"])
    run("ip", "link", "set", PLAN["nic"], "up")
    # Frames within a subnet do not pass the router's rules.
    run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=0")
    for subnet in ("1", "2"):
        run("ip", "link", "add", f"subnet{subnet}", "type", "bridge")
        run("ip", "address", "add", f"10.88.{subnet}.1/24", "dev", f"subnet{subnet}")
        run("ip", "link", "set", f"subnet{subnet}", "up")
    for node, address in NODES.items():
        subnet = address.split(".")[2]
        run("ip", "netns", "add", node)
        run("ip", "netns", "add", f"pod-{node}")
        run("ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", node)
        run("ip", "link", "set", f"to-{node}", "master", f"subnet{subnet}", "up")
        inside(node, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            inside(node, "ip", "link", "set", link, "up")
        inside(node, "ip", "route", "add", "default", "via", f"10.88.{subnet}.1")
    run("nft", "-f", "-", stdin=COUNTERS)


def start(name: str, argv: list[str]) -> subprocess.Popen[bytes]:
    with open(f"/run/{name}.log", "wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def start_agents() -> list[subprocess.Popen[bytes]]:
    """Start kube-router on each node with the options of the manifest of k8sdds."""
    # The image has the /run of the machine.
    shutil.copy(FOLDER / "kubeconfig", "/run/kubeconfig")
    agents = []
    for node in NODES:
        config = Path(f"/run/{node}.conflist")
        config.write_text(json.dumps(PLAN["cni"]))
        variables = (f"NODE_NAME={node}", f"KUBE_ROUTER_CNI_CONF_FILE={config}")
        options = (*PLAN["options"], "--kubeconfig=/run/kubeconfig", f"--hostname-override={node}")
        agents.append(start(node, in_image(node, "env", *variables, "/usr/local/bin/kube-router", *options)))
    return agents


def await_routes() -> dict[str, str]:
    """Return the routes of every node as soon as each has one to the pods of every other, or after `READY_S`."""
    deadline = time.monotonic() + READY_S
    while True:
        found = {node: inside(node, "ip", "route") for node in NODES}
        # The subnet of a node's own pods has a route as soon as its first pod joins.
        complete = all(PODS[other] in found[node] for node in NODES for other in NODES if other != node)
        if complete or time.monotonic() > deadline:
            return found
        time.sleep(2)


def join(node: str) -> str:
    """Attach a pod with the first plugin of the node's configuration, and return its address."""
    listed = json.loads(Path(f"/run/{node}.conflist").read_text())
    config = {**listed["plugins"][0], "name": listed["name"], "cniVersion": listed["cniVersion"]}
    variables = (
        "CNI_COMMAND=ADD", f"CNI_CONTAINERID=pod-{node}", f"CNI_NETNS=/run/netns/pod-{node}", "CNI_IFNAME=eth0",
        "CNI_PATH=/opt/cni/bin",
    )  # fmt: skip
    argv = in_image(node, "env", *variables, f"/opt/cni/bin/{config['type']}")
    address: str = json.loads(run(*argv, stdin=json.dumps(config)))["ips"][0]["address"]
    return address.partition("/")[0]


def ping(node: str, target: str, size: int) -> str:
    argv = ("ping", "-q", "-M", "do", "-s", str(size - 28), "-c", "5", "-i", "0.2", "-W", "5", target)
    return inside(f"pod-{node}", *argv, check=False)


def observe() -> dict[str, Any]:
    processes: list[subprocess.Popen[bytes]] = []
    result: dict[str, Any] = {}
    try:
        build()
        processes += start_agents()
        result["routes"] = await_routes()
        pods = {node: join(node) for node in NODES}
        result["same subnet"] = ping("node0", pods["node1"], 1480)
        result["router after the same subnet"] = run("nft", "list", "table", "ip", "seen")
        result["other subnet"] = ping("node0", pods["node2"], 1480)
        result["too large"] = ping("node0", pods["node2"], 1500)
        result["router"] = run("nft", "list", "table", "ip", "seen")
        result["links"] = inside("node0", "ip", "-d", "-o", "link")
    except (RuntimeError, OSError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
        result["error"] = str(error)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        logs = sorted(Path("/run").glob("*.log"))
        result["logs"] = {log.name: log.read_text(errors="replace")[-1500:] for log in logs}
    return result


print(json.dumps({"case": "kube-router", **observe()}), flush=True)
