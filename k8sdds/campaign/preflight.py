"""Preflight checks: find what prevents an experiment before anything starts, and estimate its duration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from k8sdds import middleware, workloads
from k8sdds.campaign import background
from k8sdds.campaign.contradictions import Contradiction, of_cell
from k8sdds.campaign.expansion import Expansion
from k8sdds.model import schedule_file
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.options import MEMBERS, SUBSCRIBERS, search_options
from k8sdds.model.settings import MAX_PARTICIPANTS
from k8sdds.model.trial import Cell, Trial
from k8sdds.perftest import command
from k8sdds.results import histograms
from k8sdds.system.errors import InputError, PrerequisiteError, Problem
from k8sdds.system.grouping import grouped
from k8sdds.system.numbers import count, format_duration
from k8sdds.testbeds import Testbed, core_layout
from k8sdds.testbeds.selection import LAB

OVERHEAD_S = 0.3
"""Expected time of a trial with few participants in addition to warm-up and measurement, for estimates."""
START_CPU_S, MATCH_CPU_S = 0.05, 0.001
"""CPU time that a participant needs at least to start, and to find each other one: 81 of Cyclone DDS needed 13 s."""

MAX_RATE_DIFFERENCE = 0.05
"""Largest difference between the rates of a recorded schedule and of a trial that needs no note, as a share."""
SEARCH_TRIALS, FLEET_TRIALS = (15, 35), (4, 20)
"""Trials that a search for a capacity usually needs, with its measurements of the delay; those of one for a fleet."""
_ONLY_DIFFERENCE = {
    SUBSCRIBERS: "two searches with max_subscribers differ only in `nodes`, which grow with the subscribers",
    MEMBERS: "two searches differ only in `members`, which only sets the size of the first probe",
}
"""How searches differ whose other probes would be the same, by what is searched."""


def check(expansion: Expansion, testbed: Testbed) -> list[Problem]:
    """Return the contradictions in the experiment; without any, its missing prerequisites and then rejected files."""
    trials = every_trial(expansion, testbed.name)
    return contradictions(expansion) or missing(trials, testbed) or _refused_files(expansion)


def missing(trials: Sequence[Trial], testbed: Testbed) -> list[Problem]:
    """Return the prerequisites of trials that the testbed does not have."""
    return [
        *_program_problems(trials, testbed.name),
        *_too_many(trials),
        *background.problems(trials),
        *testbed.check(trials),
    ]


def every_trial(expansion: Expansion, testbed: str) -> list[Trial]:
    """Return the trials that are planned, and those that searches may add, of capacity searches only the largest."""
    trials = expansion.trials(testbed) + (expansion.repetition(0, testbed) if expansion.first else [])
    largest = [(trial, workloads.find(trial.cell.test).largest_cell(trial.cell)) for trial in trials]
    return trials + [trial.model_copy(update={"cell": cell}) for trial, cell in largest if cell != trial.cell]


def refuse(problems: Sequence[Problem]) -> None:
    """Raise all problems as one error: InputError if one of them is wrong input, else PrerequisiteError."""
    if problems:
        kind = InputError if any(problem.input for problem in problems) else PrerequisiteError
        raise kind("\n".join(str(problem) for problem in problems))


def contradictions(expansion: Expansion) -> list[Problem]:
    """Return the requests of the experiment that no machine can fulfill."""
    problems: dict[str, Problem] = {}

    def add(what: str, remedy: str = "") -> None:
        problems.setdefault(what, Problem(what, remedy, input=True))

    labels: dict[str, tuple[str, str]] = {}
    protections: dict[str, str] = {}
    for what, remedy in _of_cells(expansion):
        add(what, remedy)
    for cell in expansion.cells:
        options = str(cell.security_options)
        if protections.setdefault(cell.security, options) != options:
            add(f"two different protections are labeled {cell.security!r}", "give each a label of its own")
        network = (cell.network, str(cell.network_options))
        if labels.setdefault(cell.network_label, network) != network:
            add(f"two different networks are labeled {cell.network_label!r}", "give each a label of its own")
    for searched, difference in _ONLY_DIFFERENCE.items():
        searches = [cell for cell in expansion.searches if search_options(cell).searched == searched]
        if len({_searched_alike(cell) for cell in searches}) < len(searches):
            add(difference, "search them in two experiments")
    if expansion.experiment.baseline not in labels:
        known = ", ".join(labels)
        add(
            f"the baseline {expansion.experiment.baseline!r} is not among the networks",
            f"add it, or set baseline to one of: {known}",
        )
    elif expansion.experiment.precision_percent is not None:
        if len(labels) == 1:
            add(
                "precision_percent: there is no overhead, because the only network is the baseline",
                "add a network, or leave precision_percent out",
            )
        if expansion.searches:
            add(
                "precision_percent: a capacity test has a precision of its own",
                "leave it out, and set width_percent of the test",
            )
    return list(problems.values())


def _of_cells(expansion: Expansion) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with cells, each reason once for all cells of a sweep, with a remedy."""
    alike: dict[tuple[str, str, str], dict[str, None]] = {}
    for cell in expansion.cells:
        where = expansion.where.get(cell.cell_id, "")
        for found in (*of_cell(cell), *_wrong_lengths(cell, expansion.experiment.duration_s)):
            alike.setdefault((where, found.reason, found.remedy), {})[where + found.what] = None
    for (_, _, remedy), texts in alike.items():
        first, *further = texts
        yield first + (f" (and {count(len(further), 'further cell')})" if further else ""), remedy


def _searched_alike(cell: Cell) -> str:
    """Return the same text for the cells of searches that would share probes."""
    largest = workloads.find(cell.test).largest_cell(cell)
    # The number of nodes also grows with that of subscribers, so it does not tell two searches apart.
    nodes = cell.nodes if largest.subscribers == cell.subscribers else None
    return largest.model_copy(update={"nodes": nodes}).cell_id


def _wrong_lengths(cell: Cell, duration_s: float) -> Iterator[Contradiction]:
    """Yield why trials of this length are too short or too long for a cell."""
    for least_s, subject, why in _needed_s(cell):
        if least_s > duration_s:
            remedy = f"set duration_s (or --duration) to at least {math.ceil(least_s)}"
            yield Contradiction(why, remedy, subject)
    most_s = workloads.find(cell.test).most_s(cell)
    if most_s < duration_s:
        yield Contradiction(
            f"subscribers log what arrives for at most {most_s:g} s",
            f"set duration_s (or --duration) to at most {math.floor(most_s)}",
            cell.describe(),
        )


def _needed_s(cell: Cell) -> Iterator[tuple[float, str, str]]:
    """Yield lengths that the measured interval of a cell must have, each with the subject and the reason."""
    if cell.link.outages:
        first_s = min(outage.span()[1] for outage in cell.link.outages)
        yield (
            first_s,
            cell.link.describe(),
            f"the first outage ends after {first_s:g} s, later than the measured interval",
        )
    least_s = workloads.find(cell.test).least_s(cell)
    options = ", ".join(workloads.find(cell.test).timed_by)
    yield least_s, cell.describe(), f"these options of the test need {least_s:g} s together: {options}"


def _program_problems(trials: Sequence[Trial], testbed: str) -> list[Problem]:
    """Return why the programs of the trials or their discovery services cannot run."""
    by_name = grouped(trials, lambda trial: middleware.program_of(trial.cell).name)
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
        elif implementation and service and not service.path:
            what = f"{service.title}: the program {service.program} is not installed"
            problems.append(Problem(what, f"run: {implementation.setup}"))
    return problems


def start_s(participants: int, cores: int) -> float:
    """Return how long so many participants at least need to start and to find each other on these cores, in seconds."""
    return (START_CPU_S * participants + MATCH_CPU_S * participants**2) / cores


def _too_many(trials: Sequence[Trial]) -> list[Problem]:
    """Return the trials in the lab whose participants cannot find each other in time, even if it takes half as long."""
    limit_s, cores = 2 * command.DISCOVERY_TIMEOUT_S, len(core_layout.available())
    fitting = next(n for n in range(2 * MAX_PARTICIPANTS, 0, -1) if n == 1 or start_s(n, cores) <= limit_s)
    found = {}
    for cell in (trial.cell for trial in trials if trial.testbed == LAB):
        members = len(cell.participants)
        # A search for the number of subscribers ends at what fits.
        if members > fitting and middleware.of(cell) and not workloads.find(cell.test).finds_capacity:
            what = (
                f"{members} participants do not fit on {cores} cores: to find each other, they need at least"
                f" {format_duration(start_s(members, cores))}, but wait only {command.DISCOVERY_TIMEOUT_S} s"
            )
            remedy = f"set at most about {fitting} publishers and subscribers together, or: --testbed cluster"
            found[members] = Problem(what, remedy, input=True)
    return list(found.values())


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


def notes(expansion: Expansion, cores: int | None = None) -> list[str]:
    """Return how long searches take, and the tests that are too short, each with a remedy.

    For `cores`, see `trial_s`.
    """
    duration_s, needed = expansion.experiment.duration_s, histograms.needed("p99")
    notes = _searches(expansion, cores) + _cut_schedules(expansion)
    if isinstance(expansion.experiment, ApplicationExperiment):
        # `trial_length.undecidable` finds the requirements that need longer trials.
        return notes
    for cell in expansion.cells:
        per_s = workloads.find(cell.test).timed_per_s(cell)
        if per_s and per_s * duration_s < needed:
            notes.append(
                f"{cell.test} at {cell.rate:g}/s times {per_s * duration_s:.0f} values per trial at a participant; the"
                f" 99th percentile needs at least {needed}: set duration_s to {math.ceil(needed / per_s)} or more"
            )
    return list(dict.fromkeys(notes))


def _cut_schedules(expansion: Expansion) -> list[str]:
    """Return a note for each recorded schedule of whose periods trials measure parts with another rate."""
    duration_s = expansion.experiment.duration_s
    schedules = {
        cell.schedule: schedule_file.read(cell.schedule)[1] for cell in expansion.cells if cell.schedule
    }
    return [
        f"trials of {duration_s:g} s send {found:.3g} samples per second of {Path(file).name}, which has"
        f" {schedule.rate:.3g} in its period: set duration_s to a multiple of {schedule.period_us / 1e6:g}"
        for file, schedule in schedules.items()
        if abs((found := schedule.rate_of(duration_s)) / schedule.rate - 1) > MAX_RATE_DIFFERENCE
    ]


def _searches(expansion: Expansion, cores: int | None) -> list[str]:
    notes = []
    for usual, cells in grouped(expansion.searches, _usual_trials).items():
        searches, minutes = (
            len(cells),
            [number * len(cells) * trial_s(expansion, cores) / 60 for number in usual],
        )
        notes.append(
            f"searching a capacity adds trials while it runs, usually {usual[0]} to {usual[1]} for each of {searches}"
            f" {'search' if searches == 1 else 'searches'}: {math.floor(minutes[0])} to {math.ceil(minutes[1])} min"
        )
    return notes


def _usual_trials(cell: Cell) -> tuple[int, int]:
    return FLEET_TRIALS if workloads.find(cell.test).starts_fleets else SEARCH_TRIALS


def estimate_s(expansion: Expansion, cores: int | None = None) -> float:
    """Return the expected duration of the whole campaign in seconds; of a search, the longest.

    For `cores`, see `trial_s`.
    """
    if expansion.search:
        return expansion.search.max_trials * trial_s(expansion, cores)
    added = sum(fmean(_usual_trials(cell)) for cell in expansion.searches)
    return (len(expansion.trials("")) + added) * trial_s(expansion, cores)


def trial_s(expansion: Expansion, cores: int | None = None) -> float:
    """Return the expected duration of a trial in seconds, as the mean over the cells.

    `cores` is the number of cores of the testbed; None means this machine's. 0 leaves out the time that participants
    need to find each other.
    """
    experiment = expansion.experiment
    used = len(core_layout.available()) if cores is None else cores
    found_s = (start_s(len(cell.participants), used) if used else 0.0 for cell in expansion.cells)
    return experiment.warmup_s + experiment.duration_s + fmean(max(OVERHEAD_S, each) for each in found_s)
