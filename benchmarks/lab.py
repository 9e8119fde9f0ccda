"""Compare the time to build and remove networks in the lab and in Mininet.

Ten nodes and thirteen pods (one publisher, twelve subscribers) are built and removed repeatedly, all kinds in
random order within each round. Ratios are within the same round.

  a network   everything that a campaign does for it: the sandbox, namespaces, links, sysctls, routes,
              nftables, cgroups and the record for `k8sdds clean`. Each node is a namespace with a link to a
              switch. Each pod is a process in separate network, PID, mount, IPC and UTS namespaces with a
              second link (except with `host`, where pods use the network of the node).
  star        Mininet: 13 hosts on one Linux bridge (like its SingleSwitchTopo), 13 links
  tree        Mininet: the topology that is most similar to a pod network, with one bridge for each of 10
              nodes, 13 hosts on them and one bridge between: 23 links. Its nodes are bridges without
              namespaces or routes, so the lab creates more: 24 namespaces instead of 13.

up      until the call returns; Python and all imports are loaded on both sides
proof   full-MTU pings from the first pod to the twelve others in parallel, in both. The lab always verifies
        its networks; the time is listed separately because it is not part of building.
down    until the call returns
freed   from the start of the removal until the kernel has removed everything. The kernel frees network
        namespaces later, in batches. The benchmark releases a small namespace after `down`; when it is gone,
        so are all earlier ones. `nothing` is the time that this alone takes.

Mininet runs in a separate sandbox with the system's Python. It does not change the host and stops with its
sandbox. Requires: mininet, bridge-utils, net-tools.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common

from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS
from k8sdds.system import kernel_features
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab import verification
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.testbeds.lab.topology import topology_of

NODES, SUBSCRIBERS = 10, 12
MININET = {"star": "Mininet, 13 hosts on a switch", "tree": "Mininet, 10 switches with 13 hosts"}
NOTHING = "nothing"
FREED_TIMEOUT_S = 60
SYSTEM_PYTHON = "/usr/bin/python3"
DRIVER = Path(__file__).with_name("mininet_driver.py")


def cell_of(network: str) -> Cell:
    """Return a cell with ten nodes and thirteen pods on a network."""
    return Cell(network=network, test="throughput", payload_bytes=1024, subscribers=SUBSCRIBERS, nodes=NODES)


class Fence:
    """Detects when the kernel has freed all network namespaces that were released before.

    One kernel worker frees them in the order of their release. The fence is a namespace with one end of a
    link whose other end is in a permanent sandbox. When that end is gone, all earlier namespaces are freed.
    """

    def __init__(self) -> None:
        self._sandbox = Sandbox("benchmark-fence")
        self._fd = -1

    def arm(self) -> None:
        """Create the namespace of the fence."""
        self._sandbox.run(
            ["sh", "-ec", "ip netns add fence; ip link add fence0 type veth peer name fence1 netns fence"]
        )
        self._fd = os.open(self._sandbox.path("/run/netns/fence"), os.O_RDONLY)
        # Without its name, only the file descriptor keeps the namespace.
        self._sandbox.run(["ip", "netns", "delete", "fence"])

    def wait(self) -> None:
        """Release the namespace and wait until it is freed."""
        os.close(self._fd)
        devices = Path(f"/proc/{self._sandbox.pid}/net/dev")
        deadline = time.monotonic() + FREED_TIMEOUT_S
        while "fence0:" in devices.read_text():
            if time.monotonic() > deadline:
                raise PrerequisiteError(f"the kernel did not free the namespaces within {FREED_TIMEOUT_S} s")
            time.sleep(0.001)

    def close(self) -> None:
        """Remove the sandbox."""
        self._sandbox.close()


class Mininet:
    """The Mininet driver in a separate sandbox."""

    def __init__(self) -> None:
        self._sandbox = Sandbox("benchmark-mininet")
        # sysctls that Mininet sets would apply to the whole machine.
        self._sandbox.run(
            ["sh", "-ec", "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys"]
        )
        self._process = subprocess.Popen(
            [*self._sandbox.enter(), SYSTEM_PYTHON, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )

    def request(self, **order: Any) -> float:
        """Send a request to the driver and return the seconds that it took."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            messages = self._process.stderr.read().strip().splitlines()
            raise PrerequisiteError(f"Mininet exited: {messages[-1] if messages else 'no message'}")
        return float(json.loads(answer)["seconds"])

    def close(self) -> None:
        """Stop the driver and remove everything that it created."""
        self._sandbox.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        self._process.wait()


@contextmanager
def verification_seconds() -> Iterator[list[float]]:
    """Collect the seconds of each verification of a lab network."""
    took: list[float] = []
    verify = verification.verify

    def timed(lab_network: LabNetwork, crosses_links: bool = True) -> None:
        begun = time.monotonic()
        verify(lab_network, crosses_links)
        took.append(time.monotonic() - begun)

    verification.verify = timed
    try:
        yield took
    finally:
        verification.verify = verify


def cycle(name: str, count: int, fence: Fence, mininet: Mininet | None) -> dict[str, float]:
    """Build and remove one kind once; return the seconds of each part."""
    fence.arm()
    if name == NOTHING:
        begun = time.monotonic()
        fence.wait()
        return {"freed": time.monotonic() - begun}
    if name in MININET:
        assert mininet is not None
        placement = topology_of(cell_of("host"))
        took = {"up": mininet.request(do="up", shape=name, places=[pod.node for pod in placement.pods])}
        took["proof"] = mininet.request(do="prove")
        took["down"] = mininet.request(do="down")
        begun = time.monotonic() - took["down"]
    else:
        with verification_seconds() as proofs, Lab(f"benchmark-lab-{count}") as lab:
            begun = time.monotonic()
            lab.up([cell_of(name)])
            took = {"proof": sum(proofs)}
            took["up"] = time.monotonic() - begun - took["proof"]
            begun = time.monotonic()
            lab.close()
            took["down"] = time.monotonic() - begun
    fence.wait()
    took["freed"] = time.monotonic() - begun
    return took | {
        "up + down": took["up"] + took["down"],
        "up + freed": took["up"] + took["freed"],
        "up + proof + freed": took["up"] + took["proof"] + took["freed"],
    }


def size_of(name: str) -> tuple[int, int]:
    """Return the number of network namespaces and of links of a kind."""
    if name in MININET:
        pods = SUBSCRIBERS + 1
        return pods, pods + (NODES if name == "tree" else 0)
    built = make_plan(cell_of(name))
    links = sum("type veth" in line for batch in built.batches for line in batch.lines)
    return len(built.namespaces), links


PARTS = ("up", "proof", "down", "freed", "up + freed")
RATIOS = ("up", "up + down", "up + freed", "up + proof + freed")


def main() -> int:
    """Run the benchmark."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 3))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [all]")
    options = common.parse(parser)
    report = common.Report("lab", options)
    names = list(common.runnable({name: cell_of(name) for name in options.network or NETWORKS}, report))
    missing_tools = common.missing(
        {"mn": "mininet", "mnexec": "mininet", "brctl": "bridge-utils", "ifconfig": "net-tools"}
    )
    for message in missing_tools:
        report.skip(f"Mininet: {message}")
    others = [] if missing_tools else list(MININET)
    kernel_features.probe()  # the results are cached in this process
    values: dict[str, common.Values] = {}
    fence = Fence()
    mininet = Mininet() if others else None
    try:
        schedule = common.interleave(options.pairs, [[*names, *others, NOTHING]], options.seed)
        for count, (number, name) in enumerate(schedule):
            took = cycle(name, count, fence, mininet)
            times = ", ".join(f"{part} {1000 * took[part]:.0f}" for part in PARTS if part in took)
            common.progress(f"[{count + 1}/{len(schedule)}] {name}: {times} ms")
            for part, seconds in took.items():
                values.setdefault(part, common.Values()).add(name, number, seconds)
    finally:
        if mininet:
            mininet.close()
        fence.close()
    add_tables(report, values, [*names, *others, NOTHING], names, others)
    report.show()
    return 0


def add_tables(
    report: common.Report,
    values: dict[str, common.Values],
    kinds: list[str],
    names: list[str],
    others: list[str],
) -> None:
    """Add the tables and the data to the report."""
    rows = []
    report.data |= {"nodes": NODES, "pods": SUBSCRIBERS + 1, "kinds": {}, "ratios": []}
    for kind in kinds:
        median = {part: measured.median(kind) for part, measured in values.items()}
        size = size_of(kind) if kind != NOTHING else None
        report.data["kinds"][kind] = {
            "namespaces": size[0] if size else None,
            "links": size[1] if size else None,
            "median_s": median,
            "values_s": {part: measured.by_item.get(kind, {}) for part, measured in values.items()},
        }
        times = [_ms(median.get(part)) for part in PARTS]
        rows.append([kind, *(map(str, size) if size else ("–", "–")), *times])
    report.text(common.table(["median ms", "namespaces", "links", *PARTS], rows))
    for other in others:
        rows = []
        for name in names:
            row = [name]
            for part in RATIOS:
                ratio = values[part].ratio(name, other)
                row.append(common.describe(ratio))
                report.data["ratios"].append(
                    {"network": name, "to": other, "part": part, "ratio": common.as_json(ratio)}
                )
            rows.append(row)
        report.text(common.table([f"time relative to {other}", *RATIOS], rows) + f"\n({MININET[other]})")


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f}"


if __name__ == "__main__":
    common.main(main)
