"""Building and removing networks: the lab beside Mininet.

Ten nodes and thirteen pods (one publisher, twelve subscribers), built and removed again and again, all
kinds in a random order within each round; ratios are of the same round.

  a network   what a campaign does for it, all included: the sandbox, namespaces, links, sysctls, routes,
              nftables, cgroups and the record for `k8sdds clean`. Each node is a namespace of its own with
              a link to a switch, each pod is a process in its own network, PID, mount, IPC and UTS
              namespaces, with a second link (but with `host`, whose pods use the node's network).
  star        Mininet: 13 hosts on one Linux bridge (as its SingleSwitchTopo), 13 links
  tree        Mininet: the nearest to a pod network: a bridge for each of 10 nodes, 13 hosts on them, a
              bridge between: 23 links. Its nodes are bridges without namespaces or routes, so the lab
              makes more: 24 namespaces instead of 13.

up      until the call returns. Python and its imports are loaded on both sides.
proof   full-MTU pings from the first pod to the twelve others at the same time, in both. The lab always
        does it; it stands apart because it is no building.
down    until the call returns
freed   from the start of the removal until the kernel has really removed everything. The kernel frees
        network namespaces later, one batch after the other; a small namespace of our own that is given
        up after `down` has gone when all before it have. `nothing` is the time that this takes alone.

Mininet runs in a sandbox of its own, by the system's Python; it changes nothing of the host and is ended
with its sandbox. Needs: mininet, bridge-utils, net-tools.
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

from k8sdds.model.trial import Cell, Trial
from k8sdds.networks import NETWORKS
from k8sdds.system import kernel_features
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox
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
    """Ten nodes and thirteen pods on a network."""
    return Cell(network=network, test="throughput", payload_bytes=1024, subscribers=SUBSCRIBERS, nodes=NODES)


class Fence:
    """Tells when the kernel has freed all network namespaces that were given up before.

    They are freed by one worker in the order of their end. Ours has one end of a link whose other end is
    in a sandbox that stays: when that has gone, so has all before.
    """

    def __init__(self) -> None:
        self._sandbox = Sandbox("benchmark-fence")
        self._fd = -1

    def arm(self) -> None:
        """Make the namespace that will be given up."""
        self._sandbox.run(
            ["sh", "-ec", "ip netns add fence; ip link add fence0 type veth peer name fence1 netns fence"]
        )
        self._fd = os.open(self._sandbox.path("/run/netns/fence"), os.O_RDONLY)
        # Without its name the namespace hangs on our descriptor alone.
        self._sandbox.run(["ip", "netns", "delete", "fence"])

    def wait(self) -> None:
        """Give it up, and wait until it has gone."""
        os.close(self._fd)
        devices = Path(f"/proc/{self._sandbox.pid}/net/dev")
        deadline = time.monotonic() + FREED_TIMEOUT_S
        while "fence0:" in devices.read_text():
            if time.monotonic() > deadline:
                raise PrerequisiteError(f"the kernel did not free the namespaces in {FREED_TIMEOUT_S} s")
            time.sleep(0.001)

    def close(self) -> None:
        """Remove the sandbox."""
        self._sandbox.close()


class Mininet:
    """Mininet's driver in a sandbox of its own."""

    def __init__(self) -> None:
        self._sandbox = Sandbox("benchmark-mininet")
        # What Mininet might set by sysctl would be the machine's.
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

    def ask(self, **order: Any) -> float:
        """Let it do something; the seconds that it took."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            said = self._process.stderr.read().strip().splitlines()
            raise PrerequisiteError(f"Mininet ended: {said[-1] if said else 'no message'}")
        return float(json.loads(answer)["seconds"])

    def close(self) -> None:
        """End it, with all that it made."""
        self._sandbox.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        self._process.wait()


@contextmanager
def proof_apart() -> Iterator[list[float]]:
    """The seconds that `LabNetwork.prove` takes, one for each call."""
    took: list[float] = []
    prove = LabNetwork.prove

    def timed(self: LabNetwork) -> None:
        begun = time.monotonic()
        prove(self)
        took.append(time.monotonic() - begun)

    LabNetwork.prove = timed  # type: ignore[method-assign]
    try:
        yield took
    finally:
        LabNetwork.prove = prove  # type: ignore[method-assign]


def cycle(name: str, count: int, fence: Fence, mininet: Mininet | None) -> dict[str, float]:
    """Build and remove one kind once; seconds of each part."""
    fence.arm()
    if name == NOTHING:
        begun = time.monotonic()
        fence.wait()
        return {"freed": time.monotonic() - begun}
    if name in MININET:
        assert mininet is not None
        placement = topology_of(cell_of("host"))
        took = {"up": mininet.ask(do="up", shape=name, places=[pod.node for pod in placement.pods])}
        took["proof"] = mininet.ask(do="prove")
        took["down"] = mininet.ask(do="down")
        begun = time.monotonic() - took["down"]
    else:
        with proof_apart() as proofs, Lab(f"benchmark-lab-{count}") as lab:
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


def made(name: str) -> tuple[int, int]:
    """(network namespaces, links) of a kind."""
    if name in MININET:
        pods = SUBSCRIBERS + 1
        return pods, pods + (NODES if name == "tree" else 0)
    built = make_plan(cell_of(name))
    links = sum("type veth" in line for batch in built.batches for line in batch.lines)
    return len(built.namespaces), links


PARTS = ("up", "proof", "down", "freed", "up + freed")
RATIOS = ("up", "up + down", "up + freed", "up + proof + freed")


def main() -> int:
    """Run it all."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 3))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [all]")
    options = common.parse(parser)
    report = common.Report("lab", options)
    names = []
    for network in options.network or NETWORKS:
        cell = cell_of(network)
        trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
        problems = Lab("benchmark-check").check([trial])
        if problems:
            report.lack(f"{network}: {problems[0]}")
        else:
            names.append(network)
    lacks = common.lacking(
        {"mn": "mininet", "mnexec": "mininet", "brctl": "bridge-utils", "ifconfig": "net-tools"}
    )
    for lack in lacks:
        report.lack(f"Mininet: {lack}")
    others = [] if lacks else list(MININET)
    kernel_features.probe()  # once a process; its answers are kept
    values: dict[str, common.Values] = {}
    fence = Fence()
    mininet = Mininet() if others else None
    try:
        schedule = common.interleave(options.pairs, [[*names, *others, NOTHING]], options.seed)
        for count, (number, name) in enumerate(schedule):
            took = cycle(name, count, fence, mininet)
            shown = ", ".join(f"{part} {1000 * took[part]:.0f}" for part in PARTS if part in took)
            common.say(f"[{count + 1}/{len(schedule)}] {name}: {shown} ms")
            for part, seconds in took.items():
                values.setdefault(part, common.Values()).add(name, number, seconds)
    finally:
        if mininet:
            mininet.close()
        fence.close()
    tell(report, values, [*names, *others, NOTHING], names, others)
    report.show()
    return 0


def tell(
    report: common.Report,
    values: dict[str, common.Values],
    kinds: list[str],
    names: list[str],
    others: list[str],
) -> None:
    """Tables and data."""
    rows = []
    report.data |= {"nodes": NODES, "pods": SUBSCRIBERS + 1, "kinds": {}, "ratios": []}
    for kind in kinds:
        middle = {part: found.median(kind) for part, found in values.items()}
        size = made(kind) if kind != NOTHING else None
        report.data["kinds"][kind] = {
            "namespaces": size[0] if size else None,
            "links": size[1] if size else None,
            "median_s": middle,
            "values_s": {part: found.of.get(kind, {}) for part, found in values.items()},
        }
        times = [_ms(middle.get(part)) for part in PARTS]
        rows.append([kind, *(map(str, size) if size else ("–", "–")), *times])
    report.text(common.table(["median ms", "namespaces", "links", *PARTS], rows))
    for other in others:
        rows = []
        for name in names:
            row = [name]
            for part in RATIOS:
                ratio = values[part].ratio(name, other)
                row.append(ratio.describe() if ratio else "–")
                report.data["ratios"].append(
                    {"network": name, "to": other, "part": part, "ratio": ratio.json() if ratio else None}
                )
            rows.append(row)
        report.text(common.table([f"time against {other}", *RATIOS], rows) + f"\n({MININET[other]})")


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.0f}"


if __name__ == "__main__":
    common.main(main)
