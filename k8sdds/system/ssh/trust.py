"""Evaluate ssh_config, known_hosts and the user's keys, with the programs of OpenSSH where paramiko differs from it."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fabric
import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh.target import CONNECT_S, HostError, Target

OPTIONS = (
    "globalknownhostsfile", "hashknownhosts", "hostkeyalias", "hostname", "identitiesonly", "identityagent",
    "identityfile", "port", "proxycommand", "proxyjump", "user", "userknownhostsfile",
)  # fmt: skip
"""The options of ssh_config that k8sdds follows."""
ALGORITHMS = {
    **{kind: [kind] for kind in ("ssh-ed25519", *(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521)))},
    "ssh-rsa": ["rsa-sha2-512", "rsa-sha2-256"],
}
"""The types of host keys that paramiko can verify, and the names of the algorithms with which they sign."""
AGENT = "SSH_AUTH_SOCK"
FAILURES = (OSError, EOFError, paramiko.SSHException)
"""The exceptions of connections."""
# Without a handler, Python would print errors of the transport threads to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
# Guards known_hosts files and the variable.
_lock = threading.Lock()


def ssh_config(target: Target) -> paramiko.SSHConfig:
    """Return the options for a target, with all defaults. Raises ValueError if they have a mistake."""
    argv = ["ssh", "-G", "-T", *target.options(), "--", target.alias]
    if "\n" in "".join(argv):
        raise ValueError("a value contains a line break")
    code, out, err = _run(*argv)
    if code != 0:
        raise ValueError(err.strip().partition("\n")[0] or f"ssh -G: exit code {code}")
    lines = [line for line in out.splitlines() if line.partition(" ")[0] in OPTIONS]
    return paramiko.SSHConfig.from_text("\n".join(lines))


class HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Decides about the key of a machine. paramiko asks it about every key, because it knows none itself."""

    def __init__(self, target: Target, accept_new_keys: bool, connection: fabric.Connection) -> None:
        options = connection.ssh_config
        self._target, self._accept_new_keys = target, accept_new_keys
        self._hashed = options.get("hashknownhosts") == "yes"
        name = (options.get("hostkeyalias") or connection.host).lower()
        has_port = connection.port != paramiko.config.SSH_PORT and "hostkeyalias" not in options
        self._label = f"[{name}]:{connection.port}" if has_port else name
        # ssh does not quote the names of files, but there is only one if the profile names it.
        self._files = [target.known_hosts] if target.known_hosts else _paths(options["userknownhostsfile"])
        files = [*self._files, *_paths(options["globalknownhostsfile"])]
        self._own = [entry for file in files for entry in _find(self._label, file)]
        # Keys of the default port are accepted on another port, but another key there is not a change.
        self._known = self._own + [entry for file in files for entry in _find(name, file) if has_port]

    def transport(self, stream: Any, **options: Any) -> paramiko.Transport:
        """Return a transport that requests the known keys of a server with several keys."""
        if isinstance(stream, socket.socket) and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(stream, **options)
        algorithms = transport.get_security_options()
        known = [
            name for _, marker, kind, _ in self._known if not marker for name in ALGORITHMS.get(kind, ())
        ]
        algorithms.key_types = tuple(dict.fromkeys([*known, *algorithms.key_types]))
        # AES-GCM needs no separate checksum, which would halve the rate of uploads.
        algorithms.ciphers = sorted(algorithms.ciphers, key=lambda name: "-gcm@" not in name)
        return transport

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return if the key is trusted. Raises HostError."""
        markers = {marker for _, marker, _, known in self._known if known == key.asbytes()}
        if "@revoked" in markers:
            raise self._error("its host key is revoked", "find out why, and give the machine another key")
        if "" in markers:
            return
        for file in [file for file, marker, kind, _ in self._own if not marker and kind in ALGORITHMS]:
            option = ["-f", str(file)] if file in self._files else []
            removal = shlex.join(["ssh-keygen", "-R", self._label, *option])
            remedy = f"if you expect this: {removal}; then repeat with --accept-new-host-keys"
            raise self._error("its host key has changed: the machine was replaced or reinstalled", remedy)
        if not self._accept_new_keys:
            certified = any(marker == "@cert-authority" for _, marker, *_ in self._own)
            reason = ": k8sdds does not support certificates of host keys" if certified else ""
            remedy = (
                f"log in once (ssh {self._target.alias}) and compare the key, or use --accept-new-host-keys"
            )
            raise self._error(f"its host key is not known{reason}", remedy)
        for file in self._files[:1]:
            self._record(file, f"{key.get_name()} {key.get_base64()}")

    def _record(self, file: Path, key: str) -> None:
        name = paramiko.HostKeys.hash_host(self._label) if self._hashed else self._label
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock, open(os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "rb+") as output:
                separator = b"" if output.read()[-1:] in (b"", b"\n") else b"\n"
                output.write(separator + f"{name} {key}\n".encode())
        except OSError as error:
            remedy = "correct `known_hosts`, or make it writable"
            raise self._error(f"cannot record its host key: {error}", remedy) from error

    def _error(self, message: str, remedy: str) -> HostError:
        return HostError(self._target.name, message, remedy)


def _find(name: str, file: Path) -> Iterator[tuple[Path, str, str, bytes]]:
    """Yield file, marker, type and key of the lines about a machine. Malformed keys are ignored."""
    for line in _run("ssh-keygen", "-F", name, "-f", str(file))[1].splitlines():
        fields = line.split() if line.startswith("@") else ["", *line.split()]
        with contextlib.suppress(ValueError, IndexError):
            if not line.startswith("#"):
                yield file, fields[0], fields[2], base64.b64decode(fields[3], validate=True)


def _paths(files: str) -> list[Path]:
    names = (name.replace("%d", str(Path.home())) for name in files.split() if name != "none")
    return [Path(os.path.expanduser(name)) for name in names]


def _run(*argv: str) -> tuple[int, str, str]:
    """Run a program of OpenSSH and return its exit code, stdout and stderr."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONNECT_S, check=False
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(f"{argv[0]} is missing", "install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{shlex.join(argv)} did not end within {CONNECT_S} s") from error
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


class Identities(AuthStrategy):  # type: ignore[misc]
    """The keys of a user: the configured ones, in the agent or in files, then the others of the agent."""

    def __init__(self, connection: fabric.Connection) -> None:
        super().__init__(ssh_config=connection.ssh_config)
        self._user = connection.user
        self.encrypted: list[str] = []
        """Key files that require a passphrase and are not in the agent."""

    def get_sources(self) -> Iterator[InMemoryPrivateKey]:
        """Yield the keys in the order in which they are offered."""
        with contextlib.closing(_agent(self.ssh_config.get("identityagent", AGENT))) as agent:
            for key in self._keys({key.asbytes(): key for key in agent.get_keys()}):
                yield InMemoryPrivateKey(self._user, key)

    def _keys(self, in_agent: dict[bytes, paramiko.PKey]) -> Iterator[paramiko.PKey]:
        only_files = self.ssh_config.get("identitiesonly") == "yes"
        for path in filter(os.path.isfile, self.ssh_config.get("identityfile", ())):
            public = _public_key(path)
            try:
                yield in_agent.pop(public) if public in in_agent else paramiko.PKey.from_path(path)
            except (TypeError, paramiko.PasswordRequiredException):
                self.encrypted.append(path)
                # Without its public file, any key of the agent may be this one.
                only_files = only_files and public is not None
            except (OSError, ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm):
                continue
        yield from () if only_files else in_agent.values()


def _agent(path: str) -> paramiko.Agent:
    """Return the agent at a path. It has no keys if it does not answer."""
    if path == AGENT:
        return paramiko.Agent()
    # paramiko takes the path of an agent from this variable only. An empty path is no agent.
    with _lock:
        before, os.environ[AGENT] = os.environ.get(AGENT, ""), os.path.expandvars(os.path.expanduser(path))
        try:
            return paramiko.Agent()
        finally:
            os.environ[AGENT] = before


def _public_key(path: str) -> bytes | None:
    """Return the public key of a key file; None if it has no public file. `path` may be the public file."""
    for file in (path, f"{path}.pub"):
        with contextlib.suppress(OSError, ValueError):
            key: bytes = PublicBlob.from_file(file).key_blob
            return key
    return None
