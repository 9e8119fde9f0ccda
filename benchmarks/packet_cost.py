"""Measure what one packet between two pods costs on each lab network, and what it costs more than on a baseline.

One process has a socket in the publisher's pod and one in the subscriber's pod, sends bursts of UDP datagrams of 64
bytes, and receives each burst before it sends the next. Receive packet steering is off, so that one core does all work:
both system calls and the path through both nodes. Other programs can only lengthen it, so the value of a round is the
fastest tenth of its bursts. The rounds of all networks alternate in random order. Requires root.

  new          no packet was ever sent back: connection tracking calls the flow NEW, as for most flows of DDS, whose
               answers come from other ports
  established  the subscriber has answered once

--subscribers sets how many pods the receiving node has. --pods adds two pods of a cluster of local nodes, which share
this machine's kernel: one process in each. They are compared with the lab network of the same name, round by round.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import common

from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.testbed import Lab

FLOWS = ("new", "established")
BURST, BURSTS = 100, 500
TIMEOUT_S = 120
ON_CLUSTER = " on the cluster"

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
    placement: dict[str, int | str] = {"pub0": 0, **{f"sub{number}": 1 for number in range(subscribers)}}
    return Cell(
        network=network, test="throughput", payload_bytes=64, nodes=2, subscribers=subscribers, placement=placement
    )  # fmt: skip


@dataclass(frozen=True)
class Pods:
    """The ids of a process in the sending pod and of one in the receiving pod, and the receiving pod's address."""

    sender: int
    receiver: int
    address: str


def pods_of(lab_network: LabNetwork) -> Pods:
    """Return the pods of a lab network."""
    address = lab_network.plan.datapath.attachments["sub0"].address
    return Pods(lab_network.pods["pub0"], lab_network.pods["sub0"], address)


def pods_on_cluster(text: str) -> tuple[str, Pods]:
    """Return the network and the pods for NETWORK=PID,PID. The receiver's address is the one of its eth0."""
    found = re.fullmatch(r"(.+)=(\d+),(\d+)", text)
    if not found or found[1] not in NETWORKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NETWORK=PID,PID with a network of the lab")
    argv = ["nsenter", "-t", found[3], "-n", "ip", "-json", "-4", "address", "show", "dev", "eth0"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    except subprocess.TimeoutExpired as error:
        raise argparse.ArgumentTypeError(f"the eth0 of process {found[3]} cannot be read: {error}") from error
    if done.returncode:
        raise argparse.ArgumentTypeError(f"process {found[3]} has no eth0: {done.stderr.strip()}")
    addresses = [one["local"] for link in json.loads(done.stdout) for one in link.get("addr_info", ())]
    if not addresses:
        raise argparse.ArgumentTypeError(f"eth0 of process {found[3]} has no IPv4 address")
    return found[1], Pods(int(found[2]), int(found[3]), addresses[0])


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def ns_per_packet(name: str, pods: Pods, flow: str) -> float:
    """Send one round of bursts; return the time per packet of the fastest tenth. Fails if a packet is lost."""
    argv = [str(pods.sender), str(pods.receiver), pods.address, flow, str(BURST), str(BURSTS)]
    command = [sys.executable, "-c", PROGRAM, *argv]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise PrerequisiteError(f"{name}: the sender did not end within {TIMEOUT_S} s") from error
    if done.returncode:
        raise PrerequisiteError(f"{name}: the sender failed: {done.stderr.strip()[-300:]}")
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
    parser.add_argument(
        "--pods", action="append", default=[], type=pods_on_cluster, metavar="NETWORK=PID,PID",
        help="processes in two pods of a cluster on this machine; repeatable",
    )  # fmt: skip
    options = common.parse(parser)
    if twice := repeated(name for name, _ in options.pods):
        parser.error(f"--pods: more than one pair of pods for {', '.join(twice)}; give one per network")
    report = common.Report("packet_cost", options)
    with_pods = [name for name in NETWORKS if make_plan(cell_of(name, 1)).datapath.in_pods]
    names = [options.baseline, *(options.network or with_pods), *(name for name, _ in options.pods)]
    cells = common.runnable({name: cell_of(name, options.subscribers) for name in names}, report)
    on_cluster = {f"{name}{ON_CLUSTER}": pods for name, pods in options.pods if name in cells}
    for name, _ in options.pods:
        if name not in cells:
            report.skip(f"{name}{ON_CLUSTER}: the lab cannot run {name}, with which it would be compared")
    values = {flow: common.Values() for flow in FLOWS}
    with Lab("benchmark-packets") as lab:
        lab.up(cells.values())
        by_name = {item.plan.cell.network: pods_of(item) for item in lab.networks.values()} | on_cluster
        schedule = [[(name, flow) for name in (*cells, *on_cluster) for flow in FLOWS]]
        for number, (name, flow) in common.interleave(options.pairs, schedule, options.seed):
            values[flow].add(name, number, ns_per_packet(name, by_name[name], flow))
    report.data |= {"subscribers": options.subscribers, "baseline": options.baseline}
    add_costs(report, values, [*cells, *on_cluster], options.baseline)
    add_ratios(report, values, on_cluster)
    report.show()
    return 0


def add_costs(
    report: common.Report, values: dict[str, common.Values], names: Iterable[str], baseline: str
) -> None:
    """Add the time of a packet, and how much more it is than on the baseline."""
    rows: list[tuple[str, ...]] = []
    data = report.data["networks"] = {}
    for name in names:
        row = [name]
        for flow in FLOWS:
            more = differences(values[flow], name, baseline)
            spread = statistics.quantiles(more, n=4) if len(more) > 1 else [more[0]] * 3
            median = values[flow].median(name)
            data.setdefault(name, {})[flow] = {"ns": median, "more_ns": spread}
            row += [common.number(median), f"{spread[1]:+,.0f} ({spread[0]:+,.0f} – {spread[2]:+,.0f})"]
        rows.append(tuple(row))
    header = (
        "network",
        *(text for flow in FLOWS for text in (f"{flow}, ns", f"more than {baseline}, ns")),
    )
    report.text(common.table(header, rows))
    report.text(
        "Time of one packet through both nodes: median of the rounds; difference: median and quartiles."
    )


def add_ratios(report: common.Report, values: dict[str, common.Values], on_cluster: Iterable[str]) -> None:
    """Add the ratio of the times on the cluster and in the lab."""
    rows: list[tuple[str, ...]] = []
    data = report.data["cluster_to_lab"] = {}
    for name in on_cluster:
        network = name.removesuffix(ON_CLUSTER)
        ratios = {flow: values[flow].ratio(name, network) for flow in FLOWS}
        data[network] = {flow: common.as_json(ratio) for flow, ratio in ratios.items()}
        rows.append((network, *(common.describe(ratio) for ratio in ratios.values())))
    if rows:
        report.text(common.table(("cluster / lab", *FLOWS), rows))
        report.text("Median of the ratios within a round, with a 95 % interval.")


if __name__ == "__main__":
    common.main(main)
