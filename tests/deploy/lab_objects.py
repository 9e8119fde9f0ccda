"""Compare the kernel objects on a node of a real cluster with those of the same network in the lab."""

from __future__ import annotations

import json
from collections.abc import Callable

from k8sdds.model.trial import Cell
from k8sdds.networks import differences
from k8sdds.networks.flannel.lab import POD_CIDR
from k8sdds.testbeds.lab.plan import make_plan
from tests import kernel_objects
from tests.clusters import Deployed
from tests.kernel_objects import Place
from tests.lab.building import build

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
        in_lab(network), kernel_objects.read(on_cluster), differences.of(network)
    )


def in_lab(network: str) -> list[str]:
    """Return the kernel objects of a node and a pod of a lab network with three nodes."""
    cell = Cell(network=network, test="throughput", payload_bytes=1024, subscribers=2, nodes=3)
    lab_network = build(make_plan(cell))
    try:
        run, plan = lab_network.sandbox.run, lab_network.plan
        return kernel_objects.read(
            Place(
                lambda script: run(["sh"], script, netns="node1"),
                plan.topology.nodes[1].address,
                lambda script: run(["sh"], script, netns="sub0"),
                plan.datapath.attachments["sub0"].address,
            )
        )
    finally:
        lab_network.close()
