"""Participants to nodes, by number: what `spread` and `packed` mean on every testbed."""

from __future__ import annotations


def spread(publishers: int, subscribers: int, nodes: int) -> dict[str, int]:
    """Participants to nodes: publishers first, one each; subscribers in turn on the nodes without a
    publisher while there are any."""
    places = {f"pub{i}": i % nodes for i in range(publishers)}
    taken = set(places.values())
    others = [node for node in range(nodes) if node not in taken] or list(range(nodes))
    # With all nodes taken, start behind the first publisher so that samples cross the wire.
    if len(others) == nodes:
        others = others[1:] + others[:1]
    places |= {f"sub{i}": others[i % len(others)] for i in range(subscribers)}
    return places


def packed(publishers: int, subscribers: int) -> dict[str, int]:
    """On as few nodes as samples need to cross a link: publishers on the first, subscribers on the second."""
    return {f"pub{i}": 0 for i in range(publishers)} | {f"sub{i}": 1 for i in range(subscribers)}


def same_node(places: dict[str, object]) -> tuple[str, str] | None:
    """A publisher and a subscriber on one node, whose samples would not cross a link, or None."""
    for pub, node in places.items():
        for sub, other in places.items():
            if pub.startswith("pub") and sub.startswith("sub") and node == other:
                return pub, sub
    return None
