"""Discovery by a list of peers: each participant contacts the addresses of all others by unicast.

Cyclone DDS, which has no discovery server, uses it on networks without multicast. Every participant needs the
whole list, because two participants that do not know each other's address never discover each other. At each
address, Cyclone DDS and Fast DDS try one port for every participant that may share it.
"""

from __future__ import annotations

from collections.abc import Mapping

from k8sdds.model.trial import Endpoint


def options(participant: str, endpoints: Mapping[str, Endpoint]) -> list[str]:
    """Return the options of k8sdds-perftest for the addresses of all other participants.

    Participants that share a node's address give one option each.
    """
    others = [endpoint.address for name, endpoint in endpoints.items() if name != participant]
    return [part for address in others for part in ("-peer", address)]
