"""A campaign: an experiment's blocks in random order, with retries, resume and deadlines.

The flow is check → prepare → for each block, for each trial: endpoints → command lines → run → record.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from k8sdds import __version__, middleware
from k8sdds.campaign import record as records
from k8sdds.campaign.expansion import Expansion
from k8sdds.campaign.preflight import protection_of, refuse
from k8sdds.middleware import Surroundings
from k8sdds.model.experiment import Experiment
from k8sdds.model.measurement import Launch
from k8sdds.model.security import Protection
from k8sdds.model.trial import Participant, Trial
from k8sdds.networks import find
from k8sdds.perftest import command
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import QOS, SCHEMA, RunFolder, utc_now
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError, InvalidTrials
from k8sdds.testbeds import Block, Session, Testbed

if TYPE_CHECKING:
    from k8sdds.security.keyring import Keyring

MAX_ATTEMPTS = 3
"""A trial that fails is tried again at most twice."""

NOT_COUNTED = ("interrupted",)
"""Reasons that do not count as a try: the user's doing, not the trial's."""


class Observer(Protocol):
    """Who watches a campaign, such as the terminal. Called between trials, never while one measures."""

    def prepared(self, seconds: float) -> None:
        """All benches of the next block stand."""

    def trial_starts(self, trial: Trial, done: int, total: int) -> None:
        """A trial is about to start; `done` of `total` have ended."""

    def trial_ended(self, trial: Trial, record: TrialRecord) -> None:
        """A trial's attempt is in the run folder."""

    def note(self, text: str) -> None:
        """Something to know."""


# -- the campaign -------------------------------------------------------------------------------------


class Campaign:
    """One execution of an experiment on a testbed, into a run folder."""

    def __init__(self, run: RunFolder, testbed: Testbed, blocks: Sequence[Block], observer: Observer) -> None:
        self.run = run
        self._testbed = testbed
        self._blocks = blocks
        self._observer = observer
        self._total = sum(len(block.trials) for block in blocks)
        self._tries: Counter[str] = Counter()
        self._valid: set[str] = set()
        self._order = 0
        self._keyring: Keyring | None = None
        for attempt in run.attempts():
            self._count(TrialRecord.read(attempt))

    def _count(self, record: TrialRecord) -> None:
        self._order += 1
        trial_id = str(record.trial_id)
        if record.valid:
            self._valid.add(trial_id)
        elif str(record.reason).split(":")[0] not in NOT_COUNTED:
            self._tries[trial_id] += 1

    def _open(self, trial: Trial) -> bool:
        return trial.trial_id not in self._valid and self._tries[trial.trial_id] < MAX_ATTEMPTS

    def execute(self) -> None:
        """Measure every trial that is not done yet. InvalidTrials if some end without a valid attempt."""
        with self.run.lock():
            self._measure_all()
        self.run.append_event("ended", valid=len(self._valid), trials=self._total)
        failed = [t for block in self._blocks for t in block.trials if t.trial_id not in self._valid]
        if failed:
            names = "; ".join(trial.describe() for trial in failed[:5]) + ("; …" if len(failed) > 5 else "")
            raise InvalidTrials(
                f"{len(failed)} of {self._total} trials have no valid attempt: {names}",
                f"reasons: the report, or {self.run.path}/trials.jsonl",
            )

    def _measure_all(self) -> None:
        for block in self._blocks:
            waiting = [trial for trial in block.trials if self._open(trial)]
            if not waiting:
                continue
            session = _prepare(self._testbed, block, self._observer)
            while waiting:
                for trial in waiting:
                    self._measure(session, block, trial)
                # Once more after the block's other trials: what disturbed a trial may have passed by then.
                waiting = [trial for trial in waiting if self._open(trial)]
            for reading in session.readings():
                self.run.append_reading(reading)

    def _measure(self, session: Session, block: Block, trial: Trial) -> None:
        number = self._next_attempt(trial)
        folder = self.run.raw(trial.trial_id, number)
        domain = command.DOMAINS[self._order % len(command.DOMAINS)]
        self._observer.trial_starts(trial, self._done(), self._total)
        endpoints = session.endpoints(trial)
        protection = protection_of(trial.cell)
        private = self._private(trial, protection)
        servers = session.servers(trial)
        chosen = middleware.find(trial.cell.middleware)
        launches = []
        # Subscribers first, so that the publisher finds them there.
        for participant in reversed(trial.cell.participants):
            directory, qos = (folder / participant.name).resolve(), self._qos(trial)
            paths = session.paths(trial, participant, directory, qos)
            surroundings = Surroundings(endpoints, domain, paths, protection, servers)
            line = chosen.command(trial, participant, surroundings)
            inputs = {str(paths.qos): qos} if qos and paths.qos else {}
            files = private.get(participant, {})
            launches.append(Launch(participant, tuple(line.argv), directory, line.env, files, inputs=inputs))
        launches += [
            Launch(
                participant=service,
                argv=tuple(chosen.service_command(endpoints[service.name].address)),
                directory=(folder / service.name).resolve(),
                serves_udp=chosen.service.port if chosen.service else None,
            )
            for service in ([] if servers else trial.cell.services)
        ]
        for launch in launches:
            launch.directory.mkdir(parents=True)
        facts = {
            "block": block.index,
            "order": self._order,
            "domain": domain,
            "started_at": utc_now(),
            **session.network_facts(trial),
        }
        started = time.monotonic()
        try:
            measurement = session.run(trial, launches, command.deadline_s(trial))
        except KeyboardInterrupt:
            self._append(trial, records.interrupted(trial, number, folder, facts))
            raise
        facts["wall_s"] = round(time.monotonic() - started, 6)
        self._append(trial, records.record(trial, number, measurement, folder, facts))

    def _private(self, trial: Trial, protection: Protection | None) -> dict[Participant, dict[str, bytes]]:
        """Participant to its credentials, by file name; nothing without DDS Security."""
        if protection is None:
            return {}
        if self._keyring is None:
            self._keyring = keyring_of([t for block in self._blocks for t in block.trials], self._renewed)
            self._renewed(self._keyring.facts())
        self._keyring.renew_for(2 * command.deadline_s(trial))
        return {one: self._keyring.files(one, protection) for one in trial.cell.participants}

    def _renewed(self, facts: dict[str, Any]) -> None:
        self.run.append_event("credentials renewed", **facts)
        self._observer.note(
            "new credentials were made: those before had expired, or ended with their campaign"
        )

    def use(self, keyring: Keyring) -> None:
        """Hand out these credentials, whose fingerprints the run folder has."""
        self._keyring = keyring

    def _qos(self, trial: Trial) -> Path | None:
        """The run folder's copy of the trial's QoS profile; None where its program brings its own."""
        if not middleware.find(trial.cell.middleware).takes_qos(trial.cell):
            return None
        path = self.run.path / QOS / f"{Path(trial.cell.qos_profile).stem}.xml"
        return path.resolve() if path.is_file() else None

    def _append(self, trial: Trial, record: TrialRecord) -> None:
        self.run.append_attempt(record.as_json())
        self._count(record)
        self._observer.trial_ended(trial, record)

    def _done(self) -> int:
        return sum(1 for block in self._blocks for trial in block.trials if not self._open(trial))

    def _next_attempt(self, trial: Trial) -> int:
        # After a crash a raw folder may be there without its line in trials.jsonl: it is kept, not reused.
        folder = self.run.raw(trial.trial_id, 1).parent
        used = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        return max(used, default=0) + 1


# -- starting and resuming ------------------------------------------------------------------------------


def start(
    expansion: Expansion, testbed: Testbed, folder: Path, name: str, seed: int, observer: Observer
) -> Campaign:
    """A new campaign: its benches are built and proven first, so that a failure there leaves no folder."""
    trials = expansion.trials(testbed.name)
    blocks = testbed.blocks(trials, seed)
    session = _prepare(testbed, blocks[0], observer)
    networks = {}
    for trial in trials:
        if trial.cell.network_label not in networks:
            networks[trial.cell.network_label] = _network_facts(trial, session)
    experiment = expansion.experiment
    protections = {trial.cell.security: protection_of(trial.cell) for trial in trials}
    secured = any(protections.values())
    renewed: list[Campaign] = []
    keyring = keyring_of(trials, lambda facts: renewed[0]._renewed(facts)) if secured else None
    data = {
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
        "blocks": [[trial.trial_id for trial in block.trials] for block in blocks],
        "trials": {trial.trial_id: trial.model_dump(mode="json") for trial in trials},
        "networks": networks,
    }
    for name in dict.fromkeys(trial.cell.middleware for trial in trials):
        data |= middleware.find(name).facts(testbed.name)
    if keyring is not None:
        from k8sdds.security.credentials import governance_facts

        data["security"] = {
            label: governance_facts(protection, command.DOMAINS) for label, protection in protections.items()
        }
        data["credentials"] = keyring.facts()
    run = RunFolder.create(folder, data, experiment_yaml(experiment), _qos_texts(expansion))
    run.append_event("started")
    campaign = Campaign(run, testbed, blocks, observer)
    if keyring is not None:
        renewed.append(campaign)
        campaign.use(keyring)
    return campaign


def resume(run: RunFolder, testbed: Testbed, observer: Observer) -> Campaign:
    """The campaign of a run folder, to go on with exactly the trials that are missing."""
    data = run.campaign
    try:
        measured_on, before = data["testbed"]["name"], data["testbed"]["facts"]
        trials = {key: Trial.model_validate(value) for key, value in data["trials"].items()}
        blocks = [
            Block(index, tuple(trials[trial_id] for trial_id in members))
            for index, members in enumerate(data["blocks"])
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{run.path}/campaign.json is not whole: {error!r}", "restore it from a copy, or measure anew"
        ) from error
    if measured_on != testbed.name:
        raise InputError(f"{run.path} was measured on the testbed {measured_on!r}")
    refuse(testbed.check(list(trials.values())))
    facts = testbed.facts()
    run.append_event("resumed", facts=facts)
    for key in ("boot_id", "cluster_uid", "kernel", "cpu_model", "perftest"):
        if before.get(key) != facts.get(key):
            observer.note(f"{key} differs from the campaign's start: {before.get(key)} → {facts.get(key)}")
    return Campaign(run, testbed, blocks, observer)


def keyring_of(trials: Sequence[Trial], renewed: Callable[[dict[str, Any]], None]) -> Keyring:
    """Credentials for every participant of the trials that are protected."""
    # Imported here because most campaigns need no cryptography.
    from k8sdds.security.keyring import Keyring

    secured = [trial.cell for trial in trials if protection_of(trial.cell) is not None]
    participants = dict.fromkeys(one for cell in secured for one in cell.participants)
    return Keyring(list(participants), command.DOMAINS, renewed)


def _prepare(testbed: Testbed, block: Block, observer: Observer) -> Session:
    started = time.monotonic()
    session = testbed.prepare(block)
    observer.prepared(time.monotonic() - started)
    return session


def _qos_texts(expansion: Expansion) -> dict[str, str]:
    """File name to text of every QoS profile that the cells use."""
    files = {
        middleware.qos_file(cell)
        for cell in expansion.cells
        if middleware.find(cell.middleware).takes_qos(cell)
    }
    return {f"{file.stem}.xml": file.read_text(encoding="utf-8") for file in files}


def _network_facts(trial: Trial, session: Session) -> dict[str, Any]:
    network = find(trial.cell.network)
    return {
        "name": network.name,
        "title": network.title,
        "options": trial.cell.network_options,
        "layer": network.layer,
        "encapsulation": network.encapsulation,
        "multicast": network.multicast,
        "encryption": network.encryption,
        "unprotected": network.unencrypted,
        "differences": network.differences,
        **session.network_facts(trial),
        **session.link_facts(trial),
    }


def experiment_yaml(experiment: Experiment) -> str:
    """The resolved experiment as YAML, every default spelled out; reading it gives the same cells."""
    return yaml_text.dump(experiment.model_dump(mode="json", exclude_none=True))


def campaign_name(experiment: str) -> str:
    """`UTC-EXPERIMENT`, the default name of a campaign and of its run folder."""
    stamp = re.sub(r"[-:]|\.\d+", "", utc_now())
    return f"{stamp}-{experiment}"
