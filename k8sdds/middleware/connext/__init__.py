"""RTI Connext, measured with RTI's own PerfTest, which the user provides with a license.

k8sdds contains nothing of RTI's. It writes the command lines that PerfTest 3.1 to 4.3 accept and reads what
PerfTest prints. docs/how-to/connext.md names the sources of these facts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from k8sdds import versions, workloads
from k8sdds.discovery import cloud
from k8sdds.middleware.connext import command, license, output, settings
from k8sdds.middleware.protocol import Command, Middleware, Surroundings
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.system.errors import InputError, K8sddsError, Problem


class Connext(Middleware):
    """RTI Connext with RTI PerfTest."""

    name = "connext"
    service = cloud.CONNEXT

    def unsupported(self, cell: Cell) -> str | None:
        """Return why no release of RTI PerfTest can run this cell, or None."""
        return command.unsupported(cell)

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        """Return what prevents these trials with the user's PerfTest; writes each command line without running it."""
        try:
            perftest = settings.of(testbed)
            for trial in trials:
                command.check(trial, perftest)
        except K8sddsError as error:
            return [Problem(error.message, error.remedy, input=isinstance(error, InputError))]
        return []

    def takes_qos(self, cell: Cell) -> bool:
        """Whether the experiment names a profile: otherwise PerfTest uses the QoS that is built into it."""
        return bool(cell.qos)

    def facts(self, testbed: str) -> dict[str, Any]:
        """Return the program, its version and the user's options."""
        return {"connext": settings.of(testbed).facts()}

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        """Return the command line of RTI PerfTest and the environment that Connext needs."""
        perftest = settings.of(trial.testbed)
        argv = command.command_line(
            trial,
            participant,
            surroundings.endpoints,
            surroundings.domain,
            perftest,
            surroundings.paths.files,
            surroundings.paths.qos,
            trial.cell.discovery_kind,
        )
        return Command(argv, command.environment(perftest, surroundings.servers))

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        """Return what RTI PerfTest printed."""
        load = workloads.find(trial.cell.test).load(trial.cell)
        return output.read(
            folder / participant.name, trial.cell.payload_bytes, load.round_trips, trial.duration_s
        )

    def image(self) -> str:
        """Return the user's image, which is built on the image of k8sdds and so has its programs too."""
        return settings.in_image()[0]

    def service_image(self) -> str | None:
        """Return the user's image of RTI Cloud Discovery Service."""
        return os.environ.get(versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE)

    def service_problems(self) -> list[tuple[str, str]]:
        """Return what RTI Cloud Discovery Service needs but the environment does not name."""
        problems = []
        if not self.service_image():
            problems.append(
                (
                    "discovery by server needs your image of RTI Cloud Discovery Service:"
                    f" {versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE}",
                    "k8sdds docs connext; or give another `discovery`",
                )
            )
        if not os.environ.get(license.VARIABLE):
            problems.append(
                (
                    f"RTI Cloud Discovery Service starts with a license only: {license.VARIABLE}",
                    "set it to the path of your license (k8sdds docs connext); or give another `discovery`",
                )
            )
        return problems

    def secret(self, namespace: str) -> dict[str, Any] | None:
        """Return the Secret with the user's license, or None if no license is named."""
        path = license.file(os.environ)
        return license.secret(namespace, path.read_bytes()) if path else None

    def pod_parts(self) -> dict[str, Any]:
        """Return the volume of the license and its mount."""
        return license.pod_parts()
