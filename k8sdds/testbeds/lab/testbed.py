"""The lab as a testbed: benches side by side, one per network and topology, for a whole campaign."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from k8sdds import networks
from k8sdds.model.experiment import Experiment
from k8sdds.model.measurement import Launch, Measurement, ParticipantPaths
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Endpoint, Participant, Trial
from k8sdds.networks import find
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.results.run_folder import utc_now
from k8sdds.system import kernel_features, processes
from k8sdds.system.cgroups import PodCgroups
from k8sdds.system.errors import PrerequisiteError, Problem
from k8sdds.system.kernel_features import Capabilities, Feature
from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox, unprivileged_remedy
from k8sdds.testbeds import Block, core_layout, repetitions
from k8sdds.testbeds.lab import capture, facts, records, runner
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.plan import plan
from k8sdds.testbeds.lab.topology import LabNetworkKey, same_node, topology_of

NAME = "lab"


class Lab:
    """Benches by key, with everything they made. Use as a context manager, or call `close`."""

    name = NAME

    def __init__(self, campaign: str, experiment: str = "", psk: str | None = None) -> None:
        """`campaign`: the name of all that the lab makes; one lab at a time may have it. `psk`: the user's
        own pre-shared key for networks that encrypt by one."""
        self._psk = psk
        self.capabilities = Capabilities()
        self.benches: dict[LabNetworkKey, LabNetwork] = {}
        self._pod_cgroups: PodCgroups | None = None
        self._cgroups: dict[LabNetworkKey, dict[str, list[Path]]] = {}
        self._record = records.LabRecord(
            name=campaign,
            kind="campaign",
            owner=(os.getpid(), processes.start_time(os.getpid())),
            experiment=experiment,
            created_at=utc_now(),
        )

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- before anything is built ---------------------------------------------------------------------

    def supported_subset(self, experiment: Experiment, asked: Sequence[str]) -> tuple[Experiment, list[str]]:
        """The experiment with the engines that this machine has; the lab leaves no network out."""
        return networks.with_engines(experiment, kernel_features.available), []

    def interference(self) -> list[str]:
        """What may disturb a campaign here now, each as a sentence."""
        return facts.interference()

    def check(self, trials: Sequence[Trial]) -> list[Problem]:
        """What stands against these trials, or against them on this machine. Makes and loads nothing."""
        lack = kernel_features.namespaces_error()
        if lack:
            return [Problem(f"namespaces cannot be made here: {lack}", unprivileged_remedy())]
        cells = {LabNetworkKey.of(trial.cell): trial.cell for trial in trials}
        unfit = [problem for problem in map(_unfit, cells.values()) if problem]
        if unfit:
            return unfit
        needs = {need: cell for cell in cells.values() for need in needed_features(cell)}
        missing = kernel_features.probe(needs).missing
        quota = [cell.cpu_quota for cell in cells.values() if cell.cpu_quota]
        return [
            *_quota_problems(quota),
            *(
                Problem(
                    f"{cell.network_label} needs {need.name}: {missing[need.name]}",
                    kernel_features.remedy(need),
                )
                for need, cell in needs.items()
                if need.name in missing
            ),
        ]

    def blocks(self, trials: Sequence[Trial], seed: int) -> list[Block]:
        """One repetition of all cells is a block."""
        return repetitions(trials, seed)

    # -- building and measuring -----------------------------------------------------------------------

    def prepare(self, block: Block) -> Lab:
        """Build the benches that the block needs and that do not stand yet, and prove their datapaths."""
        self.up(trial.cell for trial in block.trials)
        return self

    def up(self, cells: Iterable[Cell]) -> None:
        """Build and prove the benches of these cells; those that stand already stay."""
        for cell in cells:
            if LabNetworkKey.of(cell) not in self.benches:
                self._build(cell)

    def _build(self, cell: Cell) -> None:
        if self._pod_cgroups is None:
            self.capabilities = kernel_features.probe(networks.features())
            pod_cgroups = PodCgroups(self._record.name)
            self._record.cgroup_folders = pod_cgroups.folders
            records.create(self._record)
            self._pod_cgroups = pod_cgroups
        built = plan(cell)
        name = self._bench_name(cell)
        bench = LabNetwork(built, Sandbox(name), self._psk)
        self.benches[built.key] = bench
        self._record.holders[name] = (bench.sandbox.pid, processes.start_time(bench.sandbox.pid))
        self._record.plans[name] = cell.model_dump_json()
        records.write(self._record)
        pods = built.datapath.attachments if built.datapath.in_pods else ()
        cgroups = {pod: self._pod_cgroups.create(f"{name}-{pod}", cell.cpu_quota) for pod in pods}
        self._cgroups[built.key] = cgroups
        bench.build(cgroups)
        self._record.pods[name] = bench.pods
        records.write(self._record)
        bench.prove()

    def stay(self) -> None:
        """Let all benches outlive this process, as `lab up` wants; `records.remove` ends them."""
        self._record.kind = "lab"
        records.write(self._record)
        for bench in self.benches.values():
            bench.sandbox.stay()

    def _bench_name(self, cell: Cell) -> str:
        """The network's label without its engine; with the number of participants, or with any number,
        behind it where benches would clash."""
        name = re.sub(r"[^A-Za-z0-9.-]", "_", networks.label_without_engine(cell.network_label))
        taken = {bench.name for bench in self.benches.values()}
        for candidate in (name, f"{name}-{cell.publishers}x{cell.subscribers}"):
            if candidate not in taken:
                return candidate
        return f"{name}-{len(taken)}"

    def network_facts(self, trial: Trial) -> dict[str, Any]:
        """MTU, engine with its mode, fidelity of the trial's network, and what `LabNetwork.prove` has proven."""
        network = find(trial.cell.network)
        options = trial.cell.network_options
        chosen = network.engine_for(options)
        return {
            "mtu_bytes": network.mtu(options),
            "engine": network.engine_title(options),
            "engine_mode": chosen.mode if chosen else None,
            "fidelity": network.fidelity,
            "network_proof": f"whole packets of {network.mtu(options)} bytes pass"
            + ("; nothing between nodes but encrypted packets" if network.encryption else ""),
        }

    def link_facts(self, trial: Trial) -> dict[str, Any]:
        """MTU of the links between nodes, and the offloads of the publisher's interface."""
        return {"link_mtu_bytes": LINK_MTU, "offloads": self.benches[LabNetworkKey.of(trial.cell)].offloads()}

    def endpoints(self, trial: Trial) -> dict[str, Endpoint]:
        """Address, interface and cores of each participant."""
        bench = self.benches[LabNetworkKey.of(trial.cell)]
        layout = self._layout(trial.cell)
        return {
            name: Endpoint(attachment.address, attachment.interface, layout.cpus.get(name))
            for name, attachment in bench.plan.datapath.attachments.items()
        }

    def _layout(self, cell: Cell) -> core_layout.Layout:
        return core_layout.assign(cell.layout, cell.publishers, cell.subscribers, core_layout.available())

    def servers(self, trial: Trial) -> tuple[str, ...]:
        """None: discovery services are pods of the bench."""
        return ()

    def readings(self) -> list[dict[str, Any]]:
        """None: the lab's nodes are this machine, which every trial's meters know."""
        return []

    def paths(
        self, trial: Trial, participant: Participant, directory: Path, qos: Path | None
    ) -> ParticipantPaths:
        """Paths as they are: participants see this machine's files."""
        return ParticipantPaths(native_program("k8sdds-perftest"), directory, qos)

    def run(self, trial: Trial, launches: Sequence[Launch], deadline_s: float) -> Measurement:
        """Run one attempt; see runner.run."""
        key = LabNetworkKey.of(trial.cell)
        bench, layout = self.benches[key], self._layout(trial.cell)
        bench.hand_over(launches)
        unsteered = bench.steer(layout, steered=trial.cell.layout == "split")
        participants = [launch.participant for launch in launches]
        senders = {bench.node_of(one.name) for one in participants if one.publishes}
        receivers = {one.name: bench.node_of(one.name) for one in participants if one.subscribes}
        before: dict[tuple[str, str], int] = {}
        encrypts = bench.plan.datapath.encryption_proof is not None

        def read() -> dict[tuple[str, str], int]:
            sent = {(node, "tx"): bench.link_bytes(node, "tx") for node in senders}
            got = {(node, "rx"): bench.link_bytes(node, "rx") for node in receivers.values()}
            # InstallOptions before and after the trial, never while it measures.
            inside = {
                (node, "decrypted"): bench.decrypted_bytes(node) or 0
                for node in set(receivers.values())
                if encrypts
            }
            return sent | got | inside

        used: list[tuple[float, float, float]] = []

        def start() -> None:
            before.update(read())
            used.append((time.monotonic(), *bench.daemons_cpu_s()))

        with contextlib.ExitStack() as stack:
            pcap = launches[0].directory.parent / capture.FILE
            if trial.cell.capture:
                stack.enter_context(
                    capture.running(bench.sandbox.enter(bench.node_of(FIRST_PUBLISHER.name)), "eth0", pcap)
                )
            outcomes = runner.run(bench, launches, layout, self._cgroups[key], deadline_s, start)
        used.append((time.monotonic(), *bench.daemons_cpu_s()))
        after = read()
        user, total = _daemons_percent(used) if bench.plan.datapath.daemons else (None, None)
        moved = {counter: after[counter] - before.get(counter, after[counter]) for counter in after}
        return Measurement(
            outcomes=outcomes,
            sent_bytes=sum(moved[node, "tx"] for node in senders),
            received_bytes={name: moved[node, "rx"] for name, node in receivers.items()},
            decrypted_bytes=(
                {name: moved[node, "decrypted"] for name, node in receivers.items()} if encrypts else None
            ),
            daemons_cpu_percent=total,
            daemons_user_percent=user,
            ip_fragments=(
                tuple(capture.fragments(pcap, trial.cell.payload_bytes)) if trial.cell.capture else ()
            ),
            includes_scheduling=layout.includes_scheduling,
            cpu_mhz=facts.cpu_mhz(),
            warnings=(*((unsteered,) if unsteered else ()), *facts.throttling()),
        )

    # -- the rest ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Provenance of this machine, and what the lab has of it."""
        return {
            **facts.machine(),
            "privileged": os.geteuid() == 0,
            "features": sorted(self.capabilities.features),
            "lacking_features": self.capabilities.missing,
            "cgroups": self._pod_cgroups.own.version if self._pod_cgroups else "none",
            "cgroups_lack": self._pod_cgroups.unavailable if self._pod_cgroups else "",
            "cores": list(core_layout.available()),
            "interference": facts.interference(),
        }

    def close(self) -> None:
        """Remove all benches, cgroups and the record. Safe to call twice, from any state.

        Ctrl-C waits until it is done, so that it leaves nothing half removed.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self._remove()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _remove(self) -> None:
        for bench in self.benches.values():
            bench.close()
        self.benches.clear()
        if self._pod_cgroups is not None:
            left = records.remove(self._record)
            if left:
                raise PrerequisiteError(
                    f"cgroups could not be removed: {', '.join(left)}", "later: k8sdds clean"
                )
            self._pod_cgroups = None


def _daemons_percent(used: list[tuple[float, float, float]]) -> tuple[float | None, float | None]:
    """(user, all) CPU time between two readings of (time, user, system), percent of one core."""
    if len(used) < 2:
        return None, None  # the participants did not start
    (began, user, system), (ended, user_then, system_then) = used
    share = 100 / (ended - began)
    return (user_then - user) * share, (user_then - user + system_then - system) * share


def _unfit(cell: Cell) -> Problem | None:
    """Why no bench can be made for a cell on any machine, or None."""

    def problem(what: str, remedy: str) -> Problem:
        return Problem(f"{cell.network_label}: {what}", remedy, input=True)

    if cell.cpu_quota and not plan(cell).datapath.in_pods:
        return problem("a cpu_quota needs pods, and there are none", "leave cpu_quota out, or this network")
    engine = find(cell.network).engine_for(cell.network_options)
    if cell.link.loss_percent and engine is not None and engine.title == "kernel ESP":
        # ESP is no UDP, and its content passes the link's rule once more when it is decrypted.
        return problem(
            "a link with loss drops UDP packets, and these are ESP",
            "take the engine whose ESP is in UDP ({name: "
            f"{cell.network}, engine: userspace"
            "}), or leave link.loss_percent out",
        )
    together = same_node(topology_of(cell))
    return problem(together, "give another placement") if together else None


def _quota_problems(quotas: list[float]) -> list[Problem]:
    """Whether CPU quotas can be set here, tried on a cgroup of its own."""
    if not quotas:
        return []
    trial = PodCgroups(f"check-{os.getpid()}")
    try:
        trial.create("pod", quotas[0])
    except PrerequisiteError as error:
        return [Problem(error.message, error.remedy)]
    finally:
        trial.remove()
    return []


def needed_features(cell: Cell) -> list[Feature]:
    """Return what a cell's network and links require of this machine."""
    needs = [kernel_features.VETH, *find(cell.network).requirements(cell.network_options)]
    if cell.link.rate_mbit:
        needs.append(kernel_features.TBF)
    if cell.link.delay_us:
        needs.append(kernel_features.NETEM)
    if cell.link.loss_percent:
        needs.append(kernel_features.NFT_INGRESS)
    return needs
