"""Run participants of a lab network with user ids of their own, for which the folders of this machine may be closed."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from k8sdds.model.measurement import Inputs, Launch, ParticipantPaths
from k8sdds.model.trial import Cell
from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox

PROGRAM = Path("/run/perftest/k8sdds-perftest")
"""Where each user of a sandbox may execute it."""


def admit(sandbox: Sandbox) -> None:
    """Let each user of a sandbox execute k8sdds-perftest with its backends."""
    folder = str(Path(native_program(PROGRAM.name)).parent)
    sandbox.run(["sh", "-c", 'mkdir "$1" && mount --bind "$0" "$1"', folder, str(PROGRAM.parent)])


def paths(inputs: Inputs) -> ParticipantPaths:
    """Return paths relative to the working folder of a participant: it possibly cannot open the folders above."""
    return ParticipantPaths(
        str(PROGRAM), Path(), inputs.placed(lambda kind, file: Path(f"{kind}-{file.name}"))
    )


def as_user(launch: Launch, cell: Cell) -> Launch:
    """Give a participant with a user id of its own its folder and inputs; return its launch with that user id."""
    if (user := cell.user_of(launch.participant)) is None:
        return launch
    for name, file in launch.inputs.items():
        shutil.copyfile(file, launch.directory / name)
        os.chown(launch.directory / name, user, user)
    os.chown(launch.directory, user, user)
    # A change of the user id takes the capabilities, and resets the signal at the end of the supervisor.
    kept = ["--inh-caps=+ipc_lock", "--ambient-caps=+ipc_lock"] if launch.lock_memory else []
    lowered = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *kept, "--pdeathsig=KILL"]
    return replace(launch, argv=("env", f"--chdir={launch.directory}", *lowered, *launch.argv))
