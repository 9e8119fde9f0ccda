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
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import Plan, make_plan
from tests.lab.building import build
from tests.lab.multicast import RECEIVER, SENDER


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
        lab_network.verify()
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
        lab_network.verify()
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


CASES = {
    "flannel-ipsec": lambda: encrypts("flannel-ipsec"),
    "weavenet-encrypt": lambda: encrypts("weavenet-encrypt"),
    "flannel-wireguard": lambda: encrypts("flannel-wireguard"),
    "calico-ipip": lambda: encapsulates("calico-ipip"),
    "wrong-key": wrong_key,
    "delay": delay,
}

for name, case in CASES.items():
    began = time.monotonic()
    try:
        found = case()
    except Exception:
        found = {"failed": traceback.format_exc()}
    print(json.dumps({"case": name, "seconds": time.monotonic() - began, **found}), flush=True)
