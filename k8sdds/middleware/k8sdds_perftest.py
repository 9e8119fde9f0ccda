"""Run trials with k8sdds-perftest, whose backends are the open middlewares."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from k8sdds import security as credentials
from k8sdds import workloads
from k8sdds.discovery import SERVER, Service
from k8sdds.middleware.protocol import SETTINGS, Command, Middleware, Surroundings
from k8sdds.model import graph
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.measurement import Inputs
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.security import Protection
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial, host_and_port
from k8sdds.perftest import command, output
from k8sdds.perftest.command import Load
from k8sdds.perftest.output import PERFTEST_REASONS, Summary
from k8sdds.results import arrivals, histograms, slow_samples
from k8sdds.system import reading, xml_text
from k8sdds.system.errors import Problem
from k8sdds.system.paths import BUNDLED, native_program, private_folder

PROGRAM = "k8sdds-perftest"
NONCE = "K8SDDS_NONCE"
"""The environment variable with the number by which the processes of a run recognize each other's messages."""


class K8sddsPerftest(Middleware):
    """A backend of k8sdds-perftest: `libk8sdds-perftest-NAME.so` next to the program."""

    settings = SETTINGS - {"message_type", "discovery_servers"}
    qos_option = "-qosFile"
    """Option of the program for a QoS profile."""
    reports_match = True
    runs_graphs = starts_fleets = True
    exit_reasons = PERFTEST_REASONS
    build_option = ""
    """Option of CMake with which the backend is built; empty if it is always built."""

    def __init__(self, backend: str, service: Service | None = None, mode: str = "") -> None:
        self.name = f"{backend}-{mode}" if mode else backend
        self.backend = backend
        self.service = service
        self._mode = mode

    @override
    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        built = backends()
        if self.backend in built:
            return []
        recorded = build_record(Path(native_program(PROGRAM)).parent).get(self.backend, "")
        if recorded.startswith("not built"):
            remedy = "install k8sdds from its sources" if BUNDLED.is_dir() else f"run: {self.setup}"
            return [Problem(f"middleware {self.backend!r} is {recorded}", remedy)]
        what = f"middleware {self.backend!r} is not built here (built: {', '.join(built)})"
        return [Problem(what, "see: k8sdds docs perftest")]

    @override
    def takes_qos(self, cell: Cell) -> bool:
        # A graph states the reliability of each flow.
        return super().takes_qos(cell) and not cell.graph

    @override
    def check_config(self, content: bytes, name: str) -> None:
        xml_text.parse(content, name, "see: k8sdds docs middleware-config")

    @override
    def refused_files(self, cell: Cell) -> str | None:
        refused = self._refused(cell)
        # The program takes the reliability of a file, unless -bestEffort contradicts it.
        if refused or not (cell.qos and cell.reliability == "reliable" and self.takes_qos(cell)):
            return refused
        if self._refused(cell.model_copy(update={"reliability": "best-effort"})):
            return None
        return f"the profile {cell.qos} is best effort, but reliability is reliable; set it: reliability=best-effort"

    def _refused(self, cell: Cell) -> str | None:
        """Return the program's message if it rejects the files of a cell."""
        load = workloads.find(cell.test).load(cell)
        argv = [native_program(PROGRAM), "-pub", "-check", "-middleware", self.backend]
        argv += ["-dataLen", str(cell.payload_bytes), "-nic", "lo"]
        argv += ["-transport", self._network_transport(cell.ip_family)]
        argv += [self.qos_option, str(self.qos_file(cell))] if self.takes_qos(cell) else []
        argv += ["-middlewareConfig", cell.middleware_config] if cell.middleware_config else []
        argv += ["-bestEffort"] if cell.reliability == "best-effort" else []
        argv += ["-latencyTest"] if load.round_trips else []
        argv += command.key_options(cell)
        argv += ["-batchSize", str(cell.batch_bytes)] if cell.batch_bytes else []
        argv += _publish_mode_options(cell)
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=20)
        return (
            reading.printable(done.stderr.strip().removeprefix(f"{PROGRAM}: ")) if done.returncode else None
        )

    @override
    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        """Return the command line of k8sdds-perftest.

        Without copies of the user's files in the surroundings, they are read where the user keeps them.
        """
        cell, paths = trial.cell, surroundings.paths
        load = workloads.find(cell.test).load(cell)
        interface = surroundings.endpoints[participant.name].interface
        argv = [paths.program, *self._part_options(trial, participant, paths.inputs)]
        argv += ["-middleware", self.backend, *self._options()]
        transport = self._network_transport(cell.ip_family) if cell.uses_network else "SHMEM"
        argv += command.transport_options(surroundings.domain, interface, transport)
        argv += _size_options(cell)
        argv += ["-receive", cell.receive_mode] if "receive_mode" in self.settings else []
        argv += command.topic_options(cell) + command.key_options(cell)
        argv += ["-messageType", cell.message_type] if cell.message_type != "sample" else []
        argv += ["-bestEffort"] if cell.reliability == "best-effort" and not cell.graph else []
        argv += (
            [self.qos_option, str(paths.inputs.qos or self.qos_file(cell))] if self.takes_qos(cell) else []
        )
        if cell.middleware_config:
            argv += ["-middlewareConfig", str(paths.inputs.config or cell.middleware_config)]
        argv += ["-multicast"] if cell.transport == "multicast" else []
        argv += ["-lockMemory"] if cell.lock_memory else []
        argv += ["-dscp", str(cell.dscp)] if cell.dscp else []
        if surroundings.protection is not None:
            argv += secure_options(private_folder(participant.name), surroundings.protection)
        argv += self._discovery_options(cell, participant, surroundings)
        if load.fleet:
            argv += command.fleet_options(trial, load.fleet)
        elif participant.publishes or cell.graph:
            argv += ["-warmUp", f"{trial.warmup_s:g}", "-executionTime", f"{trial.duration_s:g}"]
            argv += [] if cell.graph else _load_options(load)
            argv += ["-schedule", str(paths.inputs.schedule or load.schedule)] if load.schedule else []
            argv += _publish_mode_options(cell)
        timed = load.round_trips or load.loaded_latency
        if load.on_schedule or load.fleet or (participant.publishes and timed):
            argv += ["-histogramFile", str(paths.files / histograms.LOG)]
        argv += ["-timelineFile", str(paths.files / "timeline.csv"), "-outputFormat", "json"]
        argv += ["-noPrintIntervals", *_timeouts(trial)]
        if participant.subscribes and not cell.graph and _logs_arrivals(trial, load):
            argv += ["-arrivalsFile", str(paths.files / arrivals.FILE)]
        if participant.subscribes and surroundings.records_stops:
            argv += ["-slowFile", str(paths.files / slow_samples.FILE)]
        restarted = ["-restarted"] if participant.subscribes else []
        return Command(argv, {NONCE: surroundings.nonce} if surroundings.nonce else {}, restarted=restarted)

    def _part_options(self, trial: Trial, participant: Participant, inputs: Inputs) -> list[str]:
        """Return the options for what a participant is: a node of a graph, a publisher, or a subscriber."""
        cell = trial.cell
        if cell.graph:
            return ["-graph", str(inputs.graph), "-node", cell.graph_nodes[participant].name]
        sizes = ["-dataLen", str(cell.payload_bytes)]
        return [command.role_option(participant), *sizes, *command.identity_options(trial, participant)]

    def _options(self) -> list[str]:
        """Return the options that select a variant of the backend."""
        return []

    def _network_transport(self, family: IpFamily) -> str:
        """Return the value of `-transport` for samples that cross a network."""
        return f"UDP{family.removeprefix('ip')}"

    def _discovery_options(
        self, cell: Cell, participant: Participant, surroundings: Surroundings
    ) -> list[str]:
        if cell.discovery == SERVER:
            assert self.service is not None
            servers = surroundings.servers or tuple(
                host_and_port(own.address, self.service.port + one.index)
                for one in cell.services
                if (own := surroundings.endpoints.get(one.name))
            )
            return ["-discovery", SERVER, *(part for each in servers for part in ("-discoveryServer", each))]
        kind = [] if cell.discovery == "auto" else ["-discovery", cell.discovery]
        if self._needs_peers(cell):
            peers = self._peers(cell, participant, surroundings.endpoints)
            return kind + [part for each in peers for part in ("-peer", each.address)]
        return kind

    def _peers(
        self, cell: Cell, participant: Participant, endpoints: Mapping[str, Endpoint]
    ) -> list[Endpoint]:
        """Return the endpoints whose addresses a participant needs; several participants may share one."""
        return [each for name, each in endpoints.items() if name != participant.name]

    def _needs_peers(self, cell: Cell) -> bool:
        return cell.discovery_kind != "multicast"

    @override
    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        summary = output.read(folder / participant.name / "stdout")
        try:
            before = arrivals.before_killed(folder, participant.name)
        except reading.UnreadableError:
            return None
        if not summary or not before:
            return summary
        # The number of samples that were sent includes those that only the killed process received.
        received, lost = (summary["received"] or 0) + before, max((summary["lost"] or 0) - before, 0)
        return Summary({**summary.data, "received": received, "lost": lost})


def _timeouts(trial: Trial) -> list[str]:
    """Return the options for how long participants wait for each other, over outages too."""
    outage_s = max(
        workloads.find(trial.cell.test).load(trial.cell).outage_s, trial.cell.link.longest_outage_s
    )
    argv = ["-discoveryTimeout", str(command.DISCOVERY_TIMEOUT_S)]
    argv += ["-peerTimeout", str(command.PEER_TIMEOUT_S + math.ceil(outage_s))]
    return argv + (["-awaitPeers"] if outage_s else [])


def _logs_arrivals(trial: Trial, load: Load) -> bool:
    """Return whether subscribers log what arrives in each millisecond, for figures of trials over impaired links."""
    fits = trial.duration_s <= arrivals.longest_s(trial.cell.publishers)
    return load.outage_s > 0 or (load.on_schedule and trial.cell.link.engine != "auto" and fits)


def _size_options(cell: Cell) -> list[str]:
    """Return the options for messages and fragments; the program reads the MTU of its interface itself."""
    argv = [] if cell.message_bytes == "auto" else ["-messageSizeMax", str(cell.message_bytes)]
    return argv + ([] if cell.fragment_bytes == "default" else ["-fragmentSize", str(cell.fragment_bytes)])


def _publish_mode_options(cell: Cell) -> list[str]:
    argv = ["-asynchronous"] if cell.publish_mode == "asynchronous" else []
    return argv + (["-flowController", f"{cell.flow_bytes}:{cell.flow_period_ms}"] if cell.flow_bytes else [])


def _load_options(load: Load) -> list[str]:
    argv = ["-latencyTest"] if load.round_trips else []
    argv += ["-pubRate", f"{graph.decimal(load.rate)}:sleep"] if load.rate and not load.schedule else []
    argv += ["-pacedTest"] if load.on_schedule else []
    argv += ["-rateProfile", load.rate_profile] if load.rate_profile != CONSTANT else []
    argv += ["-deadline", graph.decimal(load.deadline_s)] if load.deadline_s else []
    argv += ["-batchSize", str(load.batch_bytes)] if load.batch_bytes else []
    argv += ["-loadedLatency"] if load.loaded_latency else []
    return argv


def secure_options(folder: Path, protection: Protection) -> list[str]:
    """Return PerfTest's options for a participant whose credentials are in a folder.

    `-securePermissionsAuthority` is an addition of k8sdds-perftest: k8sdds has two certificate authorities.
    """
    return [
        "-secureGovernanceFile", str(folder / credentials.GOVERNANCE),
        "-securePermissionsFile", str(folder / credentials.PERMISSIONS),
        "-secureCertAuthority", str(folder / credentials.IDENTITY_CA),
        "-securePermissionsAuthority", str(folder / credentials.PERMISSIONS_CA),
        "-secureCertFile", str(folder / credentials.CERTIFICATE),
        "-securePrivateKey", str(folder / credentials.KEY),
        "-secureEncryptionAlgorithm", f"aes-{protection.aes_bits}-gcm",
    ]  # fmt: skip


def backends(folder: Path | None = None) -> list[str]:
    """Return the names of the backends that are built, by the files next to the program or in another folder."""
    folder = folder or Path(native_program(PROGRAM)).parent
    prefix, suffix = f"lib{PROGRAM}-", ".so"
    return sorted(file.name[len(prefix) : -len(suffix)] for file in folder.glob(f"{prefix}*{suffix}"))


def build_record(folder: Path) -> dict[str, str]:
    """Return the build's record of each middleware: the library and its version, or why it is not built.

    Programs built by an older k8sdds have no record, and that of an interrupted build may be incomplete.
    """
    try:
        return {name: str(built) for name, built in reading.json_file(folder / "middlewares.json").items()}
    except (OSError, reading.UnreadableError):
        return {}
