"""eProsima Fast DDS, with its discovery server.

Each participant gets the addresses of all servers, each with its id: the n-th pod of the StatefulSet has the
id n-1. A participant registers with the servers that respond, so one server is enough. Participants that
have discovered each other no longer need a server: losing all servers only keeps new participants out.
Servers ignore DDS domains, so the trials of a campaign run one after the other and never overlap.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from typing_extensions import override

from k8sdds import versions, workloads
from k8sdds.discovery import PEERS, Service
from k8sdds.discovery import SERVER as BY_SERVER
from k8sdds.middleware.files import RECEIVE_BUFFER_BYTES, Configuration, ReadyFile
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.ports import GROUP, Ports, rtps
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.security import NONE
from k8sdds.model.trial import Cell

PEERS_RANGE = 4
"""Participants that it searches for at an address, unless it is configured otherwise."""
HANDSHAKE_BYTES = 8192
"""A message that holds certificates and signed permissions."""

SERVER = Service(
    name="k8sdds-discovery",
    title="Fast DDS discovery server",
    manifest="discovery/fastdds.yaml",
    port=11811,  # the server's default
    image=versions.DISCOVERY_SERVER_IMAGE,
    program="fast-discovery-server",
    package="fastdds-tools",
)

_NAMESPACE = 'xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"'
# k8sdds-perftest measured with this period of heartbeats; the library's own is 3 s. The misspelling is the library's.
_WRITER_TIMES = """\
      <times>
        <heartbeatPeriod><sec>0</sec><nanosec>10000000</nanosec></heartbeatPeriod>
        <nackSupressionDuration><sec>0</sec><nanosec>1000000</nanosec></nackSupressionDuration>
      </times>
"""
_MULTICAST_READER = f"""\
    <!-- Receive samples by multicast. -->
          <multicastLocatorList><locator><udpv4><address>{GROUP}</address></udpv4></locator></multicastLocatorList>
"""
_MEASURED = f"""\
<dds {_NAMESPACE}>
  <profiles>
    <participant profile_name="participant">
      <rtps>
        <listenSocketBufferSize>{RECEIVE_BUFFER_BYTES}</listenSocketBufferSize>
      </rtps>
    </participant>
    <data_writer profile_name="writer">
      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>
    </data_writer>
  </profiles>
</dds>
"""


class FastDDS(K8sddsPerftest):
    """Fast DDS, with its discovery server."""

    shared_memory = shares_memory_in_one_network = has_super_clients = True
    auto_message_bytes = USUAL_MESSAGE_BYTES
    settings = K8sddsPerftest.settings - {"batch_bytes"} | {"discovery_servers"}
    refusals = MappingProxyType(
        {"batch_bytes": "Fast DDS has no batches: leave out batch_bytes, or use cyclonedds"}
    )

    def __init__(self) -> None:
        super().__init__("fastdds", SERVER)

    @override
    def unsupported(self, cell: Cell) -> str | None:
        size = cell.message_bytes
        if cell.security != NONE and (size == "mtu" or (isinstance(size, int) and size < HANDSHAKE_BYTES)):
            return (
                f"fastdds does not fragment the handshake of DDS Security: message_bytes {size} is too short for it;"
                f" give at least {HANDSHAKE_BYTES}, or another middleware"
            )
        if cell.security != NONE and workloads.find(cell.test).starts_fleets:
            return "DDS Security of fastdds hides the numbers of members: security must be none, or use cyclonedds"
        fills_message = cell.fragment_bytes in ("default", "max") or cell.fragment_bytes == size == "mtu"
        if not fills_message:
            return f"fragments of fastdds fill a message: fragment_bytes must be default, not {cell.fragment_bytes}"
        return super().unsupported(cell)

    @override
    def service_command(self, address: str, index: int = 0) -> list[str]:
        assert SERVER.program is not None
        # Servers of one node can have one address.
        return [SERVER.program, "-i", str(index), "-l", address, "-p", str(SERVER.port + index)]

    @override
    def ports(self, domain: int, processes: int, discovery: str) -> Ports:
        needs = ""
        if discovery == PEERS and processes > PEERS_RANGE:
            needs = (
                f"`maxInitialPeersRange` of the transport must be at least {processes}: by default, Fast DDS searches"
                f" for {PEERS_RANGE} participants at an address"
            )
        known = rtps(domain, processes, discovery, needs)
        if discovery != BY_SERVER:
            return known
        # The server passes on what participants would send to each other to match.
        return replace(known, from_peers=tuple(port + 1 for port in known.from_service))

    @override
    def ready_files(self, configuration: Configuration) -> list[ReadyFile]:
        size = configuration.message_bytes
        length = f"        <maxMessageSize>{size}</maxMessageSize>\n" if size is not None else ""
        kind = "RELIABLE" if configuration.reliable else "BEST_EFFORT"
        locators = _MULTICAST_READER if configuration.multicast else ""
        text = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<profiles {_NAMESPACE}>
    <transport_descriptors>
      <transport_descriptor>
        <transport_id>udp</transport_id>
        <type>UDPv4</type>
        <sendBufferSize>{max(131_072, size or 0)}</sendBufferSize>
        <receiveBufferSize>{RECEIVE_BUFFER_BYTES}</receiveBufferSize>
{length}      </transport_descriptor>
    </transport_descriptors>
    <participant profile_name="participant" is_default_profile="true">
      <rtps>
        <useBuiltinTransports>false</useBuiltinTransports>
        <userTransports><transport_id>udp</transport_id></userTransports>
      </rtps>
    </participant>
    <data_writer profile_name="writer" is_default_profile="true">
      <qos>
        <reliability><kind>{kind}</kind></reliability>
        <publishMode><kind>SYNCHRONOUS</kind></publishMode>
      </qos>
{_WRITER_TIMES}      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>
    </data_writer>
    <data_reader profile_name="reader" is_default_profile="true">
      <qos>
        <reliability><kind>{kind}</kind></reliability>
      </qos>
{locators}      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>
    </data_reader>
</profiles>
"""
        old = "`FASTRTPS_DEFAULT_PROFILES_FILE`"
        return [
            ReadyFile(
                "fastdds.xml",
                f"Fast DDS: set `FASTDDS_DEFAULT_PROFILES_FILE` (before version 3: {old})",
                text,
                {"FASTDDS_DEFAULT_PROFILES_FILE": "", "FASTRTPS_DEFAULT_PROFILES_FILE": ""},
                _MEASURED,
            )
        ]
