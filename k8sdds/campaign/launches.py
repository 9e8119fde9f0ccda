"""Write what the testbed starts for one attempt at a trial: command lines, credentials and input files."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds import middleware
from k8sdds.campaign import background
from k8sdds.campaign.contradictions import protection_of
from k8sdds.middleware import Surroundings
from k8sdds.model import schedule_file
from k8sdds.model.measurement import Inputs, Launch, Listener
from k8sdds.model.trial import Participant, Trial
from k8sdds.perftest import command
from k8sdds.results.run_folder import MIDDLEWARE_CONFIG, QOS, SCHEDULES, RunFolder, copy_of
from k8sdds.testbeds import Session

if TYPE_CHECKING:
    from k8sdds.security.credentials import Keyring

GRAPH = "graph.txt"
"""Name of the file with the graph in the folder of an attempt."""

Renewed = Callable[[dict[str, Any]], None]
"""Receives the facts of credentials that replace the first ones."""


class Launches:
    """The launches of a campaign's trials, with the credentials of its participants.

    `trials` is a view of the planned trials, which includes those that a planner adds later.
    """

    def __init__(
        self, run: RunFolder, trials: Collection[Trial], renewed: Renewed, keyring: Keyring | None = None
    ) -> None:
        self._run = run
        self._trials = trials
        self._renewed = renewed
        self._keyring = keyring

    def of(self, trial: Trial, session: Session, folder: Path, domain: int) -> list[Launch]:
        """Return the launches of an attempt and create their folders.

        Subscribers come first, so that the publisher finds them. Discovery services that the testbed does not
        run itself come last.
        """
        program = middleware.program_of(trial.cell)
        endpoints = session.endpoints(trial)
        servers = session.servers(trial)
        protection = protection_of(trial.cell)
        credentials = self._credentials(trial)
        qos, config, schedule = self._qos(trial), self._config(trial), self._schedule(trial)
        graph = (folder / GRAPH).resolve() if trial.cell.graph else None
        nonce, records_stops = secrets.token_hex(8), session.records_stops(trial)
        launches = []
        for participant in reversed(trial.cell.participants):
            directory = (folder / participant.name).resolve()
            inputs = Inputs(qos, config, schedule if participant.publishes else None, graph)
            paths = session.paths(trial, participant, directory, inputs)
            surroundings = Surroundings(endpoints, domain, paths, protection, servers, nonce, records_stops)
            command_line = program.command(trial, participant, surroundings)
            launches.append(
                Launch(
                    participant=participant,
                    argv=tuple(command_line.argv),
                    directory=directory,
                    env=command_line.env,
                    listens=command_line.listens,
                    window=command_line.window,
                    realtime_priority=trial.cell.realtime_priority,
                    lock_memory=middleware.locks_memory(trial.cell),
                    private={**credentials.get(participant, {}), **command_line.private},
                    inputs=inputs.copied_to(paths.inputs),
                    restarted=tuple(command_line.restarted),
                )
            )
        for service in () if servers else trial.cell.services:
            launches.append(_discovery(trial, service, folder, endpoints[service.name].address))
        launches += background.launches(
            trial,
            folder,
            endpoints,
            lambda pod, directory: session.paths(trial, pod, directory, Inputs()).files,
        )
        for launch in launches:
            launch.directory.mkdir(parents=True)
        if graph:
            graph.write_text(trial.cell.graph, encoding="ascii")
        return launches

    def _credentials(self, trial: Trial) -> dict[Participant, dict[str, bytes]]:
        """Return each participant's credentials by file name; empty without DDS Security."""
        protection = protection_of(trial.cell)
        if protection is None:
            return {}
        # After a campaign was resumed: its credentials existed only in the memory of its first process.
        created = self._keyring is None
        self._keyring = keyring = self._keyring or create_keyring(self._trials)
        if keyring.renew_for(2 * command.deadline_s(trial)) or created:
            self._renewed(keyring.facts())
        return {
            participant: keyring.files(participant, protection) for participant in trial.cell.participants
        }

    def _qos(self, trial: Trial) -> Path | None:
        """Return the run folder's copy of the QoS profile, or None if the middleware takes no profile."""
        implementation = middleware.of(trial.cell)
        if implementation is None or not implementation.takes_qos(trial.cell):
            return None
        path = self._run.path / QOS / f"{Path(trial.cell.qos_profile).stem}{implementation.config_suffix}"
        return path.resolve() if path.is_file() else None

    def _config(self, trial: Trial) -> Path | None:
        """Return the run folder's copy of the user's configuration file, or None if the trial has none."""
        if not trial.cell.middleware_config:
            return None
        return (self._run.path / MIDDLEWARE_CONFIG / middleware.config_copy(trial.cell)).resolve()

    def _schedule(self, trial: Trial) -> Path | None:
        """Return the run folder's copy of the recorded schedule, or None if the trial has none.

        Raises InputError if it has another content than when the campaign started.
        """
        cell = trial.cell
        if not cell.schedule:
            return None
        copy = self._run.path / copy_of(SCHEDULES, cell.schedule, cell.schedule_sha256)
        schedule_file.verify(str(copy), cell.schedule_sha256)
        return copy.resolve()


def _discovery(trial: Trial, service: Participant, folder: Path, address: str) -> Launch:
    implementation = middleware.of(trial.cell)
    assert implementation is not None and implementation.service is not None
    return Launch(
        participant=service,
        argv=tuple(implementation.service_command(address, service.index)),
        directory=(folder / service.name).resolve(),
        listens=Listener(implementation.service.protocol, implementation.service.port + service.index),
    )


def create_keyring(trials: Collection[Trial]) -> Keyring:
    """Return credentials for every participant of the trials with DDS Security."""
    # Imported here because most campaigns need no cryptography.
    from k8sdds.security.credentials import Keyring

    secured = [trial.cell for trial in trials if protection_of(trial.cell) is not None]
    participants = dict.fromkeys(participant for cell in secured for participant in cell.participants)
    return Keyring(list(participants), command.DOMAINS)
