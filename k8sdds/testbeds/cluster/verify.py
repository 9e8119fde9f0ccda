"""Before anything is measured: pods reach each other by whole packets and, if asked for, by multicast, and
the nodes' links show that packets go the way that the network's name says. Each trial is seen there too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from k8sdds.model.trial import FIRST_PUBLISHER, Cell
from k8sdds.networks import find
from k8sdds.networks.cluster_install import PathEvidence
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import datapath
from k8sdds.testbeds.cluster.blocks import HOST
from k8sdds.testbeds.cluster.datapath import End, LinkCounters
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.pod_pool import PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import Slot

PROBE = "/usr/local/bin/k8sdds-probe"
FIRST_PORT = 17000
GROUP = "239.255.77.1"
WHOLE = 40
"""Datagrams each way: so many bytes go by no link of a node unless they carry it."""
GROUPED = 3
LISTEN_S = 20
LISTEN_EACH_S = 0.2
"""As much longer for each pair: not all of many ask at a time."""
ASK_S = 8
HEADERS_BYTES = 28
"""IPv4 and UDP."""
UNPROVEN = "unproven"
"""First word of the warning of trials whose network could not be proven."""


@dataclass(frozen=True)
class Proof:
    """What was proven of a network between some participants."""

    words: str
    """How packets go between their nodes."""
    lack: str = ""
    """What could not be proven, and why."""
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node to its links that carry the network; without nodes that nobody could look at."""

    def said(self) -> str:
        """All of it, in one line."""
        return "; ".join(filter(None, (self.words, f"not proven: {self.lack}" if self.lack else "")))


Key = tuple[tuple[Slot, ...], tuple[str, ...], bool]
"""Slots, the nodes that their pods are on, and whether multicast is part of it."""


class Proofs:
    """The proofs of a campaign, each made once for the same pods on the same network."""

    def __init__(self, crew: PodPool, witnesses: NodeProbes, interface: str = "") -> None:
        """`interface`: the nodes' link that pod networks were told to use; empty: any."""
        self._interface = interface
        self._crew = crew
        self._witnesses = witnesses
        self._made: dict[Key, Proof] = {}
        self._last: dict[str, LinkCounters] = {}
        """Node to what its links had carried when it was last looked at."""

    def prove(self, cell: Cell, slots: Mapping[str, Slot]) -> None:
        """Prove the network of a cell's pods, which are ready. PrerequisiteError with what is wrong with it."""
        key = self._key(cell, slots)
        if key not in self._made:
            self._made[key] = self._prove(cell, slots, multicast=key[-1])

    def of(self, cell: Cell, slots: Mapping[str, Slot]) -> Proof | None:
        """What was proven for a cell, whose pods are ready; None where nobody has tried yet."""
        return self._made.get(self._key(cell, slots))

    def _key(self, cell: Cell, slots: Mapping[str, Slot]) -> Key:
        # Where the scheduler places, a pod that replaces another one may be elsewhere.
        nodes = tuple(self._crew.member(slot).node for slot in slots.values())
        return tuple(slots.values()), nodes, "multicast" in (cell.transport, cell.discovery_kind)

    def forget(self) -> None:
        """Another pod network takes the place of the one that was proven."""
        self._made = {key: proof for key, proof in self._made.items() if all(slot.host for slot in key[0])}
        self._last = {}

    def carried(self, cell: Cell, slots: Mapping[str, Slot]) -> tuple[dict[str, int] | None, str]:
        """(subscriber to bytes that came to its node through this network's links since the last look there,
        why that is not known). Of pods on the nodes' own network their own counters say it: (None, "")."""
        proof = self.of(cell, slots)
        if proof is None or cell.network == HOST:
            return None, ""
        if not proof.links:
            return None, proof.lack
        nodes = {
            one.name: self._crew.member(slots[one.name]).node for one in cell.participants if one.subscribes
        }
        before, now = self._last, self._witnesses.looks(nodes.values())
        self._last = {**before, **now} if now else {}
        if not now:
            return None, self._witnesses.lack
        if not set(nodes.values()) <= before.keys() & proof.links.keys():
            return None, "the nodes' links were not looked at before this trial"
        return {
            name: datapath.received_bytes(now[node], proof.links[node])
            - datapath.received_bytes(before[node], proof.links[node])
            for name, node in nodes.items()
        }, proof.lack

    def _prove(self, cell: Cell, slots: Mapping[str, Slot], multicast: bool) -> Proof:
        members = {name: self._crew.member(slot) for name, slot in slots.items()}
        nodes = [member.node for member in members.values()]
        # One participant stands for all of its node: their packets go the same way.
        addresses = {member.node: member.address for member in members.values()}
        before = self._witnesses.looks(nodes, list(addresses.values()))
        sent_bytes = self._ask_all(cell, slots, members, multicast)
        whole = f"whole packets of {members[FIRST_PUBLISHER.name].mtu_bytes} bytes pass"
        after = self._witnesses.looks(nodes, list(addresses.values())) if before else {}
        if not after:
            return Proof(whole, f"which links of the nodes carry it, because {self._witnesses.lack}")
        self._last = {**self._last, **after}
        carrier = _carrier(cell)
        ends = {node: End(node, addresses[node], before[node], after[node]) for node in addresses}
        ways: dict[str, None] = {}
        links: dict[str, tuple[str, ...]] = {}
        for one, other in _pairs(cell, members):
            wanted = "" if cell.network == HOST else self._interface
            wrong = datapath.amiss(carrier, ends[one], ends[other], sent_bytes, wanted)
            if wrong:
                raise PrerequisiteError(
                    f"{cell.network_label}: this is not {find(cell.network).title}: {wrong}",
                    "is another network installed, or has it fallen back? name what is there: --pod-network",
                )
            ways[datapath.describe(ends[one], ends[other], carrier)] = None
            for here, there in ((one, other), (other, one)):
                more = datapath.links(carrier, after[here], addresses[there])
                links[here] = tuple(dict.fromkeys([*links.get(here, ()), *more]))
        return Proof(f"{', '.join(ways)}; {whole}", carrier.unverified, links)

    def _ask_all(
        self, cell: Cell, slots: Mapping[str, Slot], members: Mapping[str, ReadyPod], multicast: bool
    ) -> int:
        """Datagrams that fill the MTU and may not be fragmented, from each publisher to each subscriber, and
        answers: returns how many bytes went at least each way. PrerequisiteError with the first pair without one."""
        publishers = [one.name for one in cell.participants if one.publishes]
        ports = {one.name: FIRST_PORT + one.index for one in cell.participants if one.subscribes}
        listen_s = round(LISTEN_S + LISTEN_EACH_S * len(publishers) * len(ports))
        listen = [
            (slots[name], [PROBE, "listen", "--udp", str(port), "--for", str(listen_s), "--group", GROUP])
            for name, port in ports.items()
        ]
        sizes = {name: (members[name].mtu_bytes or 1500) - HEADERS_BYTES for name in publishers}
        within = ["--timeout", str(ASK_S)]
        questions = []
        for pub in publishers:
            for sub, port in ports.items():
                whole = ["--whole", "--bytes", str(sizes[pub]), "--count", str(WHOLE), *within]
                questions.append((pub, sub, [PROBE, "ask", f"{members[sub].address}:{port}", *whole]))
                if multicast:
                    out = ["--count", str(GROUPED), *within, "--interface", members[pub].interface]
                    questions.append((pub, sub, [PROBE, "ask", f"{GROUP}:{port}", *out]))
        with self._crew.background(listen):
            answers = self._crew.run_all([(slots[pub], argv) for pub, _, argv in questions], ASK_S + 10)
        for (pub, sub, argv), done in zip(questions, answers, strict=True):
            if done.code:
                raise PrerequisiteError(
                    f"{cell.network_label}: {sub} does not answer {pub}{_how(argv)}: {_said(done)}",
                    "is the network's own pod on both nodes ready? kubectl get pods -A -o wide",
                )
        return WHOLE * min(sizes.values())


def _carrier(cell: Cell) -> PathEvidence:
    install = find(cell.network).cluster
    assert install is not None  # networks that no cluster has are refused before
    return install.path


def _pairs(cell: Cell, members: Mapping[str, ReadyPod]) -> list[tuple[str, str]]:
    """The nodes of each publisher and each subscriber, each pair once."""
    pubs = [members[one.name].node for one in cell.participants if one.publishes]
    subs = [members[one.name].node for one in cell.participants if one.subscribes]
    return list(dict.fromkeys((pub, sub) for pub in pubs for sub in subs if pub != sub))


def _how(argv: Sequence[str]) -> str:
    if GROUP in argv[2]:
        return " by multicast"
    return f" by whole packets of {int(argv[argv.index('--bytes') + 1]) + HEADERS_BYTES} bytes"


def _said(done) -> str:
    try:
        answer: Mapping[str, object] = json.loads(done.stdout)
        return f"{answer['received']} of {answer['sent']} came back; {answer['last_error']}"
    except (ValueError, KeyError):
        return done.stderr.decode(errors="replace").strip() or f"code {done.code}"
