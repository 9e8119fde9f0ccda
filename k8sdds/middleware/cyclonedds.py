"""Eclipse Cyclone DDS."""

from __future__ import annotations

from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.model.security import Protection
from k8sdds.model.trial import Cell


class CycloneDDS(K8sddsPerftest):
    """The default middleware. It has no discovery server."""

    def __init__(self) -> None:
        super().__init__("cyclonedds")

    def unsupported(self, cell: Cell) -> str | None:
        """Reject asynchronous publishing."""
        if cell.publish_mode == "asynchronous":
            return "Cyclone DDS sends in the thread that writes: publish_mode must be synchronous"
        return None

    def unsupported_protection(self, protection: Protection) -> tuple[str, str] | None:
        """Reject AES-128, which Cyclone DDS 0.10 does not implement."""
        if protection.aes_bits == 128:
            return "Cyclone DDS 0.10 always uses AES-256", "leave aes_bits out, or use another middleware"
        return None
