"""Compare the kernel objects on a node of a real cluster with those of the same network in the lab."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from k8sdds.model.trial import Cell
from k8sdds.networks import find
from k8sdds.networks.flannel.lab import POD_CIDR
from k8sdds.testbeds.lab.plan import make_plan
from tests import kernel_objects
from tests.clusters import Deployed
from tests.kernel_objects import Place
from tests.lab import building

POD_NAMESPACE = r"""
for name in $(ls /run/netns); do
  if ip -n "$name" -4 -o address | grep -q "inet ADDRESS/"; then echo "$name"; fi
done
"""


def undeclared(network: str, cluster: Deployed, inside: Callable[..., str]) -> list[str]:
    """Return the undeclared differences between the lab and a node of a cluster with this network and a pod on it.

    `inside(node, *argv, stdin)` runs a command on a node.
    """
    pods = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    begin = POD_CIDR.partition(".0")[0] + "."
    node, node_address, pod_address = next(
        (pod["spec"]["nodeName"], pod["status"]["hostIP"], pod["status"]["podIP"])
        for pod in pods
        if pod["status"]["phase"] == "Running" and pod["status"].get("podIP", "").startswith(begin)
    )
    (namespace,) = inside(node, "sh", stdin=POD_NAMESPACE.replace("ADDRESS", pod_address)).split()
    on_cluster = Place(
        lambda script: inside(node, "sh", stdin=script), node_address,
        lambda script: inside(node, "ip", "netns", "exec", namespace, "sh", stdin=script), pod_address,
    )  # fmt: skip
    return kernel_objects.undeclared(
        building.objects(network), kernel_objects.read(on_cluster), find(network).kernel_differences
    )


_POLICY_RULES = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
iptables-nft-save -t filter 2>/dev/null | grep -e '^-A'
ipset save
"""
_GENERATED = (
    (re.compile(r'--comment (?:"[^"]*"|\S+)'), "--comment *"),
    (re.compile(r"KUBE-NWPLCY-[0-9A-Z]{16}"), "<policy>"),
    (re.compile(r"KUBE-(SRC|DST)-[0-9A-Z]{16}"), r"KUBE-\1-*"),
    (re.compile(r" initval \S+"), ""),
    (re.compile(r"10\.244\.\d+\.\d+"), "<pod>"),
)


def policy_rules(run: Callable[[str], str], address: str) -> list[str]:
    """Return the rules of a pod's chain, and the rules and ipsets of all policies, each line once.

    `run` runs a script on the pod's node.
    """
    lines = run(_POLICY_RULES).splitlines()
    jump = re.compile(rf"^-A KUBE-ROUTER-FORWARD -d {re.escape(address)}/32 .* -j (\S+)$")
    chain = next(match[1] for match in map(jump.match, lines) if match)
    kept = re.compile(rf"-A {re.escape(chain)} |-A KUBE-NWPLCY-[0-9A-Z]{{16}} |(create|add) KUBE-(SRC|DST)-")
    found: dict[str, None] = {}
    for line in lines:
        if kept.match(line):
            text = line.replace(chain, "<chain of the pod>")
            for pattern, replacement in _GENERATED:
                text = pattern.sub(replacement, text)
            found[text] = None
    return list(found)


def policy_rules_in_lab(network: str, policies: int) -> list[str]:
    """Return `policy_rules` of a pod of a lab network all of whose pods so many policies select."""
    cell = Cell(network=network, test="throughput", payload_bytes=1024, policies=policies)
    lab_network = building.build(make_plan(cell))
    try:
        address = lab_network.plan.datapath.attachments["sub0"].address
        return policy_rules(lambda script: lab_network.sandbox.run(["sh"], script, netns="node1"), address)
    finally:
        lab_network.close()
