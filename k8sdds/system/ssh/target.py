"""Describe how SSH reaches a machine. Pure data."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

CONNECT_S = 10
"""Timeout of a connection attempt."""

_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?/?"
)


@dataclass(frozen=True)
class Target:
    """How SSH reaches a machine. None and empty values leave the choice to ssh_config."""

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    proxy_command: tuple[str, ...] = ()
    proxy_jump: str = ""
    """Jump hosts as in `ssh -J`."""
    ssh_config: Path | None = None

    @classmethod
    def of_jump_hosts(cls, jump_hosts: str, ssh_config: Path | None) -> Target:
        """Return how SSH reaches the last of several jump hosts, through the others.

        Args:
            jump_hosts: As in `ProxyJump` of ssh_config: [USER@]HOST[:PORT], separated by commas.
            ssh_config: The file in which the hosts are described.
        """
        others, _, last = jump_hosts.replace(" ", "").rpartition(",")
        match = _HOP.fullmatch(last)
        if match is None:
            return cls(last, proxy_jump=others, ssh_config=ssh_config)
        host, port = match["v6"] or match["host"], match["port"]
        return cls(
            host,
            user=match["user"],
            port=int(port) if port else None,
            proxy_jump=others,
            ssh_config=ssh_config,
        )

    @property
    def alias(self) -> str:
        """The name under which ssh_config is searched, as in `ssh ALIAS`."""
        return self.address or self.name

    def options(self) -> list[str]:
        """Return the options with which the user's ssh program reaches the machine."""
        options = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        if self.user is not None:
            options += ["-l", self.user]
        if self.port is not None:
            options += ["-p", str(self.port)]
        if self.key is not None:
            options += ["-o", f"IdentityFile={self.key}", "-o", "IdentitiesOnly=yes"]
        if self.known_hosts is not None:
            options += ["-o", f"UserKnownHostsFile={self.known_hosts}"]
        if self.proxy_command:
            options += ["-o", f"ProxyCommand={shlex.join(self.proxy_command)}"]
        if self.proxy_jump:
            options += ["-J", self.proxy_jump]
        return options
