"""Look up and record host keys in known_hosts files, as sshd(8) describes their format.

paramiko reads neither patterns nor `@revoked` lines.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SSH_PORT = 22
TYPES = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa",
)  # fmt: skip
"""Types of keys that paramiko can verify. ssh-rsa is the type of all RSA keys, whatever signs with them."""
_WITH_PORT = re.compile(r"\[(.*)\]:\d+")
_writing = threading.Lock()


class Verdict(Enum):
    """What the files say about the key that a server has."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass
class KnownKeys:
    """What the files contain about one server."""

    trusted: list[tuple[str, bytes]] = field(default_factory=list)
    """Type and key."""
    without_port: list[tuple[str, bytes]] = field(default_factory=list)
    """Keys of the default port. They are accepted on another port, but another key there is not a change."""
    revoked: list[bytes] = field(default_factory=list)
    has_authority: bool = False
    """Whether a certificate authority vouches for the server, which paramiko does not support."""

    @property
    def types(self) -> list[str]:
        """The types of the known keys."""
        return list(dict.fromkeys(kind for kind, _ in (*self.trusted, *self.without_port)))

    def verdict(self, kind: str, key: bytes) -> Verdict:
        """Return whether a key of the server can be trusted."""
        if key in self.revoked:
            return Verdict.REVOKED
        if (kind, key) in (*self.trusted, *self.without_port):
            return Verdict.TRUSTED
        return Verdict.CHANGED if self.trusted else Verdict.UNKNOWN


def label(host: str, port: int) -> str:
    """Return the name under which the files list a server."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


def lookup(files: Iterable[Path], name: str) -> KnownKeys:
    """Return the keys of a server by its label. Missing files and malformed lines are ignored."""
    known = KnownKeys()
    match = _WITH_PORT.fullmatch(name)
    name_without_port = match[1] if match else name
    for marker, names, kind, key in _entries(files):
        if _matches(names, name):
            if marker == "@revoked":
                known.revoked.append(key)
            elif marker == "@cert-authority":
                known.has_authority = True
            elif kind in TYPES:
                known.trusted.append((kind, key))
        elif kind in TYPES and not marker and _matches(names, name_without_port):
            known.without_port.append((kind, key))
    return known


def add(file: Path, name: str, kind: str, key: bytes, hashed: bool) -> None:
    """Append the key of a server to a file, which is created if it does not exist.

    Args:
        file: The known_hosts file.
        name: The label of the server.
        kind: Type of the key.
        key: The key.
        hashed: Whether to hide the name, as with `HashKnownHosts yes`.

    Raises:
        OSError: The file cannot be written.
    """
    if hashed:
        salt = os.urandom(20)
        name = "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, _hash(salt, name)))
    line = f"{name} {kind} {base64.b64encode(key).decode()}\n".encode()
    with _writing:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = os.lseek(descriptor, 0, os.SEEK_END)
            complete = end == 0 or os.pread(descriptor, 1, end - 1) == b"\n"
            os.write(descriptor, line if complete else b"\n" + line)
        finally:
            os.close(descriptor)


def _entries(files: Iterable[Path]) -> Iterator[tuple[str, str, str, bytes]]:
    """Yield (marker, names, type, key) of each line."""
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            fields = line.split()
            marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
            if len(fields) >= 3 and not fields[0].startswith("#"):
                try:
                    yield marker, fields[0], fields[1], base64.b64decode(fields[2], validate=True)
                except binascii.Error:
                    continue


def _matches(names: str, name: str) -> bool:
    """Return whether the first field of a line names a server."""
    if names.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part) for part in names.removeprefix("|1|").split("|"))
        except ValueError:
            return False
        return hmac.compare_digest(_hash(salt, name), digest)
    matched = False
    for pattern in names.lower().split(","):
        if _pattern(pattern.removeprefix("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _pattern(text: str) -> re.Pattern[str]:
    # Only * and ? are special; [ and ] enclose a host with a port.
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."))


def _hash(salt: bytes, name: str) -> bytes:
    return hmac.digest(salt, name.encode(), "sha1")
