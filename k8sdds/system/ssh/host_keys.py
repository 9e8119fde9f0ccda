"""Verify host keys against known_hosts files, as in sshd(8). paramiko reads neither patterns nor `@revoked`."""

from __future__ import annotations

import base64
import os
import re
import shlex
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import fabric
import paramiko

from k8sdds.system.ssh import config
from k8sdds.system.ssh.target import HostError, Target

SSH_PORT = 22
TYPES = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa",
)  # fmt: skip
"""Types of keys that paramiko can verify. ssh-rsa is the type of all RSA keys, whatever signs with them."""
REVOKED, AUTHORITY = "@revoked", "@cert-authority"
_writing = threading.Lock()


class _Entry(NamedTuple):
    """A line of a known_hosts file."""

    file: Path
    marker: str
    names: str
    kind: str
    key: bytes


class HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Decides about the key of a machine. paramiko asks it about every key, because it knows none itself."""

    def __init__(self, target: Target, accept_new_keys: bool, connection: fabric.Connection) -> None:
        options = connection.ssh_config
        self._target = target
        self._accept_new_keys = accept_new_keys
        self._hashed = config.flag(options, "hashknownhosts")
        name = (options.get("hostkeyalias") or connection.host).lower()
        has_port = connection.port != SSH_PORT and "hostkeyalias" not in options
        self._label = f"[{name}]:{connection.port}" if has_port else name
        self._files, system_files = config.known_hosts_files(options)
        entries = list(_entries([*self._files, *system_files]))
        own = [entry for entry in entries if _matches(entry.names, self._label)]
        self._certified = any(entry.marker == AUTHORITY for entry in own)
        # A key that is revoked on the default port is not trusted on another one.
        self._revoked = [
            entry.key for entry in entries
            if entry.marker == REVOKED and any(_matches(entry.names, each) for each in (self._label, name))
        ]  # fmt: skip
        self._trusted = [entry for entry in own if not entry.marker and entry.kind in TYPES]
        # Keys of the default port are accepted on another port, but another key there is not a change.
        self._without_port = [
            entry for entry in entries
            if not entry.marker and entry.kind in TYPES and _matches(entry.names, name)
        ]  # fmt: skip

    @property
    def types(self) -> list[str]:
        """The types of the known keys."""
        return list(dict.fromkeys(entry.kind for entry in (*self._trusted, *self._without_port)))

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return if the key is trusted. Raises HostError."""
        kind, public = key.get_name(), key.asbytes()
        if public in self._revoked:
            raise self._error("its host key is revoked", "find out why, and give the machine another key")
        if any((entry.kind, entry.key) == (kind, public) for entry in (*self._trusted, *self._without_port)):
            return
        if self._trusted:
            file = self._trusted[0].file
            option = ["-f", str(file)] if file in self._files else []
            removal = shlex.join(["ssh-keygen", "-R", self._label, *option])
            raise self._error(
                "its host key has changed: the machine was replaced or reinstalled",
                f"if you expect this: {removal}; then repeat with --accept-new-host-keys",
            )
        if not self._accept_new_keys:
            reason = ": k8sdds does not support certificates of host keys" if self._certified else ""
            raise self._error(
                f"its host key is not known{reason}",
                f"log in once (ssh {self._target.alias}) and compare the key, or use --accept-new-host-keys",
            )
        if self._files:
            self._record(self._files[0], f"{kind} {key.get_base64()}")

    def _record(self, file: Path, key: str) -> None:
        name = paramiko.HostKeys.hash_host(self._label) if self._hashed else self._label
        try:
            with _writing:
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "rb+") as output:
                    separator = b"" if output.read()[-1:] in (b"", b"\n") else b"\n"
                    output.write(separator + f"{name} {key}\n".encode())
        except OSError as error:
            raise self._error(
                f"cannot record its host key: {error}", "correct `known_hosts`, or make it writable"
            ) from error

    def _error(self, message: str, remedy: str) -> HostError:
        return HostError(self._target.name, message, remedy)


def _entries(files: Iterable[Path]) -> Iterator[_Entry]:
    """Yield the lines of files. Missing files and malformed lines are ignored."""
    for file in files:
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
            if len(fields) >= 3 and not fields[0].startswith("#"):
                try:
                    key = base64.b64decode(fields[2], validate=True)
                except ValueError:
                    continue
                yield _Entry(file, marker, fields[0], fields[1], key)


def _matches(names: str, name: str) -> bool:
    """Return whether the first field of a line names a server: hashed, or as patterns separated by commas."""
    if names.startswith("|1|"):
        try:
            return bool(paramiko.HostKeys.hash_host(name, names) == names)
        except (ValueError, AssertionError):
            return False
    # Only * and ? are special; [ and ] enclose a host with a port.
    patterns = {pattern: re.escape(pattern.lstrip("!")) for pattern in names.lower().split(",")}
    matching = [
        pattern for pattern, text in patterns.items()
        if re.fullmatch(text.replace(r"\*", ".*").replace(r"\?", "."), name)
    ]  # fmt: skip
    return bool(matching) and not any(pattern.startswith("!") for pattern in matching)
