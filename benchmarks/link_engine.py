"""Measure k8sdds-link, the engine `userspace` of links: its capacity, its errors, and its cost without impairments.

Two namespaces are connected by k8sdds-link, which runs on one core. All frames have 1500 bytes above Ethernet.

  capacity  a generator on the other core sends frames in both directions at a constant rate, over a link with a delay
            of 5 ms. The program itself reports how late packets departed, and how many it missed. Its CPU time contains
            that of the receiving side, where the kernel drops the frames at once.
  cost      round trips of k8sdds-transactions (UDP, 64 bytes) and the rate of iperf3 (TCP) over a link without any
            impairment, next to a veth pair. Segmentation offloads are off, as on the links of the lab. The programs
            share the core that k8sdds-link does not use, so that a veth pair has one core, and the link has two.

The rounds alternate in random order. Requires root and two cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.emulator import LinkEmulator

RATES = (1000, 10_000, 100_000, 150_000, 200_000)
DELAY_US = 5000
BYTES, REQUEST_BYTES = 1500, 64
TARGET_PER_S, TARGET_US = 100_000, 100
NODE = "node0"
PLAIN, LINK = "veth pair", "k8sdds-link"
QUANTITIES = {"round trip": ("round trip, µs", False), "tcp": ("TCP, Mbit/s", True)}
"""Quantity → its title, and whether more is better."""

_NODES = """
set -e
for namespace in a switch b; do ip netns add $namespace; ip -n $namespace link set lo up; done
LINKS
for place in INTERFACES; do
    ip netns exec ${place%:*} sysctl -qw net.ipv6.conf.${place#*:}.disable_ipv6=1
    ip netns exec ${place%:*} ethtool -K ${place#*:} gro off tso off gso off >/dev/null
    ip -n ${place%:*} link set ${place#*:} up
done
ip -n a addr add 10.9.0.1/24 dev eth0
ip -n b addr add 10.9.0.2/24 dev eth0
"""
_LINKS = {
    PLAIN: ("ip -n a link add eth0 type veth peer name eth0 netns b", "a:eth0 b:eth0"),
    LINK: (
        "ip -n switch link add near type veth peer name eth0 netns a\n"
        "ip -n switch link add far type veth peer name eth0 netns b",
        "a:eth0 switch:near switch:far b:eth0",
    ),
}


def started(sandbox: Sandbox, core: int, delay_us: float) -> LinkEmulator:
    """Return a running k8sdds-link."""
    direction = {"delay": {"mean_us": delay_us}}
    link = {"name": NODE, "near": "near", "far": "far", "up": direction, "down": direction}
    return LinkEmulator(sandbox, "switch", {"seed": 1, "cpu": core, "links": [link]})


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def nodes(kind: str) -> Iterator[Sandbox]:
    """Yield two namespaces, `a` and `b`, with a veth pair or two that k8sdds-link can connect."""
    links, interfaces = _LINKS[kind]
    sandbox = Sandbox("benchmark-link")
    try:
        sandbox.run(["sh"], _NODES.replace("LINKS", links).replace("INTERFACES", interfaces))
        yield sandbox
    finally:
        sandbox.close()


def flood_program() -> str:
    """Return the path of the generator, which `k8sdds setup --for tests` builds."""
    name = "k8sdds-link-flood"
    build = Path(__file__).resolve().parents[1] / "build/native/link"
    for folder in (build, Path(native_program("k8sdds-link")).parent):
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise PrerequisiteError(f"{name} is not built", "run: k8sdds setup --for tests")


def run_flood(engine: LinkEmulator, sandbox: Sandbox, core: int, rate: int, seconds: float) -> dict[str, Any]:
    """Send frames in both directions; return the statistics of both and the CPU time of the program."""
    networks = [str(sandbox.path(f"/run/netns/{name}")) for name in ("a", "b")]
    argv = [
        "taskset",
        "-c",
        str(core),
        "chrt",
        "-f",
        "1",
        flood_program(),
        str(rate),
        str(seconds),
        str(BYTES),
    ]
    engine.start()
    begun, cpu = time.monotonic(), cpu_s(engine.pid)
    sent = int(subprocess.run([*argv, *networks], capture_output=True, text=True, check=True).stdout)
    used, took = cpu_s(engine.pid) - cpu, time.monotonic() - begun
    time.sleep(2 * DELAY_US / 1e6 + 0.1)
    directions = engine.stop()["links"][NODE]
    found = [directions[name] for name in ("up", "down")]
    lost = 2 * sent - sum(one["packets_out"] for one in found)
    missed = sum(one["dropped"]["missed"] for one in found)
    return {
        "sent_per_s": sent / took,
        "missed": missed,
        "lost": lost,
        "cores": used / took,
        **{name: max(one["error_us"][name] for one in found) for name in ("p50", "p99", "p99_9", "max")},
    }


def capacity(options: Any, report: common.Report) -> None:
    """Add how late packets depart at each rate."""
    spare, core = sorted(os.sched_getaffinity(0))[:2]
    runs: dict[int, list[dict[str, Any]]] = {rate: [] for rate in RATES}
    with nodes(LINK) as sandbox:
        engine = started(sandbox, core, DELAY_US)
        for _, rate in common.interleave(options.pairs, [list(RATES)], options.seed):
            common.progress(f"{rate:,} packets/s per direction")
            runs[rate].append(run_flood(engine, sandbox, spare, rate, options.seconds))
        engine.close(0)
    rows, data = [], {}
    for rate, results in runs.items():
        medians = {name: statistics.median(one[name] for one in results) for name in results[0]}
        worst = max(one["p99"] for one in results)
        data[rate] = {"runs": results, "median": medians, "worst_p99": worst}
        values = [common.number(medians[name], 1) for name in ("p50", "p99", "p99_9")]
        lost = sum(one["lost"] for one in results)
        rows.append((f"{rate:,}", *values, common.number(worst, 1), f"{lost:,}", f"{medians['cores']:.2f}"))
    header = ("packets/s per direction", "p50, µs", "p99, µs", "p99.9, µs", "worst p99, µs", "lost", "cores")
    report.data["capacity"] = data
    report.text(common.table(header, rows))
    at = data[TARGET_PER_S]
    met = at["median"]["p99"] <= TARGET_US and not any(one["lost"] for one in at["runs"])
    report.text(
        "Actual minus planned departure, in the worse direction: medians of the rounds."
        f" Target: {TARGET_PER_S:,} packets/s per direction without a loss, p99 at most {TARGET_US} µs:"
        f" {'met' if met else 'not met'}."
    )


def round_trip_us(sandbox: Sandbox, core: int, seconds: float) -> float:
    """Return the mean time of a request and its response."""
    pin = ["taskset", "-c", str(core), native_program("k8sdds-transactions")]
    where = ["--udp", "--bytes", str(REQUEST_BYTES), "--address", "10.9.0.2", "--port", "5202"]
    server = subprocess.Popen([*sandbox.enter("b"), *pin, "server", *where])
    try:
        time.sleep(0.2)
        client = [*sandbox.enter("a"), *pin, "client", *where, "--warm-up", "0.2", "--time", str(seconds)]
        result = json.loads(subprocess.run(client, capture_output=True, text=True, check=True).stdout)
    finally:
        server.kill()
        server.wait()
    return float(result["seconds"] / result["transactions"] * 1e6)


def tcp_mbit(sandbox: Sandbox, core: int, seconds: float) -> float:
    """Return the rate of one TCP connection, as iperf3 received it."""
    pin = ["taskset", "-c", str(core), "iperf3"]
    server = subprocess.Popen([*sandbox.enter("b"), *pin, "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        client = [*sandbox.enter("a"), *pin, "-c", "10.9.0.2", "-J", "-t", str(max(1, round(seconds)))]
        result = json.loads(subprocess.run(client, capture_output=True, text=True, check=True).stdout)
    finally:
        server.kill()
        server.wait()
    return float(result["end"]["sum_received"]["bits_per_second"] / 1e6)


def cost(options: Any, report: common.Report) -> None:
    """Add what a link without impairments costs, next to a veth pair."""
    spare, core = sorted(os.sched_getaffinity(0))[:2]
    measure = {"round trip": round_trip_us, "tcp": tcp_mbit}
    values = {name: common.Values() for name in QUANTITIES}
    for number, kind in common.interleave(options.pairs, [[PLAIN, LINK]], options.seed):
        common.progress(f"round {number + 1}: {kind}")
        with nodes(kind) as sandbox:
            engine = started(sandbox, core, 0) if kind == LINK else None
            for name in QUANTITIES:
                values[name].add(kind, number, measure[name](sandbox, spare, options.seconds))
            if engine:
                engine.close(0)
    rows, data = [], {}
    for name, (title, _) in QUANTITIES.items():
        ratio = values[name].ratio(LINK, PLAIN)
        medians = {kind: values[name].median(kind) for kind in (PLAIN, LINK)}
        data[name] = {"median": medians, "ratio": common.as_json(ratio)}
        rows.append(
            (title, *(common.number(medians[kind], 1) for kind in (PLAIN, LINK)), common.describe(ratio))
        )
    report.data["cost"] = data
    report.text(common.table(("", PLAIN, LINK, "ratio (95 % interval)"), rows))


def main() -> int:
    """Run the benchmark."""
    parser = common.parser(__doc__ or "", common.Defaults(8, 2, 3, 1, what="rounds"))
    options = common.parse(parser)
    report = common.Report("link_engine", options)
    if len(os.sched_getaffinity(0)) < 2:
        raise PrerequisiteError("the benchmark requires two cores")
    capacity(options, report)
    if missing := common.missing({"iperf3": "iperf3"}):
        report.skip(missing[0])
    else:
        cost(options, report)
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
