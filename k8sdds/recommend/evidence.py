"""Find the trials in run folders that are evidence about the configurations of an application."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from k8sdds import links
from k8sdds.analysis import missing
from k8sdds.analysis.conditions import CONDITION, named_setting
from k8sdds.analysis.requirements import BLOCK, trials_of
from k8sdds.campaign import applications, expansion, experiments
from k8sdds.campaign.applications import CHOSEN, SHOWN
from k8sdds.model.application import Application, ApplicationExperiment, Flow
from k8sdds.model.reason import DISTURBED, Reason
from k8sdds.model.trial import AXES
from k8sdds.networks import label_without_engine
from k8sdds.results import tidy
from k8sdds.results.machine import has_old_switch, machine_identity
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import EXPERIMENT, RunFolder, without_copies
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import Row
from k8sdds.system.numbers import count

COLUMNS = {"networks": "network_label"}
"""Columns of the tidy table that are not named like the choice."""
OTHER_FLOWS = "other flows"
"""The background next to which an application's flow is to be measured."""
MACHINE = "machine"
"""Column with the identity of the machine or cluster that measured a trial."""
SWITCH = "switch"
"""Column that states whether its nodes were connected as by earlier versions of k8sdds."""
TOTAL, CPU_TIME = "total_cpu_percent", "CPU time"
"""Column that states whether its CPU time is defined as by earlier versions of k8sdds."""
ENVIRONMENT = tuple(
    name
    for name in (*CONDITION, MACHINE, SWITCH, CPU_TIME)
    if name not in (*Flow.model_fields, *CHOSEN, "test", "background")
)
"""Columns that neither a choice nor a flow sets. Trials that differ in them are never compared. The background
differs by flow: each is measured next to the others."""
EARLIER = "of an earlier version"
DEFINITIONS = {"network_label": "network_options", "security": "security_options"}
"""Columns with labels, and those with what a label stands for, which can differ between run folders."""
MAX_COMBINATIONS = 20_000

_Value = TypeVar("_Value")
_Entry = tuple[Flow, tuple[str, ...], Row]
"""A trial of a flow with the values of its choices as text, in the order of `CHOSEN`."""


@dataclass(frozen=True)
class Option:
    """A configuration of an application with what was measured of it."""

    choices: Mapping[str, Any]
    """Value by choice; the network by its label."""
    trials: Mapping[str, Sequence[Row]]
    """Valid trials by flow and by chain."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why a flow does not work: the last invalid attempt if none is valid, or that no sample arrived."""
    rejected: Mapping[str, Row] = field(default_factory=dict)
    """The last attempt of a trial without a valid one, by flow with such trials."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies it."""
        return tuple(self.choices.values())

    @property
    def repetitions(self) -> int:
        """The number of blocks in which every flow was measured."""
        return min((len({row[BLOCK] for row in rows}) for rows in self.trials.values()), default=0)

    def describe(self, varied: Sequence[str] = ()) -> str:
        """Describe the configuration, or only the given choices."""
        phrases = [
            # Only what differs is named also where it is not set.
            describe_choice(name, value) if name in varied or name == "network" else AXES[name].phrase(value)
            for name, value in self.choices.items()
            if not varied or name in varied
        ]
        return ", ".join(phrase for phrase in phrases if phrase)


@dataclass(frozen=True)
class Evidence:
    """What run folders show about an application."""

    application: Application
    options: tuple[Option, ...]
    """Measured at least in part."""
    unmeasured: tuple[Mapping[str, Any], ...] = ()
    """Configurations that were candidates, of which nothing was measured."""
    excluded: tuple[tuple[Mapping[str, Any], str], ...] = ()
    notes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    trials: int = 0
    """Number of valid trials that were used."""
    rounds: int = 1
    """How often the search looked at the results; 1: the trials were planned beforehand."""
    command: tuple[str, ...] = ()
    """Command line that measured it; empty if several run folders did."""
    family_error: float = 0.05
    """Largest probability that the best of the measured configurations is called worse than the recommended one, and
    that the recommended one is stated to meet all requirements and is beyond a limit."""

    @property
    def disturbed(self) -> int:
        """Number of trials during which something else used the machines."""
        rows = {
            (row["cell_id"], row[BLOCK]): row["warnings"] or ()
            for option in self.options
            for own in option.trials.values()
            for row in own
        }
        return sum(
            any(Reason.read(text).code == DISTURBED for text in warnings) for warnings in rows.values()
        )

    @property
    def competing(self) -> int:
        """Number of configurations of which every flow was measured: only these can meet all requirements."""
        return sum(
            all(rows or flow in option.failed for flow, rows in option.trials.items())
            for option in self.options
        )

    @property
    def varied(self) -> tuple[str, ...]:
        """The choices with more than one measured value."""
        values: dict[str, set[str]] = defaultdict(set)
        for option in self.options:
            for name, value in option.choices.items():
                values[name].add(str(value))
        return tuple(name for name, distinct in values.items() if len(distinct) > 1)


def describe_choice(name: str, value: Any) -> str:
    """Describe one value of a choice, such as `multicast` or `batches of 8 KiB`."""
    return str(value) if name == "network" else named_setting(name, value)


def own_application(run: RunFolder) -> ApplicationExperiment | None:
    """Return the experiment of a run folder; None if it measured no application."""
    try:
        experiment = experiments.load(str(run.path / EXPERIMENT))
    except InputError:
        return None
    return experiment if isinstance(experiment, ApplicationExperiment) else None


def of_own_run(run: RunFolder, experiment: ApplicationExperiment) -> Evidence:
    """Return the evidence of a run folder that measured the application."""
    rows = tidy.rows(run)
    invalid = {row["cell_id"]: row for row in tidy.without_valid(rows)}
    found = of_trials(experiment, tidy.best(rows), invalid, str(run.path))
    return replace(found, command=tuple(map(str, run.campaign.get("command") or ())))


def of_trials(
    experiment: ApplicationExperiment, best: Sequence[Row], invalid: Mapping[str, Row], source: str
) -> Evidence:
    """Return the evidence of the valid trials of a campaign that measured an application.

    `invalid` has the last attempt of a trial without a valid one, by cell_id; `source` is where the trials are from.
    """
    by_cell: dict[str, list[Row]] = defaultdict(list)
    for row in best:
        by_cell[row["cell_id"]].append(row | {BLOCK: row["repetition"]})
    known = expansion.candidates(experiment)
    application = experiment.application
    options, unmeasured = [], []
    for candidate in known.measurable:
        choices = _renamed(dict(candidate.choices))
        trials = trials_of(application, candidate.cell_ids, by_cell)
        parts = candidate.cell_ids * len(trials) if application.at_once else candidate.cell_ids
        cells = dict(zip(trials, parts, strict=True))
        rejected = {flow: invalid[cell] for flow, cell in cells.items() if cell in invalid}
        # Flows can share cells with other configurations, so a configuration counts only if all of its flows do.
        if all(rows or flow in rejected for flow, rows in trials.items()):
            options.append(Option(choices, trials, _failed(trials, rejected), rejected))
        else:
            unmeasured.append(choices)
    search = experiment.search
    return Evidence(
        experiment.application,
        tuple(options),
        tuple(unmeasured),
        (
            *((_renamed(choices), why) for choices, why in known.excluded),
            *(({each.choice: each.value}, each.describe()) for each in experiment.left_out),
        ),
        folders=(source,),
        trials=len(best),
        # A single configuration is measured a fixed number of times, whatever the results.
        rounds=max(1, len({row["repetition"] for row in best}))
        if search and len(known.measurable) > 1
        else 1,
        family_error=search.family_error if search else 0.05,
    )


def of_folders(application: Application, folders: Sequence[str]) -> Evidence:
    """Return the evidence of run folders about an application."""
    if application.at_once:
        raise InputError(
            f"the trials of {application.name} have all of its flows, so only a run folder of it shows something of it",
            "give one run folder that measured the same nodes and flows, or measure it: k8sdds recommend"
            f" {application.name}",
        )
    rows: list[_Entry] = []
    for index, run in enumerate(without_copies(map(RunFolder.open, folders))):
        machine = {
            MACHINE: machine_identity(run) or f"unknown machine of {run.path}",
            SWITCH: EARLIER if has_old_switch(run) else "",
            CPU_TIME: EARLIER if int(run.campaign.get("schema") or 1) < METRICS[TOTAL].since else "",
        }
        attempts = tidy.rows(run)
        for row in (*tidy.best(attempts), *tidy.without_valid(attempts)):
            rows += [
                (
                    flow,
                    tuple(str(row[COLUMNS.get(axis, axis)]) for axis in CHOSEN),
                    row | {BLOCK: f"{index}:{row['repetition']}"} | machine,
                )
                for flow in application.flows
                if _is_of(flow, row)
            ]
    if not rows:
        wanted = "; ".join(f"{flow.name}: {flow.describe()}" for flow in application.flows)
        raise InputError(
            f"no trial in {', '.join(folders)} is one of {application.name} ({wanted})",
            f"measure it: k8sdds run {application.name}",
        )
    notes: list[str] = []
    rows = _allowed(application, rows, notes)
    rows = _of_one_definition(rows, notes)
    rows = _of_one_environment(rows, notes)
    rows = _of_one_background(application, rows, notes)
    options = _options(application, rows)
    valid = sum(row["valid"] for _, _, row in rows)
    return Evidence(application, tuple(options), (), (), tuple(notes), tuple(folders), valid)


def _allowed(application: Application, rows: Sequence[_Entry], notes: list[str]) -> list[_Entry]:
    """Return the trials of configurations that an application may choose, over its link; note if there are others."""
    known = {"networks": set(applications.default_networks(application))} | applications.allowed(application)
    kept: list[_Entry] = []
    refused: set[str] = set()
    for entry in rows:
        if why := _refusals(application, known, entry):
            refused |= why
        else:
            kept.append(entry)
    others = ", ".join(sorted(refused))
    if not kept:
        link = application.link.link
        over = f" --link {link.name}" if link.name in links.LINKS.names() else ""
        raise InputError(
            f"{application.name} does not allow any measured configuration: {others}",
            f"measure those that it allows: k8sdds recommend {application.name}{over}; or allow others in `choices`,"
            f" see: k8sdds docs {Application.page}",
        )
    if left_out := len(rows) - len(kept):
        notes.append(f"{count(left_out, 'trial')} left out: the application does not allow their {others}")
    return kept


def _refusals(application: Application, known: Mapping[str, set[str]], entry: _Entry) -> set[str]:
    """Return the settings of a trial that an application does not allow."""
    _, values, row = entry
    why = {
        SHOWN.get(axis, axis)
        for axis, text in zip(CHOSEN, values, strict=True)
        if axis in known and label_without_engine(text) not in known[axis]
    }
    if not (why or applications.is_encrypted_once(application, str(row["network"]), str(row["security"]))):
        why = {"encryption"}
    wanted = application.link.link
    if not links.allows(wanted, AXES["link"].parsed(row["link"])):
        why |= {f"links (required: {wanted.describe().removeprefix('links ')})"}
    return why


def _options(application: Application, rows: Sequence[_Entry]) -> list[Option]:
    index: dict[tuple[str, tuple[str, ...]], list[Row]] = defaultdict(list)
    invalid: dict[tuple[str, tuple[str, ...]], Row] = {}
    seen: dict[str, dict[str, Any]] = {axis: {} for axis in CHOSEN}
    for flow, values, row in rows:
        if row["valid"]:
            index[flow.name, values].append(row)
        else:
            invalid[flow.name, values] = row
        for axis, text in zip(CHOSEN, values, strict=True):
            seen[axis].setdefault(text, row[COLUMNS.get(axis, axis)])
    if math.prod(map(len, seen.values())) > MAX_COMBINATIONS:
        raise InputError("the run folders vary too many settings", "give fewer run folders")
    options: dict[tuple[Any, ...], Option] = {}
    for combination in itertools.product(*(seen[axis].values() for axis in CHOSEN)):
        chosen = dict(zip(CHOSEN, combination, strict=True))
        keys = {
            flow.name: tuple(str(value) for value in expansion.effective(flow, chosen).values())
            for flow in application.flows
        }
        trials = {name: index.get((name, key), []) for name, key in keys.items()}
        rejected = {name: invalid[name, key] for name, key in keys.items() if (name, key) in invalid}
        if any(trials.values()) or rejected:
            option = Option(_renamed(chosen), trials, _failed(trials, rejected), rejected)
            options.setdefault(tuple(keys.values()), option)
    return list(options.values())


def _failed(trials: Mapping[str, Sequence[Row]], rejected: Mapping[str, Row]) -> dict[str, str]:
    """Return why a flow does not work: none of its trials is valid, or no sample arrived in some of them."""
    silent = {flow: why for flow, rows in trials.items() if (why := missing.without_samples(rows))}
    return {flow: str(row["reason"] or "") for flow, row in rejected.items() if not trials[flow]} | silent


def _renamed(choices: Mapping[str, Any]) -> dict[str, Any]:
    return {SHOWN.get(name, name): value for name, value in choices.items()}


def _is_of(flow: Flow, row: Row) -> bool:
    counts = all(
        row.get(name) == getattr(flow, name)
        for name in ("payload_bytes", "rate", "publishers", "subscribers")
    )
    same_file = (row.get("schedule_sha256") or "") == flow.schedule_sha256
    deadline = flow.missed_percent is None or row.get("deadline_ms") == flow.deadline_ms
    sent = row["test"] == "paced" and counts and same_file
    return sent and deadline and flow.reliability in ("any", row["reliability"])


def _of_one_definition(rows: Sequence[_Entry], notes: list[str]) -> list[_Entry]:
    """Return the trials with the most frequent definition of each label, and note each label with others."""
    kept = list(rows)
    for label, options in DEFINITIONS.items():
        found: dict[str, list[tuple[str, Row]]] = defaultdict(list)
        for _, _, row in kept:
            found[str(row[label])].append((row.get(options) or "{}", row))
        usual = {name: _usual(own) for name, own in found.items()}
        kept = [entry for entry in kept if (entry[2].get(options) or "{}") == usual[str(entry[2][label])]]
        notes += [
            f"{count(left_out, 'trial')} of {name} left out: most others have {options} {usual[name]}"
            for name, own in found.items()
            if (left_out := sum(value != usual[name] for value, _ in own))
        ]
    return kept


def _usual(found: Sequence[tuple[_Value, Row]]) -> _Value:
    """Return the most frequent value of the valid trials, or of the others if none is valid."""
    valid = [value for value, row in found if row["valid"]]
    return Counter(valid or [value for value, _ in found]).most_common(1)[0][0]


def _of_one_environment(rows: Sequence[_Entry], notes: list[str]) -> list[_Entry]:
    """Return the trials of the most frequent environment, and note if there are others."""
    environments = [_environment(row) for _, _, row in rows]
    usual = _usual([(own, row) for own, (_, _, row) in zip(environments, rows, strict=True)])
    for other, n in Counter(own for own in environments if own != usual).most_common():
        differing = [
            f"{name} ({theirs or 'usual'}, not {ours or 'usual'})"
            for name, theirs, ours in zip(ENVIRONMENT, other, usual, strict=True)
            if theirs != ours
        ]
        notes.append(f"{count(n, 'trial')} left out, with other {', '.join(differing)}")
    return [entry for entry, environment in zip(rows, environments, strict=True) if environment == usual]


def _environment(row: Row) -> tuple[str, ...]:
    """Return the values of ENVIRONMENT, without those that follow from other settings."""
    usual = {
        name
        for name in ENVIRONMENT
        if name in AXES and AXES[name].usual is not None and AXES[name].is_usual(row)
    }
    return tuple("" if name in usual else str(row.get(name)) for name in ENVIRONMENT)


def _of_one_background(application: Application, rows: Sequence[_Entry], notes: list[str]) -> list[_Entry]:
    """Return the trials of each flow next to one background: the other flows if there are any."""
    kept: list[_Entry] = []
    for flow in application.flows:
        backgrounds: dict[str, list[_Entry]] = defaultdict(list)
        for entry in rows:
            if entry[0] is flow:
                backgrounds[_background(application, flow, entry[2])].append(entry)
        if not backgrounds:
            continue
        # That nothing is valid next to the other flows is a result, too.
        usual = _usual([(text, row) for text, own in backgrounds.items() for _, _, row in own])
        found = OTHER_FLOWS if OTHER_FLOWS in backgrounds else usual
        kept += backgrounds[found]
        if found != OTHER_FLOWS:
            what = "nothing" if found == "none" else "another background"
            notes.append(f"{flow.name} was measured next to {what}, not next to the other flows")
        if left_out := sum(map(len, backgrounds.values())) - len(backgrounds[found]):
            notes.append(
                f"{left_out} trials of {flow.name} are left out: they ran next to another background"
            )
    return kept


def _background(application: Application, flow: Flow, row: Row) -> str:
    """Return what ran next to a trial of a flow: OTHER_FLOWS, or a text that differs for other backgrounds."""
    wanted = expansion.background(application, flow, str(row["transport"]))
    text = row.get("background") or "none"
    found = {} if text == "none" else json.loads(text)
    return OTHER_FLOWS if found == (wanted.model_dump(mode="json") if wanted else {}) else text
