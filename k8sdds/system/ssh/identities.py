"""Log in with the keys of the agent and of key files, in the order of OpenSSH."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from paramiko import PasswordRequiredException, PKey, SSHException
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey
from paramiko.config import SSHConfigDict
from paramiko.pkey import UnknownKeyType

from k8sdds.system.ssh import config

DEFAULT_FILES = ("id_rsa", "id_ecdsa", "id_ed25519")
AGENT_TIMEOUT_S = 30


class Identities(AuthStrategy):  # type: ignore[misc]
    """The keys of a user, for one connection."""

    def __init__(self, user: str, options: SSHConfigDict) -> None:
        super().__init__(ssh_config=options)
        self._user = user
        self._only_files = config.flag(options, "identitiesonly")
        configured = [Path(os.path.expanduser(name)) for name in options.get("identityfile", ())]
        self._files = configured or [config.USER_FOLDER.expanduser() / name for name in DEFAULT_FILES]
        self._agent_name = options.get("identityagent", "SSH_AUTH_SOCK")
        self._agent: _Agent | None = None
        self.encrypted: list[Path] = []
        """Key files that require a passphrase and are not in the agent."""
        self.offered = 0
        """Number of keys that the server has seen."""

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        """Yield keys: those of the agent that are also files, others of the agent, and those of files."""
        files = {path: _public_key(path) for path in self._files if os.path.isfile(path)}
        self._agent = _Agent(self._agent_name)
        agent_keys: tuple[PKey, ...] = self._agent.get_keys()
        in_agent = {key.asbytes() for key in agent_keys}
        named = [key for key in agent_keys if key.asbytes() in files.values()]
        others = [key for key in agent_keys if key not in named]
        for key in named if self._only_files else [*named, *others]:
            yield self._source(key)
        for path, public in files.items():
            loaded = None if public in in_agent else self._load(path)
            if loaded is not None:
                yield self._source(loaded)
        if self._only_files and any(files[path] is None for path in self.encrypted):
            # Without its public file, any key of the agent may be the encrypted one.
            for key in others:
                yield self._source(key)

    def authenticate(self, transport: object) -> object:
        """Log in, and close the connection to the agent."""
        try:
            return super().authenticate(transport)
        finally:
            if self._agent is not None:
                self._agent.close()

    def _source(self, key: PKey) -> InMemoryPrivateKey:
        self.offered += 1
        return InMemoryPrivateKey(self._user, key)

    def _load(self, path: Path) -> PKey | None:
        try:
            return PKey.from_path(path)
        except (TypeError, PasswordRequiredException):
            self.encrypted.append(path)
        except (OSError, ValueError, SSHException, UnknownKeyType, UnsupportedAlgorithm):
            pass
        return None


class _Agent(AgentSSH):  # type: ignore[misc]
    """The agent that ssh_config names. It has no keys if it does not answer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        path = os.environ.get(name.removeprefix("$"), "") if name.isupper() else os.path.expanduser(name)
        if path and name != "none":
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(AGENT_TIMEOUT_S)
            try:
                connection.connect(path)
                self._connect(connection)
            except (OSError, SSHException):
                connection.close()

    def close(self) -> None:
        self._close()


def _public_key(path: Path) -> bytes | None:
    """Return the public key of a key file; None: it has no public file. `path` may be the public file."""
    for file in (path, path.with_name(f"{path.name}.pub")):
        with contextlib.suppress(OSError, ValueError, IndexError, binascii.Error):
            kind, key = file.read_text().split()[:2]
            if kind.startswith(("ssh-", "ecdsa-", "sk-")):
                return base64.b64decode(key, validate=True)
    return None
