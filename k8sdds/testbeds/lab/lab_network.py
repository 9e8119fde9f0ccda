"""Build and use one lab network: an instance of a network with its nodes, switch and pods, in one sandbox."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from k8sdds.analysis import components
from k8sdds.model.measurement import Launch, Outcome
from k8sdds.model.offloads import parse_features
from k8sdds.networks.datapath import LabNode
from k8sdds.system import processes
from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.paths import native_program, private_folder
from k8sdds.system.sandbox import START_TIMEOUT_S, Sandbox
from k8sdds.testbeds import core_layout, machine_cpu
from k8sdds.testbeds.lab import daemons, encryption, users
from k8sdds.testbeds.lab.emulator import LinkEmulator
from k8sdds.testbeds.lab.plan import COMPILE_BPF, Plan
from k8sdds.testbeds.lab.topology import SWITCH, ports
from k8sdds.testbeds.machine_cpu import Usage

WORKERS = 4
"""Commands that run at the same time during the build; the kernel's network lock serializes most of them."""

END_POLL_S = 0.02

_OWN_SHM = ("sh", "-c", 'mount -t tmpfs -o mode=1777 k8sdds /dev/shm && exec "$@"', "sh")
"""Command that starts another one with an empty `/dev/shm` of its own, instead of that of the sandbox."""


class LabNetwork:
    """A lab network in a sandbox, which `close` closes. Its pods are processes in namespaces below it.

    Without `psk`, the user's pre-shared key, a key is generated if the network needs it.
    """

    def __init__(self, plan: Plan, sandbox: Sandbox, psk: str | None = None) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.pods: dict[str, int] = {}
        """Pod to the id of its first process; empty if participants run on the nodes themselves."""
        self.cgroups: dict[str, list[Path]] = {}
        """Pod to the cgroup folders that its processes join."""
        self.policy_proof = ""
        """What was verified about its NetworkPolicies; empty if there are none."""
        self.emulator: LinkEmulator | None = None
        """What impairs the nodes' links in userspace; None if the kernel does, or nothing."""
        self._psk = psk
        self._parts: dict[str, tuple[int, int | None]] = {
            "its sandbox": (sandbox.pid, processes.start_time(sandbox.pid))
        }
        """Processes without which it does not work: (process id, start time) by name."""
        self._daemons: dict[str, int] = {}
        self._decrypted: dict[str, int] = {}
        """Bytes that a node's tunnels had decrypted when its daemon ended."""
        self._steering: dict[str, str] = {}
        self._private_files: dict[Path, bytes] = {}
        self.node_settings: dict[str, dict[str, str]] = {}
        """The sysctls of the tuning set in each namespace, as read after the build; empty if there is no set."""
        self.node_links: dict[str, dict[str, Any]] = {}
        """MTU, bond and offloads of each node's link, as read after the build; empty if none is set."""

    @property
    def name(self) -> str:
        """Name of the lab network within its lab."""
        return self.sandbox.name

    # -- build --------------------------------------------------------------------------------------

    def build(self, cgroups: dict[str, list[Path]], emulation: Mapping[str, Any] | None = None) -> None:
        """Create namespaces, links, the network and the pods; return when every pod runs.

        `cgroups`: pod to the cgroup folders that its processes join. `emulation`: configuration of `k8sdds-link`; None
        if the kernel impairs the links, or nothing does.
        """
        self.cgroups = cgroups
        run = self.sandbox.run
        run(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in self.plan.namespaces))
        run(["sh", "-e"], self._sysctl_script())
        for compiled in self.plan.datapath.bpf_objects:
            run([*COMPILE_BPF, compiled.path], compiled.source)
        # `ip` creates devices in order: first of the switch, then of the nodes, then of the pods.
        # Rules refer to ipsets.
        first = ("ip", "ipset")
        self.sandbox.apply([batch for batch in self.plan.batches if batch.tool in first])
        others = [batch for batch in self.plan.batches if batch.tool not in first]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(self.sandbox.apply, [others[start::WORKERS] for start in range(WORKERS)]))
            list(pool.map(self._add_services, self.plan.topology.nodes))
        if emulation:
            self.emulator = LinkEmulator(self.sandbox, SWITCH, emulation)
            self._add_parts({"k8sdds-link": self.emulator.pid})
        datapath = self.plan.datapath
        if datapath.link_sysctls:
            nodes = dict.fromkeys(namespace for namespace, _, _ in datapath.link_sysctls)
            run(["sh", "-e"], "".join(_sysctls(node, datapath.link_sysctls) for node in nodes))
        daemons.write_files(self.sandbox, datapath.files, self._psk)
        self._daemons = daemons.start(self.sandbox, datapath.daemons)
        self._add_parts({f"the daemon of {node}": pid for node, pid in self._daemons.items()})
        daemons.establish_tunnels(self.sandbox, datapath, datapath.tunnels)
        if self.plan.cell.users != "same":
            users.admit(self.sandbox)
        if datapath.in_pods:
            self._start_pods()
            self._add_parts({f"pod {name}": pid for name, pid in self.pods.items()})

    def _add_services(self, node: LabNode) -> None:
        for batch in self.plan.services:
            if batch.namespace == node.name:
                self.sandbox.apply([batch])

    def _add_parts(self, pids: dict[str, int]) -> None:
        self._parts |= {name: (pid, processes.start_time(pid)) for name, pid in pids.items()}

    def failed_part(self, within_s: float = 0) -> str:
        """Return which part of it has ended; empty if all run.

        `within_s`: how long to wait for a part to end. What a process provides fails before its end can be seen.
        """
        deadline = time.monotonic() + within_s
        while True:
            for name, process in self._parts.items():
                if not processes.is_alive(*process):
                    return f"{self.name}: {name} has ended"
            if time.monotonic() >= deadline:
                return ""
            time.sleep(END_POLL_S)

    def _sysctl_script(self) -> str:
        lines = []
        nodes = {node.name for node in self.plan.topology.nodes}
        for name in self.plan.namespaces:
            # The node's sysfs contains the counters of its link and its packet steering.
            mount = f"; mkdir /run/sys/{name}; mount -t sysfs sysfs /run/sys/{name}" if name in nodes else ""
            lines.append(_sysctls(name, self.plan.sysctls, mount))
        return "".join(lines)

    def _start_pods(self) -> None:
        supervisor = native_program("k8sdds-supervisor")
        waiting: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        try:
            for name, attachment in self.plan.datapath.attachments.items():
                ready, notify = os.pipe()
                argv = [
                    *self.sandbox.enter(attachment.namespace),
                    *processes.UNSHARE, "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child=SIGKILL", "--",
                    *(_OWN_SHM if self.plan.cell.dev_shm == "own" else ()),
                    supervisor, "pause", "--mount-proc", "--hostname", name, "--notify-fd", str(notify),
                ]  # fmt: skip
                for folder in self.cgroups.get(name, ()):
                    argv += ["--join-cgroup", str(folder)]
                null = subprocess.DEVNULL
                process = subprocess.Popen(
                    argv,
                    stdin=null,
                    stdout=null,
                    stderr=subprocess.PIPE,
                    pass_fds=(notify,),
                    start_new_session=True,
                )
                os.close(notify)
                waiting[ready] = (name, process)
            deadline = time.monotonic() + START_TIMEOUT_S
            for ready, (name, process) in waiting.items():
                pod = f"pod {name} of {self.name}"
                if not processes.has_output(ready, deadline - time.monotonic()):
                    raise PrerequisiteError(
                        f"{pod} did not start within {START_TIMEOUT_S} s", "run: k8sdds doctor"
                    )
                # nsenter forks into the PID namespace of the sandbox, and unshare into that of the pod.
                first = processes.descendant(process.pid, 2) if os.read(ready, 1) else None
                if first is None:
                    message = processes.require_unshare_not_stopped(process, pod, START_TIMEOUT_S)
                    raise PrerequisiteError(f"{pod} did not start: {message}", "run: k8sdds doctor")
                self.pods[name] = first
                if process.stderr:
                    process.stderr.close()
        finally:
            for ready in waiting:
                os.close(ready)

    # -- use ----------------------------------------------------------------------------------------

    def enter(self, pod: str) -> list[str]:
        """Return the command prefix that runs a command in a pod, or on its node if there are no pods."""
        if not self.plan.datapath.in_pods:
            return self.sandbox.enter(self.plan.datapath.attachments[pod].namespace)
        argv = ["nsenter", "--target", str(self.pods[pod]), "--mount", "--net", "--pid", "--uts", "--ipc"]
        if os.geteuid() != 0:
            argv += ["--user", "--preserve-credentials"]
        return [*argv, "--"]

    def remove_pod(self, name: str) -> None:
        """Kill the processes of a pod, and delete its network namespace with its interface and address."""
        if pid := self.pods.pop(name, None):
            del self._parts[f"pod {name}"]
            processes.kill(pid, processes.start_time(pid))
        namespace = self.plan.datapath.attachments[name].namespace
        if namespace in self.plan.datapath.namespaces:
            self.sandbox.run(["ip", "netns", "del", namespace])

    def stop_daemon(self, node: str) -> None:
        """Kill the network's daemon on a node."""
        del self._parts[f"the daemon of {node}"]
        pid = self._daemons.pop(node)
        # A new daemon counts from 0.
        self._decrypted[node] = self.decrypted_bytes(node) or 0
        processes.kill(pid, processes.start_time(pid))
        processes.wait_gone(pid, START_TIMEOUT_S)

    def start_daemon(self, node: str) -> None:
        """Start the network's daemon on a node again, and connect the node with the others."""
        own = [daemon for daemon in self.plan.datapath.daemons if daemon.namespace == node]
        started = daemons.start(self.sandbox, own)
        self._daemons |= started
        self._add_parts({f"the daemon of {node}": pid for node, pid in started.items()})
        daemons.establish_tunnels(self.sandbox, self.plan.datapath, own[0].rejoins)

    def write_private_files(self, launches: Sequence[Launch]) -> None:
        """Write the private files of launches into the participants' private folders, if they differ."""
        files = {
            private_folder(launch.participant.name) / name: content
            for launch in launches
            for name, content in launch.private.items()
        }
        missing = {
            path: content for path, content in files.items() if self._private_files.get(path) != content
        }
        if missing:
            self.sandbox.put(missing)
            self._private_files |= missing

    def link_file(self, node: str, name: str) -> Path:
        """Return a file of the kernel about the links of a node, such as `eth0/mtu`."""
        return self.sandbox.path(f"/run/sys/{node}/class/net/{name}")

    def offloads(self) -> dict[str, bool] | None:
        """Return the offloads of the first publisher's interface; None without ethtool."""
        attachment = next(iter(self.plan.datapath.attachments.values()))
        return self.features(attachment.interface, attachment.namespace)

    def features(self, device: str, namespace: str) -> dict[str, bool] | None:
        """Return the offloads of a device by ethtool's names; None without ethtool."""
        try:
            return parse_features(self.sandbox.run(["ethtool", "-k", device], netns=namespace))
        except K8sddsError:
            return None

    def node_of(self, pod: str) -> str:
        """Return the name of a pod's node."""
        return next(f"node{p.node}" for p in self.plan.topology.pods if p.name == pod)

    def namespace_of(self, pod: str) -> str:
        """Return the name of a pod's network namespace, which is its node's if the network has no pods."""
        return self.plan.datapath.attachments[pod].namespace

    def with_interfaces(self, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Return outcomes of pods on one node with the interface that carried their samples."""
        shares = len({self.namespace_of(name) for name in outcomes}) < len(outcomes)
        return {
            name: replace(
                outcome, interface="lo" if shares else self.plan.datapath.attachments[name].interface
            )
            for name, outcome in outcomes.items()
        }

    def owner_of(self, pid: int) -> str | None:
        """Return the owner of this process by the names of `components`; None if it is not in this lab network.

        Processes in pods are participants; on the nodes, daemons of the network run.
        """
        if self.emulator is not None and pid == self.emulator.pid:
            return components.LINK
        namespace = processes.pid_namespace(pid)
        if namespace is None:
            return None
        if any(processes.pid_namespace(pod) == namespace for pod in self.pods.values()):
            return components.PARTICIPANT
        if processes.pid_namespace(self.sandbox.pid) == namespace:
            return components.NETWORK if self.plan.datapath.in_pods else components.PARTICIPANT
        return None

    def link_bytes(self, node: str, direction: str, device: str = "eth0") -> int:
        """Return the bytes that a node's link, or a member of it, has sent (`tx`) or received (`rx`) so far."""
        return int(self.link_file(node, f"{device}/statistics/{direction}_bytes").read_text())

    def conntrack_entries(self, node: str) -> int:
        """Return the number of entries in the connection tracking of a node; 0 if it tracks nothing."""
        count = ["cat", "/proc/sys/net/netfilter/nf_conntrack_count"]
        shown = subprocess.run([*self.sandbox.enter(node), *count], capture_output=True, text=True)
        return int(shown.stdout) if shown.stdout.strip().isdigit() else 0

    def decrypted_bytes(self, node: str) -> int | None:
        """Return the bytes decrypted by a node's tunnels so far; None if the network does not encrypt."""
        proof = self.plan.datapath.encryption_proof
        if proof is None:
            return None
        return self._decrypted.get(node, 0) + encryption.decrypted_bytes(self.sandbox, proof, node)

    def usage(self) -> Usage | None:
        """Return the CPU time of the campaign, the daemons and others so far; None if it cannot be read."""
        seen = machine_cpu.read_here()
        if seen is None:
            return None
        links = [] if self.emulator is None else [self.emulator.pid]
        owners = {
            **dict.fromkeys(seen.tree([os.getpid()]), components.PARTICIPANT),
            **dict.fromkeys(seen.tree(self._daemons.values()), components.NETWORK),
            **dict.fromkeys(seen.tree(links), components.LINK),
        }
        return Usage(seen, lambda process: owners.get(process.pid))

    def apply_core_layout(self, name: str, layout: core_layout.Layout) -> str:
        """Move each node's work to the cores of its participants: its daemon and its received packets.

        `name`, that of the core layout, decides whether packets are steered (RPS). Return why they cannot be; empty if
        they are.
        """
        pinned: dict[str, tuple[int, ...]] = {}
        for node in self.plan.topology.nodes:
            pods = self.plan.topology.pods_on(node)
            cpus = {cpu for pod in pods for cpu in layout.cpus.get(pod.name) or ()}
            pinned[node.name] = tuple(sorted(cpus))
        daemons.pin(self._daemons, pinned)
        node_of = {pod.name: f"node{pod.node}" for pod in self.plan.topology.pods}
        for node_name, mask in core_layout.steering(name, layout, node_of).items():
            if self._steering.get(node_name, core_layout.NOT_STEERED) == mask:
                continue
            try:
                for device in ports(self.plan.cell.link):
                    self.link_file(node_name, f"{device}/queues/rx-0/rps_cpus").write_text(mask)
            except OSError as error:
                return f"receive packet steering is not writable: {error.strerror}"
            self._steering[node_name] = mask
        return ""

    def close(self) -> None:
        """Close the sandbox, which ends everything in it."""
        self.sandbox.close()
        if self.emulator is not None:
            self.emulator.close()
            self.emulator = None


def _sysctls(namespace: str, sysctls: Sequence[tuple[str, str, str]], then: str = "") -> str:
    """Return the line of a shell script that sets a namespace's sysctls."""
    paths = {
        f"/proc/sys/{key.replace('.', '/')}": value for owner, key, value in sysctls if owner == namespace
    }
    # The keys of br_netfilter are missing if it is not loaded, and the switch needs them only if it is.
    condition = "[ ! -e {0} ] || " if namespace == SWITCH else ""
    commands = "; ".join(f"{condition.format(path)}echo {value} > {path}" for path, value in paths.items())
    return f"nsenter --net=/run/netns/{namespace} sh -e -c '{commands}{then}'\n"
