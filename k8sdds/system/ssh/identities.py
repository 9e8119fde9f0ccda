"""Log in with the keys of the agent and of key files, in the order of OpenSSH."""

from __future__ import annotations

import base64
import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from paramiko import Agent, PasswordRequiredException, PKey, SSHException
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey
from paramiko.config import SSHConfigDict
from paramiko.pkey import UnknownKeyType
from typing_extensions import override

from k8sdds.system.ssh import config

DEFAULT_FILES = ("id_rsa", "id_ecdsa", "id_ed25519")
AGENT_VARIABLE = "SSH_AUTH_SOCK"
_environment = threading.Lock()


class Identities(AuthStrategy):  # type: ignore[misc]
    """The keys of a user, for one connection."""

    def __init__(self, user: str, options: SSHConfigDict) -> None:
        super().__init__(ssh_config=options)
        self._user = user
        self._only_files = config.flag(options, "identitiesonly")
        configured = [Path(os.path.expanduser(name)) for name in options.get("identityfile", ())]
        self._files = configured or [config.USER_FOLDER.expanduser() / name for name in DEFAULT_FILES]
        self.encrypted: list[Path] = []
        """Key files that require a passphrase and are not in the agent."""
        self.offered = 0
        """Number of keys that the server has seen."""

    @override
    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        with contextlib.closing(_agent(self.ssh_config.get("identityagent", AGENT_VARIABLE))) as agent:
            for key in self._keys(agent.get_keys()):
                self.offered += 1
                yield InMemoryPrivateKey(self._user, key)

    def _keys(self, agent_keys: tuple[PKey, ...]) -> Iterator[PKey]:
        """Yield keys: those of the agent that are also files, others of the agent, and those of files."""
        files = {path: _public_key(path) for path in self._files if os.path.isfile(path)}
        in_agent = {key.asbytes() for key in agent_keys}
        named = [key for key in agent_keys if key.asbytes() in files.values()]
        others = [key for key in agent_keys if key not in named]
        yield from named if self._only_files else [*named, *others]
        for path, public in files.items():
            key = None if public in in_agent else self._load(path)
            if key is not None:
                yield key
        if self._only_files and any(files[path] is None for path in self.encrypted):
            # Without its public file, any key of the agent may be the encrypted one.
            yield from others

    def _load(self, path: Path) -> PKey | None:
        try:
            return PKey.from_path(path)
        except (TypeError, PasswordRequiredException):
            self.encrypted.append(path)
        except (OSError, ValueError, SSHException, UnknownKeyType, UnsupportedAlgorithm):
            pass
        return None


def _agent(name: str) -> Agent:
    """Return the agent at a path, or at the path in a variable. It has no keys if it does not answer."""
    path = os.environ.get(name.removeprefix("$"), "") if name.isupper() else os.path.expanduser(name)
    # paramiko takes the path from this variable only.
    with _environment:
        before = os.environ.get(AGENT_VARIABLE)
        os.environ[AGENT_VARIABLE] = path
        try:
            return Agent()
        except SSHException:
            os.environ[AGENT_VARIABLE] = ""
            return Agent()
        finally:
            if before is None:
                del os.environ[AGENT_VARIABLE]
            else:
                os.environ[AGENT_VARIABLE] = before


def _public_key(path: Path) -> bytes | None:
    """Return the public key of a key file; None if it has no public file. `path` may be the public file."""
    for file in (path, path.with_name(f"{path.name}.pub")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            kind, key = file.read_text().split()[:2]
            if kind.startswith(("ssh-", "ecdsa-", "sk-")):
                return base64.b64decode(key, validate=True)
    return None
