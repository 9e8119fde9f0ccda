"""Assign colors and markers to networks: the same in every figure, table and report, for light and dark screens.

The colors are distinguishable with the common forms of color blindness (after Okabe and Ito, "Color Universal
Design", 2008, and Paul Tol, "Colour schemes", SRON/EPS/TN/09-002). Each network of k8sdds has a marker of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.networks import NETWORKS
from k8sdds.networks.network import NetworkColor

INK, MUTED, GRID, PAPER = "#1b1b1f", "#62626b", "#dcdce2", "#fffffe"
"""Colors of figures, except those of networks. HTML reports replace each by a CSS variable, so nothing else may use
them."""

_KNOWN = {name: network.color for name, network in NETWORKS.items() if network.color}
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

_VARIABLES = (
    ("ink", INK, "#ececf1"), ("muted", MUTED, "#a3a3b0"), ("grid", GRID, "#3a3a44"), ("paper", PAPER, "#16161a"),
    *((f"c-{color.light.strip('#')}", color.light, color.dark) for color in dict.fromkeys((*_KNOWN.values(), *_FREE))),
)  # fmt: skip
"""The CSS variables of every page: name, color on light and on dark background."""


def network_colors(labels: Sequence[str]) -> dict[str, NetworkColor]:
    """Return a color for each label: a network's own color, or the free colors, first those with other markers.

    Colors repeat if there are more unknown labels than free colors. Figures therefore also label lines directly.
    """
    # A label may end with an engine, such as `flannel-ipsec (userspace ESP)`. The first label of a network gets the
    # network's color; a second engine of the same network gets a free color.
    owners: dict[str, str] = {}
    for label in labels:
        owners.setdefault(label.partition(" (")[0], label)
    colors = {label: _KNOWN[name] for name, label in owners.items() if name in _KNOWN}
    taken = {color.marker for color in colors.values()}
    free = sorted(_FREE, key=lambda color: color.marker in taken)
    unknown = [label for label in labels if label not in colors]
    return colors | {label: free[index % len(free)] for index, label in enumerate(unknown)}


def variant_colors(labels: Sequence[str]) -> dict[str, NetworkColor]:
    """Return a color for each of many labels, such as networks with several levels; colors repeat only at the end."""
    colors = (*_KNOWN.values(), *_FREE)
    return {label: colors[index % len(colors)] for index, label in enumerate(labels)}


def css_variables() -> dict[str, list[tuple[str, str]]]:
    """Return the CSS variables of a page, as (name, color), for `light` and `dark`."""
    return {
        "light": [(name, light) for name, light, _ in _VARIABLES],
        "dark": [(name, dark) for name, _, dark in _VARIABLES],
    }


def themed(svg: str) -> str:
    """Replace the colors of an SVG by the CSS variables that every page defines."""
    for name, light, _ in _VARIABLES:
        svg = svg.replace(light, f"var(--{name})")
    return svg
