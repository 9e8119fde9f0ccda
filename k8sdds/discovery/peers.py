"""A list of all others: every participant calls each address by unicast.

The way of Cyclone DDS, which has no server, and of any network that carries no multicast. Every participant
needs the whole list: one that is only called may answer, but two that do not know each other's address
never meet. Cyclone DDS and Fast DDS call as many ports at an address as there may be participants on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.trial import Place


def addresses(participant: str, places: Mapping[str, Place]) -> list[str]:
    """Where the others are, an address for each of them, even where several share a node's."""
    return [place.address for name, place in places.items() if name != participant]


def options(participant: str, places: Mapping[str, Place]) -> list[str]:
    """k8sdds-perftest's options for a list of peers, which is what it does unless told otherwise."""
    return [word for address in addresses(participant, places) for word in ("-peer", address)]
