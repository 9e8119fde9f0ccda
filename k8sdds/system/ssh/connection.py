"""Open a connection with fabric, verify the machine, log in, and run commands."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import IO, Any

import fabric
import invoke.exceptions
import paramiko
from typing_extensions import override

from k8sdds.system.ssh import config
from k8sdds.system.ssh.host_keys import HostKeys
from k8sdds.system.ssh.identities import Identities
from k8sdds.system.ssh.target import CONNECT_S, HostError, HostLost, Target

LOGIN_S = 30
"""Timeout of each attempt to log in, which may include a slow name lookup by the server."""
CLOSE_S = 2
"""Time in which the thread and the ProxyCommand of a closed connection end."""
ALIVE_INTERVAL_S = 5
ALIVE_CHECK_S = 0.5
ALIVE_LIMIT_S = 20
"""A machine that does not answer for this time, although it is asked to, is lost."""
LOST_S = 0.5
"""Time in which the thread of a lost connection ends."""
SIGNALED = 255
"""Exit code of a command that a signal ended, as ssh returns it."""
CHUNK_BYTES = 32768
"""The largest packet that OpenSSH and paramiko send."""
MAX_OUTPUT_BYTES = 256 << 20
"""Largest output of a command, stdout and stderr each."""

# Without a handler, Python would print errors of the transport threads to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection:
    """An authenticated connection to a machine."""

    def __init__(self, target: Target, accept_new_keys: bool, jump_host: Callable[[str], Connection]) -> None:
        """Connect and log in. `jump_host` returns the connection to the last of the jump hosts in ssh_config.

        Raises:
            HostError: The machine cannot be reached, its host key is not trusted, or it refuses the login.
        """
        self._target = target
        self._proxy: _Proxy | None = None
        self._closing = threading.Event()
        self.heard_s = time.monotonic()
        """When the machine last answered."""
        try:
            settings = fabric.Config(
                ssh_config=config.read(target),
                overrides={"runners": {"remote": functools.partial(_Runner, self)}},
                lazy=True,
            )
            # `gateway` is set later, because fabric would accept any key of a jump host.
            self.fabric = _FabricConnection(
                target.alias,
                config=settings,
                gateway=False,
                forward_agent=False,
                connect_timeout=CONNECT_S,
                connect_kwargs={},
            )
            self._host_keys = HostKeys(target, accept_new_keys, self.fabric)
            self._identities = Identities(self.fabric.user, self.fabric.ssh_config)
        except (OSError, ValueError, paramiko.SSHException) as error:
            message = f"cannot read ssh_config: {error}"
            raise HostError(
                target.name, message, "correct the file, or name another: `ssh_config`"
            ) from error
        try:
            self._open(jump_host)
        except (OSError, EOFError, paramiko.SSHException) as error:
            failure = self._explain(error)
            self.close()
            raise failure from error
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the connection is usable."""
        return bool(self.fabric.is_connected) and time.monotonic() - self.heard_s < ALIVE_LIMIT_S

    def run(self, command: str, stdin: IO[bytes], timeout_s: float) -> tuple[int, str, str]:
        """Run a command, stream its stdin, and return its exit code, stdout and stderr.

        Raises:
            HostError: The command did not end in time. The connection remains usable.
            HostLost: The connection ended.
        """
        transport = self.fabric.transport
        try:
            # fabric decodes each packet alone, which may begin within a character.
            done = self.fabric.run(
                command, in_stream=stdin, timeout=timeout_s, encoding="latin-1", hide=True, warn=True
            )
        except invoke.exceptions.CommandTimedOut as error:
            raise HostError(
                self._target.name,
                f"no answer within {timeout_s:g} s",
                "check whether the machine is overloaded or disconnected",
            ) from error
        except (OSError, EOFError, paramiko.SSHException):
            done = None
        if done is None or done.exited < 0:
            # Without an exit code, either a signal ended the command, or the connection is lost.
            transport.join(LOST_S)
            if done is None or not transport.is_active():
                raise HostLost(
                    self._target.name,
                    "the connection was lost while a script ran",
                    "check that the machine is on and connected, and that it has not rebooted",
                )
        if max(len(done.stdout), len(done.stderr)) > MAX_OUTPUT_BYTES:
            message = f"a script printed more than {MAX_OUTPUT_BYTES >> 20} MiB"
            raise HostError(self._target.name, message, "check the machine")
        out, err = (text.encode("latin-1").decode(errors="replace") for text in (done.stdout, done.stderr))
        return done.exited if done.exited >= 0 else SIGNALED, out, err

    def close(self) -> None:
        """Close the connection, and end its threads and its ProxyCommand."""
        self._closing.set()
        transport = self.fabric.client.get_transport()
        if transport is not None:
            with contextlib.suppress(OSError, EOFError):
                # Wakes up the thread that reads.
                transport.sock.shutdown(socket.SHUT_RDWR)
            self.fabric.client.close()
            # Ends the timer of a handshake that failed, which would delay the end of the program.
            transport.packetizer.complete_handshake()
            if transport.ident is not None:
                transport.join(CLOSE_S)
            transport.sock.close()
        if self._proxy is not None:
            self._proxy.close()

    def _open(self, jump_host: Callable[[str], Connection]) -> None:
        connection = self.fabric
        # Like every option, the first of the two counts.
        option = next((name for name in connection.ssh_config if name in ("proxycommand", "proxyjump")), "")
        value = connection.ssh_config.get(option) or "none"
        if value.lower() != "none" and option == "proxyjump":
            try:
                hop = Target.of_jump_hosts(value, None)
            except ValueError as error:
                message = f"ProxyJump {value}: {error}"
                raise HostError(self._target.name, message, "correct ssh_config") from error
            # A pattern such as `Host *` may make a jump host its own jump host.
            if hop.alias != self._target.alias:
                connection.gateway = jump_host(value).fabric
        elif value.lower() != "none":
            self._proxy = _Proxy(value)
            connection.connect_kwargs["sock"] = self._proxy.stream
        connection.client.set_missing_host_key_policy(self._host_keys)
        connection.connect_kwargs.update(
            transport_factory=self._transport,
            auth_strategy=self._identities,
            banner_timeout=CONNECT_S,
            auth_timeout=LOGIN_S,
            channel_timeout=CONNECT_S,
        )
        connection.open()
        if not connection.transport.is_authenticated():
            raise paramiko.AuthenticationException("the server requires more than a key")
        threading.Thread(target=self._ask, daemon=True, name=f"asks {self._target.name}").start()

    def _transport(self, stream: Any, **options: Any) -> paramiko.Transport:
        if isinstance(stream, socket.socket) and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(stream, **options)
        algorithms = transport.get_security_options()
        # A server with several keys must show one that is known. RSA keys sign with algorithms of other names.
        known = [
            name
            for kind in self._host_keys.types
            for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))
        ]
        algorithms.key_types = [*known, *(name for name in algorithms.key_types if name not in known)]
        # AES-GCM needs no separate checksum, which would halve the rate of uploads.
        algorithms.ciphers = sorted(algorithms.ciphers, key=lambda name: "-gcm@" not in name)
        return transport

    def _ask(self) -> None:
        """Ask for a sign of life while the connection is open."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while not self._closing.wait(ALIVE_INTERVAL_S) and self.fabric.is_connected:
                self.fabric.transport.global_request("keepalive@openssh.com", wait=True)
                self.heard_s = time.monotonic()

    def _explain(self, error: Exception) -> HostError:
        name, where = self._target.name, self._target.alias
        if isinstance(error, paramiko.AuthenticationException):
            remedy = f"check that this works: ssh {where}; copy your key with ssh-copy-id"
            reason = f"{self.fabric.user}@{self.fabric.host}: permission denied"
            if self._identities.encrypted:
                files = " ".join(str(path) for path in self._identities.encrypted)
                reason = f"{files} requires a passphrase, and the agent does not have this key"
                remedy = f"add it to the agent: ssh-add {files}"
            elif not self._identities.offered:
                reason = f"there is no key to log in as {self.fabric.user}"
            return HostError(name, f"login refused: {reason}", remedy)
        transport = self.fabric.client.get_transport()
        no_server = transport is not None and not transport.remote_version
        reason = (self._proxy and self._proxy.last_error()) or (
            "no SSH server answers" if no_server else _reason(error)
        )
        return HostError(
            name,
            f"cannot be reached: {reason}",
            "check that the machine is on and that its address in the profile is correct",
        )


class _FabricConnection(fabric.Connection):  # type: ignore[misc]
    """A connection that is opened once. Each command of fabric would open a closed connection again."""

    @override
    def open(self) -> None:
        if self.transport is not None and not self.is_connected:
            raise EOFError("the connection was closed")
        super().open()


class _Runner(fabric.runners.Remote):  # type: ignore[misc]
    """Runs one command. Unlike fabric's runner, it streams bytes to stdin, and notices that the machine is lost."""

    read_chunk_size = CHUNK_BYTES

    def __init__(self, connection: Connection, **options: Any) -> None:
        super().__init__(**options)
        self._connection = connection
        self._bytes: Counter[int] = Counter()
        self._deadline_s = math.inf
        self._is_late = False

    @override
    def start_timer(self, timeout: float) -> None:
        self._deadline_s = time.monotonic() + timeout

    @property
    @override
    def timed_out(self) -> bool:
        # fabric asks whether the thread of its timer has ended. The channel that this thread closes ends before.
        return self._is_late

    @override
    def handle_stdin(self, input_: IO[bytes], output: object, echo: bool = False) -> None:
        # The command may end without reading all of its input.
        with contextlib.suppress(OSError, EOFError):
            try:
                while data := input_.read(CHUNK_BYTES):
                    self.channel.sendall(data)
                    self._connection.heard_s = time.monotonic()
            finally:
                # After an error of the file, too: the command would wait for the rest until its timeout.
                self.channel.shutdown_write()

    @override
    def respond(self, buffer_: list[str]) -> None:
        """Limit the output. fabric's method, which answers prompts, joins all output again for each packet."""
        self._connection.heard_s = time.monotonic()
        self._bytes[id(buffer_)] += len(buffer_[-1])
        if self._bytes[id(buffer_)] > MAX_OUTPUT_BYTES:
            self.kill()

    @override
    def wait(self) -> None:
        # fabric's method looks every 10 ms whether the command has ended.
        while not self.channel.status_event.wait(ALIVE_CHECK_S):
            now_s = time.monotonic()
            if now_s - self._connection.heard_s > ALIVE_LIMIT_S:
                self._connection.close()
            elif now_s >= self._deadline_s:
                self._is_late = True
                self.kill()

    @override
    def send_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        self.kill()
        raise interrupt


class _Proxy:
    """A ProxyCommand. paramiko's class for it does not notice that the command ends."""

    def __init__(self, command: str) -> None:
        self.stream, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        with theirs:
            # ssh_config(5) defines a ProxyCommand as a command of the shell. In a session of its own, Ctrl-C does
            # not reach it.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def last_error(self) -> str:
        """Return the last line of its messages."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """End the command, which may be a pipeline, or run as another user."""
        self.stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if self._process.returncode is None:
                    os.killpg(self._process.pid, number)
                    self._process.wait(CLOSE_S)
        self._errors.close()


def _reason(error: Exception) -> str:
    """Return the message of an exception for users."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, EOFError | ConnectionResetError):
        return "the connection was closed"
    return (error.strerror if isinstance(error, OSError) else "") or str(error).strip()
