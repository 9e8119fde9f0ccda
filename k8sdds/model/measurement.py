"""Define what a testbed starts for one attempt at a trial, and what it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from k8sdds.model.packet_kinds import KindCounts
from k8sdds.model.services import ProxyMode
from k8sdds.model.trial import Participant

_LISTEN, _ESTABLISHED = "0A", "01"
"""States of TCP sockets in `/proc/net/tcp`: accepts connections, is connected."""

GRACE_S = 2
"""Time between SIGTERM and SIGKILL for a participant that exceeds its deadline."""


@dataclass(frozen=True)
class Listener:
    """The socket on which a server waits for others."""

    protocol: Literal["tcp", "udp", "icmp"]
    """`icmp`: the kernel answers, without a socket."""
    port: int
    """0 if it is ready as soon as it has started."""
    connects: bool = False
    """Whether the program is a client, which is ready when it has connected to this port."""

    def __str__(self) -> str:
        return f"{self.protocol.upper()} port {self.port}"

    @property
    def tables(self) -> list[str]:
        """The command that prints the kernel's sockets. It fails without IPv6, and prints the other table."""
        return ["cat", f"/proc/net/{self.protocol}", f"/proc/net/{self.protocol}6"]

    def is_ready(self, printed: str) -> bool:
        """Return whether the printed tables have the socket of the server or of the connected client, or need none."""
        if self.protocol == "icmp" or not self.port:
            return True
        address, state = (2, _ESTABLISHED) if self.connects else (1, _LISTEN)
        rows = (line.split() for line in printed.splitlines())
        return any(
            fields[address].endswith(f":{self.port:04X}") and (self.protocol == "udp" or fields[3] == state)
            for fields in rows
            if len(fields) > 3
        )


@dataclass(frozen=True)
class Window:
    """The time in which the supervisor reads the meters of a program that does not mark its measured interval."""

    after_s: float
    """From the start of the participants that are not servers."""
    length_s: float


@dataclass(frozen=True)
class Inputs:
    """Files that the participants of a trial read; None for each that the trial does not have."""

    qos: Path | None = None
    """The QoS profile."""
    config: Path | None = None
    """The user's configuration file of the middleware."""
    schedule: Path | None = None
    """The recorded schedule of the samples."""
    graph: Path | None = None
    """The flows and nodes of a graph."""

    def placed(self, place: Callable[[str, Path], Path]) -> Inputs:
        """Return the same files at other places, each of which follows from the name of the field and the file."""
        return Inputs(**{name: place(name, file) for name, file in vars(self).items() if file})

    def copied_to(self, places: Inputs) -> dict[str, Path]:
        """Return each file by its place as text."""
        return {str(getattr(places, name)): file for name, file in vars(self).items() if file}


@dataclass(frozen=True)
class ParticipantPaths:
    """Paths as a participant sees them inside its pod."""

    program: str
    """The perftest program."""
    files: Path
    """The folder of its output files."""
    inputs: Inputs = Inputs()
    """The files that it reads."""


@dataclass(frozen=True)
class Launch:
    """One participant to start: its command line, its environment and the folder of its files."""

    participant: Participant
    argv: tuple[str, ...]
    directory: Path
    env: dict[str, str] = field(default_factory=dict)
    private: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Files that only this participant may read, such as its key, by name. The testbed writes them to the
    participant's private folder."""
    listens: Listener | None = None
    """For a service: its socket. A service starts before the others, which wait for this socket, and is stopped
    after the last of them."""
    window: Window | None = None
    """When the meters are read; None if the program marks its measured interval."""
    realtime_priority: int = 0
    """Priority for `SCHED_FIFO`; 0 means the normal scheduler."""
    lock_memory: bool = False
    """Whether it may lock its memory."""
    inputs: dict[str, Path] = field(default_factory=dict)
    """Other files that it reads: path in the pod to path on this machine, which are the same in the lab."""
    restarted: tuple[str, ...] = ()
    """Further arguments of a process that takes the place of this one in an outage."""

    @property
    def supervisor_options(self) -> list[str]:
        """The supervisor's options for how the kernel runs it."""
        options = ["--realtime-priority", str(self.realtime_priority)] if self.realtime_priority else []
        options += ["--lock-memory"] if self.lock_memory else []
        if self.window:
            options += ["--window", f"{self.window.after_s:g}:{self.window.length_s:g}", "--no-phase"]
        return options + (["--service"] if self.listens else [])

    def supervisor_arguments(self, folder: Path | str, deadline_s: float) -> list[str]:
        """Return the supervisor's arguments for a run with its files in `folder`. They must be the last ones."""
        environment = [word for key, value in self.env.items() for word in ("--env", f"{key}={value}")]
        return [
            "--dir", str(folder), "--deadline", f"{deadline_s:.3f}", "--grace", str(GRACE_S),
            *self.supervisor_options, *environment, "--", *self.argv,
        ]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a participant ended. Its files are in the folder of its launch."""

    participant: Participant
    exit_code: int
    meters: dict[str, Any] | None
    """Content of the supervisor's meters.json; None if the file is missing or incomplete."""
    message: str = ""
    """The supervisor's error message, if the supervisor itself failed."""
    interface: str = "eth0"
    """The interface that carried its samples."""
    lost: str = ""
    """Why the outcome is unknown, such as a deleted pod; empty if its files are complete."""


@dataclass(frozen=True)
class ClockState:
    """How far a node's CLOCK_REALTIME can be wrong."""

    program: str = ""
    """The program that synchronizes it: `chrony` or `ptp4l`; empty if none is known."""
    error_us: float | None = None
    """Upper bound of its error; None if unknown."""
    reference: str = ""
    """The clock that the bound refers to: true time, or the identity of the grandmaster."""
    reason: str = ""
    """Why the bound is unknown; empty if it is known."""


@dataclass(frozen=True)
class ClockError:
    """How far the clocks of a publisher's and a subscriber's machine can differ."""

    bound_us: float | None
    """The largest possible difference before and after the attempt, over all pairs; None if unknown."""
    source: str
    """The programs that gave the bound, such as `chrony`; if it is unknown, why."""


@dataclass(frozen=True)
class OutsideCpu:
    """CPU time on a machine outside of the participants' pods during an attempt, in percent of one core."""

    network: float = 0.0
    """Of the network's daemons and agents."""
    others: float = 0.0
    """Of all programs that do not belong to the campaign."""
    kernel_threads: float | None = None
    """Of the kernel's threads, such as those that encrypt for WireGuard, without softirqs; None if it is unknown."""
    separate_interrupts: bool | None = None
    """Whether the kernel leaves the time of interrupts out of that of processes; None if it is unknown."""
    services: float = 0.0
    """Of the pods of the discovery service, if it does not run like a participant."""
    links: float = 0.0
    """Of `k8sdds-link`, which does what links do without CPU time: no cost of the configuration."""


@dataclass(frozen=True)
class Measurement:
    """What a testbed measured during one attempt."""

    outcomes: dict[str, Outcome]
    """By participant."""
    sent_bytes: int | None
    """Bytes that the publishers' nodes sent on their links."""
    received_bytes: dict[str, int]
    """Bytes received on the link of each participant's node."""
    decrypted_bytes: dict[str, int] | None = None
    """Bytes decrypted on each participant's node; None if the network does not encrypt."""
    carried_bytes: dict[str, int] | None = None
    """Bytes received on the network's own links on each subscriber's node; None if not observed."""
    uplink_bytes: int | None = None
    """Bytes that the node of all participants exchanged with others; None if not read, or they are on several nodes."""
    member_bytes: dict[str, list[int]] | None = None
    """Bytes that each member of the link of a publisher's node sent; None if the links are not bonded."""
    links: Mapping[str, Any] | None = None
    """What each direction of the emulated links did (`link_statistics.summary`); None if nothing impairs them, or only
    rules of the kernel that count nothing."""
    stops: Mapping[str, list[tuple[int, int]]] | None = None
    """Begin and end of each time in which the CPU limit of a participant's pod stopped it, by CLOCK_MONOTONIC in µs;
    None if this was not recorded."""
    outside: Mapping[str, OutsideCpu] = field(default_factory=dict)
    """What else each machine with participants spent, without machines whose processes could not be read; and what the
    discovery service spent on nodes without participants."""
    ip_fragments: tuple[int, ...] = ()
    """Distinct numbers of IP fragments per sample on the publisher's link, if the link was captured."""
    kinds: Mapping[str, KindCounts] | None = None
    """Packets that left each pod while participants ran, by kind and by the first participant in the pod; None if they
    were not counted."""
    includes_scheduling: bool = False
    """Whether participants shared cores, so that waiting for each other is part of the result."""
    start_skew_s: float | None = None
    """From the first participant's start to the last one's, by their machines' clocks; None if unknown."""
    api_calls: int | None = None
    """Requests to the cluster's API server since the previous trial, or since the block was prepared."""
    elsewhere: frozenset[str] = frozenset()
    """Participants on another machine than pub0; the meters of pub0's machine do not cover them."""
    nodes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The node of each participant, and the machine of this node."""
    cpu_mhz: float | None = None
    """Mean core frequency right after the attempt, if the kernel reports it."""
    conntrack_entries: int | None = None
    """Entries that the connection tracking of the publisher's node gained; None if not read, or it tracks nothing."""
    service_connections: int | None = None
    """Connections that the rule of the measured Service translated on the publisher's node; None if not counted."""
    service_tracked: int | None = None
    """Tracked connections to the measured Service on this node that the server answers; None if not read."""
    proxy_mode: ProxyMode | None = None
    """Mode of kube-proxy, which translates the addresses of Services; None if unknown, or there are no Services."""
    service_unobserved: str = ""
    """Why it is unknown what was translated; empty if it is known, or there are no Services."""
    clock_error: ClockError | None = None
    """For one-way delays between machines; None if they are not measured, or all participants share one clock."""
    warnings: tuple[str, ...] = ()
