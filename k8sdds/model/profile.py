"""What to build: a profile of machines, Kubernetes, network and tuning, as the user writes it in YAML."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from k8sdds import versions
from k8sdds.system.strict import Strict
from k8sdds.system.yaml_text import nearest

Role = Literal["control-plane", "worker"]
Architecture = Literal["amd64", "arm64", "arm"]
TuningName = Literal["connext", "kernel-optimizations", "nic-optimizations"]

LABEL_NAME = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
# No shell, ssh or YAML sign has a place in these, and none can be taken for an option.
HOST_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
ADDRESS = r"^[A-Za-z0-9:][A-Za-z0-9.:%_-]*$"
USER = r"^[A-Za-z_][A-Za-z0-9_.-]*$"


LabelName = Annotated[str, Field(pattern=LABEL_NAME)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE)]


class Access(Strict):
    """How ssh reaches a machine. What is not given is ssh_config's, as for `ssh NAME` by hand."""

    user: str | None = Field(default=None, pattern=USER, description="login; it needs `sudo -n`, or is root")
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = Field(default=None, description="private key file; ~ is your home")
    known_hosts: str | None = Field(default=None, description="file of known host keys instead of your own")
    ssh_config: str | None = Field(default=None, description="ssh_config file instead of your own (ssh -F)")


class Node(Access):
    """A machine of the cluster."""

    name: str = Field(pattern=HOST_NAME, description="its host name, and the name of the Kubernetes node")
    address: str | None = Field(
        default=None, pattern=ADDRESS, description="IP address or name for ssh; none: the name"
    )
    roles: list[Role] = Field(default=["worker"], min_length=1)
    labels: dict[LabelName, LabelValue] = Field(default={})
    architecture: Architecture | None = Field(
        default=None, description="expected; a machine of another is refused before anything is touched"
    )

    @property
    def is_control_plane(self) -> bool:
        """Whether the API server runs on it."""
        return "control-plane" in self.roles


class Kubernetes(Strict):
    """The cluster's version and its address ranges."""

    version: str = Field(default=versions.KUBERNETES, pattern=r"^1\.[0-9]{1,2}\.[0-9]{1,2}$")
    pod_cidr: ipaddress.IPv4Network = ipaddress.IPv4Network("10.244.0.0/16")
    service_cidr: ipaddress.IPv4Network = ipaddress.IPv4Network("10.96.0.0/12")

    @property
    def minor(self) -> int:
        """36 of 1.36.3."""
        return int(self.version.split(".")[1])

    @model_validator(mode="after")
    def _ranges_apart(self) -> Kubernetes:
        if self.pod_cidr.overlaps(self.service_cidr):
            raise ValueError(f"pod_cidr {self.pod_cidr} and service_cidr {self.service_cidr} overlap")
        if self.pod_cidr.prefixlen > 23:
            raise ValueError(f"pod_cidr {self.pod_cidr} is too small: every node takes a /24 of it")
        return self


class PodNetwork(Strict):
    """The network of the pods: its name, or a mapping with options.

    The validation context `pod_networks` maps each network that can be installed to whether it needs
    `password_file`. Without this context, neither is validated.
    """

    name: str = "flannel-vxlan"
    mtu: int | None = Field(
        default=None, ge=576, le=65535, description="of the pods; none: the network's own"
    )
    interface: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
        description="interface between the nodes; none: that of the default route",
    )
    password_file: str | None = Field(
        default=None, description="file with the secret of an encrypted network"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _name_exists(cls, name: str, info: ValidationInfo) -> str:
        known = (info.context or {}).get("pod_networks")
        if known and name not in known:
            raise ValueError(f"unknown network {name!r}{nearest(name, list(known))}")
        return name

    @model_validator(mode="after")
    def _password_file_fits(self, info: ValidationInfo) -> PodNetwork:
        needed = (info.context or {}).get("pod_networks", {}).get(self.name)
        if needed is True and self.password_file is None:
            raise ValueError(
                f"{self.name} requires password_file: a file with the secret, readable only by you"
            )
        if needed is False and self.password_file is not None:
            raise ValueError(f"{self.name} does not use password_file: remove it")
        return self


class MetricsServer(Strict):
    """Serves `kubectl top`."""

    resolution_s: int = Field(default=15, ge=10, le=600, description="below 10 s the kubelet has nothing new")


class Software(Strict):
    """Where programs and images come from."""

    source: Literal["packages", "bundle"] = "packages"
    bundle: str | None = Field(default=None, description="a bundle's folder or tar; none: the one built here")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _bundle_is_used(self) -> Software:
        if self.bundle is not None and self.source != "bundle":
            raise ValueError("a bundle is named, but source is packages")
        return self


class Profile(Strict):
    """One profile file."""

    page: ClassVar[str] = "docs/deploy.md"

    name: str = Field(pattern=HOST_NAME, description="the cluster's name, written on its machines")
    title: str = ""
    description: str = ""
    provider: Literal["ssh", "local"] = Field(
        default="ssh", description="local: the nodes are made on this machine, of namespaces"
    )
    access: Access = Access()
    nodes: list[Node] = Field(min_length=1, max_length=200)
    kubernetes: Kubernetes = Kubernetes()
    runtime: Literal["containerd"] = "containerd"
    network: PodNetwork = PodNetwork()
    tuning: list[TuningName] = Field(default=[], description="sets of settings of the operating system")
    metrics_server: MetricsServer | None = MetricsServer()
    discovery_service: bool = Field(default=False, description="run a Fast DDS discovery server, replicated")
    software: Software = Software()

    @field_validator("nodes")
    @classmethod
    def _nodes_apart(cls, nodes: list[Node]) -> list[Node]:
        for what in ("name", "address"):
            seen: set[str] = set()
            for node in nodes:
                value = getattr(node, what)
                if value is not None and value in seen:
                    raise ValueError(f"two nodes have the {what} {value}")
                seen.add(value)
        heads = [node.name for node in nodes if node.is_control_plane]
        if len(heads) != 1:
            found = ", ".join(heads) if heads else "none"
            raise ValueError(f"one node has the role control-plane: here {found}")
        return nodes

    @model_validator(mode="after")
    def _local(self) -> Profile:
        if self.provider != "local":
            return self
        for one in (self.access, *self.nodes):
            given = [key for key in (*Access.model_fields, "address") if getattr(one, key, None) is not None]
            if given:
                raise ValueError(f"local nodes are reached by what k8sdds knows: leave out {given[0]}")
        for name in (self.name, *(node.name for node in self.nodes)):
            if len(name) > LOCAL_NAME:
                raise ValueError(
                    f"{name}: names of local nodes and their cluster have {LOCAL_NAME} signs at most"
                )
        if self.software.source != "bundle":
            raise ValueError("local nodes reach no package repository: software must be bundle")
        return self

    @model_validator(mode="after")
    def _architectures(self) -> Profile:
        if self.kubernetes.minor > versions.LAST_MINOR_ON_ARM32:
            for node in self.nodes:
                if node.architecture == "arm":
                    raise ValueError(
                        f"{node.name}: Kubernetes {self.kubernetes.version} has no 32-bit ARM,"
                        f" which ended with 1.{versions.LAST_MINOR_ON_ARM32}"
                    )
        return self

    @property
    def control_plane(self) -> Node:
        """The node of the API server."""
        return next(node for node in self.nodes if node.is_control_plane)

    def node(self, name: str) -> Node:
        """The node of this name; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def access_of(self, node: Node) -> Access:
        """How ssh reaches a node: its own keys, else the profile's."""
        return Access(
            user=node.user or self.access.user,
            port=node.port or self.access.port,
            key=node.key or self.access.key,
            known_hosts=node.known_hosts or self.access.known_hosts,
            ssh_config=node.ssh_config or self.access.ssh_config,
        )


LOCAL_NAME = 12
"""A local node's link carries its name."""
