"""What stands against an experiment before anything starts, and how long it will take."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from k8sdds.middleware.connext import command as connext
from k8sdds.middleware.connext import settings as connext_settings
from k8sdds.model.security import Protection
from k8sdds.model.trial import Cell, Expansion
from k8sdds.networks import NETWORKS, find
from k8sdds.perftest import command
from k8sdds.security import levels
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError, Problem
from k8sdds.testbeds import Testbed

NO_CLOUD = (
    "the lab has no discovery service for connext: RTI Cloud Discovery Service runs on clusters",
    "discovery must be multicast or peers, or: --testbed cluster",
)
OVERHEAD_S = 0.3
"""Expected time of a trial beside warm-up and measurement, for estimates."""


def check(expansion: Expansion, testbed: Testbed) -> list[Problem]:
    """All that stands against the experiment: its own contradictions, then what the testbed lacks."""
    return (
        contradictions(expansion)
        or [*_missing_programs(expansion, testbed.name), *testbed.check(expansion.trials(testbed.name))]
        or _refused_qos(expansion)
    )


def refuse(problems: Sequence[Problem]) -> None:
    """Raise all problems as one error, wrong input before lacks."""
    if problems:
        kind = InputError if any(problem.input for problem in problems) else PrerequisiteError
        raise kind("\n".join(str(problem) for problem in problems))


def contradictions(expansion: Expansion) -> list[Problem]:
    """What the experiment asks for that cannot be, whatever the machine."""
    problems: dict[str, Problem] = {}

    def add(what: str, remedy: str = "") -> None:
        problems.setdefault(what, Problem(what, remedy, input=True))

    labels: dict[str, tuple[str, str]] = {}
    secured: dict[str, str] = {}
    for cell in expansion.cells:
        where = expansion.where.get(cell.cell_id, "")
        network = find(cell.network)
        unfit = network.options_error(cell.network_options)
        if unfit:
            add(where + unfit, "give a smaller mtu")
        if cell.transport == "multicast" and not network.multicast:
            add(
                f"{where}{network.name} carries no multicast between nodes",
                f"ask for multicast only where it is carried ({_carriers()}), or use unicast",
            )
        if cell.discovery == "multicast" and not network.multicast:
            add(
                f"{where}{network.name} carries no multicast between nodes, so nobody is found by it",
                f"discover by multicast only where it is carried ({_carriers()}), or by peers",
            )
        impossible = command.impossible(cell)
        if impossible:
            add(f"{where}{cell.describe()}: {impossible}")
        try:
            if not impossible and command.takes_qos(cell):
                command.qos_file(cell)
            protection = protection_of(cell)
            if protection and protection.aes_bits == 128 and cell.middleware == "cyclonedds":
                add(
                    f"{where}{cell.describe()}: Cyclone DDS 0.10 always uses AES-256",
                    "leave aes_bits out, or take another middleware",
                )
        except InputError as error:
            add(where + error.message, error.remedy)
        if secured.setdefault(cell.security, str(cell.security_options)) != str(cell.security_options):
            add(f"two different protections are labelled {cell.security!r}", "give each a label of its own")
        same = (cell.network, str(cell.network_options))
        if labels.setdefault(cell.network_label, same) != same:
            add(f"two different networks are labelled {cell.network_label!r}", "give each a label of its own")
    if expansion.experiment.baseline not in labels:
        known = ", ".join(labels)
        add(
            f"the baseline {expansion.experiment.baseline!r} is not among the networks",
            f"add it, or set baseline to one of: {known}",
        )
    return list(problems.values())


def _carriers() -> str:
    return ", ".join(network.name for network in NETWORKS.values() if network.multicast)


def _missing_programs(expansion: Expansion, testbed: str) -> list[Problem]:
    built = command.backends()
    wanted = {cell.middleware for cell in expansion.cells} - set(built)
    problems = [
        Problem(f"middleware {name!r} is not built here (built: {', '.join(built)})", "see: docs/perftest.md")
        for name in sorted(wanted - {"connext"})
    ]
    served = testbed == "lab" and any(cell.services for cell in expansion.cells)
    if served and not shutil.which(command.DISCOVERY_PROGRAM):
        lack = f"the discovery server of Fast DDS, {command.DISCOVERY_PROGRAM}, is not here"
        problems.append(Problem(lack, "sudo apt-get install fastdds-tools"))
    return problems + _connext(expansion, testbed) if "connext" in wanted else problems


def _connext(expansion: Expansion, testbed: str) -> list[Problem]:
    """What keeps the user's RTI PerfTest from these trials; the command lines of each cell are tried."""
    try:
        settings = connext_settings.of(testbed)
        for trial in expansion.trials(testbed):
            if trial.cell.middleware == "connext":
                connext.check(trial, settings)
                if trial.cell.services and testbed == "lab":
                    return [Problem(*NO_CLOUD, input=True)]
    except K8sddsError as error:
        return [Problem(error.message, error.remedy, input=isinstance(error, InputError))]
    return []


def _refused_qos(expansion: Expansion) -> list[Problem]:
    """What perftest says against QoS profiles, each profile and kind of trial asked once."""
    asked = {}
    for cell in expansion.cells:
        if cell.middleware not in ("raw", "connext"):
            asked[(cell.qos_profile, cell.middleware, cell.test, cell.reliability, cell.batch_bytes)] = cell
    said = {command.refused_qos(cell): cell for cell in asked.values()}
    return [Problem(f"{cell.describe()}: {what}", input=True) for what, cell in said.items() if what]


def estimate_s(expansion: Expansion) -> float:
    """Expected duration of the whole campaign in seconds."""
    experiment = expansion.experiment
    one = experiment.warmup_s + experiment.duration_s + OVERHEAD_S
    return len(expansion.cells) * experiment.repetitions * one


def protection_of(cell: Cell) -> Protection | None:
    """The DDS Security of a cell, or None."""
    return levels.resolve(cell.security, cell.security_options)
