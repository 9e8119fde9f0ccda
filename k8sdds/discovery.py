"""How participants discover each other: by multicast, by a list of peers, or by a discovery server or router.

The names of the mechanisms are the values of `-discovery` of k8sdds-perftest. A server is the discovery service of a
middleware: its manifest is in deploy/discovery.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from k8sdds import versions
from k8sdds.kubernetes.apply import read_manifest
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import native_program

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
    protocol: Literal["tcp", "udp"] = "udp"
    """Protocol of the port by which it is known to listen."""
    image: str | None = None
    """Image of its pods; None if only the user can provide an image."""
    program: str | None = None
    """Its program in the lab; None if it cannot run there."""
    package: str = ""
    """Debian package of the program; empty if it is built with the native programs."""
    replicas: int = REPLICAS
    """Pods on a cluster."""
    relays: bool = False
    """Whether all samples pass it; otherwise participants only find each other by it."""

    node: str = ""
    """Node of its pods on a cluster; empty: Kubernetes selects it."""
    host: bool = False
    """Whether its pods use the network of their node."""

    def at(self, node: str, host: bool) -> Service:
        """Return the same service on a node, or on the network of its nodes, under a name of its own."""
        where = hashlib.sha256(node.encode()).hexdigest()[:8] if node else ""
        name = "-".join(filter(None, (self.name, where, "host" if host else "")))
        return replace(self, name=name, node=node, host=host)

    @property
    def path(self) -> str | None:
        """The path of its program in the lab; None if it is not installed."""
        if self.program is None:
            return None
        try:
            return native_program(self.program)
        except PrerequisiteError:
            return shutil.which(self.program)

    @property
    def ready(self) -> tuple[str, str]:
        """Kind and name of the object whose `status.readyReplicas` counts the servers that listen."""
        return "statefulset", self.name

    def objects(
        self,
        namespace: str,
        replicas: int | None = None,
        image: str | None = None,
        tolerations: Sequence[dict[str, str]] = (),
    ) -> list[dict[str, Any]]:
        """Return the Kubernetes objects in the order in which to create them."""
        image, replicas = image or self.image, self.replicas if replicas is None else replicas
        if image is None:
            raise InputError(
                f"{self.title} has no free image",
                f"provide an image: {versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE} (k8sdds docs connext)",
            )
        if not 1 <= replicas <= MAX_REPLICAS:
            raise InputError(f"{replicas} discovery servers", f"give 1 to {MAX_REPLICAS}")
        objects = read_manifest(self.manifest)
        objects = [_renamed(each, objects[0]["metadata"]["name"], self.name) for each in objects]
        for manifest in objects:
            manifest["metadata"]["namespace"] = namespace
            if manifest["kind"] == "StatefulSet":
                manifest["spec"]["replicas"] = replicas
                pod = manifest["spec"]["template"]["spec"]
                pod["containers"][0]["image"] = image
                if tolerations:
                    pod["tolerations"] = list(tolerations)
                if self.node:
                    pod["nodeName"] = self.node
                if self.host:
                    pod["hostNetwork"] = True
        return objects

    def servers(self, namespace: str) -> tuple[str, ...]:
        """Return `HOST:PORT` of every server; the n-th has the id n-1."""
        return tuple(
            f"{self.name}-{number}.{self.name}.{namespace}.svc:{self.port}" for number in range(self.replicas)
        )


def _renamed(value: Any, old: str, new: str) -> Any:
    """Return objects in which each text that is a name has another one."""
    if isinstance(value, dict):
        return {key: _renamed(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, old, new) for each in value]
    return new if value == old else value
