"""Colors and markers of networks."""

from __future__ import annotations

from k8sdds.networks import NETWORKS
from k8sdds.report import theme


def test_no_two_networks_share_a_color_or_a_marker() -> None:
    colors = [network.color for network in NETWORKS.values()]
    for values in ({c.light for c in colors}, {c.dark for c in colors}, {c.marker for c in colors}):
        assert len(values) == len(NETWORKS)


def test_labels_have_the_color_of_their_network_and_others_another_marker() -> None:
    labels = ["flannel-vxlan", "calico-bgp", "flannel-vxlan (other)", "unknown-1", "unknown-2"]
    colors = theme.network_colors(labels)
    assert colors["flannel-vxlan"] == NETWORKS["flannel-vxlan"].color
    assert len({color.marker for color in colors.values()}) == len(labels)
    assert {f"c-{color.light.strip('#')}" for color in colors.values()} <= dict(
        theme.css_variables()["dark"]
    ).keys()
