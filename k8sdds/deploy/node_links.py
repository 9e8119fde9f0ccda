"""Emulate the links of nodes of a deployed cluster for a trial, and restore them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from k8sdds import nodes
from k8sdds.deploy import node_link_scripts as scripts
from k8sdds.deploy import profiles
from k8sdds.deploy.node_link_scripts import FOLDER, UNIT
from k8sdds.results.link_statistics import LinkStatistics
from k8sdds.system import reading
from k8sdds.system.errors import K8sddsError, PartFailed, PrerequisiteError
from k8sdds.system.reading import UnreadableError
from k8sdds.system.shapes import Finite
from k8sdds.system.ssh import Connections, Host

SCRIPT_S = 30
"""How long a script on a node may take."""
MAX_STATISTICS_BYTES = 64 << 20
"""Largest statistics of a node: those of more than ten hours."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Emulation:
    """What to emulate on a node."""

    configuration: Mapping[str, Any]
    """The configuration of `k8sdds-link`, between the interfaces NEAR and FAR of the scripts."""
    peers: Sequence[str] = ()
    """Addresses of the other nodes of the trial, which are reached over the emulated link."""
    schedule: Sequence[tuple[int, str]] = ()
    """Times from the moment of `NodeLinks.begin_outages`, in µs, and the states that the link has from then on."""


@dataclass(frozen=True)
class NodeStatistics:
    """What the link of a node did since `NodeLinks.start`, by CLOCK_MONOTONIC of the node."""

    document: Mapping[str, Any]
    """What `k8sdds-link` answered to `stop` (docs/reference/link-emulator.md)."""
    values: LinkStatistics
    """Its values that are summarized, with the outages."""
    clock_us: int
    """The time since 1970 minus CLOCK_MONOTONIC."""


class NodeLinks:
    """The emulated links of some nodes, while `emulated` lasts."""

    def __init__(self, connections: Connections, emulations: Mapping[str, Emulation]) -> None:
        self._connections = connections
        self._states = {node: [state for _, state in its.schedule] for node, its in emulations.items()}
        """States of each node's link, in the order of the answers."""
        self._clocks_us: dict[str, int] = {}

    def start(self) -> None:
        """Begin all random decisions and the statistics, once. Raises PartFailed if a program has ended."""
        self._clocks_us = self._ask(scripts.START, lambda _, printed: read_clock(printed))

    def begin_outages(self, moment_ns: int) -> None:
        """Let the outages of all links begin at a moment, by the time since 1970 on each node. Raises like `start`.

        A link whose first outage is due before its node learns of this begins all of them later.
        """
        self._ask(scripts.begin_outages(moment_ns), lambda *_: None)

    def stop(self) -> dict[str, NodeStatistics]:
        """Return the statistics of each node since `start`. Empty without `start`. Raises like `start`."""
        if not self._clocks_us:
            return {}
        states, clocks_us = self._states, self._clocks_us
        return self._ask(
            scripts.STATISTICS, lambda node, text: read_statistics(text, node, states[node], clocks_us[node])
        )

    def _ask(self, script: str, read: Callable[[str, str], Answer]) -> dict[str, Answer]:
        """Run a script on all nodes, and return what `read` returns for the name and the output of each."""

        def answer(host: Host) -> Answer:
            done = host.run(script, timeout_s=SCRIPT_S)
            if done.code:
                raise PartFailed(f"{host.name}: k8sdds-link has ended: {_reason(done.err)}")
            try:
                return read(host.name, done.out)
            except UnreadableError as error:
                raise PartFailed(f"{host.name}: {error.message}", error.remedy) from error

        answers, failures = self._connections.each(answer, self._states)
        if failures:
            first = next(iter(failures.values()))
            messages = dict.fromkeys(failure.message for failure in failures.values())
            raise PartFailed("; ".join(messages), first.remedy) from first
        return answers


def read_clock(printed: str) -> int:
    """Return the difference between the time since 1970 and CLOCK_MONOTONIC, in µs, from the answer to `start`.

    Raises UnreadableError if it is of another version of the program.
    """
    match = re.fullmatch(r"([0-9]{1,18})\n([0-9]{1,20})\n", printed)
    if match is None:
        raise UnreadableError(
            f"k8sdds-link in the image is of another version: it answered {printed[:80]!r}",
            "use the image of this version of k8sdds: k8sdds images load",
        )
    monotonic_us, now_ns = map(int, match.groups())
    return now_ns // 1000 - monotonic_us


class _Statistics(LinkStatistics):
    """What the program answers to `stop`, with the outages."""

    seconds: Finite


def read_statistics(printed: str, node: str, states: Sequence[str], clock_us: int) -> NodeStatistics:
    """Return the statistics of a node with its outages, from all answers to `start`, the states, and `stop`.

    Raises UnreadableError if they are something else.
    """
    *answers, line = printed.splitlines() or [""]
    if not answers or not all(re.fullmatch(r"[0-9]{1,18}", each) for each in answers):
        raise UnreadableError(f"k8sdds-link answered {printed[:80]!r} instead of times and statistics")
    started_us, *moments = map(int, answers)
    outages = [
        {"node": node, "at_us": moment - started_us, "state": state}
        for moment, state in zip(moments, states, strict=False)
    ]
    source = "the statistics of k8sdds-link"
    document = reading.json_object(line, source, max_bytes=MAX_STATISTICS_BYTES)
    try:
        values = _Statistics.model_validate(document | {"outages": outages})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"{source}: {reading.printable(place)}: {first['msg']}") from error
    return NodeStatistics(document, values, clock_us)


@contextlib.contextmanager
def emulated(
    cluster: str, emulations: Mapping[str, Emulation], image: str, at_most_s: float
) -> Iterator[NodeLinks]:
    """Emulate the links of nodes until the end of the block; after `at_most_s`, the nodes restore themselves.

    The nodes have the `image`, which contains the program. Raises PrerequisiteError if a node cannot emulate its link,
    or does not restore it.
    """
    profile, names = profiles.deployed(cluster), list(emulations)
    with Connections(profiles.targets(profile, names)) as connections:

        def start(host: Host) -> None:
            emulation = emulations[host.name]
            # The port on which the machine's SSH server listens is another one than ours behind a router.
            ssh_port = host.run('echo "${SSH_CONNECTION##* }"', root=False).out.strip()
            prologue = scripts.prologue(
                profile.network.interface, ssh_port, image, at_most_s, emulation.peers
            )
            script = scripts.emulate(prologue, emulation.configuration, emulation.schedule)
            done = host.run(script, timeout_s=SCRIPT_S)
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
            connections.all(_restore_host, names)
        except BaseException as error:
            # Ctrl-C ends the connections that are in use.
            with Connections(profiles.targets(profile, names)) as others:
                _restore_after(error, others, names)
            raise


def unsupported(cluster: str, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return why nodes of a cluster cannot emulate their link, by node. Changes nothing.

    `addresses`: those of the nodes that can have participants, which must be reached by the emulated interface.
    """
    profile = profiles.deployed(cluster)

    def why(host: Host) -> str:
        peers = [address for node, address in addresses.items() if node != host.name]
        prologue = scripts.prologue(profile.network.interface, peers=peers if host.name in addresses else ())
        done = host.run(prologue + scripts.CHECK)
        return _reason(done.err) if done.code else ""

    with Connections(profiles.targets(profile)) as connections:
        found = connections.all(why, connections.hosts)
    return {node: reason for node, reason in found.items() if reason}


def restore(cluster: str, dry_run: bool) -> tuple[list[str], dict[str, K8sddsError]]:
    """Restore the links that a killed command has left emulated; return those nodes, and why others failed."""
    profile = profiles.deployed(cluster)
    with Connections(profiles.targets(profile)) as connections:
        find = f"ls -d {FOLDER} 2>/dev/null || :"
        found, failures = connections.each(lambda host: host.run(find).out, connections.hosts)
        names = [name for name, text in found.items() if text]
        if not dry_run:
            done, failed = connections.each(_restore_host, names)
            return list(done), failures | failed
    return names, failures


def _restore_after(error: BaseException, connections: Connections, names: Sequence[str]) -> None:
    """Restore links after an error, which must not be lost if that fails."""
    try:
        connections.all(_restore_host, names)
    except K8sddsError as left:
        if isinstance(error, K8sddsError):
            raise left from error
        error.add_note(str(left))


def _restore_host(host: Host) -> None:
    left = host.run(scripts.RESTORE).out.strip()
    if left:
        raise PrerequisiteError(
            f"{host.name}: what emulated its link was not removed: {_reason(left)}",
            f"stop the unit {UNIT} on this machine",
        )


def _reason(text: str) -> str:
    return " ".join(text.split())[-300:] or "no message"
