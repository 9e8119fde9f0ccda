"""Start a campaign with a new run folder, or resume one from its run folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds import __version__, middleware
from k8sdds.campaign.capacity_search import CapacitySearch
from k8sdds.campaign.contradictions import protection_of
from k8sdds.campaign.expansion import Expansion
from k8sdds.campaign.launches import create_keyring
from k8sdds.campaign.precision import Precision
from k8sdds.campaign.preflight import refuse
from k8sdds.campaign.racing import Racing
from k8sdds.campaign.trial_loop import (
    Campaign,
    Observer,
    Planner,
    network_facts,
    plan_json,
    prepare,
    prepared_facts,
)
from k8sdds.model import link_files, schedule_file
from k8sdds.model.experiment import Experiment
from k8sdds.model.impairments import FromFile, with_files
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.trial import Trial
from k8sdds.perftest import command
from k8sdds.results.run_folder import (
    CAMPAIGN,
    LINK_FILES,
    MIDDLEWARE_CONFIG,
    PLAN,
    QOS,
    SCHEDULES,
    SCHEMA,
    RunFolder,
    copy_of,
    utc_now,
)
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import Block, Session, Testbed

if TYPE_CHECKING:
    from k8sdds.security.credentials import Keyring

COMPARED_FACTS = ("boot_id", "cluster_uid", "kernel", "cpu_model", "perftest")
"""Facts of the testbed whose change since the campaign's start is reported when it is resumed."""
UNFINISHED = "meters.json.*.tmp"
"""What a killed supervisor leaves of the file that it was writing."""


def start(
    expansion: Expansion, testbed: Testbed, folder: Path, name: str, seed: int, observer: Observer
) -> Campaign:
    """Return a new campaign.

    The first block is prepared before the run folder is created, so that a failure leaves no folder.
    """
    trials = expansion.trials(testbed.name)
    blocks = testbed.blocks(trials, seed)
    session = prepare(testbed, blocks[0], observer)
    # A search can add cells with DDS Security, or with other programs, after its first round.
    every = expansion.repetition(0, testbed.name)
    keyring = create_keyring(every) if any(protection_of(trial.cell) for trial in every) else None
    data = _campaign_json(expansion.experiment, testbed, blocks, trials, session, name, seed)
    data |= _program_facts(every, testbed.name)
    data |= _security_facts(every, keyring) if keyring else {}
    run = RunFolder.create(folder, data, *run_folder_files(expansion))
    run.append_event("started")
    repeated = expansion.experiment.repeat_disturbed
    return Campaign(run, testbed, blocks, observer, planner_of(expansion), repeated, keyring=keyring)


def resume(
    run: RunFolder, expansion: Expansion, testbed: Testbed, observer: Observer, retry_failed: bool = False
) -> Campaign:
    """Return the campaign of a run folder, which measures exactly the trials without a valid attempt. Writes nothing.

    With `retry_failed`, also trials that have used up their attempts are measured again.
    """
    run.require_own_files()
    data = run.campaign
    if data["schema"] != SCHEMA:
        raise InputError(
            f"an older k8sdds started {run.path}: its metrics have other definitions (schema {data['schema']}, now"
            f" {SCHEMA})",
            "start a new campaign, or resume this one with the version in its campaign.json",
        )
    try:
        original = data["testbed"]["name"]
        trials, blocks = _planned(run, expansion)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"the plan of {run.path} is incomplete: {error!r}",
            f"restore {CAMPAIGN} and {PLAN} from a copy, or start a new campaign",
        ) from error
    if original != testbed.name:
        raise InputError(
            f"{run.path} was measured on the testbed {original!r}", f"continue it there: --testbed {original}"
        )
    # A search may add each of its cells.
    later = expansion.repetition(0, testbed.name) if expansion.search else []
    refuse(testbed.check(trials + later))
    repeated = expansion.experiment.repeat_disturbed
    return Campaign(run, testbed, blocks, observer, planner_of(expansion), repeated, retry_failed)


def record_resumption(run: RunFolder, testbed: Testbed, observer: Observer) -> None:
    """Record where a campaign continues, report what differs from its start, and remove what a kill left behind."""
    for leftover in run.path.glob(f"raw/*/*/*/{UNFINISHED}"):
        leftover.unlink()
    facts, before = testbed.facts(), run.facts
    run.append_event("resumed", facts=facts)
    for key in COMPARED_FACTS:
        # On a cluster, facts of the nodes are known only while pods run.
        if facts.get(key) is not None and before.get(key) != facts[key]:
            observer.note(f"{key} differs from the campaign's start: {before.get(key)} → {facts[key]}")


def planner_of(expansion: Expansion) -> Planner | None:
    """Return the planner of an experiment; None if its sweeps and repetitions state all trials."""
    if expansion.search:
        return Racing(expansion)
    if expansion.searches:
        return CapacitySearch(expansion)
    return Precision(expansion) if expansion.experiment.precision_percent is not None else None


def _planned(run: RunFolder, expansion: Expansion) -> tuple[list[Trial], list[Block]]:
    """Return all planned trials, and their blocks. Raises like `dict` and `Trial.model_validate`."""
    # The links of the run folder's experiment name the copies of their files there; the plan names the originals.
    links_of = {cell.cell_id: cell.link for cell in expansion.cells}
    trials: dict[str, Trial] = {}
    blocks: list[Block] = []
    for plan in run.plan():
        for key, value in plan["trials"].items():
            trial = Trial.model_validate(value)
            link = links_of.get(trial.cell.cell_id, trial.cell.link)
            trials[key] = trial.model_copy(update={"cell": trial.cell.model_copy(update={"link": link})})
        blocks += [
            Block(index, tuple(trials[trial_id] for trial_id in members))
            for index, members in enumerate(plan["blocks"], len(blocks))
        ]
    return list(trials.values()), blocks


def _campaign_json(
    experiment: Experiment,
    testbed: Testbed,
    blocks: Sequence[Block],
    trials: Sequence[Trial],
    session: Session,
    name: str,
    seed: int,
) -> dict[str, Any]:
    """Return the content of campaign.json, without programs and DDS Security."""
    networks = network_facts(trials)
    # Those of later blocks are recorded when they are prepared.
    for label, facts in prepared_facts(session, blocks[0]).items():
        networks[label] |= facts
    return {
        "schema": SCHEMA,
        "campaign": name,
        "k8sdds_version": __version__,
        "started_at": utc_now(),
        "experiment": experiment.name,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seed": seed,
        "testbed": {"name": testbed.name, "facts": testbed.facts()},
        "baseline": experiment.baseline,
        "repetitions": experiment.repetitions,
        **(
            {}
            if experiment.precision_percent is None
            else {"precision_percent": experiment.precision_percent}
        ),
        **plan_json(blocks),
        "networks": networks,
    }


def _program_facts(trials: Sequence[Trial], testbed: str) -> dict[str, Any]:
    programs = {program.name: program for program in (middleware.program_of(trial.cell) for trial in trials)}
    return {key: value for program in programs.values() for key, value in program.facts(testbed).items()}


def _security_facts(trials: Sequence[Trial], keyring: Keyring) -> dict[str, Any]:
    """Return the protections and the fingerprints of the credentials, never a key."""
    from k8sdds.security.credentials import governance_facts

    protections = {trial.cell.security: protection_of(trial.cell) for trial in trials}
    return {
        "security": {
            label: governance_facts(protection, command.DOMAINS) for label, protection in protections.items()
        },
        "credentials": keyring.facts(),
    }


def run_folder_files(expansion: Expansion) -> tuple[str, dict[str, bytes]]:
    """Return the resolved experiment of a run folder as YAML, and the user's files there that it names.

    Raises InputError if a schedule has changed.
    """
    schedules = _copied_schedules(expansion)
    return experiment_yaml(_with_copies(expansion, schedules)), _user_files(expansion, schedules)


def _user_files(expansion: Expansion, schedules: Mapping[str, str]) -> dict[str, bytes]:
    """Return what cells use, by path in the run folder: QoS profiles, configurations, schedules, and links' files."""
    profiles = {
        middleware.qos_file(cell)
        for cell in expansion.cells
        if (implementation := middleware.of(cell)) is not None and implementation.takes_qos(cell)
    }
    configs = {
        middleware.config_copy(cell): Path(cell.middleware_config)
        for cell in expansion.cells
        if cell.middleware_config
    }
    copies = {f"{MIDDLEWARE_CONFIG}/{name}": file for name, file in configs.items()}
    copies |= {place: Path(file) for file, place in schedules.items()}
    for cell in expansion.cells:
        for part in link_files.files_of(cell.link):
            copies[_copy_of(part)["file"]] = Path(part.file)
    return {f"{QOS}/{file.name}": file.read_bytes() for file in profiles} | {
        name: file.read_bytes() for name, file in copies.items()
    }


def _copied_schedules(expansion: Expansion) -> dict[str, str]:
    """Return the path in the run folder of the copy of each schedule. Raises InputError if one has changed."""
    # Files of equal content are one cell, which names one of them.
    contents = {cell.schedule: cell.schedule_sha256 for cell in expansion.cells if cell.schedule}
    copies = {}

    def note(file: str) -> str:
        sha256 = contents.get(file) or schedule_file.read(file)[0]
        schedule_file.verify(file, sha256)
        copies[file] = copy_of(SCHEDULES, file, sha256)
        return file

    expansion.experiment.with_schedules(note)
    return copies


def _copy_of(part: FromFile) -> dict[str, str]:
    return {"file": copy_of(LINK_FILES, part.file, part.sha256)}


def _with_copies(expansion: Expansion, schedules: Mapping[str, str]) -> Experiment:
    """Return the experiment as the run folder holds it: the files that it names are the copies there."""
    names = {
        cell.middleware_config: f"{MIDDLEWARE_CONFIG}/{middleware.config_copy(cell)}"
        for cell in expansion.cells
        if cell.middleware_config
    }
    sweeps = [
        sweep.model_copy(update={"middleware_config": names.get(sweep.middleware_config, "")})
        for sweep in expansion.experiment.sweeps
    ]
    copied = expansion.experiment.model_copy(update={"sweeps": sweeps})
    return copied.with_schedules(schedules.__getitem__).with_links(_with_copied_files)


def _with_copied_files(choice: LinkChoice) -> LinkChoice:
    """Return links with all their values, also those that are the default, and with the copies of their files."""
    copied = with_files(choice, _copy_of)
    return LinkChoice(**{name: getattr(copied, name) for name in Link.model_fields})


def experiment_yaml(experiment: Experiment) -> str:
    """Return the resolved experiment as YAML with all defaults; reading it gives the same cells."""
    return yaml_text.dump(experiment.model_dump(mode="json", exclude_none=True))


def campaign_name(experiment: str) -> str:
    """Return `UTC-EXPERIMENT`, the default name of a campaign and of its run folder."""
    stamp = re.sub(r"[-:]|\.\d+", "", utc_now())
    return f"{stamp}-{experiment}"
