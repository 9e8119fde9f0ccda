"""Eclipse Cyclone DDS."""

from __future__ import annotations

from types import MappingProxyType

from typing_extensions import override

from k8sdds.middleware.files import RECEIVE_BUFFER_BYTES, Configuration, ReadyFile
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.ports import Ports, rtps
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.security import Protection

FRAGMENT_BYTES, RETRANSMIT_BYTES, MAX_INDEX = 1344, 1456, 9
"""Its defaults."""

_INTERNAL = f"""\
    <Internal>
      <SocketReceiveBufferSize min="default" max="{RECEIVE_BUFFER_BYTES >> 20} MiB"/>
    </Internal>
"""
_PEERS = """\
      <!-- This network carries no multicast: name the addresses of the other participants.
      <Peers><Peer Address="192.0.2.10"/></Peers> -->
"""


class CycloneDDS(K8sddsPerftest):
    """The default middleware. It has no discovery server."""

    auto_message_bytes = USUAL_MESSAGE_BYTES
    settings = K8sddsPerftest.settings - {"publish_mode"}
    refusals = MappingProxyType(
        {"publish_mode": "Cyclone DDS sends in the thread that writes: publish_mode must be synchronous"}
    )

    def __init__(self) -> None:
        super().__init__("cyclonedds")

    @override
    def unsupported_protection(self, protection: Protection) -> tuple[str, str] | None:
        if protection.aes_bits == 128:
            return "Cyclone DDS 0.10 always uses AES-256", "leave aes_bits out, or use another middleware"
        return None

    @override
    def ports(self, domain: int, processes: int, discovery: str) -> Ports:
        needs = "`Discovery/ParticipantIndex` must be `auto`: otherwise Cyclone DDS may use ephemeral ports"
        if processes > MAX_INDEX + 1:
            needs += (
                f". `Discovery/MaxAutoParticipantIndex` must be at least {processes - 1}: by default, Cyclone DDS 0.10"
                f" uses and searches for indexes 0 to {MAX_INDEX}"
            )
        return rtps(domain, processes, discovery, needs)

    @override
    def ready_files(self, configuration: Configuration) -> list[ReadyFile]:
        # Discovery by multicast needs a network that carries it; the measured participants knew each other's addresses.
        discovery = "spdp" if configuration.carries_multicast else "false"
        allowed = "true" if configuration.multicast else discovery
        general = f"      <AllowMulticast>{allowed}</AllowMulticast>\n"
        if (size := configuration.message_bytes) is not None:
            general += f"""\
      <MaxMessageSize>{size} B</MaxMessageSize>
      <FragmentSize>{min(FRAGMENT_BYTES, (size - 84) & ~3)} B</FragmentSize>
      <MaxRexmitMessageSize>{min(RETRANSMIT_BYTES, size)} B</MaxRexmitMessageSize>
"""
        text = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<CycloneDDS>
  <Domain Id="any">
    <General>
{general}    </General>
    <Discovery>
      <ParticipantIndex>auto</ParticipantIndex>
{_PEERS if allowed == "false" else ""}    </Discovery>
{_INTERNAL}  </Domain>
</CycloneDDS>
"""
        return [
            ReadyFile(
                "cyclonedds.xml",
                "Cyclone DDS: set `CYCLONEDDS_URI=file:///…/cyclonedds.xml`",
                text,
                {"CYCLONEDDS_URI": "file://"},
                f'<CycloneDDS>\n  <Domain Id="any">\n{_INTERNAL}  </Domain>\n</CycloneDDS>\n',
            )
        ]
