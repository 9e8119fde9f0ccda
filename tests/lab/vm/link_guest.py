"""Send numbered packets over impaired links inside the virtual machine; print one line of JSON per link.

The argument is a list in JSON: `name` and `link`, and `packets` to send in intervals of `every_us`; or an `experiment`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from k8sdds.model.link import USERSPACE, Link
from k8sdds.model.measurement import Outcome
from k8sdds.model.trial import FIRST_PUBLISHER, Cell
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.evidence import Reading
from k8sdds.testbeds.lab.evidence import LinkConditions, queue_conditions
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.topology import SWITCH, emulated, queued
from k8sdds.testbeds.link_emulation import configuration

PORT = 7000
DELAYS = ("delay_p50_us", "delay_p90_us", "delay_p99_us")
QUIET_S = 5
"""Longer than the delays of the links, of which `k8sdds-link` states nothing while it forwards."""
SENDER = f"""
import socket, struct, sys, time
target, packets, every_us = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.connect((target, {PORT}))
    began = time.monotonic()
    for number in range(packets):
        late = began + number * every_us / 1e6 - time.monotonic()
        if late > 0:
            time.sleep(late)
        sender.send(struct.pack("=IQ", number, time.time_ns()) + bytes(988))
"""
"""Sends packets of 1000 bytes with their number and time."""
RECEIVER = f"""
import json, select, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE
    receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    receiver.bind(("", {PORT}))
    print("ready", flush=True)
    sys.stdin.readline()
    receiver.setblocking(False)
    found = []
    while True:
        try:
            data, more, _, _ = receiver.recvmsg(1500, 64)
        except BlockingIOError:
            break
        seconds, ns = struct.unpack("=qq", more[0][2][:16])
        number, sent = struct.unpack("=IQ", data[:12])
        found.append((number, (seconds * 10**9 + ns - sent) // 1000))
    print(json.dumps(found), flush=True)
"""
"""Prints number and delay, in µs, of the packets that have arrived, when it is asked to."""


def build(link: Link) -> LabNetwork:
    plan = make_plan(Cell(network="host", test="paced", payload_bytes=64, rate=10, link=link))
    lab_network = LabNetwork(plan, Sandbox("test-links"))
    forwarded = emulated(plan.topology, link)
    try:
        lab_network.build({}, configuration(link, forwarded, 1, None) if forwarded else None)
    except BaseException:
        lab_network.close()
        raise
    return lab_network


def queues(lab_network: LabNetwork) -> dict[str, Any]:
    """Return the queues of the links of both nodes, by place and device."""
    return {
        f"{place} {device}": json.loads(lab_network.sandbox.run(["tc", "-s", "-j", "qdisc", "show", "dev", device], netns=place))
        for node in ("node0", "node1")
        for place, device in ((node, "eth0"), (SWITCH, f"to-{node}"))
    }  # fmt: skip


def await_arrivals(lab_network: LabNetwork) -> None:
    """Return when no packet is on the way: the queues are empty, and the subscriber's node has received nothing more."""
    while True:
        before = lab_network.link_bytes("node1", "rx")
        time.sleep(QUIET_S)
        # The child of netem counts in it from Linux 6.13 on, and in earlier kernels that have this repair.
        delayed = sum(queue["qlen"] for found in queues(lab_network).values() for queue in found)
        if not delayed and lab_network.link_bytes("node1", "rx") == before:
            return


def exchange(lab_network: LabNetwork, packets: int, every_us: int) -> list[list[int]]:
    """Send packets from the publisher's node to the subscriber's; return number and delay of those that arrived."""
    target = lab_network.plan.datapath.attachments["sub0"].address
    receiver = subprocess.Popen(
        [*lab_network.enter("sub0"), sys.executable, "-S", "-c", RECEIVER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sender = [sys.executable, "-S", "-c", SENDER, target, str(packets), str(every_us)]
    subprocess.run([*lab_network.enter("pub0"), *sender], check=True, timeout=300)
    await_arrivals(lab_network)
    return json.loads(receiver.communicate("now\n", timeout=60)[0])  # type: ignore[no-any-return]


def campaign(experiment: dict[str, Any]) -> dict[str, Any]:
    # Slow to import here, and not needed for other cases.
    from tests.lab.vm import campaigns

    keys = (
        "valid", "reason", "repetition", "test", "link", "link_conditions", "link_bytes", "received", "lost", *DELAYS
    )  # fmt: skip
    return campaigns.measured(experiment, keys)


def measured(asked: dict[str, Any]) -> dict[str, Any]:
    link = Link.model_validate(asked["link"])
    lab_network = build(link)
    reading: Reading
    if link.engine == USERSPACE:
        assert lab_network.emulator is not None
        reading = LinkConditions(lab_network.emulator, Path("/run"))
    else:
        reading = queue_conditions(lab_network, queued(lab_network.plan.topology, link))
    try:
        # Nothing but these packets passes, so that all counts are exact.
        target = lab_network.plan.datapath.attachments["sub0"].address
        subprocess.run(
            [*lab_network.enter("pub0"), "ping", "-q", "-c", "5", "-i", "0.3", target],
            capture_output=True,
            check=False,
        )
        reading.before()
        arrived = exchange(lab_network, asked["packets"], asked["every_us"])
        conditions = reading.after({FIRST_PUBLISHER.name: Outcome(FIRST_PUBLISHER, 0, None)})["links"]
        return {"arrived": arrived, "conditions": conditions, "queues": queues(lab_network)}
    finally:
        lab_network.close()


for asked in json.loads(sys.argv[1]):
    began = time.monotonic()
    try:
        found = campaign(asked["experiment"]) if "experiment" in asked else measured(asked)
    except Exception:
        found = {"failed": traceback.format_exc()}
    print(
        "\n" + json.dumps({"case": asked["name"], "seconds": time.monotonic() - began, **found}), flush=True
    )
