"""Emulate the links of nodes of a deployed cluster for a trial, and restore them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from k8sdds import nodes
from k8sdds.deploy import node_link_scripts as scripts
from k8sdds.deploy import profiles
from k8sdds.deploy.node_link_scripts import FOLDER, UNIT
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.ssh import Connections, Host

STARTS_S = 30
"""How long a script on a node may take."""


@dataclass(frozen=True)
class Emulation:
    """What to emulate on a node."""

    configuration: Mapping[str, Any]
    """The configuration of `k8sdds-link`, between the interfaces NEAR and FAR of the scripts."""
    peers: Sequence[str] = ()
    """Addresses of the other nodes of the trial, which are reached over the emulated link."""
    states: Sequence[tuple[int, str]] = ()
    """States of the link in its outages, each with its time after `NodeLinks.begin`, in µs."""


class NodeLinks:
    """The emulated links of some nodes, while `emulated` lasts."""

    def __init__(self, connections: Connections, emulations: Mapping[str, Emulation]) -> None:
        self._connections = connections
        self._states = {node: [state for _, state in its.states] for node, its in emulations.items()}
        """States of each node's link, in the order of the answers."""
        self._clocks_us: dict[str, int] = {}

    def start(self) -> None:
        """Begin all random decisions and the statistics. Call it once.

        Raises:
            PartFailed: The program on a node has ended.
            PrerequisiteError: It is of another version.
        """
        for node, printed in self._each(scripts.ASK % "start").items():
            answer, now_ns = printed.split()
            if not answer.isdecimal():
                raise PrerequisiteError(
                    f"{node}: k8sdds-link in the image is of another version: it answered {answer!r}",
                    "use the image of this version of k8sdds: k8sdds images load",
                )
            self._clocks_us[node] = int(now_ns) // 1000 - int(answer)

    def begin(self) -> None:
        """Let the outages of all links begin. Raises like `start`."""
        self._each(scripts.BEGIN)

    def interrupt(self, node: str, state: str) -> int:
        """Change the state of a node's link, or end its outage with `off`.

        Returns:
            When, by CLOCK_MONOTONIC of the node, in µs.

        Raises:
            PartFailed: As `start`.
        """
        self._states[node].append(state)
        answer = _answer(scripts.ASK % f"outage {node} {state}", self._connections.hosts[node])
        return int(answer.split()[0])

    def stop(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of each node since `start` (docs/reference/link-emulator.md), with more keys.

        `outages` has all states of its link, and `clock_us` is the difference between the time since 1970 and
        CLOCK_MONOTONIC. Empty without `start`. Raises like `start`.
        """
        found = {}
        for node, printed in self._each(scripts.STATISTICS).items() if self._clocks_us else ():
            started, *moments, statistics = printed.splitlines()
            states = zip(moments, self._states[node], strict=False)
            outages = [
                {"node": node, "at_us": int(moment) - int(started), "state": state}
                for moment, state in states
            ]
            found[node] = json.loads(statistics) | {"outages": outages, "clock_us": self._clocks_us[node]}
        return found

    def _each(self, script: str) -> dict[str, str]:
        return self._connections.all(partial(_answer, script), self._states)


@contextlib.contextmanager
def emulated(
    cluster: str, emulations: Mapping[str, Emulation], image: str, at_most_s: float
) -> Iterator[NodeLinks]:
    """Emulate the links of nodes until the end of the block.

    Args:
        cluster: Name of a deployed cluster.
        emulations: What to emulate on each node.
        image: Image of k8sdds that the nodes have, with the program.
        at_most_s: The nodes restore themselves after this time.

    Raises:
        PrerequisiteError: A node cannot emulate its link, or does not restore it.
    """
    profile, names = profiles.deployed(cluster), list(emulations)
    with Connections(profiles.targets(profile, names)) as connections:

        def start(host: Host) -> None:
            emulation = emulations[host.name]
            settings = scripts.settings(
                profile.network.interface, _ssh_port(host), image, at_most_s, emulation.peers
            )
            done = host.run(
                scripts.start(settings, emulation.configuration, emulation.states), timeout_s=STARTS_S
            )
            if done.code:
                raise PrerequisiteError(
                    f"{host.name}: cannot emulate its link: {_reason(done.err)}",
                    "leave out `link`, or use --testbed lab",
                )

        try:
            connections.all(start, names)
            for name in names if profile.provider == "local" else ():
                nodes.give_real_time_priority(cluster, name, UNIT)
            yield NodeLinks(connections, emulations)
        except BaseException:
            # Ctrl-C ends the connections that are in use.
            with Connections(profiles.targets(profile, names)) as others:
                _restore(others, names)
            raise
        _restore(connections, names)


def unsupported(cluster: str) -> dict[str, str]:
    """Return why nodes of a cluster cannot emulate their link, by node. Changes nothing."""
    profile = profiles.deployed(cluster)
    script = scripts.settings(profile.network.interface) + scripts.CHECK
    with Connections(profiles.targets(profile)) as connections:
        printed = connections.all(lambda host: host.run(script).out, [node.name for node in profile.nodes])
    return {node: text.strip() for node, text in printed.items() if text.strip()}


def restore(cluster: str, dry_run: bool) -> list[str]:
    """Restore the links that a killed command has left emulated, and return the nodes.

    Raises:
        PrerequisiteError: A node does not restore its link.
    """
    profile = profiles.deployed(cluster)
    with Connections(profiles.targets(profile)) as connections:
        find = f"ls -d {FOLDER} 2>/dev/null || :"
        found = connections.all(lambda host: host.run(find).out, [node.name for node in profile.nodes])
        names = [name for name, text in found.items() if text]
        if not dry_run:
            _restore(connections, names)
    return names


def _restore(connections: Connections, names: Sequence[str]) -> None:
    printed = connections.all(lambda host: host.run(scripts.restore()).out, names)
    if left := [f"{name}: {' '.join(text.split())}" for name, text in printed.items() if text.strip()]:
        raise PrerequisiteError(
            f"what emulated links was not removed: {'; '.join(left)}", f"stop the unit {UNIT} on this machine"
        )


def _ssh_port(host: Host) -> str:
    """Return the port on which the machine's SSH server listens. It is another one than ours behind a router."""
    return host.run('echo "${SSH_CONNECTION##* }"', root=False).out.strip()


def _answer(script: str, host: Host) -> str:
    done = host.run(script, timeout_s=STARTS_S)
    if done.code:
        raise PartFailed(f"{host.name}: k8sdds-link has ended: {_reason(done.err)}")
    return done.out


def _reason(text: str) -> str:
    return " ".join(text.split())[-300:] or "no message"
