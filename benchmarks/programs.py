"""Run the programs that other benchmarks compare, between two pods of one lab network."""

from __future__ import annotations

import dataclasses
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common
from program_results import (
    BATCHED,
    DEFAULT,
    EPROSIMA_PINGS,
    PUB,
    RAW,
    SUB,
    TUNED,
    WARMUP_S,
    Failed,
    Result,
    Run,
    ddsperf_result,
    direct_result,
    eprosima_latency,
    eprosima_result,
    iperf3_result,
    ours_result,
    output,
    sockperf_result,
)

from k8sdds.model.measurement import Launch
from k8sdds.model.settings import ReceiveMode
from k8sdds.model.trial import Cell, Endpoint, Participant, Trial
from k8sdds.perftest import command
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab

Commands = dict[Participant, tuple[list[str], dict[str, str]]]
"""Command line and environment of each participant, in the order of their start."""

SERIALIZED = "ours serialized"
ZENOH = {"zenoh": "direct", "zenoh serialized": "direct shared"}
"""k8sdds-perftest with Zenoh, and the program in benchmarks/zenoh that does the same. With `-serialized`, and in
`direct shared`, all samples share one buffer; otherwise each is copied into a new one."""
OURS = ("ours", SERIALIZED, "fastdds", *RAW, *ZENOH)
"""k8sdds-perftest with Cyclone DDS, also with `-serialized`, with Fast DDS, with plain UDP in each mode, and with
Zenoh."""

EPROSIMA = "eprosima"
"""eProsima's ThroughputTest and LatencyTest."""

MIDDLEWARES = {"fastdds": "fastdds", EPROSIMA: "fastdds", **dict.fromkeys((*ZENOH, *ZENOH.values()), "zenoh")}
"""The middleware of programs that do not use Cyclone DDS or UDP."""

PAYLOADS = (64, 1024, 4096, 16384, 65536)
QUANTITIES = {
    "rate": ("received samples/s", 0),
    "publisher cpu": ("publisher's CPU µs/sample", 3),
    "subscriber cpu": ("subscriber's CPU µs/sample", 3),
    "machine cpu": ("whole machine's CPU µs/sample", 3),
    "p50": ("p50 latency, µs", 2),
    "p99": ("p99 latency, µs", 2),
}
"""The quantities of a run, with their titles in tables and the number of digits."""
LATENCY_S = 1.0
"""ddsperf reports percentiles of one second."""
PATIENCE_S = 10
SOCKPERF_PORT = 11111
MAX_DATAGRAM = 65507

BATCH_BYTES = 1_000_000
"""Much more than a message, so that a message is sent when it is full, as with ddsperf."""
TUNED_LENGTHS = (
    "<MaxMessageSize>65500 B</MaxMessageSize><FragmentSize>65416 B</FragmentSize>"
    "<MaxRexmitMessageSize>1456 B</MaxRexmitMessageSize>"
)
"""ddsperf's configuration of the lengths that k8sdds-perftest uses with `-messageSize max -fragmentSize max`."""

PRELOADED = r"""
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef UNBATCHED
void dds_write_set_batch(bool on) { (void) on; }
#endif

// Signal the supervisor when to read its meters, as k8sdds-perftest does.
static void signal_phase(char phase, double seconds) {
  struct timespec wait = {(time_t) seconds, (long) ((seconds - (time_t) seconds) * 1e9)};
  nanosleep(&wait, NULL);
  if (write(atoi(getenv("K8SDDS_PHASE_FD")), &phase, 1) != 1) _exit(1);
}

static void *signal_phases(void *unused) {
  signal_phase('M', atof(getenv("BENCHMARK_WARMUP_S")));
  signal_phase('E', atof(getenv("BENCHMARK_MEASURED_S")));
  return unused;
}

__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  if (getenv("BENCHMARK_WARMUP_S")) pthread_create(&thread, NULL, signal_phases, NULL);
}
"""
"""A library that is preloaded into ddsperf: it marks the measured interval for the supervisor's meters. Its variant
UNBATCHED also ignores the request to batch."""

EPROSIMA_BURST = 4000
"""Samples between two looks at its clock, and the length of its queue."""


class Pods:
    """A lab network with two nodes, one publisher pod and one subscriber pod, and the programs in them."""

    def __init__(
        self,
        lab: Lab,
        network: str,
        receive: ReceiveMode,
        seconds: float,
        folder: Path,
        best_effort: bool = False,
        instances: int = 0,
    ) -> None:
        """Build the lab network.

        Args:
            lab: The lab.
            network: Its network.
            receive: The receive mode.
            seconds: Length of the measured interval.
            folder: For the output of the programs.
            best_effort: Whether samples are best-effort.
            instances: Of a topic with a key; with 0, our topic has no key, and ddsperf's key is constant.
        """
        self._best_effort = best_effort
        self._instances = instances
        self._session = LabSession(lab)
        self._network = network
        self._receive = receive
        self._seconds = seconds
        self._folder = folder
        self._count = 0
        self._preloaded: dict[str, Path] = {}
        self.eprosima: dict[str, Path] = {}
        """eProsima's program for each test."""
        self.direct: Path | None = None
        """The program of benchmarks/zenoh."""
        lab.up([self._cell(Run("ours", "throughput", PAYLOADS[0]))])

    def preload(self, libraries: dict[str, Path]) -> None:
        """Use these libraries with ddsperf, by settings."""
        self._preloaded = libraries

    def _cell(self, run: Run) -> Cell:
        udp = run.program in (*RAW, "iperf3", "sockperf")
        own = run.program if run.program in RAW else "raw"
        return Cell(
            network=self._network,
            test=run.test,
            payload_bytes=run.payload,
            reliability="best-effort" if udp or self._best_effort else "reliable",
            instances=0 if udp else self._instances,
            middleware=own if udp else MIDDLEWARES.get(run.program, "cyclonedds"),
            message_bytes="max" if run.settings == TUNED else "auto",
            fragment_bytes="max" if run.settings == TUNED else "default",
            batch_bytes=BATCH_BYTES if run.settings == BATCHED else 0,
            receive_mode="spin" if run.spins else self._receive,
            layout="same" if run.test == "latency" and not run.spins else "split",
        )

    def measure(self, run: Run) -> Result:
        """Run a program once; raise Failed without a result."""
        seconds = LATENCY_S if run.test == "latency" else self._seconds
        trial = Trial(
            cell=self._cell(run),
            testbed="lab",
            repetition=0,
            duration_s=seconds,
            warmup_s=WARMUP_S,
            max_loss_percent=100,  # of best-effort samples; the tables show the losses
        )
        self._count += 1
        folder = self._folder / f"{self._count}-{run.program.replace(' ', '-')}-{run.test}-{run.payload}"
        started = self._ours(run, trial, folder) if run.program in OURS else self._others(run, trial, folder)
        deadline = command.deadline_s(trial)
        if run.program in ("iperf3", "sockperf"):
            # The server would wait forever if the client could not start.
            deadline = WARMUP_S + trial.duration_s + PATIENCE_S
        measurement = self._session.run(trial, started, deadline)
        if run.program in OURS:
            return ours_result(run, trial, measurement, folder)
        failed = [
            f"{name} exited with code {outcome.exit_code}: {output(folder / name)}"
            for name, outcome in measurement.outcomes.items()
            if outcome.exit_code
        ]
        if failed:
            raise Failed("; ".join(failed))
        if run.program == "iperf3":
            return iperf3_result(folder, run)
        if run.program == "sockperf":
            return sockperf_result(folder)
        if run.program == EPROSIMA:
            return eprosima_latency(folder) if run.test == "latency" else eprosima_result(folder)
        if run.program in ZENOH.values():
            return direct_result(run, measurement, folder)
        return ddsperf_result(run, trial, measurement, folder)

    # -- command lines --------------------------------------------------------------------------------

    def _ours(self, run: Run, trial: Trial, folder: Path) -> list[Launch]:
        launches = []
        for launch in common.launches(self._session, trial, folder, self._domain()):
            queue = ["-sendQueueSize", str(run.queue_samples)]
            limited = run.settings == TUNED and launch.participant.publishes and run.test == "throughput"
            serialized = ["-serialized"] if run.program.endswith(" serialized") else []
            argv = (*launch.argv, *(queue if limited else []), *serialized)
            launches.append(dataclasses.replace(launch, argv=argv))
        return launches

    def _others(self, run: Run, trial: Trial, folder: Path) -> list[Launch]:
        """Return the commands of another program in the order of their start: argv and environment in new folders."""
        programs = {"ddsperf": self._ddsperf, "iperf3": self._iperf3, "sockperf": self._sockperf}
        programs[EPROSIMA] = self._eprosima
        programs |= dict.fromkeys(ZENOH.values(), self._direct)
        folder.mkdir(parents=True)
        commands = programs[run.program](run, trial, self._session.endpoints(trial), folder)
        launches = [
            Launch(participant, tuple(argv), folder / participant.name, env)
            for participant, (argv, env) in commands.items()
        ]
        for launch in launches:
            launch.directory.mkdir()
        return launches

    def _domain(self) -> int:
        return command.DOMAINS[self._count % len(command.DOMAINS)]

    def _ddsperf(self, run: Run, trial: Trial, endpoints: dict[str, Endpoint], folder: Path) -> Commands:
        # ddsperf reports every second: whole seconds, and a little for the last report. Pings begin after one second.
        length = math.ceil(WARMUP_S + trial.duration_s) + (run.test == "latency") + 0.2
        start = [shutil.which("ddsperf") or "ddsperf", "-i", str(self._domain()), "-X"]
        receive = self._receive
        if run.test == "latency":
            modes = {PUB: ["ping", "size", str(run.payload), receive], SUB: ["pong", receive]}
        else:
            modes = {PUB: ["pub", "size", str(run.payload)], SUB: ["sub", receive]}
        commands: Commands = {}
        for participant, other in ((SUB, PUB), (PUB, SUB)):
            argv = [*start, "-D", f"{length + 0.5 * participant.subscribes:g}", "-k", "all"]
            argv += ["-u"] if self._best_effort else []
            argv += ["-n", str(self._instances)] if self._instances else []
            if participant.publishes:
                argv += ["-Q", "minmatch:1", "-Q", "initwait:20"]
            env = {
                "CYCLONEDDS_URI": cyclone_config(
                    endpoints[participant.name], endpoints[other.name], participant, run
                ),
                "LD_PRELOAD": str(self._preloaded[run.settings]),
                "BENCHMARK_WARMUP_S": str(WARMUP_S),
                "BENCHMARK_MEASURED_S": str(trial.duration_s),
            }
            commands[participant] = ([*argv, *modes[participant]], env)
        return commands

    def _iperf3(self, run: Run, trial: Trial, endpoints: dict[str, Endpoint], folder: Path) -> Commands:
        program = shutil.which("iperf3") or "iperf3"
        address = endpoints[SUB.name].address
        length = f"{WARMUP_S + trial.duration_s:g}"
        # Both start at the same time; the client retries until the server is ready.
        once = f"{program} -c {address} -u -b 0 -l {run.payload} -t {length} -J"
        client = f"for try in $(seq 50); do {once} && exit 0; sleep 0.1; done; exit 1"
        return {
            SUB: ([program, "-s", "-1", "-J"], {}),
            PUB: (["/bin/sh", "-c", client], {}),
        }

    def _eprosima(self, run: Run, trial: Trial, endpoints: dict[str, Endpoint], folder: Path) -> Commands:
        profiles, lengths = folder / "profiles.xml", folder / "lengths.csv"
        profiles.write_text(eprosima_profiles(run.test, *endpoints.values()))
        # Its size of a sample is that of -dataLen; it has no warm-up.
        if run.test == "latency":
            lengths.write_text(f"{run.payload};\n")
            shared = [f"--samples={EPROSIMA_PINGS}", f"--file={lengths}"]
            options = {PUB: ["--subscribers=1"], SUB: []}
        else:
            shared = []
            load = ["--recovery_time=0", f"--demand={EPROSIMA_BURST}", f"--msg_size={run.payload}"]
            options = {PUB: [f"--time={math.ceil(trial.duration_s)}", "--subscribers=1", *load], SUB: []}
        program = str(self.eprosima[run.test])
        shared += ["--reliability=reliable", f"--xml={profiles}", f"--domain={self._domain()}"]
        return {
            participant: ([program, participant.role, *shared, *options[participant]], {})
            for participant in (SUB, PUB)
        }

    def _direct(self, run: Run, trial: Trial, endpoints: dict[str, Endpoint], folder: Path) -> Commands:
        roles = {SUB: "pong", PUB: "ping"} if run.test == "latency" else {SUB: "sub", PUB: "pub"}
        given = [endpoints[PUB.name].address, str(run.payload), f"{WARMUP_S:g}", f"{trial.duration_s:g}"]
        given += ["shared"] if run.program.endswith(" shared") else []
        return {participant: ([str(self.direct), role, *given], {}) for participant, role in roles.items()}

    def _sockperf(self, run: Run, trial: Trial, endpoints: dict[str, Endpoint], folder: Path) -> Commands:
        program = shutil.which("sockperf") or "sockperf"
        place = f"-i {endpoints[SUB.name].address} -p {SOCKPERF_PORT}" + (
            " --nonblocked" if run.spins else ""
        )
        # Whole seconds. sockperf leaves out the first 0.4 s, and needs more than one second.
        seconds = math.ceil(trial.duration_s) + 1
        client = f"sleep {WARMUP_S / 2:g}; exec {program} ping-pong {place} -m {run.payload} -t {seconds} --mps=max"
        # The server runs until it is stopped.
        server = f"timeout --signal INT {WARMUP_S + seconds + 1:g} {program} server {place} >&2; exit 0"
        return {SUB: (["/bin/sh", "-c", server], {}), PUB: (["/bin/sh", "-c", client], {})}


def eprosima_profiles(test: str, *endpoints: Endpoint) -> str:
    """Return the XML profiles of eProsima's tests: reliable, UDP on the pods' interfaces."""
    addresses = "".join(f"<address>{endpoint.address}</address>" for endpoint in endpoints)
    peers = "".join(
        f"<locator><udpv4><address>{endpoint.address}</address></udpv4></locator>" for endpoint in endpoints
    )
    participants = "".join(
        f'<participant profile_name="{role}_participant_profile"><rtps>'
        f"<builtin><initialPeersList>{peers}</initialPeersList></builtin>"
        "<useBuiltinTransports>false</useBuiltinTransports>"
        "<userTransports><transport_id>udp</transport_id></userTransports></rtps></participant>"
        for role in ("pub", "sub")
    )
    qos = (
        "<qos><reliability><kind>RELIABLE</kind></reliability><durability><kind>VOLATILE</kind></durability>"
    )
    qos += "<data_sharing><kind>OFF</kind></data_sharing></qos>"
    kept = "<kind>KEEP_LAST</kind><depth>1</depth>" if test == "latency" else "<kind>KEEP_ALL</kind>"
    history = f"<topic><kind>NO_KEY</kind><historyQos>{kept}</historyQos></topic>"
    # In a latency test, both sides write and read.
    endpoint_profiles = "".join(
        f'<data_writer profile_name="{side}publisher_profile">{history}{qos}</data_writer>'
        f'<data_reader profile_name="{side}subscriber_profile">{history}{qos}</data_reader>'
        for side in (("pub_", "sub_") if test == "latency" else ("",))
    )
    return (
        '<?xml version="1.0"?><dds xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"><profiles>'
        "<transport_descriptors><transport_descriptor><transport_id>udp</transport_id><type>UDPv4</type>"
        f"<interfaceWhiteList>{addresses}</interfaceWhiteList></transport_descriptor></transport_descriptors>"
        f"{participants}{endpoint_profiles}</profiles></dds>"
    )


def cyclone_config(own: Endpoint, other: Endpoint, participant: Participant, run: Run) -> str:
    """Return the Cyclone DDS configuration of k8sdds-perftest as CYCLONEDDS_URI."""
    high = 0
    if run.test == "latency" or participant.subscribes:
        high = 16 << 20
    elif run.settings == TUNED:
        high = run.queue_samples * run.payload
    lengths = TUNED_LENGTHS if run.settings == TUNED else ""
    watermarks = (
        f"<Watermarks><WhcLow>1000 B</WhcLow><WhcHigh>{high} B</WhcHigh>"
        f"<WhcHighInit>{high} B</WhcHighInit><WhcAdaptive>false</WhcAdaptive></Watermarks>"
        if high
        else ""
    )
    return (
        '<Domain id="any"><General>'
        f'<Interfaces><NetworkInterface name="{own.interface}"/></Interfaces>'
        f"<AllowMulticast>false</AllowMulticast>{lengths}</General>"
        "<Discovery><ParticipantIndex>auto</ParticipantIndex>"
        "<MaxAutoParticipantIndex>11</MaxAutoParticipantIndex>"
        f'<Peers><Peer Address="{other.address}"/></Peers></Discovery>'
        '<Internal><SocketReceiveBufferSize min="default" max="8 MiB"/>'
        f"<WriterLingerDuration>0 s</WriterLingerDuration>{watermarks}</Internal></Domain>"
    )


@contextmanager
def preloaded() -> Iterator[dict[str, Path]]:
    """Provide the libraries to preload into ddsperf, by settings, compiled in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder:
        source = Path(folder) / "preloaded.c"
        source.write_text(PRELOADED)
        libraries = {}
        for settings in (DEFAULT, TUNED, BATCHED):
            libraries[settings] = Path(folder) / f"{settings}.so"
            flags = [] if settings == BATCHED else ["-DUNBATCHED"]
            command = ["cc", "-shared", "-fPIC", "-pthread", "-O2", *flags]
            subprocess.run([*command, "-o", str(libraries[settings]), str(source)], check=True)
        yield libraries
