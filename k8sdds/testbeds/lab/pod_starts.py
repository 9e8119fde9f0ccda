"""Time how long the CNI plugins of a network take to add pods to the nodes of a lab network."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from k8sdds import workloads
from k8sdds.bundle import parts
from k8sdds.model.options import PodStartOptions
from k8sdds.model.trial import Cell
from k8sdds.networks import find, names_of
from k8sdds.networks.datapath import CniPlugins
from k8sdds.system import processes
from k8sdds.system.errors import PartFailed, PrerequisiteError, Problem
from k8sdds.testbeds.lab import cni_runner
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.topology import topology_of
from k8sdds.testbeds.lab.verification import PING_INTERVAL_S, PING_TIMEOUT_S
from k8sdds.workloads.pod_start import FILE

NAME = "start"
"""Begins the names of the pods."""
FIRST_INTERFACE = "eth0"
READY_TIMEOUT_S = 30
CALL_TIMEOUT_S = cni_runner.TIMEOUT_S * 3
"""For all plugins of a pod."""
REMEDY = "build or download the programs of clusters into the cache: k8sdds bundle create FOLDER"

Results = dict[str, dict[str, Any]]
"""What `cni_runner` returned for each pod."""


def problems(cells: Sequence[Cell]) -> list[Problem]:
    """Return why the lab cannot start the pods that these cells request."""
    found: dict[str, Problem] = {}
    for cell in cells:
        if not workloads.find(cell.test).started_pods(cell):
            continue
        network = find(cell.network)
        if network.cni_plugins is None:
            able = names_of(lambda other: other.cni_plugins)
            what = f"{cell.network_label}: test {cell.test} times CNI plugins in the lab, but {network.no_cni_plugins}"
            remedy = f"use networks whose plugins need no daemon ({able}), or measure on a cluster: --testbed cluster"
            found[what] = Problem(what, remedy, input=True)
        elif PodStartOptions(**cell.test_options).dds:
            what = f"test {cell.test}: the lab starts no program in the new pods, so that they cannot match over DDS"
            found[what] = Problem(
                what, "leave out dds, or measure on a cluster: --testbed cluster", input=True
            )
        elif cell.policies:
            what = f"{cell.network_label}: test {cell.test}: the rules of the lab for policies do not admit new pods"
            found[what] = Problem(what, "leave out policies", input=True)
        else:
            plugins = _plugins(cell, 0)
            if missing := [name for name in plugins.programs if parts.cached_program(name) is None]:
                what = f"test {cell.test} on {cell.network_label} needs the CNI plugins {', '.join(missing)}"
                found[what] = Problem(f"{what}, which are not in the cache", REMEDY)
    return list(found.values())


def _plugins(cell: Cell, node: int) -> CniPlugins:
    network = find(cell.network)
    assert network.cni_plugins is not None
    of_family = [replace(topology_of(cell).nodes[node], family=family) for family in cell.ip_families]
    return network.cni_plugins(of_family, network.mtu(cell.datapath_options))


def measure(lab_network: LabNetwork, cell: Cell, folder: Path) -> None:
    """Add the pods that a cell requests to the nodes of its participants, and delete them.

    Each pod is a new network namespace; all plugins are called at once. A packet through each pod proves that they
    worked. The times are written into the attempt's folder. Raises PartFailed if a pod could not be deleted, or a
    process was killed: the lab network must be built again.
    """
    count = workloads.find(cell.test).started_pods(cell)
    if not count:
        return
    nodes = list(dict.fromkeys(lab_network.node_of(p.name) for p in cell.participants))
    pods = {f"{NAME}-{index}": nodes[index % len(nodes)] for index in range(count)}
    of_node = {node: [pod for pod, place in pods.items() if place == node] for node in nodes}
    of_node = {node: own for node, own in of_node.items() if own}
    links = {node: _links(lab_network, node) for node in of_node}
    with _namespaces(lab_network, pods), contextlib.ExitStack() as stack:
        runners = [
            stack.enter_context(_running(lab_network, cell, node, own)) for node, own in of_node.items()
        ]
        added = _all(runners, "add")
        unproven = _unproven(lab_network, pods) if not any(_errors(added)) else ""
        deleted = _all(runners, "delete")
    left = [link for node in links for link in _links(lab_network, node) - links[node]]
    if problem := next(_errors(deleted), "") or (f"{left[0]} is left" if left else ""):
        raise PartFailed(f"{lab_network.name}: the pods of a pod-start test were not deleted: {problem}")
    document = {"failure": failure} if (failure := next(_errors(added), unproven)) else _times(added)
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n")


def _times(added: Results) -> dict[str, Any]:
    """Return the content of the file, with the seconds since the first call."""
    began_s = min(result["began_s"] for result in added.values())
    pods = {
        pod: {"scheduled_s": result["began_s"] - began_s, "network_ready_s": result["ended_s"] - began_s}
        for pod, result in added.items()
    }
    return {"last_step": "network_ready_s", "pods": pods}


def _errors(results: Results) -> Iterator[str]:
    return (f"{pod}: {result['error']}" for pod, result in results.items() if result["error"])


def _links(lab_network: LabNetwork, node: str) -> set[str]:
    return set(os.listdir(lab_network.sandbox.path(f"/run/sys/{node}/class/net")))


@contextlib.contextmanager
def _namespaces(lab_network: LabNetwork, pods: Mapping[str, str]) -> Iterator[None]:
    """Create the network namespaces of pods, as a container runtime does before it calls plugins; then delete them."""

    def change(what: str) -> None:
        lab_network.sandbox.run(["ip", "-batch", "-"], "".join(f"netns {what} {pod}\n" for pod in pods))

    try:
        change("add")
    except PrerequisiteError:
        # Deleting ends at the first one that was not created.
        with contextlib.suppress(PrerequisiteError):
            change("del")
        raise
    try:
        yield
    finally:
        change("del")


class _Runner:
    """A process of `cni_runner` on a node."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self._name = name
        self._process = process

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def reply(self, timeout_s: float) -> bytes:
        """Return the next line. Raises PrerequisiteError if there is none, and PartFailed if it was killed."""
        assert self._process.stdout is not None and self._process.stderr is not None
        if not processes.has_output(self._process.stdout, timeout_s):
            raise PrerequisiteError(
                f"{self._name} did not answer within {timeout_s:g} s", "run: k8sdds doctor"
            )
        if line := self._process.stdout.readline():
            return line
        processes.require_not_stopped(self._process.wait(), self._name)
        *_, message = ["no message", *self._process.stderr.read().decode(errors="replace").splitlines()]
        raise PrerequisiteError(f"{self._name} failed: {message}", "run: k8sdds doctor")

    def close(self) -> None:
        """Let it delete its pods, and wait until it has ended."""
        try:
            # The end of its standard input makes it end.
            self._process.communicate(timeout=CALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # What it started is killed with the sandbox.
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def _running(lab_network: LabNetwork, cell: Cell, node: str, pods: Sequence[str]) -> Iterator[_Runner]:
    """Start the process that calls the plugins of a node, and wait until it is ready."""
    plugins = _plugins(cell, int(node.removeprefix("node")))
    attachments = [lab_network.plan.datapath.attachments[pod.name] for pod in lab_network.plan.topology.pods]
    request = {
        "programs": {name: str(parts.cached_program(name)) for name in plugins.programs},
        "configuration": plugins.configuration,
        "files": dict(plugins.files),
        "interface": find(cell.network).pod_interface or FIRST_INTERFACE,
        # As in the state of the IPAM plugin on a node where these pods run.
        "reserved": [
            address for attachment in attachments
            for address in (attachment.address, attachment.other_address) if address
        ],
        "pods": list(pods),
    }  # fmt: skip
    process = subprocess.Popen(
        [*lab_network.sandbox.enter(node), "unshare", "--mount", sys.executable, "-IS", cni_runner.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A separate session, so that Ctrl-C reaches only k8sdds, which then lets it delete the pods.
        start_new_session=True,
    )
    runner = _Runner(f"{lab_network.name}: the caller of CNI plugins on {node}", process)
    try:
        runner.send(json.dumps(request))
        runner.reply(READY_TIMEOUT_S)
        yield runner
    finally:
        runner.close()


def _all(runners: Sequence[_Runner], line: str) -> Results:
    """Let all runners call their plugins at once, and return the results of all pods."""
    for runner in runners:
        runner.send(line)
    with ThreadPoolExecutor(len(runners)) as pool:
        replies = list(pool.map(lambda runner: runner.reply(CALL_TIMEOUT_S), runners))
    return {pod: result for reply in replies for pod, result in json.loads(reply).items()}


def _unproven(lab_network: LabNetwork, pods: Mapping[str, str]) -> str:
    """Send a packet from each pod to a participant, if possible on another node; return which was not answered."""
    attachments = lab_network.plan.datapath.attachments
    script = []
    for pod, node in pods.items():
        others = [name for name in attachments if lab_network.node_of(name) != node] or list(attachments)
        # On a network that loses packets by request, one that is lost shows nothing.
        ping = f"ping -nq -c 1 -i {PING_INTERVAL_S} -w {PING_TIMEOUT_S} {attachments[others[0]].address}"
        script.append(f"{{ nsenter --net=/run/netns/{pod} {ping} >/dev/null || echo {pod} {others[0]}; }} &")
    silent = lab_network.sandbox.run(["sh"], "\n".join([*script, "wait"]) + "\n").split()
    return f"{silent[0]} got no answer from {silent[1]}" if silent else ""
