"""Describe how SSH reaches a machine, and why it does not. Pure data."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CONNECT_S = 10
"""Timeout of a connection attempt."""
CHECK_S = 0.5
"""Time in which a thread that waits notices Ctrl-C. The kernel may deliver its signal to any other thread."""
END_S = 2
"""Time in which the threads and processes of a closed connection end."""


class HostError(PrerequisiteError):
    """A machine cannot be reached, or a command failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)
        self.host = host


class HostLost(HostError):
    """The connection to a machine was lost while a script ran."""


@dataclass(frozen=True)
class Login:
    """A machine as a user names it: `[USER@]ADDRESS[:PORT]`."""

    address: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Login:
        """Return the login that a text describes. Before a port, an IPv6 address must be in brackets.

        Raises ValueError, whose message names the wrong part.
        """
        pattern = r"(?s)(?:(.*)@)?(?:\[([^]]*)\]|([^:]*)|(.*:.*:.*))(?::([^:]*))?"
        user, *addresses, port = re.fullmatch(pattern, text).groups()  # type: ignore[union-attr]  # matches any text
        address = next(filter(None, addresses), "")
        if user == "" or not address:
            raise ValueError("the address is missing" if user != "" else "the user is missing before @")
        if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
            raise ValueError(f"{port!r} is not a port")
        return cls(address, user, int(port) if port else None)


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
        """Return how SSH reaches the last of several jump hosts, written as for `ProxyJump`, through the others.

        Raises ValueError if the last jump host is not `[USER@]HOST[:PORT]`.
        """
        others, _, last = jump_hosts.replace(" ", "").rpartition(",")
        login = Login.parse(last.removeprefix("ssh://").removesuffix("/"))
        return cls(login.address, user=login.user, port=login.port, proxy_jump=others, ssh_config=ssh_config)

    @property
    def alias(self) -> str:
        """The name under which ssh_config is searched, as in `ssh ALIAS`."""
        return self.address or self.name

    def options(self) -> list[str]:
        """Return the options with which the OpenSSH client reaches the machine."""
        settings = {
            "User": self.user,
            "Port": self.port,
            "IdentityFile": self.key and shlex.quote(str(self.key)),
            "IdentitiesOnly": self.key and "yes",
            "UserKnownHostsFile": self.known_hosts and shlex.quote(str(self.known_hosts)),
            "ProxyCommand": shlex.join(self.proxy_command),
            "ProxyJump": self.proxy_jump,
        }
        file = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        return file + [word for key, value in settings.items() if value for word in ("-o", f"{key}={value}")]
