"""RTI Cloud Discovery Service for Connext: it relays the participants' first announcements and nothing else.

Endpoint announcements and samples go directly from participant to participant. Image and license are the
user's. `NDDS_DISCOVERY_PEERS` names the servers to a participant; a list without a multicast address also
keeps it from listening to multicast.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.discovery.service import Service

PORT = 7400
"""UDP port of RTI Cloud Discovery Service: its default."""

CONNEXT = Service(
    name="k8sdds-cloud-discovery",
    title="RTI Cloud Discovery Service",
    manifest="discovery/connext.yaml",
    port=PORT,
)


def environment(servers: Sequence[str]) -> dict[str, str]:
    """Return the environment variable that names these servers, each `HOST:PORT`, to a participant."""
    return {"NDDS_DISCOVERY_PEERS": ",".join(f"rtps@udpv4://{server}" for server in servers)}
