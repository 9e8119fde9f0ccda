"""Load experiments by name or file, and apply the changes of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from k8sdds import links
from k8sdds.model import schedule_file
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.settings import NETWORK_NAMES, TESTS, TestChoice
from k8sdds.networks import known_names
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.strict import Strict
from k8sdds.workloads import WORKLOADS

M = TypeVar("M", bound=Strict)

PAPER_DURATION_S = 120
"""Duration of a test in the study."""

KNOWN = {
    TESTS: {name: workload.options for name, workload in WORKLOADS.items()},
    NETWORK_NAMES: known_names(),
}
"""The validation context of experiments."""

PER_EXPERIMENT = [key for key in Experiment.model_fields if key not in ("name", "sweeps")]
PER_SWEEP = list(Sweep.model_fields)

FIRST = "quickstart"
"""The experiment to run first. The networks that it measures are prerequisites of the lab."""
EXPERIMENTS = ShippedFiles(("experiments",), "experiment", "k8sdds list")


@dataclass(frozen=True)
class Changes:
    """The changes of the command line to an experiment or application."""

    networks: Sequence[str] = ()
    """Labels of networks to keep in addition to the baseline. Empty: all."""
    settings: Sequence[str] = ()
    """`KEY=VALUE` with VALUE in YAML: a key of sweeps changes every sweep, and a dotted key such as `link.rate_mbit` a
    part."""
    repetitions: int | None = None
    duration_s: float | None = None
    paper: bool = False
    """Whether trials are as long as in the study. Like all below, only for experiments."""
    profile: bool = False
    precision_percent: float | None = None
    max_time_min: float | None = None

    @property
    def are_for_experiments(self) -> bool:
        """Whether there are changes that only experiments can have."""
        return any((self.paper, self.profile, self.precision_percent, self.max_time_min))


UNCHANGED = Changes()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of experiment files, for editors."""
    schema = Experiment.model_json_schema()
    test = schema["$defs"][TestChoice.__name__]
    test["properties"]["name"]["enum"] = list(WORKLOADS)
    # A test may be a name or a mapping.
    schema["$defs"][TestChoice.__name__] = {"anyOf": [test["properties"]["name"], test]}
    return schema


def load(name: str, changes: Changes = UNCHANGED) -> Experiment:
    """Return an installed experiment by its name, or an experiment from a YAML file by its path, with changes."""
    return links.resolved(changed(_read(name), changes))


def _read(name: str) -> Experiment:
    path, text = EXPERIMENTS.read(name)
    # The experiment in the run folder of an application holds the application.
    model = ApplicationExperiment if "application" in yaml_text.top_keys(text) else Experiment
    experiment = yaml_text.parse(text, model, str(path), KNOWN)
    lines = yaml_text.lines_of(text, "sweeps")
    sweeps = [
        _relative_to(path.parent, sweep).at(f"{path}:{line}: ")
        for sweep, line in zip(experiment.sweeps, lines, strict=True)
    ]
    placed = experiment.model_copy(update={"sweeps": sweeps})
    placed = placed.with_schedules(partial(schedule_file.placed, path.parent))
    return placed.with_links(partial(links.relative_to, path.parent))


def _relative_to(folder: Path, sweep: Sweep) -> Sweep:
    config = sweep.middleware_config
    # A copy of an installed experiment names an installed file.
    if "/" not in config and not (folder / config).exists():
        folder = next((each for each in map(shared, EXPERIMENTS.folders) if (each / config).exists()), folder)
    return sweep.model_copy(update={"middleware_config": str(folder / config)}) if config else sweep


def changed(experiment: Experiment, changes: Changes) -> Experiment:
    """Return the experiment with changes."""
    data = experiment.model_dump(mode="json", exclude_none=True)
    targets = dict.fromkeys(PER_SWEEP, data["sweeps"])
    for key in PER_EXPERIMENT:
        targets[key] = [data, *(sweep for sweep in data["sweeps"] if key in sweep)]
    options = {}  # by key, such as link.rate_mbit: the option that changed it
    for setting in changes.settings:
        options[put_setting(targets, setting, Experiment.page)] = f"--set {setting}"
    for key, value, option in (
        ("duration_s", PAPER_DURATION_S if changes.paper else None, "--paper"),
        ("profile", changes.profile or None, "--profile"),
        ("repetitions", changes.repetitions, "--repeat {:g}"),
        ("duration_s", changes.duration_s, "--duration {:g}"),
        ("precision_percent", changes.precision_percent, "--precision {:g}%"),
        ("max_time_min", changes.max_time_min, "--max-time {:g}"),
    ):
        if value is not None:
            data[key], options[key] = value, option.format(value)
    result = validated(type(experiment), data, options)
    sweeps = [sweep.at(old.where) for old, sweep in zip(experiment.sweeps, result.sweeps, strict=True)]
    if changes.networks:
        sweeps = _only(sweeps, changes.networks, result.baseline)
    return result.model_copy(update={"sweeps": sweeps})


def validated(model: type[M], data: Mapping[str, Any], options: Mapping[str, str]) -> M:
    """Return the model of changed data.

    `options` has the option that changed each key, such as `link.rate_mbit`. Raises InputError, which names the option
    of each mistake.
    """
    try:
        return model.model_validate(data, context=KNOWN)
    except ValidationError as error:
        lines = []
        for mistake in yaml_text.mistakes(error, data, model):
            option = _options_of(mistake, options)
            lines.append(
                f"{option}: {mistake.message}"
                if option
                else f"{' '.join(options.values())}: {mistake.key}: {mistake.message}"
            )
        raise InputError("\n".join(dict.fromkeys(lines)), f"see: k8sdds docs {model.page}") from error


def _options_of(mistake: yaml_text.Mistake, options: Mapping[str, str]) -> str:
    """Return the options that changed the key of a mistake, or parts of it; empty if there are none."""
    path = ".".join(key for key in mistake.keys if isinstance(key, str))
    exact = [option for key, option in options.items() if f".{key}." in f".{path}."]
    return " ".join(exact or [option for key, option in options.items() if key.split(".")[0] in mistake.keys])


def put_setting(targets: Mapping[str, Sequence[dict[str, Any]]], setting: str, page: str) -> str:
    """Change the mappings that have a key by `KEY=VALUE` with VALUE in YAML, and return the key."""
    key, value = _parsed(setting)
    path = key.split(".")
    if path[0] not in targets:
        hint = yaml_text.nearest(path[0], list(targets))
        remedy = f"see: k8sdds docs {page}"
        if path[0] == "sweeps" and path[-1] in targets:
            hint, remedy = "", f"for all sweeps: --set {path[-1]}=VALUE; for one: edit the file"
        raise InputError(f"--set {key}: there is no such key{hint}", remedy)
    for target in targets[path[0]]:
        _put(target, path, value, key, page)
    return key


def _parsed(setting: str) -> tuple[str, Any]:
    key, sign, text = setting.partition("=")
    if not sign or not key:
        raise InputError(f"--set {setting!r} is not KEY=VALUE", "for example: --set payload_bytes=1024")
    value = yaml_text.plain(yaml_text.load(text, f"--set {key}"))
    if value is None:
        raise InputError(f"--set {key}: the value is missing", f"give one: --set {key}=VALUE")
    return key, value


def _put(target: dict[str, Any], path: list[str], value: Any, key: str, page: str) -> None:
    *above, last = path
    for part in above:
        target = target.setdefault(part, {})
        if isinstance(target, list):
            raise InputError(
                f"--set {key}: {part} is a list, whose items --set cannot change", "edit the file"
            )
        if not isinstance(target, dict):
            raise InputError(f"--set {key}: {part} has no parts", f"see: k8sdds docs {page}")
    target[last] = value


def _only(sweeps: Sequence[Sweep], networks: Sequence[str], baseline: str) -> list[Sweep]:
    """Return the sweeps with any of the networks, reduced to these networks and the baseline."""
    known = sorted({choice.display_name for sweep in sweeps for choice in sweep.networks})
    for name in networks:
        if name not in known:
            hint = yaml_text.nearest(name, known)
            remedy = f"measure it with --set 'networks=[{baseline}, {name}]'"
            raise InputError(
                f"--network {name}: not in this experiment{hint}",
                remedy if name in known_names() else "list them: k8sdds show EXPERIMENT",
            )
    kept = []
    for sweep in sweeps:
        if any(choice.display_name in networks for choice in sweep.networks):
            selected = [choice for choice in sweep.networks if choice.display_name in (*networks, baseline)]
            kept.append(sweep.model_copy(update={"networks": selected}))
    return kept
