"""Discovery mechanisms: multicast, a list of peers, or a discovery server.

The names of the mechanisms are the values of `-discovery` of k8sdds-perftest. A server is the Fast DDS
discovery server for `fastdds` and RTI Cloud Discovery Service for `connext`. The modules only return options,
environments and Kubernetes objects. Multicast has no module: it needs none of these.
"""

from __future__ import annotations

from k8sdds.discovery.service import Service

MULTICAST, PEERS, SERVER = "multicast", "peers", "server"

__all__ = ["MULTICAST", "PEERS", "SERVER", "Service"]
