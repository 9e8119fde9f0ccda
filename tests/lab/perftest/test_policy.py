"""Enforce the NetworkPolicies of an application between network namespaces: its participants need exactly these ports."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any

import pytest
from perftest_tools import A, B, Perftest, Process, end_all, sh

from k8sdds import middleware
from k8sdds.discovery import MULTICAST, PEERS, SERVER
from k8sdds.middleware.ports import GROUP
from k8sdds.model.application import Application
from k8sdds.recommend import network_policy
from k8sdds.recommend.network_policy import COMPONENT, NAME, PART_OF, Communication
from tests.sampling import sampled

APPLICATION = Application.model_validate(
    {"name": "robot", "flows": [{"name": "scans", "payload_bytes": 100, "rate": 10}]}
)
PUBLISHER, SUBSCRIBER = (
    {PART_OF: "robot", COMPONENT: f"scans-{role}"} for role in ("publisher", "subscriber")
)
C = "10.99.0.3"
Policies = list[dict[str, Any]]
Pods = dict[str, tuple[str, dict[str, str]]]
NO_SAMPLES, NO_ROUTER = {3, 4, 5}, {6}
"""Exit codes of participants that find no peer, lose it or get no samples, and of those that reach no Zenoh router."""


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        each["operator"] == "In" and labels.get(each["key"]) in each["values"]
        for each in selector.get("matchExpressions", ())
    )


def admitted(
    policies: Policies, direction: str, own: dict[str, str], other: dict[str, str] | str
) -> set[str]:
    """Return what the policies of a pod admit from or to a pod with labels, or an address, as `udp dport 7410`."""
    found = set()
    for policy in policies:
        if not matches(policy["spec"]["podSelector"], own):
            continue
        for rule in policy["spec"][direction]:
            for peer in rule["to" if direction == "egress" else "from"]:
                block, selector = peer.get("ipBlock", {}).get("cidr"), peer.get("podSelector")
                if "namespaceSelector" not in peer and (
                    block == f"{other}/32"
                    if isinstance(other, str)
                    else selector and matches(selector, other)
                ):
                    found |= {f"{port['protocol'].lower()} dport {port['port']}" for port in rule["ports"]}
    return found


def enforce(policies: Policies, pods: Pods) -> None:
    """Admit into each pod, a network namespace by its address, only what policies of both pods admit.

    Like a network, this drops packets where no sender notices it, and lets answers pass.
    """
    for address, (netns, own) in pods.items():
        family = "ip6" if ":" in address else "ip"
        groups = [] if family == "ip6" else [GROUP]
        rules = ["add table inet t; flush table inet t"]
        rules += ["add chain inet t in { type filter hook input priority 0; policy drop; }"]
        rules += ["add rule inet t in iifname lo accept"]
        rules += ["add rule inet t in ct state established,related accept"]
        rules += ["add rule inet t in meta l4proto ipv6-icmp accept"]  # finds neighbors
        for sender, (_, labels) in pods.items():
            received = admitted(policies, "ingress", own, labels)
            for to, sent in (
                (address, admitted(policies, "egress", labels, own)),
                *((group, admitted(policies, "egress", labels, group)) for group in groups),
            ):
                rules += [
                    f"add rule inet t in {family} saddr {sender} {family} daddr {to} {port} accept"
                    for port in sorted(sent & received)
                    if sender != address
                ]
        sh(f"ip netns exec {netns} nft '{'; '.join(rules)}'")


def without_port(policies: Policies, port: int) -> Policies:
    """Return the policies without a port in any rule."""
    changed = deepcopy(policies)
    for policy in changed:
        for rule in (*policy["spec"]["ingress"], *policy["spec"]["egress"]):
            rule["ports"] = [each for each in rule["ports"] if each["port"] != port]
    return changed


def ports_of(policies: Policies) -> list[int]:
    rules = [rule for policy in policies for rule in (*policy["spec"]["ingress"], *policy["spec"]["egress"])]
    return sorted({port["port"] for rule in rules for port in rule["ports"]} - {53})


def ipv6(address: str) -> str:
    """Return the IPv6 address of the pod with an IPv4 address."""
    return f"fd99::{address.rpartition('.')[2]}"


@pytest.fixture
def pods() -> Iterator[Pods]:
    """Connect three network namespaces by a bridge, and return each with its labels by its address."""
    if os.geteuid() != 0:
        pytest.skip("requires root for network namespaces")
    bridge, *names = (f"pt-{os.getpid()}-{part}" for part in ("bridge", "a", "b", "c"))
    try:
        sh(f"ip netns add {bridge} && ip -n {bridge} link add br0 up type bridge mcast_snooping 0")
        for number, name in enumerate(names, 1):
            sh(f"ip netns add {name} && ip -n {name} link set lo up")
            sh(f"ip -n {name} link add eth0 type veth peer name port{number} netns {bridge}")
            sh(f"ip -n {bridge} link set port{number} up master br0")
            sh(f"ip -n {name} addr add 10.99.0.{number}/24 dev eth0 && ip -n {name} link set eth0 up")
            sh(f"ip -n {name} addr add {ipv6(f'10.99.0.{number}')}/64 dev eth0 nodad")
        yield dict(zip((A, B, C), zip(names, (PUBLISHER, SUBSCRIBER, {}), strict=True), strict=True))
    finally:
        for name in (bridge, *names):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def begin(perftest: Perftest, pods: Pods, used: Communication, wait_s: int) -> tuple[Process, Process]:
    """Start a publisher and a subscriber that wait this long for each other, and send samples to a group if there is one."""
    both: list[object] = ["-discoveryTimeout", wait_s, "-discovery", used.discovery]
    both += ["-discoveryServer", f"{C}:{used.service.port}"] if used.service else []
    both += ["-multicast"] if used.discovery == MULTICAST else []
    link, peers = (pods[A][0], pods[B][0]), used.discovery == PEERS
    return perftest.begin(*both, link=link, peers=peers, middleware=used.middleware)


def longer_than(started: float) -> int:
    """Return a time in seconds that is longer than that since a start, in which samples arrived."""
    return 1 + ceil(time.monotonic() - started)


@contextmanager
def served(pods: Pods, used: Communication) -> Iterator[Pods]:
    """Run the discovery service that participants use, and return the pods with its label."""
    if used.service is None:
        yield pods
        return
    command = middleware.find(used.middleware).service_command(C)
    server = subprocess.Popen(["ip", "netns", "exec", pods[C][0], *command], stdout=subprocess.DEVNULL)
    try:
        yield pods | {C: (pods[C][0], {NAME: used.service.name})}
    finally:
        server.kill()
        server.wait(60)


@pytest.mark.parametrize(
    ("name", "discovery"),
    sampled(
        [
            *product(("cyclonedds", "fastdds"), (PEERS, MULTICAST)),
            ("fastdds", SERVER),
            *product(("zenoh",), (PEERS, SERVER)),
        ],
        every_run=3,
    ),
)
def test_participants_need_exactly_these_ports(
    perftest: Perftest, pods: Pods, name: str, discovery: str
) -> None:
    """Samples arrive with the policies, but not without one of their ports, nor with those of another domain."""
    used = Communication(name, perftest.domain, discovery=discovery)
    policies = network_policy.policies(APPLICATION, used)
    others = {f"without {port}": without_port(policies, port) for port in ports_of(policies)}
    # A Zenoh router has one port for all domains.
    if ports_of(
        elsewhere := network_policy.policies(APPLICATION, replace(used, domain=used.domain + 1))
    ) != ports_of(policies):
        others["another domain"] = elsewhere
    with served(pods, used) as labelled:
        enforce(policies, labelled)
        started = time.monotonic()
        publisher, subscriber = begin(perftest, labelled, used, 60)
        end_all(publisher, subscriber)
        wait_s = longer_than(started)
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
        for what, changed in others.items():
            enforce(changed, labelled)
            codes = {process.end() for process in begin(perftest, labelled, used, wait_s)}
            assert codes <= (NO_ROUTER if used.service and used.service.relays else NO_SAMPLES), what


@pytest.mark.parametrize("name", sampled([("cyclonedds",), ("fastdds",)], every_run=1))
def test_each_process_of_a_pod_needs_its_ports(perftest: Perftest, pods: Pods, name: str) -> None:
    """Two subscribers of a pod receive all samples with the policies for two processes, not with those for one."""
    wait_s = 60
    for processes in (2, 1):
        started = time.monotonic()
        used = Communication(name, perftest.domain, processes)
        enforce(network_policy.policies(APPLICATION, used), pods)
        both: tuple[object, ...] = ("-discoveryTimeout", wait_s)
        subscribers = [
            perftest.sub(
                *both, "-sidMultiSubTest", n, "-peer", A, nic="eth0", netns=pods[B][0], middleware=name
            )
            for n in range(2)
        ]
        publisher = perftest.pub(
            *both, "-numSubscribers", 2, "-peer", B, nic="eth0", netns=pods[A][0], middleware=name
        )
        if processes == 1:
            assert publisher.end() == 3
        else:
            end_all(publisher, *subscribers)
            assert {each.k8sdds["received"] for each in subscribers} == {publisher.k8sdds["sent"]}
            wait_s = longer_than(started)


@pytest.mark.parametrize(
    ("name", "transport"),
    sampled([("cyclonedds", "UDPv6"), ("fastdds", "UDPv6"), ("zenoh", "TCPv6")], every_run=1),
)
def test_rules_for_pods_admit_ipv6(perftest: Perftest, pods: Pods, name: str, transport: str) -> None:
    used = Communication(name, perftest.domain)
    with_ipv6 = {ipv6(address): pod for address, pod in pods.items()}
    link = (pods[A][0], pods[B][0])
    wait_s = 60
    for domain in (used.domain, used.domain + 1):
        started = time.monotonic()
        enforce(network_policy.policies(APPLICATION, replace(used, domain=domain)), with_ipv6)
        processes = perftest.begin(
            *("-transport", transport, "-discoveryTimeout", wait_s), link=link, peers=False, middleware=name,
            pub=("-peer", ipv6(B)), sub=("-peer", ipv6(A)),
        )  # fmt: skip
        end_all(*processes, codes=() if domain == used.domain else (3, 3))
        wait_s = longer_than(started)
