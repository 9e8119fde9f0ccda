"""RTI Cloud Discovery Service for Connext: it relays the participants' first announcements, nothing else.

Endpoints and samples then go from participant to participant. Image and licence are the user's. Clients are
told by `NDDS_DISCOVERY_PEERS`; a list without a multicast address also keeps them from listening there.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.discovery.service import Service

CONNEXT = Service(
    "k8sdds-cloud-discovery", "RTI Cloud Discovery Service", "discovery/connext.yaml", versions.CONNEXT_DISCOVERY_PORT, None
)  # fmt: skip


def environment(servers: Sequence[str]) -> dict[str, str]:
    """What a participant's environment says of these services."""
    return {"NDDS_DISCOVERY_PEERS": ",".join(f"rtps@udpv4://{server}" for server in servers)}
