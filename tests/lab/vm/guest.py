"""Test lab networks with kernel engines inside the virtual machine; print one line of JSON per network."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
import traceback
from ipaddress import IPv4Network

from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.model.link import Link
from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.networks.flannel.lab import POD_CIDR
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab import verification
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan, make_plan
from k8sdds.testbeds.lab.topology import SWITCH
from tests.lab.building import build
from tests.lab.multicast import RECEIVER, SENDER
from tests.lab.vm import campaigns


def planned(network: str, **changes: object) -> Plan:
    options = {"engine": "kernel"} if find(network).engines else {}
    return make_plan(
        Cell(network=network, network_options=options, test="latency", payload_bytes=64, **changes)  # type: ignore[arg-type]
    )


def output_of(lab_network: LabNetwork, place: str, *argv: str) -> str:
    args = (
        lab_network.enter(place)
        if place in lab_network.plan.datapath.attachments
        else lab_network.sandbox.enter(place)
    )
    done = subprocess.run([*args, *argv], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def encrypts(network: str) -> dict[str, object]:
    """Verify a network that encrypts, and return the state of the kernel's encryption."""
    lab_network = build(planned(network))
    try:
        verification.verify(lab_network)
        before = lab_network.decrypted_bytes("node1") or 0
        target = lab_network.plan.datapath.attachments["sub0"].address
        output_of(lab_network, "pub0", "ping", "-q", "-c", "5", "-i", "0.05", "-s", "1000", target)
        return {
            "mtu": lab_network.plan.datapath.mtu,
            "decrypted": (lab_network.decrypted_bytes("node1") or 0) - before,
            "xfrm": output_of(lab_network, "node0", "ip", "xfrm", "state"),
            "links": output_of(lab_network, "node0", "ip", "-d", "-o", "link"),
            "daemons": len(lab_network.plan.datapath.daemons),
            "heard": heard(lab_network) if network == "weavenet-encrypt" else None,
            **(removed(lab_network, network) if network.startswith("flannel") else {}),
        }
    finally:
        lab_network.close()


def removed(lab_network: LabNetwork, network: str) -> dict[str, object]:
    """Return the footprint of a network on a node, and what remains after its removal."""
    addresses = [node.address for node in lab_network.plan.topology.nodes]
    pods = [IPv4Network(POD_CIDR)]

    def left() -> list[footprint.NetworkLeftover]:
        observed = node_state.parse(output_of(lab_network, "node0", "sh", "-c", footprint.probe_script()))
        return footprint.leftovers(observed, addresses, pods, [network])

    before = left()
    output_of(lab_network, "node0", "sh", "-c", footprint.removal_script(before))
    return {"made": [str(trace) for trace in before], "left": [str(trace) for trace in left()]}


def heard(lab_network: LabNetwork) -> str:
    """Return what a subscriber receives of a multicast packet over encrypted VXLAN."""
    own, target = (lab_network.plan.datapath.attachments[pod].address for pod in ("pub0", "sub0"))
    receiver = subprocess.Popen(
        [*lab_network.enter("sub0"), sys.executable, "-c", RECEIVER, target, "30"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert receiver.stdout is not None
    receiver.stdout.readline()
    output_of(lab_network, "pub0", sys.executable, "-c", SENDER, own)
    return receiver.communicate(timeout=60)[0].strip()


def encapsulates(network: str) -> dict[str, object]:
    """Verify a network with full-size packets; return the links of a node and the counters of its tunnel."""
    lab_network = build(planned(network))
    try:
        verification.verify(lab_network)
        return {"links": output_of(lab_network, "node0", "ip", "-d", "-o", "-s", "link")}
    finally:
        lab_network.close()


def wrong_key() -> dict[str, object]:
    """Return the error for nodes with different pre-shared keys."""
    plan = planned("flannel-ipsec")
    files = tuple(
        dataclasses.replace(file, text=file.text.replace("$psk", "another")) if "node1" in file.path else file
        for file in plan.datapath.files
    )
    try:
        build(dataclasses.replace(plan, datapath=dataclasses.replace(plan.datapath, files=files))).close()
    except PrerequisiteError as error:
        return {"error": error.message}
    return {"error": ""}


def delay() -> dict[str, object]:
    """Return the round-trip time of a link with a delay of 100 ms in each direction."""
    lab_network = build(planned("host", link=Link(delay_us=100_000)))
    try:
        target = lab_network.plan.datapath.attachments["sub0"].address
        return {"ping": output_of(lab_network, "pub0", "ping", "-q", "-c", "2", target)}
    finally:
        lab_network.close()


FLOWS = """
import socket, sys
for port in range(7000, 7000 + int(sys.argv[2])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.bind(("", port))
        for _ in range(int(sys.argv[3])):
            flow.sendto(bytes(1000), (sys.argv[1], 9))
"""


def bonded(network: str) -> dict[str, object]:
    """Return how packets of one flow and of many are spread over the members of a bonded link."""
    lab_network = build(planned(network, link=Link(lag=2)))
    try:
        verification.verify(lab_network)
        target = lab_network.plan.datapath.attachments["sub0"].address

        def sent(flows: int, packets: int) -> list[int]:
            before = [lab_network.link_bytes("node0", "tx", port) for port in ("port0", "port1")]
            output_of(lab_network, "pub0", sys.executable, "-c", FLOWS, target, str(flows), str(packets))
            after = [lab_network.link_bytes("node0", "tx", port) for port in ("port0", "port1")]
            return [now - then for now, then in zip(after, before, strict=True)]

        return {
            "node_links": lab_network.node_links,
            "links": output_of(lab_network, "node0", "ip", "-d", "-o", "link"),
            "switch": output_of(lab_network, SWITCH, "ip", "-d", "-o", "link"),
            "one flow": sent(1, 100),
            "many flows": sent(64, 10),
        }
    finally:
        lab_network.close()


def bonded_campaign() -> dict[str, object]:
    """Measure one TCP connection and sixteen over a bonded link, and return the attempts."""
    return campaigns.measured(BONDED, ("flows", "valid", "reason", "link", "link_bytes", "node_links"))


BONDED = {
    "name": "bond", "baseline": "host", "repetitions": 1, "duration_s": 2, "warmup_s": 1, "link": {"lag": 2},
    "sweeps": [{"networks": "host", "test": [{"name": "tcp-stream", "flows": n} for n in (1, 16)]}],
}  # fmt: skip

CASES = {
    "lag": lambda: bonded("host"),
    "lag-vxlan": lambda: bonded("flannel-vxlan"),
    "lag-campaign": bonded_campaign,
    "flannel-ipsec": lambda: encrypts("flannel-ipsec"),
    "weavenet-encrypt": lambda: encrypts("weavenet-encrypt"),
    "flannel-wireguard": lambda: encrypts("flannel-wireguard"),
    "calico-ipip": lambda: encapsulates("calico-ipip"),
    "wrong-key": wrong_key,
    "delay": delay,
}

chosen = sys.argv[1:] or list(CASES)
for name in chosen:
    case = CASES[name]
    began = time.monotonic()
    try:
        found = case()
    except Exception:
        found = {"failed": traceback.format_exc()}
    # The line before can end with control sequences of a progress bar.
    print("\n" + json.dumps({"case": name, "seconds": time.monotonic() - began, **found}), flush=True)
