"""A discovery service on a cluster: its manifests in deploy/discovery, and where participants ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.apply import read_manifest
from k8sdds.system.errors import InputError

REPLICAS = 2
"""One can be lost, or be on its way to another node."""
MAX_REPLICAS = 9


@dataclass(frozen=True)
class Service:
    """A service of one middleware."""

    name: str
    """Of its StatefulSet and its headless service."""
    title: str
    manifest: str
    """File in deploy/discovery."""
    port: int
    image: str | None
    """What it runs; None: only the user's own image can."""

    @property
    def ready(self) -> tuple[str, str]:
        """Kind and name of the object whose `status.readyReplicas` says that all servers listen."""
        return "statefulset", self.name

    def objects(
        self, namespace: str, replicas: int = REPLICAS, image: str | None = None
    ) -> list[dict[str, Any]]:
        """The Kubernetes objects in the order in which they are made. InputError where they cannot be had."""
        image = image or self.image
        if image is None:
            raise InputError(
                f"{self.title} has no free image",
                f"give yours: {versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE} (docs/connext.md)",
            )
        if not 1 <= replicas <= MAX_REPLICAS:
            raise InputError(f"{replicas} discovery servers", f"give 1 to {MAX_REPLICAS}")
        made = []
        for one in read_manifest(self.manifest):
            one["metadata"]["namespace"] = namespace
            if one["kind"] == "StatefulSet":
                one["spec"]["replicas"] = replicas
                one["spec"]["template"]["spec"]["containers"][0]["image"] = image
            made.append(one)
        return made

    def servers(self, namespace: str, replicas: int = REPLICAS) -> tuple[str, ...]:
        """`HOST:PORT` of every server, the n-th being the one with the id n-1."""
        return tuple(
            f"{self.name}-{number}.{self.name}.{namespace}.svc:{self.port}" for number in range(replicas)
        )
