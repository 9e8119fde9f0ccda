"""Verify that a lab network is the requested one: its links, settings, datapath, encryption and policies."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext

from k8sdds.model.ip_families import IP_AND_UDP_HEADERS_BYTES, family_of
from k8sdds.model.offloads import Bond
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import probing
from k8sdds.testbeds.fingerprint import PACKETS
from k8sdds.testbeds.lab import encryption
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.places import ends, probed
from k8sdds.testbeds.lab.topology import SWITCH

PING_TIMEOUT_S = 5
PING_INTERVAL_S = 0.2
"""The shortest interval that every user may use."""
LOSSY_TRIES = 12
"""How often addresses that do not answer are pinged over links that lose packets. A ping ends early if its address is
not resolved."""


def verify(lab_network: LabNetwork, crosses_links: bool = True) -> None:
    """Verify a lab network before it is used, and note in it what was read and verified.

    The datapath is verified with unfragmented pings of the whole MTU from each publisher's pod to all others. On a
    network that encrypts, only encrypted packets may cross the links at that time, unless the pods are on one node.
    """
    _verify_links(lab_network)
    _verify_settings(lab_network)
    plan = lab_network.plan
    proof = plan.datapath.encryption_proof if crosses_links else None
    with encryption.only_encrypted(lab_network.sandbox, plan.topology, proof) if proof else nullcontext():
        _ping_all(lab_network)
    if plan.topology.policies:
        lab_network.policy_proof = _verify_policies(lab_network)


def _verify_links(lab_network: LabNetwork) -> None:
    """Read MTU, bond and offloads of the nodes' links, if the experiment sets them."""
    link = lab_network.plan.cell.link
    for node in lab_network.plan.topology.nodes if link.is_verified else ():
        features = lab_network.features("eth0", node.name) or {}
        mtu = int(lab_network.link_file(node.name, "eth0/mtu").read_text())
        bond = _bond(lab_network, node.name)
        lab_network.node_links[node.name] = link.observed(mtu, features, bond)
        if differing := link.differing(mtu, features, bond):
            raise PrerequisiteError(
                f"{lab_network.name}: the link of {node.name} has {differing}",
                "leave out what this kernel cannot set in `link`",
            )


def _bond(lab_network: LabNetwork, node: str) -> Bond | None:
    try:
        members, mode, policy = (
            lab_network.link_file(node, f"eth0/bonding/{key}").read_text().split()
            for key in ("slaves", "mode", "xmit_hash_policy")
        )
    except FileNotFoundError:
        return None
    return Bond(len(members), mode[0], policy[0])


def _verify_settings(lab_network: LabNetwork) -> None:
    """Read the sysctls of the tuning set on nodes and in pods."""
    tuning = lab_network.plan.tuning
    paths = [f"/proc/sys/{key.replace('.', '/')}" for key in tuning]
    for name in lab_network.plan.namespaces if tuning else ():
        if name == SWITCH:
            continue
        output = lab_network.sandbox.run(["cat", *paths], netns=name).splitlines()
        seen = dict(zip(tuning, (" ".join(line.split()) for line in output), strict=True))
        lab_network.node_settings[name] = seen
        for key, value in tuning.items():
            if seen[key] != value:
                raise PrerequisiteError(f"{lab_network.name}: {key} of {name} is {seen[key]}, not {value}")


def _ping_all(lab_network: LabNetwork) -> None:
    plan = lab_network.plan
    names = {one.name for one in plan.cell.participants}
    tries = LOSSY_TRIES if plan.cell.link.loses_packets else 1
    receivers_of: dict[str, set[str]] = defaultdict(set)
    for one, other in plan.cell.pairs:
        receivers_of[one.name].add(other.name)
    for source, receivers in receivers_of.items():
        targets = {
            address: name
            for name, attachment in plan.datapath.attachments.items()
            for address in (attachment.address, attachment.other_address)
            if (name in receivers or name not in names) and address is not None
        }
        unanswered: dict[str, str] = dict.fromkeys(targets, "")
        for _ in range(tries):
            unanswered = _unanswered(lab_network, source, list(unanswered))
        for address, output in unanswered.items():
            raise PrerequisiteError(
                f"{lab_network.name}: {targets[address]} does not answer pings of {plan.datapath.mtu} bytes from"
                f" {source}: {' '.join(output.split())}",
                "inspect the datapath: k8sdds lab plan; check this machine: k8sdds doctor",
            )


def _unanswered(lab_network: LabNetwork, source: str, addresses: Sequence[str]) -> dict[str, str]:
    """Ping addresses from a pod, and return the output of each ping without an answer."""
    # Until the first answer: the link may lose packets by request (`link.loss`), and one lost ping or reply
    # does not show that the datapath is wrong.
    until_answered = ("-c", "1", "-i", str(PING_INTERVAL_S), "-w", str(PING_TIMEOUT_S))
    pings = {}
    for address in addresses:
        # The header of ICMP is as long as that of UDP.
        payload_bytes = lab_network.plan.datapath.mtu - IP_AND_UDP_HEADERS_BYTES[family_of(address)]
        ping = ["ping", "-n", "-q", *until_answered, "-M", "do", "-s", str(payload_bytes), address]
        pings[address] = subprocess.Popen(
            [*lab_network.enter(source), *ping], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    outputs = {address: ping.communicate()[0] for address, ping in pings.items()}
    failed = [address for address, ping in pings.items() if ping.returncode]
    for address in failed:
        processes.require_not_killed(pings[address].returncode, f"{lab_network.name}: a ping of {source}")
    return {address: outputs[address] for address in failed}


def _verify_policies(lab_network: LabNetwork) -> str:
    """Verify that the policies allow a participant and deny another node, and describe it."""
    topology, between = lab_network.plan.topology, probed(lab_network)
    sender, receiver = ends(lab_network.plan.cell, topology)
    assert between.node is not None
    count, node = topology.policies, topology.nodes[sender.node].name
    count_sent = PACKETS if between.loses_packets else probing.DATAGRAMS
    path = (between.receiver, between.receiver_address, count_sent, between.slack_s)
    if not probing.answered(between.sender, *path):
        raise PrerequisiteError(
            f"{lab_network.name}: {receiver.name} does not answer, although {count} policies allow it"
        )
    if probing.answered(between.node, *path):
        raise PrerequisiteError(
            f"{lab_network.name}: {receiver.name} answers {node}, although {count} policies deny it"
        )
    return probing.denial(count, node, receiver.name)
