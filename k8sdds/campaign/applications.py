"""Load applications, and turn one into an experiment whose sweeps are its flows with the values of all choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from k8sdds import links, middleware
from k8sdds.campaign import experiments, trial_length
from k8sdds.campaign.experiments import UNCHANGED, Changes
from k8sdds.model import schedule_file
from k8sdds.model.application import CHOICES, Application, ApplicationExperiment, Flow
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.security import NONE, SecurityChoice
from k8sdds.model.settings import NetworkChoice
from k8sdds.model.trial import AXES
from k8sdds.networks import find, label_without_engine, suggested
from k8sdds.security import levels
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.strict import explain

APPLICATIONS = ShippedFiles(("experiments/applications",), "application", "k8sdds list applications")
EXPERIMENTS_AND_APPLICATIONS = ShippedFiles(
    (*experiments.EXPERIMENTS.folders, *APPLICATIONS.folders), "experiment or application", "k8sdds list"
)

ANY = "any"
"""Choice of `middleware`: all that applications can use."""


def load(name: str, changes: Changes = UNCHANGED) -> Application:
    """Return an installed application by its name, or one from a YAML file by its path, with changes."""
    application = changed(_read(name), changes)
    return application.model_copy(update={"link": links.resolve(application.link)})


def _read(name: str) -> Application:
    # An experiment is found too, so that the message can name the command for it.
    path, text = (
        EXPERIMENTS_AND_APPLICATIONS if name in experiments.EXPERIMENTS.names() else APPLICATIONS
    ).read(name)
    if "sweeps" in yaml_text.top_keys(text):
        raise InputError(f"{name} is an experiment, not an application", f"measure it: k8sdds run {name}")
    application = yaml_text.parse(text, Application, str(path), experiments.KNOWN)
    placed = application.model_copy(update={"link": links.relative_to(path.parent, application.link)})
    return placed.with_schedules(partial(schedule_file.placed, path.parent)).measured()


def changed(application: Application, changes: Changes) -> Application:
    """Return the application with changes, of which `networks` replaces its own."""
    # What follows from nodes can change with them.
    derived = {"rate", "publishers", "subscribers"} if application.nodes else set()
    data = application.model_dump(mode="json", exclude_none=True)
    for flow in data["flows"]:
        for key in derived if flow["after"] else derived - {"rate"}:
            del flow[key]
    targets = {key: [data] for key in Application.model_fields}
    options = {
        experiments.put_setting(targets, each, Application.page): f"--set {each}" for each in changes.settings
    }
    if changes.networks:
        data["choices"]["networks"] = list(changes.networks)
        options["choices.networks"] = " ".join(f"--network {name}" for name in changes.networks)
    for key, value, option in (
        ("repetitions", changes.repetitions, "--repeat {:g}"),
        ("duration_s", changes.duration_s, "--duration {:g}"),
    ):
        if value is not None:
            data[key], options[key] = value, option.format(value)
    return experiments.validated(Application, data, options).measured()


def load_experiment(name: str, changes: Changes = UNCHANGED) -> Experiment:
    """Return an experiment, or the one that measures all configurations of an application, by name or path."""
    if "flows" not in yaml_text.top_keys(EXPERIMENTS_AND_APPLICATIONS.read(name)[1]):
        return experiments.load(name, changes)
    if changes.are_for_experiments:
        raise InputError(
            f"{name} is an application",
            "leave out what experiments have: --paper, --profile, --precision, --max-time",
        )
    return experiment(load(name, changes))


def experiment(application: Application) -> ApplicationExperiment:
    """Return the experiment that measures an application; its sweeps have one flow each, or all as a graph."""
    networks = application.choices.networks or [
        NetworkChoice(name=name) for name in default_networks(application)
    ]
    # With nodes, there is one sweep, whose graph follows from the choices.
    sweeps = [_sweep(application, flow, networks) for flow in application.flows[: application.cells]]
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
            link=[application.link],
            sweeps=sweeps,
            application=application,
        )
    except ValidationError as error:
        reasons = [f"{each['loc'][0]}: {explain(each)}" for each in error.errors()]
        raise InputError(
            f"{application.name}: {'; '.join(dict.fromkeys(reasons))}", f"see: k8sdds docs {Application.page}"
        ) from error


def _sweep(application: Application, flow: Flow, networks: Sequence[NetworkChoice]) -> Sweep:
    """Return the sweep of a flow, with all values of the choices."""
    choices = application.choices
    several = any(other.subscribers > 1 for other in application.flows)
    large = any(other.payload_bytes > USUAL_MESSAGE_BYTES for other in application.flows)
    usual = {
        "networks": networks,
        "transport": ["unicast", "multicast"] if several else ["unicast"],
        "message_bytes": ["auto", "max"] if large else ["auto"],
    }
    anything = application.accepts_any if application.at_once else flow.reliability == "any"
    named = choices.middleware
    offered = [name for each in named for name in (middleware.OFFERED if each == ANY else (each,))]
    return Sweep.model_validate(
        {key: getattr(choices, key) or usual.get(key) for key in CHOICES}
        | {"middleware": list(dict.fromkeys(offered))}
        | sent(application, flow)
        | {
            "reliability": ["reliable", "best-effort"] if anything else flow.reliability,
            "security": [SecurityChoice(level=name) for name in _levels(application)],
        }
    )


def sent(application: Application, flow: Flow) -> dict[str, Any]:
    """Return the keys of a sweep that measures a flow, or all as a graph, with any choices."""
    if not application.at_once:
        return flow.sent
    placement, nodes = application.placement
    return {"test": "graph", "graph": application.graph().text(), "placement": placement, "nodes": nodes}


def default_networks(application: Application) -> tuple[str, ...]:
    """Return the networks that an application may have if it names none."""
    return (*suggested(), *(suggested(encrypted=True) if application.security == "encrypted" else ()))


def without(experiment: ApplicationExperiment, axis: str, names: Sequence[str]) -> ApplicationExperiment:
    """Return the experiment without these values of a choice (key of a sweep), as `Candidate` shows them."""
    sweeps = [
        _keeping(sweep, lambda key, text: key != axis or text not in names) for sweep in experiment.sweeps
    ]
    return experiment.with_sweeps(sweeps)


def _keeping(sweep: Sweep, is_kept: Callable[[str, str], bool]) -> Sweep:
    """Return a sweep with some values of its choices, selected by the key and by the text that `Candidate` shows."""
    return sweep.model_copy(
        update={
            key: [value for value in getattr(sweep, key) if is_kept(key, str(shown(value)))] for key in CHOSEN
        }
    )


def allowed(application: Application) -> dict[str, set[str]]:
    """Return the values that may be chosen, as text by key of a sweep; without networks if none are named."""
    sweep = experiment(application).sweeps[0]
    return {
        axis: {str(shown(value)) for value in getattr(sweep, axis)}
        for axis in CHOSEN
        if axis != "reliability" and (axis != "networks" or application.choices.networks)
    }


def changed_in(experiment: ApplicationExperiment, application: Application) -> ApplicationExperiment:
    """Return the experiment with a changed application that sends the same, without what it may not choose."""
    known = allowed(application)
    sweeps = [
        _keeping(sweep, lambda key, text: key not in known or label_without_engine(text) in known[key])
        for sweep in experiment.sweeps
    ]
    return experiment.model_copy(update={"application": application, "sweeps": sweeps})


def is_encrypted_once(application: Application, network: str, security: str) -> bool:
    """Return whether a network and a level of DDS Security encrypt samples once, if they must be encrypted."""
    if application.security != "encrypted" or application.choices.security:
        return True
    return (security == NONE) == bool(find(network).encryption)


def _levels(application: Application) -> list[str]:
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


def shown(value: Any) -> Any:
    """Return a value of a choice as people read it: a network or a protection by its label."""
    match value:
        case NetworkChoice():
            return value.display_name
        case SecurityChoice():
            return value.name
        case _:
            return value
