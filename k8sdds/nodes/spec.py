"""Describe local nodes: what to create, and how to reach it. Pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k8sdds.model import ip_families as ip
from k8sdds.model.ip_families import IpFamily
from k8sdds.system.errors import InputError
from k8sdds.system.ssh import Target

USER = "k8sdds"
"""Login user of the nodes; root can log in with the same key."""
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?")
"""A host name that is short enough for the name of a network interface (15 characters)."""


@dataclass(frozen=True)
class NodeLink:
    """A node's link to the switch. Rate and delay apply to packets that the node receives."""

    mtu: int = 1500
    rate_mbps: float | None = None
    delay_ms: float | None = None


@dataclass(frozen=True)
class SharedFolder:
    """A folder of this machine that is mounted read-only in a node."""

    host: Path
    inside: str


@dataclass(frozen=True)
class NodeSpec:
    """One node to create."""

    name: str
    sudo: bool = True
    """Whether USER can use sudo without a password."""
    boot: Literal["systemd", "sshd"] = "systemd"
    """The first process. With `sshd`, a node has no services but starts at once."""
    watches: int = 0
    """Inotify instances that the software on the node will need, in addition to those of the node itself."""
    shares: tuple[SharedFolder, ...] = ()
    disk_mib: int | None = None
    """Size of the disk, which is then in memory. By default, it is on the disk of the cache folder."""
    link: NodeLink = NodeLink()
    ip_families: tuple[IpFamily, ...] = ip.DEFAULT
    """IP versions of its addresses; SSH uses the first."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"{self.name!r} is not a valid node name",
                "use up to 12 characters of a-z, 0-9 and -, and no - at the start or end",
            )


@dataclass(frozen=True)
class LocalNode:
    """A running or stopped node, and how to reach it."""

    cluster: str
    name: str
    address: str
    port: int
    user: str
    arch: str
    """Kubernetes' name of the architecture: amd64, arm64."""
    state: Literal["running", "boots", "stopped"]
    """`boots`: it has not answered yet; the command that started it may have been killed."""
    key_file: Path
    known_hosts_file: Path
    ssh_config: Path
    """File with a Host block for every node of the cluster: `ssh -F SSH_CONFIG NAME`."""
    proxy_command: tuple[str, ...]
    """Command that connects stdin and stdout to the node's SSH port, for ssh's ProxyCommand."""
    shares: tuple[SharedFolder, ...] = ()
    """Folders of this machine that are mounted in it."""

    @property
    def target(self) -> Target:
        """How SSH reaches it."""
        files = self.key_file, self.known_hosts_file
        return Target(self.name, self.address, self.user, self.port, *files, self.proxy_command)

    def ssh_block(self) -> str:
        """Return the Host block for ssh_config."""
        options = (f"HostName={self.address}", "StrictHostKeyChecking=yes", *self.target.options()[1::2])
        return "\n  ".join((f"Host {self.name}", *options)) + "\n"
