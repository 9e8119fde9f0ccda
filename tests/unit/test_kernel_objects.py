"""The comparison of the lab's kernel objects with those of a daemon."""

from __future__ import annotations

import json

import pytest

from k8sdds.networks import NETWORKS
from k8sdds.networks.network import Difference
from tests import kernel_objects

LAB = ["link cni0: mtu 1450", "iptables filter FORWARD: -j FIRST", "iptables filter FORWARD: -j SECOND"]


def difference(**changes: tuple[str, ...]) -> Difference:
    return Difference("this", "that", "nothing: a test", **changes)


def test_only_declared_differences_are_accepted() -> None:
    daemon = [*LAB[1:], "link cni0: mtu 1500"]
    assert kernel_objects.undeclared(LAB, LAB, ()) == []
    assert kernel_objects.undeclared(LAB, daemon, ()) == [
        "only in the lab: link cni0: mtu 1450",
        "only with the daemon: link cni0: mtu 1500",
    ]
    declared = difference(lab=(r"^link cni0: mtu 1450$",), daemon=(r"^link cni0: mtu 1500$",))
    assert kernel_objects.undeclared(LAB, daemon, [declared]) == []
    assert kernel_objects.undeclared(LAB, LAB, [declared]) == [
        "declared, but not only in the lab: ^link cni0: mtu 1450$",
        "declared, but not only in the daemon: ^link cni0: mtu 1500$",
    ]


def test_rules_in_another_order_are_a_difference() -> None:
    (found,) = kernel_objects.undeclared(LAB, [LAB[0], LAB[2], LAB[1]], ())
    assert found.startswith("another order of the rules in filter FORWARD:")


def output(**sections: object) -> str:
    """Return the output of the script with these sections."""
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in sections.items()}
    return "".join(f"\n== {name}\n{text}\n" for name, text in texts.items())


def test_names_and_addresses_become_roles() -> None:
    rules = """*filter
:KUBE-POD-FW-AAAA - [0:0]
-A FORWARD -d 10.244.2.3/32 -m comment --comment "a \\"pod\\"" -j KUBE-POD-FW-AAAA
-A FORWARD -d 10.244.2.4/32 -m comment --comment other -j KUBE-POD-FW-BBBB
-A KUBE-POD-FW-AAAA -s 10.244.0.0/16 -d 10.244.2.0/24 -j ACCEPT
-A KUBE-POD-FW-BBBB -j ACCEPT
COMMIT
"""
    veth = {"flags": ["UP"], "linkinfo": {"info_kind": "veth"}, "link_netnsid": 1, "link_index": 2}
    node = output(
        link=[
            {**veth, "ifname": "veth0123", "ifindex": 7, "mtu": 1450},
            {**veth, "ifname": "veth4567", "ifindex": 8, "mtu": 1450},
        ],
        route=[{"type": "unicast", "dst": "10.244.1.0/24", "gateway": "10.88.0.13", "dev": "eth0"}],
        iptables=rules,
    )
    pod = output(link=[{**veth, "ifname": "eth0", "ifindex": 2, "link_index": 7}])
    lines = kernel_objects.normalized(node, "10.88.0.12", pod, "10.244.2.3")
    assert [line for line in lines if not line.startswith("pod ")] == [
        "link <veth>: flags UP",
        "link <veth>: kind veth",
        "link <veth>: mtu 1450",
        "route main: unicast <peer pods>.0/24 dev eth0 gateway <peer>",
        "iptables filter FORWARD: -d <pod>/32 -m comment --comment * -j <chain of the pod>",
        "iptables filter <chain of the pod>: -s 10.244.0.0/16 -d <pods>.0/24 -j ACCEPT",
    ]


@pytest.mark.parametrize(
    "network", [name for name, network in NETWORKS.items() if network.kernel_differences]
)
def test_every_declared_difference_has_a_cost(network: str) -> None:
    for item in NETWORKS[network].kernel_differences:
        known = "nothing: " if network != "weavenet" else ("nothing: ", "not measured: ")
        assert item.cost.startswith(known), "what costs packets time is part of the lab"
        assert item.lab or item.daemon
