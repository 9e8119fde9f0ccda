"""A machine that runs scripts over one connection.

fabric and paramiko are imported with the first connection: most commands need no connection, and not these packages.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh.target import CHECK_S, CONNECT_S, END_S, HostError, HostLost, Target

if TYPE_CHECKING:
    import fabric
    import paramiko

    from k8sdds.system.ssh.streams import ProxyCommand

LOGIN_S = 30
"""Timeout of each attempt to log in, which may include a slow name lookup by the server."""
ALIVE_INTERVAL_S = 5
ALIVE_LIMIT_S = 20
"""A machine that does not answer for this time, although it is asked to, is lost."""
SIGNALED = 255
"""Exit code of a command that a signal ended, as ssh returns it."""
CHUNK_BYTES = 32768
"""The largest packet that OpenSSH and paramiko send."""
MAX_OUTPUT_BYTES = 256 << 20
"""Largest output of a command, stdout and stderr each."""
SUDO = "env LC_ALL=C sudo -n --"
"""Starts a command as root. The messages of sudo are in English, so that they are recognized."""


@dataclass(frozen=True)
class ScriptResult:
    """The result of a finished script."""

    code: int
    out: str
    err: str


class Host:
    """A machine that runs scripts over one connection. Several threads may use it."""

    def __init__(
        self, target: Target, accept_new_keys: bool = False,
        jump_host: Callable[[str, Host], Host | None] = lambda jump_hosts, host: None,
        needed_by: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Describe a machine. The connection is opened when it is needed.

        `jump_host` returns the last of the jump hosts that ssh_config names for a machine. `needed_by`: the jump
        hosts that are reached through this one, and this one.
        """
        self.target, self.name, self.needed_by = target, target.name, needed_by
        self.ended = False
        """Whether `end` was called, so that no script can run any more."""
        self._accept_new_keys, self._jump_host = accept_new_keys, jump_host
        self._connecting = threading.Lock()
        # Guarded by _connecting, except that `end` closes the connection in whatever state it is.
        self._connection: fabric.Connection | None = None
        self._proxy: ProxyCommand | None = None
        self._attempts = 0
        self._failure: HostError | None = None
        self._heard_s = 0.0
        """When the machine last answered."""

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
        """Run a shell script, which may contain secrets, and return its result, whatever its exit code.

        With `root`, it runs through `sudo -n` if the login user is not root. Raises HostError if the machine cannot
        be reached, sudo refuses, or the script exceeds its timeout; HostLost if the connection ends.
        """
        # `sh -s` reads the script while running it. The braces make it read the whole script first, so that a
        # command in it that reads stdin cannot consume the rest.
        stdin = io.BytesIO(f"{{\n{script}\n}} </dev/null\n".encode())
        return self._run("sh -s", stdin, root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin. Raises HostError as `run` does.

        The script must not contain secrets, because `ps` shows it.
        """
        try:
            stdin = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
        except FileNotFoundError as error:
            raise PrerequisiteError(f"{content!s} was deleted", "run the command again") from error
        with stdin:
            return self._run(f"sh -c {shlex.quote(script)}", stdin, True, timeout_s)

    def _run(self, shell: str, stdin: IO[bytes], root: bool, timeout_s: float) -> ScriptResult:
        as_root = f'if [ "$(id -u)" = 0 ]; then exec {shell}; else exec {SUDO} {shell}; fi'
        command = as_root if root else f"exec {shell}"
        transport = self._open()
        # For `--verbose`, like the audit events of local programs. The script on stdin may contain secrets.
        sys.audit("k8sdds.ssh", self.name, command)
        result = self._execute(transport, command, stdin, timeout_s)
        if root and "sudo:" in result.err and "password is required" in result.err:
            remedy = "allow sudo without a password: add a line `USER ALL=(ALL) NOPASSWD: ALL` with visudo"
            raise self._error("sudo requires a password", remedy)
        if root and result.code == 127 and "sudo" in result.err:
            raise self._error("sudo is not installed", "install sudo, or let ssh log in as root")
        return result

    def _execute(
        self, transport: paramiko.Transport, command: str, stdin: IO[bytes], timeout_s: float
    ) -> ScriptResult:
        from k8sdds.system.ssh.trust import FAILURES

        deadline_s = time.monotonic() + timeout_s
        lost = HostLost(
            self.name, "the connection was lost while a script ran",
            "check that the machine is on and connected, and that it has not rebooted",
        )  # fmt: skip
        try:
            channel = transport.open_session()
        except FAILURES as error:
            raise lost from error
        out, err = bytearray(), bytearray()
        sending = threading.Thread(target=self._send, args=(channel, command, stdin), daemon=True)
        receiving = [
            threading.Thread(target=self._receive, args=(channel, channel.recv, out), daemon=True),
            threading.Thread(target=self._receive, args=(channel, channel.recv_stderr, err), daemon=True),
            threading.Thread(target=channel.recv_exit_status, daemon=True),
        ]
        with contextlib.closing(channel):
            for thread in (sending, *receiving):
                thread.start()
            for thread in receiving:
                while thread.is_alive():
                    thread.join(CHECK_S)
                    if not self._is_heard():
                        transport.close()
                    elif time.monotonic() >= deadline_s:
                        channel.close()
        sending.join(END_S)
        code = channel.recv_exit_status()
        if max(len(out), len(err)) > MAX_OUTPUT_BYTES:
            raise self._error(f"a script printed more than {MAX_OUTPUT_BYTES >> 20} MiB", "check the machine")
        if code < 0:
            # The deadline or a signal ended the command, or the connection is lost.
            transport.join(CHECK_S)
            if not transport.is_active():
                raise lost
            if time.monotonic() >= deadline_s:
                remedy = "check whether the machine is overloaded or disconnected"
                raise self._error(f"no answer within {timeout_s:g} s", remedy)
        return ScriptResult(SIGNALED if code < 0 else code, *(s.decode(errors="replace") for s in (out, err)))

    def _send(self, channel: paramiko.Channel, command: str, stdin: IO[bytes]) -> None:
        """Start a command and send its input. It may end without reading all of it.

        A thread does it, because paramiko waits for the start without end if the channel is closed right before it.
        """
        from k8sdds.system.ssh.trust import FAILURES

        with contextlib.suppress(*FAILURES), contextlib.ExitStack() as last:
            channel.exec_command(command)
            # After an error of the file, too: the command would wait for the rest until its timeout.
            last.callback(channel.shutdown_write)
            while data := stdin.read(CHUNK_BYTES):
                channel.sendall(data)
                self._heard_s = time.monotonic()

    def _receive(self, channel: paramiko.Channel, receive: Callable[[int], bytes], output: bytearray) -> None:
        while data := receive(CHUNK_BYTES):
            output += data
            self._heard_s = time.monotonic()
            if len(output) > MAX_OUTPUT_BYTES:
                channel.close()

    @contextlib.contextmanager
    def forward(self, address: str, port: int) -> Iterator[int]:
        """Yield a local port that leads to an address as this machine sees it, until the end of the block."""
        from k8sdds.system.ssh.streams import forwarding

        self._open()
        with forwarding(
            lambda: self._open().open_channel("direct-tcpip", (address, port), ("127.0.0.1", 0))
        ) as local_port:
            yield local_port

    def close(self) -> None:
        """Close the connection, if it is open. The next script opens it again."""
        with self._connecting:
            self._close()

    def end(self) -> None:
        """Close the connection for good, at once: scripts that run now or later fail."""
        self.ended = True
        self._close()

    def _close(self) -> None:
        transport = self._connection and self._connection.client.get_transport()
        if transport is not None:
            transport.close()
            if transport.ident is not None:
                transport.join(END_S)
            # It is still open if the handshake failed.
            transport.sock.close()
        if self._proxy is not None:
            self._proxy.close()

    def _open(self) -> paramiko.Transport:
        """Return the open connection. Opens it if it is not open."""
        attempts = self._attempts
        with self._connecting:
            connection = self._connection
            if connection is None or not connection.is_connected or not self._is_heard():
                self._close()
                if self._failure is not None and self._attempts != attempts:
                    # Another thread has just tried. Many machines may wait for the same jump host.
                    raise self._failure
                try:
                    connection, self._failure = self._connect(), None
                except BaseException as error:
                    self._failure = error if isinstance(error, HostError) else None
                    self._close()
                    raise
                finally:
                    self._attempts += 1
            return connection.transport

    def _connect(self) -> fabric.Connection:
        import fabric
        import paramiko

        from k8sdds.system.ssh.trust import FAILURES, HostKeys, Identities, ssh_config

        self._proxy = None
        try:
            # `gateway` is set later, because fabric would accept any key of a jump host.
            connection = self._connection = fabric.Connection(
                self.target.alias, config=fabric.Config(ssh_config=ssh_config(self.target), lazy=True),
                gateway=False, forward_agent=False, connect_timeout=CONNECT_S, connect_kwargs={},
            )  # fmt: skip
            keys = HostKeys(self.target, self._accept_new_keys, connection)
        except (ValueError, paramiko.SSHException) as error:
            remedy = "correct the file, or name another: `ssh_config`"
            raise self._error(f"cannot read ssh_config: {error}", remedy) from error
        identities = Identities(connection)
        connection.client.set_missing_host_key_policy(keys)
        connection.connect_kwargs.update(
            transport_factory=keys.transport, auth_strategy=identities,
            banner_timeout=CONNECT_S, auth_timeout=LOGIN_S, channel_timeout=CONNECT_S,
        )  # fmt: skip
        try:
            self._choose_way(connection)
            # `end` sets the flag before it closes the connection. Before or after, it is read here.
            self._require_not_ended()
            connection.open()
            self._require_not_ended()
            if not connection.transport.is_authenticated():
                raise paramiko.AuthenticationException("the server requires more than a key")
        except FAILURES as error:
            self._require_not_ended()
            raise self._explain(error, connection, identities.encrypted) from error
        self._heard_s = time.monotonic()
        threading.Thread(
            target=self._ask, args=(connection.transport,), daemon=True, name=f"asks {self.name}"
        ).start()
        return connection

    def _choose_way(self, connection: fabric.Connection) -> None:
        """Let a connection use the jump hosts or the command that ssh_config names."""
        options = connection.ssh_config
        jump_hosts, command = options.get("proxyjump", "none"), options.get("proxycommand", "none")
        if jump_hosts != "none":
            try:
                if hop := self._jump_host(jump_hosts, self):
                    hop._open()
                    connection.gateway = hop._connection
            except HostError as error:
                raise self._error(f"jump host {error.message}", error.remedy) from error
        elif command != "none":
            from k8sdds.system.ssh.streams import ProxyCommand

            self._proxy = ProxyCommand(command)
            connection.connect_kwargs["sock"] = self._proxy.stream

    def _require_not_ended(self) -> None:
        if self.ended:
            raise self._error("the command was interrupted", "run it again")

    def _is_heard(self) -> bool:
        return time.monotonic() - self._heard_s < ALIVE_LIMIT_S

    def _ask(self, transport: paramiko.Transport) -> None:
        """Ask for a sign of life while the connection is open."""
        from k8sdds.system.ssh.trust import FAILURES

        with contextlib.suppress(*FAILURES):
            while transport.is_active():
                transport.global_request("keepalive@openssh.com", wait=True)
                self._heard_s = time.monotonic()
                transport.join(ALIVE_INTERVAL_S)

    def _error(self, message: str, remedy: str) -> HostError:
        return HostError(self.name, message, remedy)

    def _explain(self, error: Exception, connection: fabric.Connection, encrypted: list[str]) -> HostError:
        import paramiko
        from paramiko.auth_strategy import AuthFailure

        if isinstance(error, paramiko.AuthenticationException):
            remedy = f"check that this works: ssh {self.target.alias}; copy your key with ssh-copy-id"
            reason = f"{connection.user}@{connection.host}: permission denied"
            if files := " ".join(encrypted):
                reason = f"{files} requires a passphrase, and the agent does not have this key"
                remedy = f"add it to the agent: ssh-add {files}"
            elif isinstance(error, AuthFailure) and not error.result:
                reason = f"there is no key to log in as {connection.user}"
            return self._error(f"login refused: {reason}", remedy)
        transport = connection.client.get_transport()
        if self._proxy is not None and self._proxy.last_error():
            reason = self._proxy.last_error()
        elif transport is not None and not transport.remote_version:
            reason = "no SSH server answers"
        elif isinstance(error, EOFError | ConnectionResetError):
            reason = "the connection was closed"
        else:
            unknown = getattr(error, "strerror", None) or str(error)
            reason = "no answer" if isinstance(error, TimeoutError) else unknown
        remedy = "check that the machine is on and that its address in the profile is correct"
        return self._error(f"cannot be reached: {reason}", remedy)
