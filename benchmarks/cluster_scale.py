"""Measure how time and API calls on a cluster grow with the number of participants.

Creates, deletes and cleans up 100 and 300 participants with the same code as a campaign, as a user with the
permissions of deploy/rights/cluster.yaml, on a real API server with real etcd, scheduler and controllers. The
nodes are simulated by kwok: their pods become ready without running anything. The benchmark therefore covers
creating, waiting and cleaning up. Exec streams, and with them trials, need real nodes.

check      check permissions, nodes and images, before anything is created
namespace  create the namespace of the campaign, with its permissions
placed     create the pods of all participants and wait until they are ready
removed    delete all pods and wait until they are gone, as before a network is replaced
again      create them again
cleaned    delete the namespace and wait until it is gone

k8sdds counts its API calls, and the server counts them in its audit log.

Builds kwok, etcd and Kubernetes as Go programs if they are not in the cache (minutes, once).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import common
import simulated
from typing_extensions import override

from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.campaign.preflight import refuse
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.trial import Cell, Trial
from k8sdds.testbeds.cluster import namespace as campaign_namespace
from k8sdds.testbeds.cluster.nodes import usable
from k8sdds.testbeds.cluster.placement import slots
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot, memory_bytes
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.selection import SelectedTestbed
from k8sdds.versions import PERFTEST_IMAGE

EACH = 10
"""Number of participants per node."""
PHASES = ("check", "namespace", "placed", "removed", "again", "cleaned")
WITHIN = "--within-sandbox"


class SimulatedPods(PodPool):
    """Pods that run nothing, so that they cannot be asked for their facts."""

    @override
    def _query_facts(self, slot: Slot) -> ReadyPod:
        return ReadyPod(self._names[slot], "", "", None, slot.node, {})


def once(plane: simulated.ControlPlane, count: int, number: int) -> dict[str, dict[str, Any]]:
    """Create and clean up participants; return seconds and API calls of each phase."""
    kubeconfig = plane.folder / "user.conf"
    client = KubernetesClient.from_kubeconfig(kubeconfig, None)
    cell = Cell(
        network="flannel-vxlan", test="throughput", payload_bytes=1024, subscribers=count - 1, nodes=count // EACH
    )  # fmt: skip
    name = f"scale-{count}-{number}"
    phases: dict[str, dict[str, Any]] = {}
    began, before = time.monotonic(), Counter[str]()

    def phase(title: str) -> None:
        nonlocal began, before
        now, calls = time.monotonic(), Counter(client.calls)
        phases[title] = {"seconds": now - began, "calls": dict(calls - before)}
        began, before = now, calls

    cluster = ClusterTestbed(
        client, SelectedTestbed("cluster", kubeconfig=str(kubeconfig), network="flannel-vxlan"), name
    )
    trial = Trial(cell=cell, testbed="cluster", repetition=0, duration_s=1, warmup_s=0)
    refuse(cluster.check([trial]))
    phase("check")
    namespace = campaign_namespace.create(client, name, None, privileged=False)
    phase("namespace")
    pod_pool = SimulatedPods(namespace, PERFTEST_IMAGE, memory_bytes([cell]))
    needed = slots(cell, usable(cluster.nodes, [HOST_ARCH])).values()
    pod_pool.ensure(needed)
    phase("placed")
    pod_pool.delete_unless(keep=lambda slot: False)
    phase("removed")
    pod_pool.ensure(needed)
    phase("again")
    pod_pool.close()
    namespace.delete()
    campaign_namespace.wait_deleted(client, namespace.name)
    phase("cleaned")
    plane.check()
    return phases


def main() -> int:
    """Measure all sizes in every round."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, what="rounds"))
    parser.add_argument(
        "--participants", type=int, action="append", help="repeatable, 20 or more [100 and 300]"
    )
    parser.add_argument(WITHIN, action="store_true", help="internal: run inside the sandbox")
    options = common.parse(parser)
    sizes = sorted(set(options.participants or (100, 300)))
    if sizes[0] < 2 * EACH:
        parser.error(f"--participants must be at least {2 * EACH}")
    programs = simulated.programs(common.progress)
    if not options.within_sandbox:
        return simulated.inside(Path(__file__), [*sys.argv[1:], WITHIN])
    report = common.Report("cluster_scale", options)
    rounds: dict[int, list[dict[str, dict[str, Any]]]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="k8sdds-simulated-") as folder:
        began = time.monotonic()
        plane = simulated.ControlPlane(Path(folder), programs)
        plane.nodes(sizes[-1] // EACH)
        report.data["control_plane_s"] = time.monotonic() - began
        common.progress(
            f"control plane and {sizes[-1] // EACH} nodes: {report.data['control_plane_s']:.1f} s"
        )
        for number, size in common.interleave(options.pairs, [sizes], options.seed):
            phases = once(plane, size, number)
            took = ", ".join(f"{title} {phases[title]['seconds']:.1f}" for title in PHASES)
            common.progress(f"[{number + 1}/{options.pairs}] {size} participants: {took} s")
            rounds[size].append(phases)
        report.data["audited"] = dict(plane.audited())
    add_tables(report, rounds)
    report.show()
    return 0


def add_tables(report: common.Report, rounds: dict[int, list[dict[str, dict[str, Any]]]]) -> None:
    """Add the tables and the data to the report."""
    times = {phase: common.Values() for phase in (*PHASES, "all")}
    counted: Counter[str] = Counter()
    for size, some in rounds.items():
        for number, one in enumerate(some):
            for phase in PHASES:
                times[phase].add(str(size), number, one[phase]["seconds"])
                counted.update(one[phase]["calls"])
            times["all"].add(str(size), number, sum(one[phase]["seconds"] for phase in PHASES))
    report.data |= {"counted": dict(counted), "sizes": {}}
    rows, calls = [], []
    for size, some in rounds.items():
        middle = {phase: times[phase].median(str(size)) for phase in times}
        rows.append([f"{size} on {size // EACH}", *(common.number(middle[phase], 1) for phase in times)])
        all_calls: Counter[str] = Counter()
        for phase in PHASES:
            all_calls.update(some[0][phase]["calls"])
        per_phase = [common.number(sum(some[0][phase]["calls"].values())) for phase in PHASES]
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(all_calls.items()))
        calls.append([f"{size}", *per_phase, common.number(all_calls.total()), kinds])
        report.data["sizes"][str(size)] = {"rounds": some, "median_s": middle, "calls": dict(all_calls)}
    report.text(common.table(["participants on nodes, median s", *times], rows))
    smallest, *others = rounds
    for other in others:
        row = [f"{other} relative to {smallest}"]
        for phase in times:
            ratio = times[phase].ratio(str(other), str(smallest))
            row.append(common.describe(ratio))
        linear = f"linear: {other / smallest:g}"
        report.text(common.table([f"time ({linear})", *times], [row]))
    report.text(common.table(["API calls", *PHASES, "all", "by kind"], calls))
    same = "the same numbers" if report.data["audited"] == report.data["counted"] else "OTHER NUMBERS"
    report.text(f"The audit log of the server has {same}: {report.data['audited']} in all rounds.")


if __name__ == "__main__":
    common.main(main)
