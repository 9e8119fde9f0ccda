"""Measure the blocks of an experiment in random order, with retries and deadlines.

For each block: prepare. For each trial of the block: launches → run → record. At the end of the blocks, a planner
may add more. If a part of the testbed fails during an attempt, the attempt does not count, and the part is built again:
discard → prepare. `start` creates a campaign with its run folder, `resume` continues one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from k8sdds.campaign import record as records
from k8sdds.campaign.launches import Launches
from k8sdds.model.reason import DISTURBED, ENVIRONMENT, INTERRUPTED, PART_FAILED, Reason
from k8sdds.model.trial import Trial
from k8sdds.networks import find
from k8sdds.perftest import command
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import RunFolder, utc_now
from k8sdds.system import faults
from k8sdds.system.errors import Aborted, InvalidTrials, NetworkChanged, PartFailed
from k8sdds.testbeds import Block, Session, Testbed

if TYPE_CHECKING:
    from k8sdds.security.credentials import Keyring

MAX_ATTEMPTS = 3
"""A trial without a valid attempt is retried at most twice."""

MAX_FAILURES = 10
"""How often a part of the testbed may fail during attempts at one trial, or in succession while a block is prepared.

After that, it is not an accident, and another repetition does not help.
"""
MAX_OUTAGE_S = 600
"""How long after the first failure a block is prepared again. A repetition can take minutes on a cluster."""


class Observer(Protocol):
    """Receives the progress of a campaign. Called between trials, never while a trial is measured."""

    def prepared(self, seconds: float) -> None:
        """The next block is prepared; it took so many seconds."""

    def trial_starts(self, trial: Trial, done: int, total: int) -> None:
        """A trial is about to start; `done` of `total` trials need no further attempt."""

    def trial_ended(self, trial: Trial, record: TrialRecord) -> None:
        """The record of an attempt is in the run folder."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


class Planner(Protocol):
    """Adds trials to a running campaign.

    A planner keeps no state: after an interruption, the attempts in the run folder lead to the same decision. An added
    trial needs the same image, volumes and memory of pods as the planned ones, for which a cluster prepares them.
    """

    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        """Return the trials to measure next, from all attempts in their order; empty if the campaign ends.

        Called when no planned trial needs another attempt. Trials that have used up their attempts stay without a valid
        one.
        """

    def status(self, attempts: Sequence[TrialRecord]) -> str:
        """Return the progress of the campaign in one line, or an empty string if there is nothing to show."""
        return ""


class Campaign:
    """One execution of an experiment on a testbed, into a run folder, which may contain attempts.

    A planner adds trials when those of the blocks have ended. With `retry_failed`, the invalid attempts in the run
    folder do not count. The fingerprints of `keyring` are in the run folder; without it, a trial creates what it needs.
    """

    def __init__(
        self,
        run: RunFolder,
        testbed: Testbed,
        blocks: Sequence[Block],
        observer: Observer,
        planner: Planner | None = None,
        repeat_disturbed: int = 0,
        retry_failed: bool = False,
        keyring: Keyring | None = None,
    ) -> None:
        self.run = run
        self._testbed = testbed
        self._blocks = list(blocks)
        self._observer = observer
        self._planner = planner
        self._trials = {trial.trial_id: trial for block in blocks for trial in block.trials}
        """The planned trials by id. `Launches` has a view of this dict, so later trials are added in place."""
        self._launches = Launches(run, self._trials.values(), self._credentials_renewed, keyring)
        self._attempts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        """Attempts of this process during which a part of the testbed failed."""
        self._valid: set[str] = set()
        self._repeat_disturbed = repeat_disturbed
        self._disturbed: Counter[str] = Counter()
        """Valid attempts since the last undisturbed one."""
        self._order = 0
        for attempt in run.attempts():
            self._count(TrialRecord.read(attempt))
        if retry_failed:
            self._attempts.clear()

    @property
    def planned(self) -> int:
        """The number of planned trials."""
        return len(self._trials)

    @property
    def open_trials(self) -> list[Trial]:
        """The planned trials that need another attempt and may have it."""
        return [trial for trial_id, trial in self._trials.items() if self._is_open(trial_id)]

    def execute(self) -> None:
        """Measure every trial without a valid attempt, and repeat those that were disturbed.

        Raises Aborted if parts of the testbed fail again and again.
        """
        with self.run.lock(), self._recording_stop():
            try:
                for block in self._blocks:
                    self._measure_block(block)
                while added := self._added():
                    for block in added:
                        self._measure_block(block)
            except PartFailed as failure:
                changed = isinstance(failure, NetworkChanged)
                remedy = failure.remedy if changed else "find out what ends it (memory? see: dmesg)"
                raise Aborted(
                    f"{failure.message}; the results so far are kept",
                    f"{remedy}; then continue: k8sdds run --resume {self.run.path}",
                ) from failure
        self.run.append_event("ended", valid=len(self._valid), trials=len(self._trials))
        failed = [trial for trial_id, trial in self._trials.items() if trial_id not in self._valid]
        if failed:
            names = "; ".join(trial.describe() for trial in failed[:5]) + ("; …" if len(failed) > 5 else "")
            raise InvalidTrials(
                f"{len(failed)} of {len(self._trials)} trials have no valid attempt: {names}",
                f"see the reasons in the report or in {self.run.path}/trials.jsonl;"
                f" try again: k8sdds run --resume {self.run.path} --retry-failed",
            )

    def _added(self) -> list[Block]:
        """Plan more trials if the planner requests them, and return their blocks."""
        if self._planner is None:
            return []
        attempts = [TrialRecord.read(attempt) for attempt in self.run.attempts()]
        trials = self._planner.more(attempts)
        if status := self._planner.status(attempts):
            self._observer.note(status)
        if not trials:
            return []
        # Blocks that are planned later have an order of their own.
        seed = self.run.campaign["seed"] + len(self._blocks)
        blocks = [
            Block(index, block.trials)
            for index, block in enumerate(self._testbed.blocks(trials, seed), len(self._blocks))
        ]
        self.run.append_plan(**plan_json(blocks), networks=self._unrecorded(network_facts(trials)))
        self._blocks += blocks
        self._trials |= {trial.trial_id: trial for trial in trials}
        return blocks

    @contextmanager
    def _recording_stop(self) -> Iterator[None]:
        """Record why the campaign stops before its end."""
        try:
            yield
        except BaseException as error:
            fault = faults.explain(error)
            reason = fault.message if fault else str(error) or "interrupted"
            # The run folder may be what failed.
            with suppress(OSError):
                self.run.append_event("stopped", reason=reason)
            raise

    def _measure_block(self, block: Block) -> None:
        waiting = [trial for trial in block.trials if self._is_open(trial.trial_id)]
        if not waiting:
            return
        session = self._prepare(block)
        while waiting:
            for trial in waiting:
                if not self._measure(session, block, trial):
                    self._failures[trial.trial_id] += 1
                    session.discard(trial)
                    session = self._prepare(block)
            # Retry after the block's other trials: what disturbed a trial may have stopped by then.
            waiting = [trial for trial in waiting if self._is_open(trial.trial_id)]
        for reading in session.readings():
            self.run.append_reading(reading)

    def _prepare(self, block: Block) -> Session:
        started = time.monotonic()
        session = prepare(self._testbed, block, self._observer)
        self.run.append_event("prepared", block=block.index, took_s=round(time.monotonic() - started, 3))
        if new := self._unrecorded(prepared_facts(session, block)):
            self.run.append_plan({}, [], networks=new)
        return session

    def _unrecorded(self, networks: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the facts of networks that the run folder does not have, by label."""
        known = self.run.networks
        return {
            label: new
            for label, facts in networks.items()
            if (new := {name: fact for name, fact in facts.items() if name not in known.get(label, {})})
        }

    def _measure(self, session: Session, block: Block, trial: Trial) -> bool:
        """Make one attempt at a trial; return whether no part of the testbed failed."""
        total = len(self._trials)
        self._observer.trial_starts(trial, total - len(self.open_trials), total)
        self.run.require_room()
        attempt = self._next_attempt(trial)
        folder = self.run.raw(trial.trial_id, attempt)
        folder.mkdir(parents=True)
        domain = command.DOMAINS[self._order % len(command.DOMAINS)]
        facts: dict[str, Any] = {
            "block": block.index,
            "order": self._order,
            "domain": domain,
            "started_at": utc_now(),
        }
        try:
            launches = self._launches.of(trial, session, folder, domain)
            facts |= session.network_facts(trial)
            if facts.get("fingerprint"):
                # A network is observed once, and can be measured over several links.
                facts["fingerprint"] |= {"link": trial.cell.link.fingerprint}
            started = time.monotonic()
            measurement = session.run(trial, launches, command.deadline_s(trial))
            facts["wall_s"] = round(time.monotonic() - started, 6)
            record = records.record(trial, attempt, measurement, folder, facts)
            if not (record.valid or _is_part_failed(record)) and (failed := session.failed_part(trial)):
                record.invalidate(Reason(PART_FAILED, f"{failed} ({record.reason})"))
        except KeyboardInterrupt:
            reason = Reason(INTERRUPTED, "the campaign was interrupted while this trial ran")
            self._append(trial, records.record(trial, attempt, None, folder, facts, reason))
            raise
        except PartFailed as failure:
            reason = Reason(PART_FAILED, failure.message)
            record = records.record(trial, attempt, None, folder, facts, reason)
            if isinstance(failure, NetworkChanged):
                self._append(trial, record)
                raise
        self._conclude(trial, record)
        return not _is_part_failed(record)

    def _conclude(self, trial: Trial, record: TrialRecord) -> None:
        """Record an attempt. Raises OSError if it is invalid and its participants could not write files either."""
        try:
            if not record.valid:
                self.run.require_room()
        except OSError as error:
            record.invalidate(Reason(ENVIRONMENT, f"{error.strerror} ({record.reason})"))
            raise
        finally:
            self._append(trial, record)

    def _append(self, trial: Trial, record: TrialRecord) -> None:
        self.run.append_attempt(record.as_json())
        self._count(record)
        self._observer.trial_ended(trial, record)

    def _count(self, record: TrialRecord) -> None:
        self._order += 1
        trial_id = str(record.trial_id)
        if record.valid:
            self._valid.add(trial_id)
            self._disturbed[trial_id] = self._disturbed[trial_id] + 1 if _is_disturbed(record) else 0
        elif Reason.read(record.reason).counts:
            self._attempts[trial_id] += 1

    def _is_open(self, trial_id: str) -> bool:
        """Whether a trial needs another attempt and may have it."""
        is_disturbed = 0 < self._disturbed[trial_id] <= self._repeat_disturbed
        return (
            (trial_id not in self._valid or is_disturbed)
            and self._attempts[trial_id] < MAX_ATTEMPTS
            and self._failures[trial_id] < MAX_FAILURES
        )

    def _next_attempt(self, trial: Trial) -> int:
        # A crash may leave a raw folder without its line in trials.jsonl. It is kept, never reused.
        folder = self.run.raw(trial.trial_id, 1).parent
        used = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
        return max(used, default=0) + 1

    def _credentials_renewed(self, facts: dict[str, Any]) -> None:
        self.run.append_event("credentials renewed", **facts)
        self._observer.note("new credentials were created: the previous ones expired or their process ended")


def _is_disturbed(record: TrialRecord) -> bool:
    return any(Reason.read(warning).code == DISTURBED for warning in record.warnings or ())


def _is_part_failed(record: TrialRecord) -> bool:
    return not record.valid and Reason.read(record.reason).code == PART_FAILED


def plan_json(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return blocks and their trials as a run folder holds them."""
    trials = [trial for block in blocks for trial in block.trials]
    return {
        "blocks": [[trial.trial_id for trial in block.trials] for block in blocks],
        "trials": {trial.trial_id: trial.model_dump(mode="json") for trial in trials},
    }


def network_facts(trials: Sequence[Trial]) -> dict[str, dict[str, Any]]:
    """Return the facts about the trials' networks before they are built, by label."""
    found: dict[str, dict[str, Any]] = {}
    for cell in (trial.cell for trial in trials):
        if cell.network_label in found:
            continue
        network = find(cell.network)
        found[cell.network_label] = {
            "name": network.name,
            "title": network.title,
            "options": cell.network_options,
            "layer": network.layer,
            "encapsulation": network.encapsulation,
            "multicast": network.multicast,
            "encryption": network.encryption,
            "unprotected": network.unencrypted,
            "differences": network.differences,
        }
    return found


def prepared_facts(session: Session, block: Block) -> dict[str, dict[str, Any]]:
    """Return the facts about the networks of a prepared block, by label."""
    first = {trial.cell.network_label: trial for trial in reversed(block.trials)}
    return {label: session.network_facts(trial) | session.link_facts(trial) for label, trial in first.items()}


def prepare(testbed: Testbed, block: Block, observer: Observer) -> Session:
    """Prepare a block, again if a part of it fails meanwhile, and report how long it took.

    Raises:
        NetworkChanged: Somebody else changed the network.
        PartFailed: Parts failed `MAX_FAILURES` times in succession, or for longer than `MAX_OUTAGE_S`.
    """
    started = time.monotonic()
    failed_at: list[float] = []
    while True:
        try:
            session = testbed.prepare(block)
            break
        except NetworkChanged:
            raise
        except PartFailed as failure:
            failed_at.append(time.monotonic())
            if len(failed_at) == MAX_FAILURES or failed_at[-1] > failed_at[0] + MAX_OUTAGE_S:
                raise PartFailed(
                    f"the testbed failed {len(failed_at)} times in succession while it was prepared: {failure.message}",
                    failure.remedy,
                ) from failure
            observer.note(f"{failure.message}; it is built again")
    observer.prepared(time.monotonic() - started)
    return session
