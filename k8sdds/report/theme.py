"""Colour and marker of each network, the same in every figure, table and report, on light and dark.

Colours are apart for the common forms of colour blindness (after Okabe and Ito, "Color Universal Design",
2008, and Paul Tol, "Colour schemes", SRON/EPS/TN/09-002), and every network has its own marker as well.
"""

from __future__ import annotations

from k8sdds.networks import NETWORKS
from k8sdds.networks.network import NetworkColor

INK, MUTED, GRID, PAPER = "#1b1b1f", "#62626b", "#dcdce2", "#fffffe"
"""Colours of figures besides the networks'. No other element may have them: in HTML they become variables."""

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


def network_colors(labels: list[str]) -> dict[str, NetworkColor]:
    """A look for each label: known networks always have theirs, others take the free ones in order.

    With more unknown labels than free looks, colours repeat; every figure labels directly as well.
    """
    found: dict[str, NetworkColor] = {}
    # An engine behind the name, `flannel-ipsec (userspace ESP)`, leaves a network its look; a second engine
    # of the same network in the same report takes a free one.
    bare = {label: label.partition(" (")[0] for label in labels}
    owner = {name: label for label, name in reversed(bare.items()) if name in _KNOWN}
    unknown = [label for label in labels if owner.get(bare[label]) != label]
    for label in labels:
        known = owner.get(bare[label]) == label
        found[label] = _KNOWN[bare[label]] if known else _FREE[unknown.index(label) % len(_FREE)]
    return found


def variant_colors(labels: list[str]) -> dict[str, NetworkColor]:
    """A look for each of many labels, such as networks under several levels: all different up to 15."""
    every = (*_KNOWN.values(), *_FREE)
    return {label: every[index % len(every)] for index, label in enumerate(labels)}


def css_variables(labels: list[str]) -> dict[str, list[tuple[str, str]]]:
    """The custom properties of the page, `light` and `dark`: (name, colour)."""
    used = list(dict.fromkeys((*network_colors(labels).values(), *_KNOWN.values(), *_FREE)))
    light = [(_NAMES[colour], colour) for colour in _NAMES]
    dark = [(_NAMES[colour], _DARK[colour]) for colour in _NAMES]
    light += [(f"c-{look.light.strip('#')}", look.light) for look in used]
    dark += [(f"c-{look.light.strip('#')}", look.dark) for look in used]
    return {"light": light, "dark": dark}


def themed(svg: str) -> str:
    """An SVG whose colours follow the page's custom properties; without them it looks as before."""
    for colour, name in _NAMES.items():
        svg = svg.replace(colour, f"var(--{name}, {colour})")
    for look in (*_KNOWN.values(), *_FREE):
        svg = svg.replace(look.light, f"var(--c-{look.light.strip('#')}, {look.light})")
    return svg
