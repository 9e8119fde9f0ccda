"""A list of all others: every participant calls each address by unicast.

The way of Cyclone DDS, which has no server, and of any network that carries no multicast. Every participant
needs the whole list: one that is only called may answer, but two that do not know each other's address
never meet. Cyclone DDS and Fast DDS call as many ports at an address as there may be participants on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.trial import Endpoint


def addresses(participant: str, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """Where the others are, an address for each of them, even where several share a node's."""
    return [endpoint.address for name, endpoint in endpoints.items() if name != participant]


def options(participant: str, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """k8sdds-perftest's options for a list of peers, which is what it does unless told otherwise."""
    return [word for address in addresses(participant, endpoints) for word in ("-peer", address)]
