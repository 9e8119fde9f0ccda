"""How participants discover each other: by multicast, by a list of peers, or by a discovery server.

The names of the mechanisms are the values of `-discovery` of k8sdds-perftest. A server is the discovery service of a
middleware: its manifest is in deploy/discovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.apply import read_manifest
from k8sdds.system.errors import InputError

MULTICAST, PEERS, SERVER = "multicast", "peers", "server"

REPLICAS = 2
"""Two servers, so that discovery works while one is lost or moves to another node."""
MAX_REPLICAS = 9


@dataclass(frozen=True)
class Service:
    """The discovery service of one middleware."""

    name: str
    """Name of its StatefulSet and its headless Service."""
    title: str
    manifest: str
    """File below deploy/."""
    port: int
    image: str | None = None
    """Image of its pods; None if only the user can provide an image."""
    program: str | None = None
    """Its program in the lab; None if it cannot run there."""
    package: str = ""
    """Debian package of the program."""

    @property
    def ready(self) -> tuple[str, str]:
        """Kind and name of the object whose `status.readyReplicas` counts the servers that listen."""
        return "statefulset", self.name

    def objects(
        self,
        namespace: str,
        replicas: int = REPLICAS,
        image: str | None = None,
        tolerations: Sequence[dict[str, str]] = (),
    ) -> list[dict[str, Any]]:
        """Return the Kubernetes objects in the order in which to create them.

        Raises:
            InputError: There is no image, or the number of replicas is out of range.
        """
        image = image or self.image
        if image is None:
            raise InputError(
                f"{self.title} has no free image",
                f"provide an image: {versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE} (k8sdds docs connext)",
            )
        if not 1 <= replicas <= MAX_REPLICAS:
            raise InputError(f"{replicas} discovery servers", f"give 1 to {MAX_REPLICAS}")
        objects = read_manifest(self.manifest)
        for manifest in objects:
            manifest["metadata"]["namespace"] = namespace
            if manifest["kind"] == "StatefulSet":
                manifest["spec"]["replicas"] = replicas
                manifest["spec"]["template"]["spec"]["containers"][0]["image"] = image
                if tolerations:
                    manifest["spec"]["template"]["spec"]["tolerations"] = list(tolerations)
        return objects

    def servers(self, namespace: str, replicas: int = REPLICAS) -> tuple[str, ...]:
        """Return `HOST:PORT` of every server; the n-th has the id n-1."""
        return tuple(
            f"{self.name}-{number}.{self.name}.{namespace}.svc:{self.port}" for number in range(replicas)
        )
