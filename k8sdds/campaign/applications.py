"""Load applications, and turn one into the configurations that a campaign measures.

A configuration is one value for each choice: network, middleware, transport and so on, the same for all flows. It has
one cell for each flow. Configurations share a cell if a choice has no effect on its flow: only flows with several
subscribers are sent by multicast, and only samples that do not fit in the usual message have larger ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from k8sdds.analysis import race
from k8sdds.campaign import contradictions, experiments, trial_length
from k8sdds.campaign.cells import cell_of
from k8sdds.model.application import CHOICES, Application, ApplicationExperiment, Flow, Search
from k8sdds.model.background import MAX_FLOWS, Background
from k8sdds.model.experiment import Experiment
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.security import NONE, SecurityChoice
from k8sdds.model.settings import NetworkChoice, TestChoice
from k8sdds.model.sweep import LISTS, Sweep
from k8sdds.model.trial import AXES, Cell
from k8sdds.networks import find, label_without_engine, suggested
from k8sdds.security import levels
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles

APPLICATIONS = ShippedFiles(("experiments/applications",), "application", "k8sdds list applications")
EXPERIMENTS_AND_APPLICATIONS = ShippedFiles(
    (*experiments.EXPERIMENTS.folders, *APPLICATIONS.folders), "experiment or application", "k8sdds list"
)

MIN_BACKGROUND_MBIT = 0.1
"""Rate of all other flows below which they are left out: iperf3 would send too few datagrams to be checked."""


@dataclass(frozen=True)
class Candidate:
    """A configuration, and its cell for each flow."""

    choices: tuple[tuple[str, Any], ...]
    """Each choice with its value, in the order of `axes`; the network is its label."""
    cells: tuple[Cell, ...]
    """In the order of the application's flows."""

    @property
    def cell_ids(self) -> tuple[str, ...]:
        """The ids of its cells, which identify it."""
        return tuple(cell.cell_id for cell in self.cells)


@dataclass(frozen=True)
class Candidates:
    """The configurations of an application on a testbed."""

    application: Application
    measurable: tuple[Candidate, ...]
    """Each once, those with usual values first."""
    excluded: tuple[tuple[dict[str, Any], str], ...]
    """Combinations that no testbed can measure, each with the reason."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all configurations, each once."""
        return tuple(
            {cell.cell_id: cell for candidate in self.measurable for cell in candidate.cells}.values()
        )

    @property
    def designs(self) -> list[list[str]]:
        """The values of all choices, for each configuration."""
        return [[str(value) for _, value in candidate.choices] for candidate in self.measurable]

    @property
    def varied(self) -> tuple[str, ...]:
        """The choices with more than one value."""
        values: dict[str, set[str]] = {}
        for candidate in self.measurable:
            for name, value in candidate.choices:
                values.setdefault(name, set()).add(str(value))
        return tuple(name for name, distinct in values.items() if len(distinct) > 1)


def load(name: str) -> Application:
    """Return an installed application by its name, or one from a YAML file by its path.

    Raises:
        InputError: There is no such application or it is not valid; names file, line and key.
    """
    # An experiment is found too, so that the message can name the command for it.
    path, text = (
        EXPERIMENTS_AND_APPLICATIONS if name in experiments.EXPERIMENTS.names() else APPLICATIONS
    ).read(name)
    if yaml_text.has_key(text, "sweeps"):
        raise InputError(f"{name} is an experiment, not an application", f"measure it: k8sdds run {name}")
    return yaml_text.parse(text, Application, str(path), experiments.KNOWN)


def changed(
    application: Application,
    networks: Sequence[str] = (),
    settings: Sequence[str] = (),
    repetitions: int | None = None,
    duration_s: float | None = None,
) -> Application:
    """Return the application with the changes of the command line.

    Args:
        application: The application; it is not modified.
        networks: Names of the networks to choose from; empty: those of the application.
        settings: `KEY=VALUE` with VALUE in YAML; a dotted key such as `choices.middleware` changes a part.
        repetitions: Number of repetitions; None: unchanged.
        duration_s: Length of the measured interval; None: unchanged.

    Raises:
        InputError: A change is not valid.
    """
    data = application.model_dump(mode="json", exclude_none=True)
    for setting in settings:
        experiments.put_setting({key: [data] for key in Application.model_fields}, setting, Application.page)
    if networks:
        data["choices"]["networks"] = list(networks)
    if repetitions is not None:
        data["repetitions"] = repetitions
    if duration_s is not None:
        data["duration_s"] = duration_s
    try:
        return Application.model_validate(data, context=experiments.KNOWN)
    except ValidationError as error:
        found = yaml_text.mistakes(error, data, Application)
        lines = [
            f"{' '.join(settings) or application.name}: {mistake.key}: {mistake.message}" for mistake in found
        ]
        raise InputError("\n".join(dict.fromkeys(lines)), f"see: k8sdds docs {Application.page}") from error


def load_experiment(
    name: str,
    networks: Sequence[str] = (),
    settings: Sequence[str] = (),
    repetitions: int | None = None,
    duration_s: float | None = None,
    **of_experiments: Any,
) -> Experiment:
    """Return an experiment, or the one that measures all configurations of an application, by name or path.

    The arguments are those of `changed`, then those that only `experiments.changed` has. Raises InputError.
    """
    if not yaml_text.has_key(EXPERIMENTS_AND_APPLICATIONS.read(name)[1], "flows"):
        loaded = experiments.load(name)
        return experiments.changed(loaded, networks, settings, repetitions, duration_s, **of_experiments)
    if any(of_experiments.values()):
        raise InputError(
            f"{name} is an application",
            "leave out what experiments have: --paper, --profile, --precision, --max-time",
        )
    return experiment(changed(load(name), networks, settings, repetitions, duration_s))


def experiment(application: Application, search: Search | None = None) -> ApplicationExperiment:
    """Return the experiment that measures an application; its sweeps have one flow each.

    Raises:
        InputError: There are too many configurations or trials, or a trial would be too long.
    """
    networks = application.choices.networks or [
        NetworkChoice(name=name) for name in default_networks(application)
    ]
    choices = application.choices
    several = any(flow.subscribers > 1 for flow in application.flows)
    large = any(flow.payload_bytes > USUAL_MESSAGE_BYTES for flow in application.flows)
    usual = {
        "networks": networks,
        "transport": ["unicast", "multicast"] if several else ["unicast"],
        "message_bytes": ["auto", "max"] if large else ["auto"],
    }
    sweeps = [
        Sweep.model_validate(
            {key: getattr(choices, key) or usual.get(key) for key in CHOICES}
            | {
                "test": _test(flow),
                "payload_bytes": flow.payload_bytes,
                "rate": flow.rate,
                "publishers": flow.publishers,
                "subscribers": flow.subscribers,
                "reliability": ["reliable", "best-effort"] if flow.reliability == "any" else flow.reliability,
                "security": [SecurityChoice(level=name) for name in _levels(application)],
            }
        )
        for flow in application.flows
    ]
    try:
        return ApplicationExperiment(
            name=application.name,
            title=application.title,
            description=application.description,
            baseline=networks[0].display_name,
            repetitions=application.repetitions,
            duration_s=application.duration_s or trial_length.default_s(application),
            warmup_s=application.warmup_s,
            layout=application.layout,
            link=application.link,
            sweeps=sweeps,
            application=application,
            search=search,
        )
    except ValidationError as error:
        reasons = [f"{each['loc'][0]}: {each['msg']}" for each in error.errors()]
        raise InputError(
            f"{application.name}: {'; '.join(dict.fromkeys(reasons))}", f"see: k8sdds docs {Application.page}"
        ) from error


def default_networks(application: Application) -> tuple[str, ...]:
    """Return the networks that an application may have if it names none."""
    return (*suggested(), *(suggested(encrypted=True) if application.security == "encrypted" else ()))


SEARCHED_SHARE = 0.2
"""Trials of a search relative to those of all configurations."""
MIN_SEARCH_TRIALS = 12
MAX_SEARCH_TRIALS = 1000
"""Limits of this number, unless the user sets one. With more trials, a round would take minutes to plan."""


def search(application: Application, max_trials: int | None = None) -> ApplicationExperiment:
    """Return the experiment that searches among the configurations of an application.

    Args:
        application: The application.
        max_trials: Most trials; None: a fifth of those that measure all configurations.

    Raises:
        InputError: There are fewer trials than two configurations have.
    """
    least = 2 * len(application.flows)
    if max_trials is not None and max_trials < least:
        raise InputError(
            f"{max_trials} trials do not suffice to compare two configurations of {application.name}",
            f"a configuration has a trial for each flow: give at least --max-trials {least}",
        )
    whole = experiment(application)
    trials = len(candidates(whole).cells) * application.repetitions
    usual = min(trials, max(MIN_SEARCH_TRIALS, least, math.floor(SEARCHED_SHARE * trials)), MAX_SEARCH_TRIALS)
    return experiment(application, Search(max_trials=max(1, max_trials or usual)))


def candidates(experiment: ApplicationExperiment) -> Candidates:
    """Return the configurations of an experiment's application, with the networks of its sweeps."""
    application = experiment.application
    found: dict[tuple[str, ...], Candidate] = {}
    excluded: dict[str, tuple[dict[str, Any], str]] = {}
    for values in _combinations(experiment):
        cells = tuple(
            _cell(experiment, flow, sweep, values)
            for flow, sweep in zip(application.flows, experiment.sweeps, strict=True)
        )
        shown = {name: _shown(value) for name, value in values.items()}
        if why := _contradiction(application, cells):
            excluded.setdefault(why, (shown, why))
            continue
        candidate = Candidate(tuple(shown.items()), cells)
        found.setdefault(candidate.cell_ids, candidate)
    return Candidates(application, tuple(found.values()), tuple(excluded.values()))


def cells(experiment: ApplicationExperiment) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    """Return the cells of all configurations, each once, and those of the first round of a search.

    Raises:
        InputError: None of the choices can be measured.
    """
    known = candidates(experiment)
    if not known.measurable:
        reasons = "; ".join(why for _, why in known.excluded)
        raise InputError(
            f"{experiment.name}: none of the choices can be measured: {reasons}",
            f"see: k8sdds docs {Application.page}",
        )
    if experiment.search is None:
        return known.cells, ()
    target = race.round_target(0, experiment.search.max_trials)
    # Of the configurations that fill the round, some may share cells.
    order = race.fill(
        itertools.islice(race.first_round(known.designs), 2 * target),
        lambda index: known.measurable[index].cell_ids,
        target,
    )
    first = {cell.cell_id: cell for index in order for cell in known.measurable[index].cells}
    return known.cells, tuple(first.values())


def without(experiment: ApplicationExperiment, axis: str, names: Sequence[str]) -> ApplicationExperiment:
    """Return the experiment without these values of a choice (key of a sweep), as `Candidate` shows them."""
    sweeps = [
        sweep.model_copy(
            update={axis: [value for value in getattr(sweep, axis) if str(_shown(value)) not in names]}
        )
        for sweep in experiment.sweeps
    ]
    return experiment.with_sweeps(sweeps)


def allowed(application: Application) -> dict[str, set[str]]:
    """Return the values that may be chosen, as text by key of a sweep; without networks if none are named."""
    sweep = experiment(application).sweeps[0]
    return {
        axis: {str(_shown(value)) for value in getattr(sweep, axis)}
        for axis in CHOSEN
        if axis != "reliability" and (axis != "networks" or application.choices.networks)
    }


def changed_in(experiment: ApplicationExperiment, application: Application) -> ApplicationExperiment:
    """Return the experiment with a changed application that sends the same, without what it may not choose."""
    known = allowed(application)
    sweeps = [
        sweep.model_copy(
            update={
                axis: [
                    value
                    for value in getattr(sweep, axis)
                    if label_without_engine(str(_shown(value))) in texts
                ]
                for axis, texts in known.items()
            }
        )
        for sweep in experiment.sweeps
    ]
    return experiment.model_copy(update={"application": application, "sweeps": sweeps})


def is_encrypted_once(application: Application, network: str, security: str) -> bool:
    """Return whether a network and a level of DDS Security encrypt samples once, if they must be encrypted."""
    if application.security != "encrypted" or application.choices.security:
        return True
    return (security == NONE) == bool(find(network).encryption)


def _test(flow: Flow) -> TestChoice:
    return TestChoice.model_validate(
        {"name": "paced"} | ({"deadline_ms": flow.deadline_ms} if flow.deadline_ms else {})
    )


def _levels(application: Application) -> list[str]:
    """Return the levels of DDS Security that an application may have."""
    if application.choices.security:
        return application.choices.security
    if application.security == "none":
        return [NONE]
    known = {name: levels.load(name) for name in levels.names()}
    wanted = "encrypts" if application.security == "encrypted" else "signs"
    secure = [name for name, protection in known.items() if protection and getattr(protection, wanted)]
    # Networks that encrypt need no DDS Security for samples that only have to be unreadable.
    return [NONE, *secure] if application.security == "encrypted" else secure


CHOSEN = tuple(axis.key for axis in AXES.values() if axis.key in (*CHOICES, "reliability"))
"""Keys of a sweep that are choices, the most important first; the reliability only of flows that accept any."""
SHOWN = {"networks": "network"}
"""Names of choices that are not the keys of a sweep."""


def _combinations(experiment: ApplicationExperiment) -> list[dict[str, Any]]:
    """Return all combinations of the choices, by key of a sweep."""
    combinations: list[dict[str, Any]] = [{}]
    for axis in CHOSEN:
        values: list[Any] = []
        for sweep in experiment.sweeps:
            values += [value for value in getattr(sweep, axis) if value not in values]
        if axis == "reliability" and all(flow.reliability != "any" for flow in experiment.application.flows):
            values = values[:1]
        combinations = [combination | {axis: value} for combination in combinations for value in values]
    return combinations


def _cell(experiment: ApplicationExperiment, flow: Flow, sweep: Sweep, values: Mapping[str, Any]) -> Cell:
    """Return the cell of a flow in a configuration."""
    settings = {name: getattr(sweep, name)[0] for name in LISTS} | effective(flow, values)
    settings["background"] = background(experiment.application, flow, str(values["transport"]))
    settings["link"] = next(experiment.link.each())
    return cell_of(experiment, sweep, settings)


def effective(flow: Flow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices as they apply to a flow, by key of a sweep: those without effect have their usual value."""
    own = dict(values)
    if flow.reliability != "any":
        own["reliability"] = flow.reliability
    if flow.subscribers == 1 and own["transport"] == "multicast":
        own["transport"] = "unicast"
    if own["batch_bytes"] < 2 * flow.payload_bytes:
        own["batch_bytes"] = 0
    if own["message_bytes"] == "max" and flow.payload_bytes <= USUAL_MESSAGE_BYTES:
        own["message_bytes"] = "auto"
    return own


def background(application: Application, flow: Flow, transport: str) -> Background:
    """Return the other flows as the background of one flow: UDP streams with the same payload rate."""
    others = [other for other in application.flows if other is not flow] if application.together else []

    def copies(other: Flow) -> int:
        return 1 if transport == "multicast" else other.subscribers

    mbit = sum(other.payload_mbit * copies(other) for other in others)
    streams = min(sum(other.publishers * copies(other) for other in others), MAX_FLOWS)
    if mbit < MIN_BACKGROUND_MBIT:
        return Background()
    return Background(flows=streams, kind="udp", rate_mbit=float(f"{mbit / streams:.6g}"))


def _contradiction(application: Application, cells: Sequence[Cell]) -> str:
    """Return why a configuration cannot be measured or does not protect its samples; empty if it can."""
    for cell in cells:
        if not is_encrypted_once(application, cell.network, cell.security):
            return f"samples are encrypted once: by {cell.network} or by DDS Security, not by both or by none of them"
        for what, _ in contradictions.of_cell(cell):
            return what.removeprefix(f"{cell.describe()}: ")
    return ""


def _shown(value: Any) -> Any:
    match value:
        case NetworkChoice():
            return value.display_name
        case SecurityChoice():
            return value.name
        case _:
            return value
