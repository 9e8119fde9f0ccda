"""Discovery mechanisms on a cluster: multicast, a list of peers, or a discovery server.

The names of the mechanisms are the values of `-discovery` of k8sdds-perftest. A server is the Fast DDS
discovery server for `fastdds` and RTI Cloud Discovery Service for `connext`. Pure data: nothing is contacted
here. Multicast has no module: the testbed verifies it between the pods.
"""

from __future__ import annotations

from k8sdds.discovery.service import Service

MULTICAST, PEERS, SERVER = "multicast", "peers", "server"

__all__ = ["MULTICAST", "PEERS", "SERVER", "Service"]
