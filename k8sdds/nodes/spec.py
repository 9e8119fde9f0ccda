"""What a local node shall be, and what it is: pure data."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k8sdds.system.errors import InputError

USER = "k8sdds"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?")
"""A host name, short enough for a link to carry it (15 characters)."""


@dataclass(frozen=True)
class Link:
    """A machine's cable to the switch. Rate and delay apply to what the machine receives."""

    mtu: int = 1500
    rate_mbps: float | None = None
    delay_ms: float | None = None


@dataclass(frozen=True)
class Share:
    """A folder of this machine that a node sees, read-only."""

    host: Path
    inside: str


@dataclass(frozen=True)
class NodeSpec:
    """One machine to make. Raises InputError where it cannot be made so."""

    name: str
    user: str = USER
    """Who logs in; root can as well, by the same key."""
    sudo: bool = True
    """Whether `user` may become root without a password."""
    boot: Literal["systemd", "sshd"] = "systemd"
    """The first process. `sshd` alone starts in a moment, for many hosts at once."""
    containerd: bool = True
    watches: int = 0
    """Inotify instances that will be needed for what is to run on it, beside those of the machine itself."""
    shares: tuple[Share, ...] = ()
    disk_mib: int | None = None
    """Size of what the machine can write, kept in memory; without it, the cache folder's disk."""
    link: Link = Link()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"{self.name!r} cannot name a node",
                "up to 12 of a-z, 0-9 and -, beginning and ending without -",
            )
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", self.user):
            raise InputError(f"{self.user!r} cannot name a user", "a-z, 0-9 and -")
        for share in self.shares:
            if not share.host.is_dir() or not share.inside.startswith("/"):
                raise InputError(
                    f"{share.host} cannot be shared as {share.inside}", "a folder, and an absolute path"
                )


@dataclass(frozen=True)
class LocalNode:
    """A machine that stands, or was stopped, and how to reach it."""

    cluster: str
    name: str
    address: str
    port: int
    user: str
    arch: str
    """As Kubernetes calls it: amd64, arm64."""
    state: Literal["running", "boots", "stopped"]
    """`boots`: it has not answered yet; who was to wait for it may have been killed."""
    key_file: Path
    known_hosts_file: Path
    ssh_config: Path
    """A Host block for every node of the cluster: `ssh -F SSH_CONFIG NAME`."""
    proxy_command: tuple[str, ...]
    """What connects stdin and stdout to the machine's port, for ssh's ProxyCommand."""

    def ssh_block(self) -> str:
        """The Host block for ssh_config."""
        return "\n".join(
            (
                f"Host {self.name}",
                f"  HostName {self.address}",
                f"  Port {self.port}",
                f"  User {self.user}",
                f"  IdentityFile {self.key_file}",
                "  IdentitiesOnly yes",
                f"  UserKnownHostsFile {self.known_hosts_file}",
                "  StrictHostKeyChecking yes",
                f"  ProxyCommand {shlex.join(self.proxy_command)}",
                "",
            )
        )
