"""Apply tuning sets and settings of links to the nodes of a cluster for some trials, and restore the originals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from k8sdds.deploy import profiles, tuning
from k8sdds.deploy.actions import LOCK
from k8sdds.deploy.scripts import shell
from k8sdds.deploy.tuning import Interface
from k8sdds.model.ip_families import IP_AND_UDP_HEADERS_BYTES, family_of
from k8sdds.model.profile import Profile
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host

FOLDER = tuning.EXPERIMENT_FOLDER
_SETTINGS = ("sysctl", "mtu", "offload", "ring")
"""Facts that are settings of a machine."""

PING_S = 20
"""How long a ping may take, which sends a packet each second until the first reply. Some drivers reset their network
card for another MTU, and a busy machine replies late: only packets that never pass may count as lost."""

FORGET_PATH_MTUS = "ip route flush cache 2>/dev/null; ip -6 route flush cache 2>/dev/null; :"
"""Command that drops the path MTUs that a machine learned. A pod with a smaller MTU, whose packets leave its node with
the node's address, makes other machines send all packets to the node in that size for 10 minutes."""

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
    """Apply tuning sets and settings of the interface between the nodes; return the facts of each before and after."""
    with _connected(cluster) as (profile, connections):
        # A killed campaign leaves its settings.
        _undo(connections)
        before = _gather(profile, connections, sets)
        scripts = {
            machine: tuning.plan(sets, lines, FOLDER, interface).script for machine, lines in before.items()
        }
        changing = [machine for machine, script in scripts.items() if script]
        connections.all(lambda host: _run(host, scripts[host.name]), changing)
        after = _gather(profile, connections, sets)
        if interface.mtu and (lost := _lost_packets(connections, interface.mtu, after)):
            # At once: connections between the nodes do not work until then.
            _undo(connections)
            raise PrerequisiteError(
                f"packets of {interface.mtu} bytes do not pass between the nodes: {'; '.join(lost)}",
                "let the network between the nodes carry packets of this size, or leave out link.mtu",
            )
    for machine, lines in after.items():
        if changes := tuning.plan(sets, lines, FOLDER, interface).changes:
            raise PrerequisiteError(
                f"{machine}: settings are not in effect: {'; '.join(changes)}",
                "another program may have changed them; if not, leave these settings out for this machine",
            )
    return {machine: _settings(lines) for machine, lines in before.items()}, {
        machine: _settings(lines) for machine, lines in after.items()
    }


def restore(cluster: str, sets: Sequence[str], before: dict[str, Lines]) -> None:
    """Restore the original settings of all machines, and verify that they are those of `before`."""
    with _connected(cluster) as (profile, connections):
        _undo(connections)
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
    profile = profiles.deployed(cluster)
    with Connections(profiles.targets(profile)) as connections:
        yield profile, connections


def _undo(connections: Connections) -> None:
    """Restore the original settings of all machines that have saved ones."""
    script = f"{tuning.undo_script(FOLDER).rstrip()} || exit\n{FORGET_PATH_MTUS}\n"
    connections.all(lambda host: _run(host, script), connections.hosts)


def _gather(profile: Profile, connections: Connections, names: Sequence[str]) -> dict[str, Lines]:
    script = tuning.facts_script(names, profile.network.interface, FOLDER)
    outputs = connections.all(lambda host: _run(host, script), connections.hosts)
    prefix = "tuning\t"
    return {
        machine: tuple(line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix))
        for machine, output in outputs.items()
    }


def _lost_packets(connections: Connections, mtu: int, facts: Mapping[str, Lines]) -> list[str]:
    """Return which machines get no reply to a packet of this MTU from another one: `a to b`."""
    pings = pings_of(mtu, facts)
    printed = connections.all(lambda host: _run(host, pings[host.name][1]), list(pings))
    return [f"{machine} to {pings[machine][0]}" for machine, text in printed.items() if text.strip()]


def pings_of(mtu: int, facts: Mapping[str, Lines]) -> dict[str, tuple[str, str]]:
    """Return for each machine the next one, and a script that prints something if a packet of this MTU gets no reply.

    It prints nothing without the ping of iputils, or if the other address does not even reply to a short packet.
    """
    addresses = {machine: address for machine, lines in facts.items() if (address := _address(lines))}
    names = list(addresses)
    scripts = {}
    for machine, other in zip(names, names[1:] + names[:1], strict=True):
        address = addresses[other]
        # The header of a ping is as long as that of UDP.
        payload = mtu - IP_AND_UDP_HEADERS_BYTES[family_of(address)]
        scripts[machine] = other, shell(
            "lost_packets", ADDRESS=address, PAYLOAD=str(payload), PING_S=str(PING_S), FORGET_PATH_MTUS=FORGET_PATH_MTUS
        )  # fmt: skip
    return scripts if len(names) > 1 else {}


def _address(lines: Lines) -> str:
    """Return the address of a machine's interface between the nodes, or an empty string if it has none."""
    return next((line.removeprefix("address ") for line in lines if line.startswith("address ")), "")


def _settings(lines: Lines) -> Lines:
    return tuple(line for line in lines if line.partition(" ")[0] in _SETTINGS)


def _run(host: Host, script: str) -> str:
    # After Ctrl-C, a script may still run on the machine: the next one waits for its end.
    result = host.run(f"exec 9<{LOCK}\nflock 9\n{script}")
    if result.code:
        reason = " ".join(result.err.split())[:300] or f"exit code {result.code}"
        raise PrerequisiteError(
            f"{host.name}: cannot read or change its settings: {reason}",
            "check that the user of the profile may use sudo there: k8sdds check PROFILE",
        )
    return result.out
