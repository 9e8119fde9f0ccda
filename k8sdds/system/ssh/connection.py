"""Open a connection with fabric: the stream, the host key, the login, and a check that the machine is alive."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import IO, Any

import fabric
import paramiko
from paramiko.common import cMSG_GLOBAL_REQUEST
from paramiko.packet import Packetizer

from k8sdds.system.ssh import config, known_hosts
from k8sdds.system.ssh.errors import HostError
from k8sdds.system.ssh.identities import Identities
from k8sdds.system.ssh.known_hosts import Verdict
from k8sdds.system.ssh.target import CONNECT_S, Target

LOGIN_S = 30
"""Timeout of each attempt to log in, which may include a slow name lookup by the server."""
CLOSE_S = 2
"""Time in which the thread and the ProxyCommand of a closed connection end."""
ALIVE_INTERVAL_S = 5
ALIVE_LIMIT_S = 15
"""A machine that sends nothing for this time, although it is asked to, is lost."""

# Without a handler, Python would print errors of the transport threads to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Algorithms of the types of host keys whose algorithm has another name than the type."""

OpenThrough = Callable[[str, tuple[str, int]], paramiko.Channel]
"""Opens a stream to an address through jump hosts, which are given as in ssh_config."""


class Connection:
    """An authenticated connection to a machine."""

    def __init__(self, target: Target, accept_new_keys: bool, open_through: OpenThrough) -> None:
        """Connect and log in.

        Args:
            target: The machine.
            accept_new_keys: Whether to accept and record an unknown host key.
            open_through: Opens the stream if ssh_config names jump hosts.

        Raises:
            HostError: The machine cannot be reached, its host key is not trusted, or it refuses the login.
        """
        self._target = target
        self._proxy: subprocess.Popen[bytes] | None = None
        self._proxy_errors: IO[bytes] | None = None
        self._stream: socket.socket | paramiko.Channel | None = None
        try:
            self._fabric = _configured(target)
            self._host_keys = _HostKeys(target, accept_new_keys, self._fabric)
            self._identities = Identities(self._fabric.user, self._fabric.ssh_config)
        except (OSError, ValueError, paramiko.SSHException) as error:
            raise HostError(
                target.name,
                f"cannot read ssh_config: {error}",
                "correct the file, or name another: `ssh_config`",
            ) from error
        try:
            self._stream = self._open_stream(open_through)
            self._log_in(self._stream)
        except (OSError, EOFError, paramiko.SSHException) as error:
            failure = self._explain(error)
            self.close()
            raise failure from error
        except BaseException:
            self.close()
            raise

    @property
    def transport(self) -> paramiko.Transport:
        """The connection as paramiko's object."""
        return self._fabric.transport

    @property
    def is_open(self) -> bool:
        """Whether the connection is usable."""
        return bool(self._fabric.is_connected)

    def close(self) -> None:
        """Close the connection, and end its thread and its ProxyCommand."""
        if self._stream is not None:
            # Wakes up the thread that reads from the stream.
            with contextlib.suppress(OSError, EOFError):
                self._stream.shutdown(socket.SHUT_RDWR)
        transport = self._fabric.client.get_transport()
        self._fabric.client.close()
        if transport is not None and transport.ident is not None:
            transport.join(CLOSE_S)
        if self._stream is not None:
            self._stream.close()
        if self._proxy is not None and self._proxy.returncode is None:
            # The command may be a pipeline, whose processes are in one group, or run as another user.
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(OSError):
                    os.killpg(self._proxy.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._proxy.wait(CLOSE_S)
                    break
        if self._proxy_errors is not None:
            self._proxy_errors.close()

    def _open_stream(self, open_through: OpenThrough) -> socket.socket | paramiko.Channel:
        address = self._fabric.host, self._fabric.port
        options = self._fabric.ssh_config
        # Like every option, the first of the two counts.
        option = next((name for name in options if name in ("proxycommand", "proxyjump")), "")
        value = options.get(option)
        try:
            hop = Target.of_jump_hosts(value, None) if value and option == "proxyjump" else None
        except ValueError as error:
            raise HostError(self._target.name, f"ProxyJump {value}: {error}", "correct ssh_config") from error
        # A pattern such as `Host *` may make a jump host its own jump host.
        if value is None or value.lower() == "none" or (hop and hop.alias == self._target.alias):
            stream = socket.create_connection(address, timeout=CONNECT_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
        return open_through(value, address) if hop else self._start_proxy(value)

    def _start_proxy(self, command: str) -> socket.socket:
        stream, theirs = socket.socketpair()
        self._proxy_errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        with theirs:
            # ssh_config(5) defines a ProxyCommand as a command of the shell.
            self._proxy = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._proxy_errors,
                # Ctrl-C must reach only k8sdds, which then closes the connection.
                start_new_session=True,
            )
        return stream

    def _log_in(self, stream: socket.socket | paramiko.Channel) -> None:
        self._fabric.client.set_missing_host_key_policy(self._host_keys)
        self._fabric.connect_kwargs.update(
            sock=stream,
            transport_factory=self._transport_of,
            auth_strategy=self._identities,
            banner_timeout=CONNECT_S,
            auth_timeout=LOGIN_S,
            channel_timeout=CONNECT_S,
        )
        self._fabric.open()
        if not self.transport.is_authenticated():
            raise paramiko.AuthenticationException("the server requires more than a key")
        watch = _Watch(self.transport)
        self.transport.packetizer.set_keepalive(ALIVE_INTERVAL_S, watch.check)

    def _transport_of(self, stream: Any, **options: Any) -> paramiko.Transport:
        transport = paramiko.Transport(stream, packetizer_class=_Packetizer, **options)
        algorithms = transport.get_security_options()
        # A server with several keys must show one that is known.
        preferred = [name for kind in self._host_keys.known.types for name in _ALGORITHMS.get(kind, (kind,))]
        others = [name for name in algorithms.key_types if name not in preferred]
        algorithms.key_types = [*preferred, *others]
        # AES-GCM needs no separate checksum, which would halve the rate of uploads.
        algorithms.ciphers = sorted(algorithms.ciphers, key=lambda name: "-gcm@" not in name)
        return transport

    def _explain(self, error: Exception) -> HostError:
        name, where = self._target.name, self._target.alias
        if isinstance(error, paramiko.AuthenticationException):
            remedy = f"check that this works: ssh {where}; copy your key with ssh-copy-id"
            if self._identities.encrypted:
                files = " ".join(str(path) for path in self._identities.encrypted)
                return HostError(
                    name,
                    f"login refused: {files} requires a passphrase, and the agent does not have this key",
                    f"add it to the agent: ssh-add {files}",
                )
            user = self._fabric.user
            if not self._identities.offered:
                return HostError(name, f"login refused: there is no key to log in as {user}", remedy)
            return HostError(name, f"login refused: {user}@{self._fabric.host}: {_reason(error)}", remedy)
        transport = self._fabric.client.get_transport()
        no_server = transport is not None and not transport.remote_version
        reason = "no SSH server answers" if no_server else _reason(error)
        return HostError(
            name,
            f"cannot be reached: {self._last_proxy_error() or reason}",
            "check that the machine is on and that its address in the profile is correct",
        )

    def _last_proxy_error(self) -> str:
        if self._proxy_errors is None:
            return ""
        self._proxy_errors.seek(0)
        lines = self._proxy_errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def _configured(target: Target) -> fabric.Connection:
    """Return fabric's object, configured by ssh_config alone, without files and variables of fabric."""
    settings = fabric.Config(ssh_config=config.read(target), lazy=True)
    return fabric.Connection(
        target.alias,
        config=settings,
        # Jump hosts and the agent's forwarding are not left to fabric: it accepts any key of a jump host.
        gateway=False,
        forward_agent=False,
        # Longer than the timeouts of the single steps, so that these explain what failed.
        connect_timeout=2 * CONNECT_S,
        connect_kwargs={},
    )


class _HostKeys(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Decides about the host key. paramiko asks it about every key, because it knows none itself."""

    def __init__(self, target: Target, accept_new_keys: bool, connection: fabric.Connection) -> None:
        options = connection.ssh_config
        self._target = target
        self._accept_new_keys = accept_new_keys
        self._hashed = config.flag(options, "hashknownhosts")
        alias = options.get("hostkeyalias")
        self._label = alias.lower() if alias else known_hosts.label(connection.host, connection.port)
        self._files, system_files = config.known_hosts_files(options)
        self.known = known_hosts.lookup([*self._files, *system_files], self._label)

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Return if the key is trusted. Raises HostError."""
        kind, public = key.get_name(), key.asbytes()
        verdict = self.known.verdict(kind, public)
        where, name = self._target.alias, self._target.name
        if verdict is Verdict.REVOKED:
            raise HostError(name, "its host key is revoked", "find out why, and give the machine another key")
        if verdict is Verdict.CHANGED:
            raise HostError(
                name,
                "its host key has changed: the machine was replaced or reinstalled",
                f"if you expect this: {self._removal()}; then repeat with --accept-new-host-keys",
            )
        if verdict is Verdict.UNKNOWN and not self._accept_new_keys:
            message = "its host key is not known"
            if self.known.has_authority:
                message += ": k8sdds does not support certificates of host keys"
            raise HostError(
                name,
                message,
                f"log in once (ssh {where}) and compare the key, or use --accept-new-host-keys",
            )
        if verdict is Verdict.UNKNOWN and self._files:
            try:
                known_hosts.add(self._files[0], self._label, kind, public, self._hashed)
            except OSError as error:
                raise HostError(
                    name, f"cannot record its host key: {error}", "correct `known_hosts`, or make it writable"
                ) from error

    def _removal(self) -> str:
        files = [path for path in self._files if known_hosts.lookup([path], self._label).trusted]
        option = ["-f", str(files[0])] if files else []
        return shlex.join(["ssh-keygen", "-R", self._label, *option])


class _Packetizer(Packetizer):  # type: ignore[misc]
    """Reads and writes packets, and records when."""

    def __init__(self, stream: object) -> None:
        super().__init__(stream)
        self.received_s = time.monotonic()
        self.is_writing = False

    def read_message(self) -> Any:
        message = super().read_message()
        self.received_s = time.monotonic()
        return message

    def write_all(self, out: bytes) -> None:
        self.is_writing = True
        try:
            super().write_all(out)
        finally:
            self.is_writing = False

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread: it would delay the end of the program. `Transport.start_client` has a limit."""


class _Watch:
    """Notices within ALIVE_LIMIT_S that a machine is gone. paramiko's own keepalive does not ask for an answer."""

    def __init__(self, transport: paramiko.Transport) -> None:
        # The transport refers to this object, and must not be kept alive by it.
        self._transport = weakref.proxy(transport)

    def check(self) -> None:
        """Ask for a sign of life, in the transport's thread. Raises EOFError if there is none for too long."""
        packetizer = self._transport.packetizer
        if time.monotonic() - packetizer.received_s > ALIVE_LIMIT_S:
            raise EOFError
        # While a packet is being written or keys are exchanged, sending would block this thread.
        if not packetizer.is_writing and self._transport.clear_to_send.is_set():
            request = paramiko.Message()
            request.add_byte(cMSG_GLOBAL_REQUEST)
            request.add_string("keepalive@openssh.com")
            request.add_boolean(True)
            self._transport._send_user_message(request)


def _reason(error: Exception) -> str:
    """Return the message of an exception for users."""
    if isinstance(error, paramiko.ssh_exception.AuthenticationException):
        return "permission denied"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, EOFError | ConnectionResetError):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip()
