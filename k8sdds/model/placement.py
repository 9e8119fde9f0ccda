"""Assign participants to nodes by number: what the placements by name mean on every testbed."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.trial import Cell, Participant, participants


def numbered(cell: Cell, nodes: int) -> dict[Participant, int]:
    """Return the number of each participant's node, for a placement by name."""
    if not cell.crosses_links:
        return together(cell.publishers, cell.subscribers)
    if cell.placement == "packed":
        return packed(cell.publishers, cell.subscribers)
    return spread(cell.publishers, cell.subscribers, nodes)


def spread(publishers: int, subscribers: int, nodes: int) -> dict[Participant, int]:
    """Return one node per publisher, and the remaining nodes in turn for the subscribers.

    Subscribers share nodes with publishers only if every node has a publisher.
    """
    members = participants(publishers, subscribers)
    places = {member: member.index % nodes for member in members if member.publishes}
    taken = set(places.values())
    others = [node for node in range(nodes) if node not in taken] or list(range(nodes))
    # If every node has a publisher, start after the first one so that samples cross a link.
    if len(others) == nodes:
        others = others[1:] + others[:1]
    return places | {member: others[member.index % len(others)] for member in members if member.subscribes}


def packed(publishers: int, subscribers: int) -> dict[Participant, int]:
    """Return the fewest nodes that let samples cross a link: all publishers on 0, all subscribers on 1."""
    return {member: 0 if member.publishes else 1 for member in participants(publishers, subscribers)}


def together(publishers: int, subscribers: int) -> dict[Participant, int]:
    """Return the first node for all."""
    return dict.fromkeys(participants(publishers, subscribers), 0)


def same_node(cell: Cell, places: Mapping[Participant, object]) -> tuple[Participant, Participant] | None:
    """Return a publisher and a subscriber on the same node, whose samples would not cross the network, or None.

    Nodes of a graph may share a node of the testbed, if samples of any flow cross a link.
    """
    if cell.graph and crossing(cell, places):
        return None
    return next((pair for pair in cell.pairs if places[pair[0]] == places[pair[1]]), None)


def crossing(cell: Cell, places: Mapping[Participant, object]) -> tuple[Participant, Participant] | None:
    """Return the first publisher and subscriber on different nodes, between which networks are observed, or None."""
    return next((pair for pair in cell.pairs if places[pair[0]] != places[pair[1]]), None)
