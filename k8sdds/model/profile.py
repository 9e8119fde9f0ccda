"""Define the profile, which describes the cluster to build: machines, Kubernetes, network and tuning."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from k8sdds import versions
from k8sdds.model.kubernetes import Kubernetes
from k8sdds.system.strict import Placed, Remarks, Strict, Title, as_list, mistake, short_for
from k8sdds.system.yaml_text import nearest

Role = Literal["control-plane", "worker"]
Architecture = Literal["amd64", "arm64", "arm"]
TuningName = Literal[
    "connext",
    "kernel-optimizations",
    "nic-optimizations",
    "tcp-buffers",
    "tuned-accelerator-performance",
    "tuned-hpc-compute",
    "tuned-latency-performance",
    "tuned-network-latency",
    "tuned-network-throughput",
    "tuned-throughput-performance",
]

_NAME = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
LABEL_NAME = rf"^{_NAME}$"
LABEL_VALUE = rf"^{_VALUE}$"
TAINT = rf"^{_NAME}(={_VALUE})?:(NoSchedule|PreferNoSchedule|NoExecute)$"
# These contain no character that is special to a shell, ssh or YAML, and cannot be mistaken for an option.
HOST_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
ADDRESS = r"^[A-Za-z0-9:][A-Za-z0-9.:%_-]{0,252}$"
USER = r"^[A-Za-z_][A-Za-z0-9_.-]*$"

# URLs without credentials, which have no place in a profile.
MIRROR_URL = r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?$"
PROXY_URL = r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?$"
NO_PROXY = r"^[A-Za-z0-9.:/*-]+$"

DOCUMENTATION_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
)
"""Addresses that are reserved for documentation: RFC 5737, RFC 3849 and RFC 9637."""
DOCUMENTATION_NAME = re.compile(r"(^|\.)example(\.(com|net|org))?$")
"""Host names that are reserved for documentation: RFC 2606."""


MAX_NETWORKS = 50
"""Maximum number of networks that a profile names."""

LabelName = Annotated[str, Field(pattern=LABEL_NAME)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE)]


def is_for_documentation(address: str) -> bool:
    """Return whether an IP address or a host name is reserved for documentation."""
    try:
        ip_address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return bool(DOCUMENTATION_NAME.search(address.rstrip(".").lower()))
    return any(ip_address in network for network in DOCUMENTATION_NETWORKS)


def taint_identity(taint: str) -> str:
    """Return KEY:EFFECT of a taint, which identifies it on a node."""
    key_value, _, effect = taint.rpartition(":")
    return f"{key_value.partition('=')[0]}:{effect}"


def toleration(taint: str) -> dict[str, str]:
    """Return the toleration of a taint KEY:EFFECT, whatever its value."""
    key, _, effect = taint.rpartition(":")
    return {"key": key, "operator": "Exists", "effect": effect}


class Access(Strict):
    """How SSH reaches a machine. Missing values are left to ssh_config, as for `ssh NAME` by hand."""

    user: str | None = Field(default=None, pattern=USER, description="login: root, or a user with `sudo -n`")
    port: int | None = Field(default=None, ge=1, le=65535, description="port of the SSH server")
    key: str | None = Field(default=None, description="private key file; ~ is your home folder")
    known_hosts: str | None = Field(default=None, description="file of known host keys; default: your own")
    ssh_config: str | None = Field(default=None, description="ssh_config file (ssh -F); default: your own")


class Node(Access, Placed):
    """A machine of the cluster."""

    name: str = Field(pattern=HOST_NAME, description="host name, and name of the Kubernetes node")
    address: str | None = Field(
        default=None, pattern=ADDRESS, description="IP address or name for SSH; default: the name"
    )
    roles: list[Role] = Field(
        default=["worker"], min_length=1, description="exactly one node must have the role `control-plane`"
    )
    labels: dict[LabelName, LabelValue] = Field(default={}, description="labels of the Kubernetes node")
    taints: list[Annotated[str, Field(pattern=TAINT)]] = Field(
        default=[],
        description="taints of the Kubernetes node, KEY[=VALUE]:EFFECT as for kubectl: keep all pods away except those"
        " of k8sdds",
    )
    architecture: Architecture | None = Field(
        default=None,
        description="expected architecture; deploy refuses a machine of another before it makes changes",
    )

    @field_validator("taints")
    @classmethod
    def _taints_are_distinct(cls, taints: list[str]) -> list[str]:
        if len({taint_identity(taint) for taint in taints}) < len(taints):
            raise ValueError("two taints have the same key and effect")
        return taints

    @property
    def is_control_plane(self) -> bool:
        """Whether the API server runs on this node."""
        return "control-plane" in self.roles

    @property
    def is_example(self) -> bool:
        """Whether the address is reserved for documentation, so that no machine has it."""
        return self.address is not None and is_for_documentation(self.address)


class PodNetwork(Strict):
    """The network of the pods: its name, or a mapping with options.

    The validation context `pod_networks` maps each network that can be installed to whether it needs
    `password_file`. Without this context, neither is validated.
    """

    name: str = Field(default="flannel-vxlan", description="the network to install")
    mtu: int | None = Field(
        default=None,
        ge=576,
        le=65535,
        description="MTU of the pods, in bytes; default: chosen by the network",
    )
    interface: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
        description="interface between the nodes; default: that of the default route",
    )
    password_file: str | None = Field(
        default=None, description="file with the secret of an encrypted network"
    )
    engine: Literal["sleeve", "kube-proxy"] | None = Field(
        default=None,
        description="for weavenet: `sleeve` is its datapath in userspace, for kernels without Open vSwitch."
        " For Cilium: `kube-proxy` handles the Services, and packets pass the packet filters of the nodes; Cilium"
        " replaces it otherwise. Default: the plugin's own datapath",
    )

    _from_text = short_for("name")

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


class Registry(Strict):
    """Registries that the nodes pull images from instead of the public ones."""

    mirrors: list[Annotated[str, Field(pattern=MIRROR_URL)]] = Field(
        min_length=1,
        description="URLs of registries that serve the images of all registries, tried in this order",
    )
    ca_file: str | None = Field(
        default=None, description="file with the certificate of the authority that signed theirs (PEM)"
    )
    login_file: str | None = Field(
        default=None, description="file with USER:PASSWORD that only you can read (mode 0600)"
    )

    @model_validator(mode="after")
    def _login_is_encrypted(self) -> Registry:
        plain = [url for url in self.mirrors if url.startswith("http://")]
        if plain and (self.login_file or self.ca_file):
            raise ValueError(f"{plain[0]} is not encrypted, so login_file and ca_file require https://")
        if len(set(self.mirrors)) < len(self.mirrors):
            raise ValueError("a mirror is listed twice")
        return self


class Proxy(Strict):
    """HTTP proxies through which the nodes reach package repositories and registries."""

    http: str | None = Field(default=None, pattern=PROXY_URL, description="proxy for http:// URLs")
    https: str | None = Field(default=None, pattern=PROXY_URL, description="proxy for https:// URLs")
    no_proxy: list[Annotated[str, Field(pattern=NO_PROXY)]] = Field(
        default=[],
        description="hosts, domains and address ranges to reach directly, in addition to the nodes, their pods"
        " and Services",
    )

    @model_validator(mode="after")
    def _is_used(self) -> Proxy:
        if self.http is None and self.https is None:
            raise ValueError("set http, https or both")
        return self


class MetricsServer(Strict):
    """metrics-server, which serves `kubectl top`."""

    resolution_s: int = Field(
        default=15, ge=10, le=600, description="seconds between samples; kubelets update theirs every 10 s"
    )


Archives = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]


class Software(Strict):
    """Source of programs and images."""

    source: Literal["packages", "bundle"] = Field(
        default="packages",
        description="`packages`: from the distribution and the Kubernetes project; `bundle`: from a bundle",
    )
    bundle: str | None = Field(
        default=None, description="folder or tar file of a bundle; default: built on this machine"
    )

    images: dict[str, Archives] = Field(
        default={},
        description="archives of container images, by network or by reference of an image, instead of their registries:"
        " a file of `docker save` or an OCI archive, or a list of files for several architectures",
    )

    _from_text = short_for("source")

    @model_validator(mode="after")
    def _is_consistent(self) -> Software:
        if self.images and (self.bundle is not None or self.source != "bundle"):
            raise ValueError(
                "images is set, but no bundle is created: set source: bundle without `bundle`, or use"
                " `bundle create --image`"
            )
        if self.bundle is not None and self.source != "bundle":
            raise ValueError("bundle is set, but source is packages: set source: bundle")
        return self


class Profile(Strict):
    """A profile file."""

    page: ClassVar[str] = "profiles"

    name: str = Field(
        pattern=HOST_NAME, description="name of the cluster, which deploy writes on its machines"
    )
    title: Title = Field(default="", description="one line for lists")
    description: Remarks = Field(default="", description="remarks")
    provider: Literal["ssh", "local"] = Field(
        default="ssh",
        description="`ssh`: machines that exist; `local`: nodes created on this machine from namespaces",
    )
    access: Access = Field(
        default=Access(), description="how SSH reaches all machines; a node can have the same keys"
    )
    nodes: list[Node] = Field(min_length=1, max_length=200, description="the machines")
    kubernetes: Kubernetes = Field(default=Kubernetes(), description="release and address ranges")
    runtime: Literal["containerd"] = Field(default="containerd", description="container runtime")
    network: PodNetwork = Field(default=PodNetwork(), description="network of the pods, or only its name")
    networks: list[PodNetwork] = Field(
        default=[],
        max_length=MAX_NETWORKS,
        description="other networks that the cluster can be switched to, with their options; a bundle for the"
        " profile contains them",
    )
    second_network: Literal["macvlan"] | None = Field(
        default=None,
        description="network of the interface `net1`, which Multus adds to pods that request it, next to `network`;"
        " default: none",
    )
    tuning: list[TuningName] = Field(default=[], description="tuning sets of the operating system")
    metrics_server: MetricsServer | None = Field(
        default=MetricsServer(), description="metrics-server; `null`: not installed"
    )
    discovery_service: bool = Field(default=False, description="run a replicated Fast DDS discovery server")
    registry: Registry | None = Field(default=None, description="mirrors of image registries; default: none")
    proxy: Proxy | None = Field(default=None, description="HTTP proxies of the nodes; default: none")
    software: Software = Field(default=Software(), description="source of the software, or only its name")

    @field_validator("nodes")
    @classmethod
    def _nodes_are_distinct(cls, nodes: list[Node]) -> list[Node]:
        for what in ("name", "address"):
            seen: set[str] = set()
            for index, node in enumerate(nodes):
                value = getattr(node, what)
                if value is not None and value in seen:
                    raise mistake(f"two nodes have the {what} {value}", index, what)
                seen.add(value)
        control_planes = [node.name for node in nodes if node.is_control_plane]
        if len(control_planes) != 1:
            names = ", ".join(control_planes) if control_planes else "none"
            raise ValueError(f"exactly one node must have the role control-plane, not {names}")
        return nodes

    @field_validator("networks")
    @classmethod
    def _networks_are_distinct(cls, networks: list[PodNetwork], info: ValidationInfo) -> list[PodNetwork]:
        installed = info.data.get("network")
        # The list may also name the installed network, alone or as it is in `network`.
        repeated = installed and (installed, PodNetwork.model_construct(name=installed.name))
        others = [network for network in networks if not repeated or network not in repeated]
        named = {installed.name} if installed else set()
        for network in others:
            index = networks.index(network)
            if network.name in named:
                raise mistake(f"{network.name} is named twice, with other options", index, "name")
            if network.interface is not None:
                raise mistake("set it in `network`: it applies to all networks", index, "interface")
            named.add(network.name)
        return others

    @model_validator(mode="after")
    def _local(self) -> Profile:
        if self.provider != "local":
            return self
        for access in (self.access, *self.nodes):
            given = [
                key for key in (*Access.model_fields, "address") if getattr(access, key, None) is not None
            ]
            if given:
                raise ValueError(f"local nodes have no access settings: remove {given[0]}")
        for name in (self.name, *(node.name for node in self.nodes)):
            if len(name) > MAX_LOCAL_NAME:
                raise ValueError(
                    f"{name}: names of local nodes and their cluster have at most {MAX_LOCAL_NAME} characters"
                )
        if self.software.source != "bundle":
            raise ValueError("local nodes cannot reach package repositories: set software: bundle")
        return self

    @field_validator("second_network")
    @classmethod
    def _is_another_network(cls, name: str | None, info: ValidationInfo) -> str | None:
        named = [each for each in (info.data.get("network"), *info.data.get("networks", ())) if each]
        if name in {each.name for each in named}:
            raise ValueError(f"{name} is in network or networks already: name it once")
        return name

    @model_validator(mode="after")
    def _architectures(self) -> Profile:
        if self.kubernetes.minor > versions.LAST_MINOR_ON_ARM32:
            for node in self.nodes:
                if node.architecture == "arm":
                    raise ValueError(
                        f"{node.name}: Kubernetes {self.kubernetes.version} does not support 32-bit ARM,"
                        f" the last version that does is 1.{versions.LAST_MINOR_ON_ARM32}"
                    )
        return self

    def options_of(self, network: str) -> PodNetwork | None:
        """Return a network with the options that the profile sets, or None if the profile does not name it."""
        return next((each for each in (self.network, *self.networks) if each.name == network), None)

    @property
    def control_plane(self) -> Node:
        """The node that runs the API server."""
        return next(node for node in self.nodes if node.is_control_plane)

    def node(self, name: str) -> Node:
        """Return the node of this name; raise KeyError without one."""
        return {node.name: node for node in self.nodes}[name]

    def access_of(self, node: Node) -> Access:
        """Return how SSH reaches a node: the settings of the node, else those of the profile."""
        keys = Access.model_fields
        return Access(**{key: getattr(node, key) or getattr(self.access, key) for key in keys})


MAX_LOCAL_NAME = 12
"""Names of network links contain the names of local nodes, and are at most 15 characters long."""
