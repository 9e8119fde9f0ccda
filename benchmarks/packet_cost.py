"""Measure what one packet between two pods costs on each lab network, and what it costs more than on a baseline.

One process has a socket in the publisher's pod and one in the subscriber's pod, sends bursts of UDP datagrams of 64
bytes, and receives each burst before it sends the next. Receive packet steering is off, so that one core does all work:
both system calls and the path through both nodes. Other programs can only lengthen it, so the value of a round is the
fastest tenth of its bursts. The rounds of all networks alternate in random order. Requires root.

  new          no packet was ever sent back: connection tracking calls the flow NEW, as for most flows of DDS, whose
               answers come from other ports
  established  the subscriber has answered once

--subscribers sets how many pods the receiving node has.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import common

from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.testbed import Lab

FLOWS = ("new", "established")
BURST, BURSTS = 100, 500

PROGRAM = """
import ctypes, json, os, socket, sys, time
target, flow, burst, bursts = sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
libc = ctypes.CDLL(None, use_errno=True)
def socket_of(pid):
    with open(f"/proc/{pid}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), 0x40000000):
            sys.exit(os.strerror(ctypes.get_errno()))
    new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    new.settimeout(5)
    return new
sender, receiver = socket_of(sys.argv[1]), socket_of(sys.argv[2])
receiver.bind((target, 7))
sender.connect((target, 7))
data, send, receive, clock = bytes(64), sender.send, receiver.recv, time.perf_counter_ns
send(b"")
_, source = receiver.recvfrom(64)
if flow == "established":
    receiver.sendto(b"", source)
    sender.recv(64)
took = []
for _ in range(bursts):
    begun = clock()
    for _ in range(burst):
        send(data)
    for _ in range(burst):
        receive(64)
    took.append((clock() - begun) / burst)
print(json.dumps(sorted(took)))
"""


def cell_of(network: str, subscribers: int) -> Cell:
    """Return a cell whose subscribers are all on the second node."""
    placement: dict[str, int | str] = {"pub": 0, "sub": 1}
    return Cell(
        network=network, test="throughput", payload_bytes=64, nodes=2, subscribers=subscribers, placement=placement
    )  # fmt: skip


def ns_per_packet(lab_network: LabNetwork, flow: str) -> float:
    """Send one round of bursts; return the time per packet of the fastest tenth. Fails if a packet is lost."""
    argv = [str(lab_network.pods[pod]) for pod in ("pub0", "sub0")]
    argv += [lab_network.plan.datapath.attachments["sub0"].address, flow, str(BURST), str(BURSTS)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *argv], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise PrerequisiteError(f"{lab_network.name}: the sender failed: {done.stderr.strip()[-300:]}")
    took: list[float] = json.loads(done.stdout)
    return took[len(took) // 10]


def differences(values: common.Values, item: str, baseline: str) -> list[float]:
    """Return how much more a packet costs than on the baseline, in each round, in ns."""
    own, other = values.by_item[item], values.by_item[baseline]
    return [own[number] - other[number] for number in sorted(own.keys() & other.keys())]


def main() -> int:
    """Run the benchmark."""
    parser = common.parser(__doc__ or "", common.Defaults(15, 3, what="rounds"))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [all]")
    parser.add_argument(
        "--baseline", default="flannel-hostgw", help="network to compare with [flannel-hostgw]"
    )
    parser.add_argument("--subscribers", type=int, default=1, help="pods on the receiving node [1]")
    options = common.parse(parser)
    report = common.Report("packet_cost", options)
    with_pods = [name for name in NETWORKS if make_plan(cell_of(name, 1)).datapath.in_pods]
    names = [options.baseline, *(options.network or with_pods)]
    cells = common.runnable({name: cell_of(name, options.subscribers) for name in names}, report)
    values = {flow: common.Values() for flow in FLOWS}
    with Lab("benchmark-packets") as lab:
        lab.up(cells.values())
        by_name = {item.plan.cell.network: item for item in lab.networks.values()}
        for number, (network, flow) in common.interleave(
            options.pairs, [[(name, flow) for name in cells for flow in FLOWS]], options.seed
        ):
            values[flow].add(network, number, ns_per_packet(by_name[network], flow))
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for network in cells:
        row = [network]
        for flow in FLOWS:
            more = differences(values[flow], network, options.baseline)
            spread = statistics.quantiles(more, n=4) if len(more) > 1 else [more[0]] * 3
            median = values[flow].median(network)
            data.setdefault(network, {})[flow] = {"ns": median, "more_ns": spread}
            row += [common.number(median), f"{spread[1]:+,.0f} ({spread[0]:+,.0f} – {spread[2]:+,.0f})"]
        rows.append(tuple(row))
    header = (
        "network",
        *(text for flow in FLOWS for text in (f"{flow}, ns", f"more than {options.baseline}, ns")),
    )
    report.data |= {"subscribers": options.subscribers, "baseline": options.baseline, "networks": data}
    report.text(common.table(header, rows))
    report.text(
        "Time of one packet through both nodes: median of the rounds; difference: median and quartiles."
    )
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
