"""Write the part of a PerfTest command line that k8sdds-perftest and RTI PerfTest share.

These functions are pure and start no processes. The middleware packages add the options of their own programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.trial import Cell, Participant, Trial

DOMAINS = range(1, 100)
"""The DDS domain ids that k8sdds uses. Their UDP ports (7400 + 250 × domain) are below Linux's ephemeral ports."""

PEER_TIMEOUT_S = 10
DISCOVERY_TIMEOUT_S = 20
LATENCY_COUNT = 1000
"""The `-latencyCount` with which RTI PerfTest measures loaded latency: its default, 10000, yields too few in a
few seconds. k8sdds-perftest decides itself."""


@dataclass(frozen=True)
class Fleet:
    """What each participant of a discovery test starts (`-discoveryTest`)."""

    processes: int
    members: int
    """DDS participants, or sessions of Zenoh, in each process."""
    start_s: float
    """In this time all members start, one after the other."""
    steady_s: float
    """End of the trial in which nothing new is to be found."""
    changed: tuple[int, int] | None
    """The first and the number of the publishers that start late, or are killed and start again."""
    restarts: bool
    change_s: float | None
    """When the change is; None: in the middle of the time before `steady_s`."""
    index_limit: int | None
    gossip: bool = False
    """Whether its members are peers that a router introduces to each other, instead of clients of the router."""
    super_client: bool = False
    """Whether its members get all that a discovery server knows."""
    ahead_s: float = 0
    """How long before the changed publishers start the discovery server is killed. It then starts again. 0: it is not
    killed."""

    def change_at_s(self, duration_s: float) -> float:
        """Return when the change is in a trial of this length."""
        return (duration_s - self.steady_s) / 2 if self.change_s is None else self.change_s

    def changed_at_s(self, duration_s: float) -> float:
        """Return when the members start that start late or again."""
        return self.change_at_s(duration_s) + self.ahead_s

    @property
    def restarts_server(self) -> bool:
        """Whether the discovery server is killed at the change."""
        return self.ahead_s > 0

    def of(self, programs: int) -> int:
        """Return the number of members that some programs have."""
        return programs * self.processes * self.members


@dataclass(frozen=True)
class Load:
    """What a publisher sends, in PerfTest's terms."""

    round_trips: bool = False
    """Send the next sample after the reply to the previous one (`-latencyTest`), instead of a stream."""
    rate: float = 0
    """Offered rate of a stream in samples per second; 0 means as fast as possible."""
    batch_bytes: int = 0
    """Size of a batch in a stream in bytes; 0 means no batching."""
    loaded_latency: bool = False
    """Time some samples of an ordinary stream (`-loadedLatency`). RTI PerfTest always times some."""
    on_schedule: bool = False
    """Time each sample from when it was due by the rate. An addition of k8sdds-perftest (`-pacedTest`)."""
    rate_profile: str = CONSTANT
    """With `on_schedule`: how the samples are distributed over time (`-rateProfile`)."""
    schedule: str = ""
    """With `on_schedule`: file with the time and the size of each sample, instead of the rate (`-schedule`)."""
    deadline_s: float | None = None
    """With `on_schedule`: a sample that arrives later than this after it was due counts as missed. Default: one
    period."""
    outage_s: float = 0
    """How long peers may be unreachable."""
    fleet: Fleet | None = None
    """Send nothing, and start members of a fleet instead."""


def role_option(participant: Participant) -> str:
    """Return the option that makes the program a publisher or a subscriber."""
    return "-pub" if participant.publishes else "-sub"


def transport_options(domain: int, interface: str, transport: str = "UDPv4") -> list[str]:
    """Return the options for the DDS domain and the network interface."""
    return ["-domain", str(domain), "-transport", transport, "-nic", interface]


def key_options(cell: Cell) -> list[str]:
    """Return the options for the key of the topic and its instances, which both roles have."""
    return ["-keyed", "-instances", str(cell.instances)] if cell.instances else []


def topic_options(cell: Cell) -> list[str]:
    """Return the options for several topics and writers, additions of k8sdds-perftest, which both roles have."""
    topics = ["-topics", str(cell.topics)] if cell.topics > 1 else []
    return topics + (["-writers", str(cell.writers)] if cell.writers > 1 else [])


def identity_options(trial: Trial, participant: Participant) -> list[str]:
    """Return the options for the participant's number and the number of participants that it waits for."""
    if participant.publishes:
        return ["-pidMultiPubTest", str(participant.index), "-numSubscribers", str(trial.cell.subscribers)]
    return ["-sidMultiSubTest", str(participant.index), "-numPublishers", str(trial.cell.publishers)]


def fleet_options(trial: Trial, fleet: Fleet) -> list[str]:
    """Return the options of a program that starts members of a fleet, which are additions of k8sdds-perftest."""
    most = fleet.of(max(trial.cell.publishers, trial.cell.subscribers))
    argv = ["-discoveryTest", f"{trial.duration_s:g}", "-steady", f"{fleet.steady_s:g}"]
    argv += ["-processes", str(fleet.processes), "-members", str(fleet.members)]
    argv += ["-startInterval", f"{fleet.start_s / most:.6f}"] if fleet.start_s else []
    if fleet.changed:
        kind, (first, count) = "restart" if fleet.restarts else "late", fleet.changed
        argv += ["-change", f"{kind}:{first}:{count}:{fleet.changed_at_s(trial.duration_s):g}"]
    argv += ["-gossip"] if fleet.gossip else []
    argv += ["-superClient"] if fleet.super_client else []
    return argv + (["-indexLimit", str(fleet.index_limit)] if fleet.index_limit else [])


def deadline_s(trial: Trial) -> float:
    """Return the seconds after which the testbed stops an attempt that is still running.

    This is less than the sum of all timeouts, because an attempt that exhausts every timeout is not valid anyway. An
    outage can last longer than the trial.
    """
    outage_s = trial.cell.link.longest_outage_s
    return DISCOVERY_TIMEOUT_S + trial.warmup_s + trial.duration_s * 1.5 + 2 * PEER_TIMEOUT_S + 5 + outage_s
