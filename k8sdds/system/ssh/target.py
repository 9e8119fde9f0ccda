"""Describe how SSH reaches a machine, and why it does not. Pure data."""

from __future__ import annotations

import ipaddress
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CONNECT_S = 10
"""Timeout of a connection attempt."""


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

        Raises:
            ValueError: The text is not `[USER@]ADDRESS[:PORT]`; the message names the wrong part.
        """
        user, at, rest = text.rpartition("@")
        in_brackets = re.fullmatch(r"\[([^]]*)\](?::(.*))?", rest)
        address, colon, after = rest.partition(":")
        port = after if colon else None
        if in_brackets:
            address, port = in_brackets.groups()
        elif _is_ipv6(rest):
            address, port = rest, None
        if at and not user:
            raise ValueError("the user is missing before @")
        if not address:
            raise ValueError("the address is missing")
        if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
            raise ValueError(f"{port!r} is not a port")
        return cls(address, user or None, int(port) if port else None)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


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

        Raises:
            ValueError: The last jump host is not `[USER@]HOST[:PORT]`.
        """
        others, _, last = jump_hosts.replace(" ", "").rpartition(",")
        login = Login.parse(last.removeprefix("ssh://").removesuffix("/"))
        return cls(login.address, user=login.user, port=login.port, proxy_jump=others, ssh_config=ssh_config)

    @property
    def alias(self) -> str:
        """The name under which ssh_config is searched, as in `ssh ALIAS`."""
        return self.address or self.name

    def settings(self) -> dict[str, str]:
        """Return the settings that are not left to ssh_config, in its syntax."""
        settings = {
            "User": self.user,
            "Port": self.port,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes" if self.key is not None else None,
            "UserKnownHostsFile": self.known_hosts and shlex.quote(str(self.known_hosts)),
            "ProxyCommand": shlex.join(self.proxy_command) or None,
            "ProxyJump": self.proxy_jump or None,
        }
        return {option: str(value) for option, value in settings.items() if value is not None}

    def options(self) -> list[str]:
        """Return the options with which the user's ssh program reaches the machine."""
        file = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        return file + [
            word for option, value in self.settings().items() for word in ("-o", f"{option}={value}")
        ]
