"""A machine that runs scripts."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh.errors import HostError, HostLost
from k8sdds.system.ssh.target import CONNECT_S, Target

if TYPE_CHECKING:
    import paramiko

    from k8sdds.system.ssh.connection import Connection

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
        self,
        target: Target,
        accept_new_keys: bool = False,
        jump_host: Callable[[str, Host], Host] | None = None,
    ) -> None:
        """Describe a machine. The connection is opened when it is needed.

        Args:
            target: How SSH reaches the machine.
            accept_new_keys: Whether to accept and record an unknown host key.
            jump_host: Returns the last of the jump hosts that ssh_config names for a machine.
        """
        self.target = target
        self._accept_new_keys = accept_new_keys
        self._jump_host = jump_host
        self._connecting = threading.Lock()
        # Guarded by _connecting.
        self._connection: Connection | None = None
        self._attempts = 0
        self._failure: HostError | None = None
        self._ended = False

    @property
    def name(self) -> str:
        """Name of the machine in the profile."""
        return self.target.name

    @property
    def ended(self) -> bool:
        """Whether `end` was called, so that no script can run any more."""
        return self._ended

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
        """Run a shell script and return its result, whatever its exit code.

        Args:
            script: The script, which may contain secrets.
            root: Whether it runs as root, through `sudo -n` if the login user is not root.
            timeout_s: Limit of its duration.

        Raises:
            HostError: The machine cannot be reached, sudo refuses, or the script exceeds its timeout.
        """
        # `sh -s` reads the script while running it. The braces make it read the whole script first, so that a
        # command in it that reads stdin cannot consume the rest.
        shell = (
            f'if [ "$(id -u)" = 0 ]; then exec sh -s; else exec {SUDO} sh -s; fi' if root else "exec sh -s"
        )
        return self._run(shell, io.BytesIO(f"{{\n{script}\n}} </dev/null\n".encode()), root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin.

        The script must not contain secrets, because `ps` shows it. Raises HostError as `run` does.
        """
        command = f"sh -c {shlex.quote(script)}"
        shell = f'if [ "$(id -u)" = 0 ]; then exec {command}; else exec {SUDO} {command}; fi'
        try:
            stdin = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
        except FileNotFoundError as error:
            raise PrerequisiteError(f"{content!s} was deleted", "run the command again") from error
        with stdin:
            return self._run(shell, stdin, True, timeout_s)

    def _run(self, shell: str, stdin: IO[bytes], root: bool, timeout_s: float) -> ScriptResult:
        from k8sdds.system.ssh import session

        transport = self._transport()
        # For `--verbose`, like the audit events of local programs. The script on stdin may contain secrets.
        sys.audit("k8sdds.ssh", self.name, shell)
        try:
            code, out, err = session.execute(transport, shell, stdin, timeout_s)
        except session.CommandTimeout as error:
            raise HostError(
                self.name,
                f"no answer within {timeout_s:g} s",
                "check whether the machine is overloaded or disconnected",
            ) from error
        except session.ConnectionLost as error:
            raise HostLost(
                self.name,
                "the connection was lost while a script ran",
                "check that the machine is on and connected, and that it has not rebooted",
            ) from error
        result = ScriptResult(code, out.decode(errors="replace"), err.decode(errors="replace"))
        if root:
            self._check_sudo(result)
        return result

    def _check_sudo(self, result: ScriptResult) -> None:
        if "sudo:" in result.err and "password is required" in result.err:
            raise HostError(
                self.name,
                "sudo requires a password",
                "allow sudo without a password: add a line `USER ALL=(ALL) NOPASSWD: ALL` with visudo",
            )
        if result.code == 127 and "sudo" in result.err:
            raise HostError(self.name, "sudo is not installed", "install sudo, or let ssh log in as root")

    @contextlib.contextmanager
    def forward(self, address: str, port: int) -> Iterator[int]:
        """Forward a port of this machine's loopback interface within a `with` block.

        Args:
            address: The destination as the machine sees it.
            port: Its port.

        Returns:
            The local port.

        Raises:
            HostError: The machine cannot be reached.
        """
        from k8sdds.system.ssh.forwarding import Forwarding

        self._transport()
        with Forwarding(lambda: self._open_channel((address, port))) as forwarding:
            yield forwarding.port

    def close(self) -> None:
        """Close the connection, if it is open. The next script opens it again."""
        with self._connecting:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def end(self) -> None:
        """Close the connection for good, at once: scripts that run now or later fail."""
        self._ended = True
        connection = self._connection
        if connection is not None:
            connection.close()

    def _transport(self) -> paramiko.Transport:
        """Return the open connection. Opens it if it is not open."""
        attempts = self._attempts
        with self._connecting:
            self._check_ended()
            if self._connection is not None and self._connection.is_open:
                return self._connection.transport
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._failure is not None and self._attempts != attempts:
                # Another thread has just tried. Many machines may wait for the same jump host.
                raise self._failure
            self._connection = self._connect()
            # Checked after the assignment, because `end` sets the flag before it reads the connection.
            if self._ended:
                self._connection.close()
            self._check_ended()
            return self._connection.transport

    def _check_ended(self) -> None:
        if self._ended:
            raise HostError(self.name, "the command was interrupted", "run it again")

    def _connect(self) -> Connection:
        from k8sdds.system.ssh.connection import Connection

        try:
            return Connection(self.target, self._accept_new_keys, self._open_through)
        except HostError as error:
            self._failure = error
            raise
        finally:
            self._attempts += 1

    def _open_through(self, jump_hosts: str, destination: tuple[str, int]) -> paramiko.Channel:
        assert self._jump_host is not None
        try:
            return self._jump_host(jump_hosts, self)._open_channel(destination)
        except HostError as error:
            raise HostError(self.name, f"jump host {error.message}", error.remedy) from error

    def _open_channel(self, destination: tuple[str, int]) -> paramiko.Channel:
        """Connect to an address from the machine. Raises SSHException, EOFError or HostError."""
        transport = self._transport()
        return transport.open_channel("direct-tcpip", destination, ("127.0.0.1", 0), timeout=CONNECT_S)
