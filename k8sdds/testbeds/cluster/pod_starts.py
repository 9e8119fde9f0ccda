"""Time how long pods that are created at once take to start, next to the participants of a trial.

Two of them can match over DDS, as soon as they are ready.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from k8sdds import versions, workloads
from k8sdds.kubernetes.metrics.pod_startup import PodStarts
from k8sdds.model.ip_families import address_of
from k8sdds.model.options import PodStartOptions
from k8sdds.model.reason import Reason
from k8sdds.model.trial import Cell, Endpoint, Participant
from k8sdds.perftest import command
from k8sdds.system.cgroups import CpuResources
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds.cluster import matching, pods
from k8sdds.testbeds.cluster.matching import Execute, Programs
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import MIB, Slot
from k8sdds.workloads.pod_start import FILE, PAIR

NAME = "start"
"""Begins the names of the pods, and is their role."""
CPU_REQUEST = "1m"
MEMORY = {"requests": f"{8 * MIB}", "limits": f"{64 * MIB}"}
"""The pods only wait: many fit on a node."""


def _dds(cell: Cell) -> str | None:
    return PodStartOptions(**cell.test_options).dds


def measure(pool: PodPool, cell: Cell, slots: Iterable[Slot], folder: Path, execute: Execute) -> None:
    """Start the pods that a cell requests, write their times into the attempt's folder, and delete them.

    The scheduler chooses among the nodes of the participants, which have the image. Two pods that are to match over
    DDS are on the nodes of the first publisher and the first subscriber.
    """
    count = workloads.find(cell.test).started_pods(cell)
    if not count:
        return
    running = {slot.participant: slot for slot in slots}
    nodes = list(dict.fromkeys(pool.pod(slot).node for slot in running.values()))
    own = replace(next(iter(running.values())), node=nodes[0], cpu_resources=CpuResources(), sysctls=())
    pair: dict[Participant, str] = {}
    bodies = []
    for participant in PAIR if _dds(cell) else ():
        place = pool.pod(running[participant.name]).node
        slot = replace(own, participant=participant.name, role=NAME, node=place)
        pair[participant] = pool.new_name(replace(slot, participant=NAME))
        bodies.append(_body(pool.manifest(slot, pair[participant]), [place]))
    waiting = replace(own, participant=NAME, role=NAME)
    bodies += [
        _only_waiting(_body(pool.manifest(waiting, pool.new_name(waiting)), nodes))
        for _ in range(count - len(bodies))
    ]
    folder.mkdir(parents=True, exist_ok=True)

    def match_pair() -> dict[str, Any]:
        pool.watch.wait_ready(pair.values())
        endpoints = {
            participant.name: _endpoint(pool, name, running[participant.name])
            for participant, name in pair.items()
        }
        programs = Programs(_of_match(cell), pair, endpoints, secrets.choice(command.DOMAINS))
        found = matching.match(programs, folder, execute)
        return {"failure": found.text} if isinstance(found, Reason) else asdict(found)

    document = _timed(pool, bodies, match_pair if pair else dict)
    if "pods" in document:
        document["match"] = _since(document, pair) if pair else None
        del document["created_s"]
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n")


def _of_match(cell: Cell) -> Cell:
    """Return what the two programs do on the network of a cell."""
    return matching.cell(
        network=cell.network,
        network_options=cell.network_options,
        ip_families=cell.ip_families,
        middleware=str(_dds(cell)),
    )


def _endpoint(pool: PodPool, name: str, neighbor: Slot) -> Endpoint:
    """Return address and interface of a ready pod, whose node also has this participant."""
    addresses = pods.addresses(pool.watch.pod(name) or {"status": {}})
    address = address_of(neighbor.ip_family, addresses) if neighbor.ip_family else next(iter(addresses), "")
    pod = pool.pod(neighbor)
    return Endpoint(address, pod.interface, None, pod.mtu_bytes)


def _since(document: Mapping[str, Any], pair: Mapping[Participant, str]) -> dict[str, Any]:
    """Return the match with its time since the first request for one of its pods, and since both were ready."""
    match, created_s = dict(document["match"]), document["created_s"]
    if "matched_s" in match:
        matched_s = match.pop("matched_s")
        match["since_request_s"] = matched_s - min(created_s[name] for name in pair.values())
        ready_s = [created_s[name] + (document["pods"][name]["ready_s"] or 0) for name in pair.values()]
        match["since_ready_s"] = matched_s - max(ready_s)
    return {"pods": list(pair.values()), **match}


def _body(body: dict[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Change a participant's pod into one that is no participant, on any of these nodes."""
    # Only participants have this label, whose value is unique.
    del body["metadata"]["labels"][versions.PARTICIPANT_LABEL]
    terms = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    # A field matches a single name; one of the terms has to match.
    terms["nodeSelectorTerms"] = [{"matchFields": [{**field, "values": [node]}]} for node in nodes]
    return body


def _only_waiting(body: dict[str, Any]) -> dict[str, Any]:
    for container in body["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {"cpu": CPU_REQUEST, "memory": MEMORY["requests"]}
        resources["limits"] = {"memory": MEMORY["limits"]}
    return body


def _timed(
    pool: PodPool, bodies: Sequence[dict[str, Any]], match: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Create pods, wait until all are ready, and delete them, also after an error. Calls `match` while they start.

    Returns the times of all pods (`pods`), when they were requested (`created_s`) and what `match` returned; or why a
    pod did not get ready (`failure`).
    """
    names = [body["metadata"]["name"] for body in bodies]
    starts, own = PodStarts(), frozenset(names)

    def observe(pod: dict[str, Any], at_s: float) -> None:
        if pod["metadata"]["name"] in own and "deletionTimestamp" not in pod["metadata"]:
            starts.observe(pod, at_s)

    created_s: dict[str, float] = {}

    def create(body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        created_s[name] = time.monotonic()
        starts.created(name, created_s[name])
        pool.post(body)

    pool.watch.listeners.append(observe)
    listings = pool.watch.listings
    began_s = time.monotonic()
    try:
        with ThreadPoolExecutor(1) as executor:
            try:
                in_threads(create, bodies)
                matching = executor.submit(match)
                pool.watch.wait_ready(names)
                matched = matching.result()
            finally:
                # Before the thread is awaited, whose programs end with their pods.
                pool.watch.listeners.remove(observe)
                pool.remove(names)
    except PrerequisiteError as error:
        return {"failure": error.message}
    if pool.watch.listings != listings:
        return {"failure": "the watch of the pods broke, so that steps may have been missed"}
    last_s = starts.last_s()
    times = {"pods": starts.facts(), "all_ready_s": last_s - began_s if last_s else None}
    return {**times, "match": matched, "created_s": created_s}
