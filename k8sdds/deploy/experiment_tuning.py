"""Apply tuning sets and settings of links to the nodes of a cluster for some trials, and restore the originals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from k8sdds.deploy import profiles, tuning
from k8sdds.deploy.tuning import Interface
from k8sdds.model.profile import Profile
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host

FOLDER = tuning.EXPERIMENT_FOLDER
_SETTINGS = ("sysctl", "mtu", "offload", "ring")
"""Facts that are settings of a machine."""

Lines = tuple[str, ...]


def unsupported(cluster: str, sets: Sequence[str], interface: Interface) -> dict[str, Lines]:
    """Return the settings that machines of a cluster do not have, by machine. Makes no changes."""
    with _connected(cluster) as (profile, connections):
        facts = _gather(profile, connections, sets)
    notes = {machine: tuning.plan(sets, lines, FOLDER, interface).notes for machine, lines in facts.items()}
    return {machine: found for machine, found in notes.items() if found}


def apply(
    cluster: str, sets: Sequence[str], interface: Interface
) -> tuple[dict[str, Lines], dict[str, Lines]]:
    """Apply tuning sets and settings of the interface between the nodes to all machines of a cluster.

    Returns:
        The settings of each machine before and after, as lines of facts.

    Raises:
        PrerequisiteError: A machine did not accept a setting.
    """
    with _connected(cluster) as (profile, connections):
        # A killed campaign leaves its settings.
        _undo(profile, connections)
        before = _gather(profile, connections, sets)
        scripts = {
            machine: tuning.plan(sets, lines, FOLDER, interface).script for machine, lines in before.items()
        }
        changing = [machine for machine, script in scripts.items() if script]
        connections.all(lambda host: _run(host, scripts[host.name]), changing)
        after = _gather(profile, connections, sets)
    for machine, lines in after.items():
        if changes := tuning.plan(sets, lines, FOLDER, interface).changes:
            raise PrerequisiteError(f"{machine}: settings are not in effect: {'; '.join(changes)}")
    return {machine: _settings(lines) for machine, lines in before.items()}, {
        machine: _settings(lines) for machine, lines in after.items()
    }


def restore(cluster: str, sets: Sequence[str], before: dict[str, Lines]) -> None:
    """Restore the original settings of all machines, and verify that they are those of `before`.

    Raises:
        PrerequisiteError: A machine has another setting than before.
    """
    with _connected(cluster) as (profile, connections):
        _undo(profile, connections)
        after = _gather(profile, connections, sets)
    for machine, lines in after.items():
        # After a failed attempt to apply it, the settings before are not known.
        if differing := sorted(set(_settings(lines)) ^ set(before.get(machine, _settings(lines)))):
            raise PrerequisiteError(
                f"{machine}: settings differ from those before the experiment: {'; '.join(differing)}",
                "another program may have changed them: restore them by hand",
            )


@contextlib.contextmanager
def _connected(cluster: str) -> Iterator[tuple[Profile, Connections]]:
    """Provide the profile of a cluster and connections to its machines."""
    profile = profiles.deployed(cluster)
    with Connections(profiles.targets(profile)) as connections:
        yield profile, connections


def _undo(profile: Profile, connections: Connections) -> None:
    """Restore the original settings of all machines that have saved ones."""
    script = tuning.undo_script(FOLDER)
    connections.all(lambda host: _run(host, script), [node.name for node in profile.nodes])


def _gather(profile: Profile, connections: Connections, names: Sequence[str]) -> dict[str, Lines]:
    script = tuning.facts_script(names, profile.network.interface, FOLDER)
    outputs = connections.all(lambda host: _run(host, script), [node.name for node in profile.nodes])
    prefix = "tuning\t"
    return {
        machine: tuple(line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix))
        for machine, output in outputs.items()
    }


def _settings(lines: Lines) -> Lines:
    return tuple(line for line in lines if line.partition(" ")[0] in _SETTINGS)


def _run(host: Host, script: str) -> str:
    result = host.run(script)
    if result.code:
        reason = " ".join(result.err.split())[:300] or f"exit code {result.code}"
        raise PrerequisiteError(f"{host.name}: cannot read or change its settings: {reason}")
    return result.out
