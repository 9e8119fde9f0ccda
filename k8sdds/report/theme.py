"""Assign colors and markers to networks: the same in every figure, table and report, for light and dark screens.

The colors are distinguishable with the common forms of color blindness (after Okabe and Ito, "Color Universal
Design", 2008, and Paul Tol, "Colour schemes", SRON/EPS/TN/09-002). Every network also has a different marker.
"""

from __future__ import annotations

from k8sdds.networks import NETWORKS
from k8sdds.networks.network import NetworkColor

INK, MUTED, GRID, PAPER = "#1b1b1f", "#62626b", "#dcdce2", "#fffffe"
"""Colors of figures, except those of networks. HTML reports replace each by a CSS variable, so nothing else may use
them."""

_DARK = {INK: "#ececf1", MUTED: "#a3a3b0", GRID: "#3a3a44", PAPER: "#16161a"}
_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}

_KNOWN = {name: network.color for name, network in NETWORKS.items()}
_FREE = (
    NetworkColor("#b8860b", "#f0c04a", "p"),
    NetworkColor("#c2589a", "#f0a0d0", "<"),
    NetworkColor("#6b6b12", "#c6c65e", ">"),
    NetworkColor("#117733", "#6fd08c", "h"),
    NetworkColor("#7a4b2a", "#cf9d78", "*"),
    NetworkColor("#5b5b8c", "#b4b4ea", "d"),
    NetworkColor("#a11d33", "#ff7f8f", "H"),
    NetworkColor("#4f6d2f", "#b5d68a", "8"),
)
"""Colors for labels that are not the name of a known network."""


def network_colors(labels: list[str]) -> dict[str, NetworkColor]:
    """Return a color for each label: a network's own color, or the free colors in order.

    Colors repeat if there are more unknown labels than free colors. Figures therefore also label lines directly.
    """
    colors: dict[str, NetworkColor] = {}
    # A label may end with an engine, such as `flannel-ipsec (userspace ESP)`. The first label of a network gets the
    # network's color; a second engine of the same network gets a free color.
    names = {label: label.partition(" (")[0] for label in labels}
    owners = {name: label for label, name in reversed(names.items()) if name in _KNOWN}
    unknown = [label for label in labels if owners.get(names[label]) != label]
    for label in labels:
        known = owners.get(names[label]) == label
        colors[label] = _KNOWN[names[label]] if known else _FREE[unknown.index(label) % len(_FREE)]
    return colors


def variant_colors(labels: list[str]) -> dict[str, NetworkColor]:
    """Return a color for each of many labels, such as networks with several levels; colors repeat only at the end."""
    colors = (*_KNOWN.values(), *_FREE)
    return {label: colors[index % len(colors)] for index, label in enumerate(labels)}


def css_variables(labels: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the CSS variables of a page, as (name, color), for `light` and `dark`."""
    used = list(dict.fromkeys((*network_colors(labels).values(), *_KNOWN.values(), *_FREE)))
    light = [(name, color) for color, name in _NAMES.items()]
    dark = [(name, _DARK[color]) for color, name in _NAMES.items()]
    light += [(f"c-{color.light.strip('#')}", color.light) for color in used]
    dark += [(f"c-{color.light.strip('#')}", color.dark) for color in used]
    return {"light": light, "dark": dark}


def themed(svg: str) -> str:
    """Replace the colors of an SVG by the CSS variables that every page defines."""
    for color, name in _NAMES.items():
        svg = svg.replace(color, f"var(--{name})")
    for network_color in (*_KNOWN.values(), *_FREE):
        light = network_color.light
        svg = svg.replace(light, f"var(--c-{light.strip('#')})")
    return svg
