"""Which networks a campaign can install on a cluster."""

from __future__ import annotations

import pytest

from k8sdds.deploy import deployed_clusters, profiles
from k8sdds.deploy.facts import Facts
from k8sdds.networks import find
from k8sdds.testbeds.cluster.network_switch import NetworkSwitch, _obstacle

PROFILE = """name: lab
provider: {provider}
software: {software}
nodes: [{{name: one, roles: [control-plane]}}, {{name: two}}]
network: flannel-vxlan
networks: [{{name: flannel-ipsec, password_file: key}}]
"""
BARE = ("bridge", "vxlan", "nftables", "dummy", "ip_set", "xt_set")


def machine(*features: str, lacks: tuple[str, ...] = ()) -> Facts:
    return Facts({}, {"feature": features, "lacks": lacks})


@pytest.mark.parametrize("provider", ["local", "ssh"])
def test_machines_need_what_the_daemons_need(provider: str) -> None:
    software = "bundle" if provider == "local" else "packages"
    lab = profiles.parse(PROFILE.format(provider=provider, software=software), "lab.yaml")

    def obstacle(network: str, *features: str) -> str:
        return _obstacle(lab, find(network), None, {"one": machine(*BARE, *features), "two": machine(*BARE)})

    # Not what the lab needs to build these networks: strongSwan, wireguard-tools, nftables at the ingress of a link.
    assert obstacle("flannel-hostgw") == obstacle("flannel-vxlan") == ""
    esp = {name: machine(*BARE, "esp", "wireguard") for name in ("one", "two")}
    assert _obstacle(lab, find("flannel-wireguard"), None, esp) == ""
    assert _obstacle(lab, find("flannel-ipsec"), None, esp) == ""  # the profile names its password file
    # Every machine counts, on local nodes and on others.
    assert obstacle("weavenet", "openvswitch").startswith("two: the kernel does not support openvswitch")
    assert obstacle("weavenet").startswith("one: the kernel does not support openvswitch")
    userspace = _obstacle(lab, find("weavenet"), "sleeve", {"one": machine(*BARE)})
    assert "kernel" not in userspace  # at most an image is missing
    lacking = {"one": machine(*BARE, lacks=("esp no such module",))}
    assert "which flannel-ipsec needs (no such module)" in _obstacle(
        lab, find("flannel-ipsec"), None, lacking
    )
    assert "requires password_file, in `networks` of the profile" in _obstacle(
        lab, find("weavenet-encrypt"), None, {"one": machine(*BARE, "esp", "openvswitch")}
    )


def test_every_mode_that_a_cluster_can_install_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = profiles.parse(PROFILE.format(provider="local", software="bundle"), "lab.yaml")
    machines = {"one": Facts({}, {"feature": BARE, "image": ("own:1 sha256:5",)})}
    monkeypatch.setattr(deployed_clusters, "machines", lambda cluster: machines)
    monkeypatch.setattr(deployed_clusters, "current_network", lambda cluster: ("flannel-vxlan", None))
    monkeypatch.setattr(profiles, "deployed", lambda cluster: lab)
    switch = NetworkSwitch("lab")
    assert "flannel-hostgw" in switch.installable()
    assert "openvswitch" in switch.obstacle("weavenet") and "kernel" not in switch.obstacle(
        "weavenet (sleeve)"
    )
    assert list(switch.images("one")) == ["own:1"] and not switch.images("two")
