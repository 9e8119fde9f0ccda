"""Preflight checks: find what prevents an experiment before anything starts, and estimate its duration."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Sequence

from k8sdds import middleware, workloads
from k8sdds.campaign import background
from k8sdds.campaign.expansion import Expansion
from k8sdds.discovery import SERVER
from k8sdds.model import ip_families
from k8sdds.model.experiment import MAX_WRITERS, MIN_SAMPLE_BYTES, SAME_NODE
from k8sdds.model.link import Link
from k8sdds.model.rate_profile import CONSTANT
from k8sdds.model.security import NONE, Protection
from k8sdds.model.trial import Cell, Trial
from k8sdds.networks import NETWORKS, find
from k8sdds.results import histograms
from k8sdds.security import levels
from k8sdds.system.errors import InputError, PrerequisiteError, Problem
from k8sdds.testbeds import Testbed

OVERHEAD_S = 0.3
"""Expected time of a trial in addition to warm-up and measurement, for estimates."""


def check(expansion: Expansion, testbed: Testbed) -> list[Problem]:
    """Return what prevents the experiment: contradictions; if none, missing prerequisites; then rejected files."""
    trials = expansion.trials(testbed.name)
    return (
        contradictions(expansion)
        or [*_program_problems(trials, testbed.name), *background.problems(trials), *testbed.check(trials)]
        or _refused_files(expansion)
    )


def refuse(problems: Sequence[Problem]) -> None:
    """Raise all problems as one error: InputError if one of them is wrong input, else PrerequisiteError."""
    if problems:
        kind = InputError if any(problem.input for problem in problems) else PrerequisiteError
        raise kind("\n".join(str(problem) for problem in problems))


def contradictions(expansion: Expansion) -> list[Problem]:
    """Return what the experiment requests although no machine can do it."""
    problems: dict[str, Problem] = {}

    def add(what: str, remedy: str = "") -> None:
        problems.setdefault(what, Problem(what, remedy, input=True))

    labels: dict[str, tuple[str, str]] = {}
    protections: dict[str, str] = {}
    for cell in expansion.cells:
        where = expansion.where.get(cell.cell_id, "")
        for what, remedy in (*_network_problems(cell), *_cell_problems(cell)):
            add(where + what, remedy)
        options = str(cell.security_options)
        if protections.setdefault(cell.security, options) != options:
            add(f"two different protections are labeled {cell.security!r}", "give each a label of its own")
        network = (cell.network, str(cell.network_options))
        if labels.setdefault(cell.network_label, network) != network:
            add(f"two different networks are labeled {cell.network_label!r}", "give each a label of its own")
    if expansion.experiment.baseline not in labels:
        known = ", ".join(labels)
        add(
            f"the baseline {expansion.experiment.baseline!r} is not among the networks",
            f"add it, or set baseline to one of: {known}",
        )
    return list(problems.values())


def _network_problems(cell: Cell) -> list[tuple[str, str]]:
    """Return what the cell's network cannot do, each with a remedy."""
    network = find(cell.network)
    problems = []
    invalid = network.options_error(cell.datapath_options)
    if invalid:
        problems.append(invalid)
    if network.ipv4_only and "ipv6" in cell.ip_families:
        carrying = ", ".join(other.name for other in NETWORKS.values() if not other.ipv4_only)
        problems.append(
            (
                f"{network.name} carries only IPv4: {network.ipv4_only}",
                f"set ip_families to [ipv4], or use only networks with IPv6 ({carrying})",
            )
        )
    if cell.policies and not network.policy:
        enforcing = ", ".join(other.name for other in NETWORKS.values() if other.policy)
        problems.append(
            (
                f"{network.name} does not enforce NetworkPolicies",
                f"set policies only in sweeps of networks that do ({enforcing})",
            )
        )
    mtu = network.mtu(cell.datapath_options)
    implementation = middleware.of(cell)
    unfit = implementation.unsupported_mtu(cell, mtu) if implementation else None
    if unfit:
        what, remedy = unfit
        problems.append((f"{cell.describe()}: {what}", remedy))
    multicast = ", ".join(network.name for network in NETWORKS.values() if network.multicast)
    if cell.transport == "multicast" and not network.multicast:
        problems.append(
            (
                f"{network.name} carries no multicast between nodes",
                f"use multicast only on networks that carry it ({multicast}), or use unicast",
            )
        )
    if cell.discovery == "multicast" and not network.multicast:
        problems.append(
            (
                f"{network.name} carries no multicast between nodes, so multicast discovery cannot work",
                f"discover by multicast only on networks that carry it ({multicast}), or by peers",
            )
        )
    return problems


def _cell_problems(cell: Cell) -> list[tuple[str, str]]:
    """Return why workload and middleware cannot run the cell, each with a remedy."""
    implementation = middleware.of(cell)
    problems = []
    reason = unsupported(cell)
    if reason:
        problems.append((f"{cell.describe()}: {reason}", ""))
    if implementation is None:
        return problems
    try:
        if not reason and implementation.takes_qos(cell):
            middleware.qos_file(cell)
        protection = protection_of(cell)
        refused = implementation.unsupported_protection(protection) if protection else None
        if refused:
            what, remedy = refused
            problems.append((f"{cell.describe()}: {what}", remedy))
    except InputError as error:
        problems.append((error.message, error.remedy))
    return problems


def unsupported(cell: Cell) -> str | None:
    """Return why the cell cannot be run on any network, or None."""
    if cell.placement == SAME_NODE and (cell.link != Link() or cell.capture):
        return "placement same-node uses no link between nodes: leave out link and capture"
    if cell.placement == SAME_NODE and cell.policies:
        return "policies are proven by what they deny between nodes, but placement same-node uses one"
    workload = workloads.find(cell.test)
    implementation = middleware.of(cell)
    if implementation is None:
        return workload.unsupported(cell)
    if cell.payload_bytes < MIN_SAMPLE_BYTES:
        return f"a sample of a {cell.test} test has at least {MIN_SAMPLE_BYTES} bytes"
    reason = (
        workload.unsupported(cell)
        or implementation.unsupported(cell)
        or _unsupported_without_network(cell, implementation)
    )
    if reason:
        return reason
    if cell.rate_profile != CONSTANT and not workload.load(cell).on_schedule:
        return f"only a paced test follows a rate profile: set `test: paced`, or rate_profile to {CONSTANT}"
    if cell.topics * cell.writers > MAX_WRITERS:
        return f"a publisher has at most {MAX_WRITERS} writers, not {cell.topics} × {cell.writers}"
    if cell.topics > 1 and cell.security != NONE:
        return "the permissions of k8sdds name one topic: topics must be 1 with DDS Security"
    if cell.discovery == SERVER:
        if implementation.service is None:
            return f"{cell.middleware} has no discovery server: discovery must be multicast or peers"
        if cell.ip_family != "ipv4":
            return "discovery servers listen on IPv4: discovery must be multicast or peers"
        if cell.security != NONE:
            return "the discovery server has no credentials, so security must be none"
    if cell.cpu_quota and cell.realtime_priority:
        return "cpu_quota limits the normal scheduler only: leave it out, or set realtime_priority to 0"
    if cell.batch_bytes and cell.batch_bytes < 2 * cell.payload_bytes:
        return f"batch_bytes {cell.batch_bytes} holds less than two samples of {cell.payload_bytes} bytes"
    message, fragment = cell.message_bytes, cell.fragment_bytes
    if isinstance(message, int) and isinstance(fragment, int) and fragment > message:
        return f"fragment_bytes {fragment} does not fit in message_bytes {message}"
    return None


def _unsupported_without_network(cell: Cell, implementation: middleware.Middleware) -> str | None:
    """Return which setting contradicts `transport: shared-memory`, or None."""
    if cell.uses_network:
        return None
    if not implementation.shared_memory:
        return f"{cell.middleware} sends by UDP only: transport must be unicast or multicast"
    # With a single network, no comparison of networks can include these trials.
    if cell.network != "host" or cell.label or cell.network_options:
        return "transport shared-memory uses no network: networks must be host, without options"
    if cell.link != Link() or cell.capture:
        return "transport shared-memory uses no link: leave out link and capture"
    if cell.ip_families != ip_families.DEFAULT:
        return "transport shared-memory sends no packets: leave out ip_families"
    if cell.dscp:
        return "transport shared-memory sends no packets: leave out dscp"
    if cell.placement != "spread":
        return "transport shared-memory places all participants on one node: leave out placement"
    return None


def _program_problems(trials: Sequence[Trial], testbed: str) -> list[Problem]:
    """Return what prevents the programs of the trials and their discovery services."""
    by_name: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_name[middleware.program_of(trial.cell).name].append(trial)
    problems: list[Problem] = []
    for name, own in sorted(by_name.items()):
        problems += middleware.program_of(own[0].cell).problems(own, testbed)
        implementation = middleware.of(own[0].cell)
        runs_service = testbed == "lab" and any(trial.cell.services for trial in own)
        service = implementation.service if implementation and runs_service else None
        if service and service.program is None:
            what = f"the lab has no discovery service for {name}: {service.title} runs on clusters"
            remedy = "discovery must be multicast or peers, or: --testbed cluster"
            problems.append(Problem(what, remedy, input=True))
        elif service and service.program and not shutil.which(service.program):
            what = f"{service.title}: the program {service.program} is not installed"
            problems.append(Problem(what, "run: k8sdds setup"))
    return problems


def _refused_files(expansion: Expansion) -> list[Problem]:
    """Return the files that a middleware rejects: QoS profiles and configurations, once for each kind of trial."""
    checks = {}
    for cell in expansion.cells:
        implementation = middleware.of(cell)
        if implementation and (cell.middleware_config or implementation.takes_qos(cell)):
            files = (cell.qos_profile, cell.middleware_config)
            kind = (cell.middleware, cell.test, cell.reliability, cell.batch_bytes, cell.instances)
            checks[(*files, *kind, cell.publish_mode)] = cell
    reasons = {middleware.find(cell.middleware).refused_files(cell): cell for cell in checks.values()}
    return [Problem(f"{cell.describe()}: {why}", input=True) for why, cell in reasons.items() if why]


def notes(expansion: Expansion) -> list[str]:
    """Return the tests that are too short for a 99th percentile, each with a remedy."""
    duration_s, needed = expansion.experiment.duration_s, histograms.needed("p99")
    notes = []
    for cell in expansion.cells:
        per_s = workloads.find(cell.test).timed_per_s(cell)
        if per_s and per_s * duration_s < needed:
            notes.append(
                f"{cell.test} at {cell.rate:g}/s times {per_s * duration_s:.0f} values per trial; the 99th percentile"
                f" needs {needed}: set duration_s to {math.ceil(needed / per_s)}"
            )
    return list(dict.fromkeys(notes))


def estimate_s(expansion: Expansion) -> float:
    """Return the expected duration of the whole campaign in seconds."""
    experiment = expansion.experiment
    trial_s = experiment.warmup_s + experiment.duration_s + OVERHEAD_S
    return len(expansion.trials("")) * trial_s


def protection_of(cell: Cell) -> Protection | None:
    """Return the DDS Security of a cell, or None. Raises InputError for an unknown level."""
    return levels.resolve(cell.security, cell.security_options)
