"""The rules of the lab's Weave are those of weaver and weave-npc, as recorded on a node of a real cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from k8sdds.deploy.network_switch import node_state
from k8sdds.networks.weave import lab

RECORDED = node_state.parse((Path(__file__).parent / "recorded/traces-weavenet-sleeve.txt").read_text())
PODS = "10.244.0.0/16"


def shape(rule: str) -> list[str]:
    """Return the matches of a rule and its target, in an order that does not depend on the program that printed it.

    Comments differ. An ipset with the addresses of a Kubernetes namespace is a range of addresses in the lab.
    """
    rule = re.sub(
        r'--match-set (?!weaver)("[^"]*"|\S+) (src|dst)', lambda match: f"-{match[2][0]} PODS", rule
    )
    rule = rule.replace("-m set -", "-").replace(lab.POD_CIDR, "PODS").replace(PODS, "PODS").replace("=", " ")
    words = shlex.split(re.sub(r'-m comment --comment "(\\.|[^"\\])*"', "", rule))
    options: list[str] = []
    for word in words:
        if (word.startswith("-") and (not options or options[-1] != "!")) or word == "!":
            options.append(word)
        else:
            options[-1] += f" {word}"
    return sorted(options)


def recorded(table: str, chain: str) -> list[list[str]]:
    """Return the recorded rules of a chain, one for each Kubernetes namespace counted once."""
    rules = (rule.split(" ", 2) for rule in RECORDED.iptables["iptables-nft", table].rules)
    shapes: list[list[str]] = []
    for _, name, rule in rules:
        if name == chain and shape(rule) not in shapes:
            shapes.append(shape(rule))
    return shapes


@pytest.mark.parametrize("chain", [chain for chain in lab._FILTER if chain.startswith("WEAVE")])
def test_chains_of_weave_npc(chain: str) -> None:
    assert [shape(rule) for rule in lab._FILTER[chain]] == recorded("filter", chain)


def test_the_rules_of_weave_come_before_those_of_kube_proxy() -> None:
    own = [shape(rule) for rule in lab._FILTER["FORWARD"] if "KUBE-" not in rule.partition(" -j ")[2]]
    found = recorded("filter", "FORWARD")
    assert found[: len(own)] == own
    assert all(any("KUBE-" in word for word in rule) for rule in found[len(own) :])
    # Those of INPUT come after them.
    assert [shape(rule) for rule in lab._INPUT] == recorded("filter", "INPUT")[-2:]


def test_masquerading() -> None:
    """The lab leaves out the rule for addresses of the node's own pods, which only the first packet of a flow passes."""
    first, *others = recorded("nat", "WEAVE")
    assert "weaver-no-masq-local" not in str(others) and "-j RETURN" in first
    assert [shape(rule) for rule in lab._NAT["WEAVE"]] == others
