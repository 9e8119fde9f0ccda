"""A bench: one network over its own nodes, switch and pods, standing in one sandbox."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from k8sdds.model.measurement import Launch
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program, private_folder
from k8sdds.system.sandbox import START_TIMEOUT_S, Sandbox
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.lab import daemons, wire
from k8sdds.testbeds.lab.plan import Plan

WORKERS = 4
"""Commands started at a time while building; the kernel's network lock serialises most of them anyway."""

PING_TIMEOUT_S = 5


class LabNetwork:
    """Built by `LabNetwork(…)`, removed by `close()`. Pods are processes in namespaces of their own."""

    def __init__(self, plan: Plan, sandbox: Sandbox, psk: str | None = None) -> None:
        """`psk`: the user's own pre-shared key; else one is made."""
        self.plan = plan
        self._psk = psk
        self.sandbox = sandbox
        self.pods: dict[str, int] = {}
        """Pod to the id of its first process; empty where participants run in no pod."""
        self._daemons: dict[str, int] = {}
        self._steering: dict[str, str] = {}
        self._private: dict[Path, bytes] = {}

    @property
    def name(self) -> str:
        """Name of the bench within its lab."""
        return self.sandbox.name

    def hand_over(self, launches: Sequence[Launch]) -> None:
        """Put the private files of launches where their participants look for them, if not there yet."""
        wanted = {
            private_folder(launch.participant.name) / name: content
            for launch in launches
            for name, content in launch.private.items()
        }
        missing = {path: content for path, content in wanted.items() if self._private.get(path) != content}
        if missing:
            self.sandbox.put(missing)
            self._private |= missing

    # -- building -----------------------------------------------------------------------------------

    def build(self, cgroups: dict[str, list[Path]]) -> None:
        """Make namespaces, links, the network and the pods; returns when each pod is there."""
        run = self.sandbox.run
        run(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in self.plan.namespaces))
        run(["sh", "-e"], self._sysctl_script())
        # Devices are made by `ip` in order: the switch's before the nodes', the nodes' before the pods'.
        self.sandbox.apply([batch for batch in self.plan.batches if batch.tool == "ip"])
        others = [batch for batch in self.plan.batches if batch.tool != "ip"]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(self.sandbox.apply, [others[start::WORKERS] for start in range(WORKERS)]))
        datapath = self.plan.datapath
        daemons.write_files(self.sandbox, datapath.files, self._psk)
        self._daemons = daemons.start(self.sandbox, datapath.daemons)
        daemons.finish(self.sandbox, datapath)
        if datapath.in_pods:
            self._start_pods(cgroups)

    def _sysctl_script(self) -> str:
        lines = []
        nodes = {node.name for node in self.plan.topology.nodes}
        for name in self.plan.namespaces:
            writes = "; ".join(
                f"echo {value} > /proc/sys/{key.replace('.', '/')}"
                for namespace, key, value in self.plan.sysctls
                if namespace == name
            )
            if name in nodes:
                # Its sysfs: the counters of its link and its packet steering are read and set there.
                writes += f"; mkdir /run/sys/{name}; mount -t sysfs sysfs /run/sys/{name}"
            lines.append(f"nsenter --net=/run/netns/{name} sh -e -c '{writes}'")
        return "\n".join(lines) + "\n"

    def _start_pods(self, cgroups: dict[str, list[Path]]) -> None:
        supervisor = native_program("k8sdds-supervisor")
        waiting: dict[int, tuple[str, int]] = {}
        poll = select.poll()
        try:
            for name, attachment in self.plan.datapath.attachments.items():
                ready, notify = os.pipe()
                argv = [
                    *self.sandbox.enter(attachment.namespace),
                    "unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child=SIGKILL", "--",
                    supervisor, "pause", "--mount-proc", "--hostname", name, "--notify-fd", str(notify),
                ]  # fmt: skip
                for folder in cgroups.get(name, []):
                    argv += ["--join-cgroup", str(folder)]
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(notify,),
                    start_new_session=True,
                )
                os.close(notify)
                waiting[ready] = (name, process.pid)
                poll.register(ready, select.POLLIN)
            deadline = time.monotonic() + START_TIMEOUT_S
            pending = set(waiting)
            while pending:
                events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
                if not events:
                    raise PrerequisiteError(
                        f"pods of {self.name} did not start in {START_TIMEOUT_S} s", "see: k8sdds doctor"
                    )
                for fd, _ in events:
                    name, pid = waiting[fd]
                    # nsenter forks into the PID namespace, and unshare into the pod's own.
                    first = processes.descendant(pid, 2) if os.read(fd, 1) else None
                    if first is None:
                        raise PrerequisiteError(
                            f"pod {name} of {self.name} did not start", "see: k8sdds doctor"
                        )
                    self.pods[name] = first
                    pending.discard(fd)
                    poll.unregister(fd)
        finally:
            for fd in waiting:
                os.close(fd)

    # -- using it -----------------------------------------------------------------------------------

    def enter(self, pod: str) -> list[str]:
        """The words before a command that run it in a pod, or on the node where there are no pods."""
        if not self.plan.datapath.in_pods:
            return self.sandbox.enter(self.plan.datapath.attachments[pod].namespace)
        words = ["nsenter", "--target", str(self.pods[pod]), "--mount", "--net", "--pid", "--uts", "--ipc"]
        if os.geteuid() != 0:
            words += ["--user", "--preserve-credentials"]
        return [*words, "--"]

    def prove(self) -> None:
        """Full-MTU pings that may not be fragmented, from each publisher's pod to each subscriber's.

        On a network that encrypts nothing else may be on the wire meanwhile. A PrerequisiteError names the first pair
        that the network does not carry.
        """
        proof = self.plan.datapath.encryption_proof
        with wire.only_encrypted(self.sandbox, self.plan.topology, proof) if proof else nullcontext():
            self._ping_all()

    def _ping_all(self) -> None:
        attachments = self.plan.datapath.attachments
        sources = [pod.name for pod in self.plan.topology.pods if pod.participant.publishes]
        targets = [name for name in attachments if name not in sources]
        size = self.plan.datapath.mtu - 28  # IPv4 and ICMP headers
        for source in sources:
            pings = {
                target: subprocess.Popen(
                    [
                        *self.enter(source),
                        "ping", "-n", "-q", "-c", "1", "-W", str(PING_TIMEOUT_S), "-M", "do", "-s", str(size),
                        attachments[target].address,
                    ],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for target in targets
            }  # fmt: skip
            said = {target: ping.communicate()[0] for target, ping in pings.items()}
            failed = [target for target, ping in pings.items() if ping.returncode]
            if failed:
                raise PrerequisiteError(
                    f"{self.name}: {failed[0]} does not answer {source} by full packets of"
                    f" {self.plan.datapath.mtu} bytes: {' '.join(said[failed[0]].split())}",
                    "see the datapath: k8sdds lab plan; what this machine can do: k8sdds doctor",
                )

    def offloads(self) -> dict[str, bool] | None:
        """Offloads of the first publisher's interface, as ethtool names them; None without ethtool."""
        first = next(iter(self.plan.datapath.attachments))
        interface = self.plan.datapath.attachments[first].interface
        try:
            said = self.sandbox.run(
                ["ethtool", "-k", interface], netns=self.plan.datapath.attachments[first].namespace
            )
        except PrerequisiteError:
            return None
        rows = (line.split(":", 1) for line in said.splitlines() if ": o" in line)
        return {name.strip(): value.split()[0] == "on" for name, value in rows}

    def node_of(self, pod: str) -> str:
        """Name of the node that a pod stands on."""
        return next(f"node{p.node}" for p in self.plan.topology.pods if p.name == pod)

    def link_bytes(self, node: str, direction: str) -> int:
        """Counter of a node's link: bytes sent (`tx`) or received (`rx`) so far."""
        return int(
            self.sandbox.path(f"/run/sys/{node}/class/net/eth0/statistics/{direction}_bytes").read_text()
        )

    def decrypted_bytes(self, node: str) -> int | None:
        """Bytes that a node's tunnels have decrypted so far; None where the network does not encrypt."""
        proof = self.plan.datapath.encryption_proof
        return wire.decrypted_bytes(self.sandbox, proof, node) if proof else None

    def daemons_cpu_s(self) -> tuple[float, float]:
        """CPU time that the network's daemons have used so far: (user, system) in seconds."""
        return daemons.cpu_s(self._daemons)

    def steer(self, layout: core_layout.Layout, steered: bool) -> str:
        """The node's own work onto its participants' cores: receive-side packet steering, and its daemon.

        Returns why that is not possible here, or an empty string.
        """
        masks: dict[str, str] = {}
        pinned: dict[str, tuple[int, ...]] = {}
        for node in self.plan.topology.nodes:
            cpus = {
                cpu for pod in self.plan.topology.pods_on(node) for cpu in layout.cpus.get(pod.name) or ()
            }
            pinned[node.name] = tuple(sorted(cpus))
            masks[node.name] = core_layout.mask(pinned[node.name] if steered else ())
        daemons.pin(self._daemons, pinned)
        for node, mask in masks.items():
            if self._steering.get(node, core_layout.mask(())) == mask:
                continue
            path = self.sandbox.path(f"/run/sys/{node}/class/net/eth0/queues/rx-0/rps_cpus")
            try:
                path.write_text(mask)
            except OSError as error:
                return f"receive packet steering is not writable: {error.strerror}"
            self._steering[node] = mask
        return ""

    def close(self) -> None:
        """Remove the bench: its holder's end ends everything in it."""
        self.sandbox.close()
