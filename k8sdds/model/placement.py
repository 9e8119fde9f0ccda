"""Assign participants to nodes by number: the meaning of `spread` and `packed` on every testbed."""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.trial import Participant, participants


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


def same_node(places: Mapping[Participant, object]) -> tuple[Participant, Participant] | None:
    """Return a publisher and a subscriber on the same node, or None.

    Their samples would not cross a link, so the trial would not measure the network.
    """
    for publisher, node in places.items():
        for subscriber, other in places.items():
            if publisher.publishes and subscriber.subscribes and node == other:
                return publisher, subscriber
    return None
