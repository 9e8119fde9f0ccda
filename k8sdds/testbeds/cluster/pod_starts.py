"""Time how long pods that are created at once take to start, next to the participants of a trial."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from k8sdds import versions, workloads
from k8sdds.kubernetes.metrics.pod_startup import PodStarts
from k8sdds.model.trial import Cell
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster.pod_pool import PodPool, parallel
from k8sdds.testbeds.cluster.pods import MIB, Slot
from k8sdds.workloads.pod_start import FILE

NAME = "start"
"""Begins the names of the pods, and is their role."""
CPU_REQUEST = "1m"
MEMORY = {"requests": f"{8 * MIB}", "limits": f"{64 * MIB}"}
"""The pods only wait: many fit on a node."""


def measure(pool: PodPool, cell: Cell, slots: Iterable[Slot], folder: Path) -> None:
    """Start the pods that a cell requests, write their times into the attempt's folder, and delete them.

    The scheduler chooses among the nodes of the participants, which have the image.
    """
    count = workloads.find(cell.test).started_pods(cell)
    if not count:
        return
    running = list(slots)
    nodes = list(dict.fromkeys(pool.pod(slot).node for slot in running))
    own = replace(running[0], participant=NAME, role=NAME, node=nodes[0], cpu_quota=None, sysctls=())
    bodies = [_body(pool.manifest(own, pool.new_name(own)), nodes) for _ in range(count)]
    document = _timed(pool, bodies)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n")


def _body(body: dict[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Change a participant's pod into one that only starts, on any of these nodes."""
    # Participants are told apart by this label.
    del body["metadata"]["labels"][versions.PARTICIPANT_LABEL]
    for container in body["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {"cpu": CPU_REQUEST, "memory": MEMORY["requests"]}
        resources["limits"] = {"memory": MEMORY["limits"]}
    terms = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    # A field matches a single name; one of the terms has to match.
    terms["nodeSelectorTerms"] = [{"matchFields": [{**field, "values": [node]}]} for node in nodes]
    return body


def _timed(pool: PodPool, bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Create pods, wait until all are ready, and delete them, also after an error.

    Returns:
        The times of all pods (`pods`); or why a pod did not get ready (`failure`).
    """
    names = [body["metadata"]["name"] for body in bodies]
    starts, own = PodStarts(), frozenset(names)

    def observe(pod: dict[str, Any], at_s: float) -> None:
        if pod["metadata"]["name"] in own and "deletionTimestamp" not in pod["metadata"]:
            starts.observe(pod, at_s)

    def create(body: dict[str, Any]) -> None:
        starts.created(body["metadata"]["name"], time.monotonic())
        pool.post(body)

    pool.watch.listeners.append(observe)
    listings = pool.watch.listings
    began_s = time.monotonic()
    try:
        parallel(create, bodies)
        pool.watch.wait_ready(names)
    except PrerequisiteError as error:
        return {"failure": error.message}
    finally:
        pool.watch.listeners.remove(observe)
        pool.remove(names)
    if pool.watch.listings != listings:
        return {"failure": "the watch of the pods broke, so that steps may have been missed"}
    last_s = starts.last_s()
    return {"pods": starts.facts(), "all_ready_s": last_s - began_s if last_s else None}
