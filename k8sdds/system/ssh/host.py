"""The machines of a profile, which run scripts."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError
from k8sdds.system.ssh.target import HostError, HostLost, Target

if TYPE_CHECKING:
    import paramiko

    from k8sdds.system.ssh.connection import Connection

__all__ = ["Connections", "Host", "HostError", "HostLost", "Result", "ScriptResult"]

SUDO = "env LC_ALL=C sudo -n --"
"""Starts a command as root. The messages of sudo are in English, so that they are recognized."""
Result = TypeVar("Result")


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
        needed_by: tuple[str, ...] = (),
    ) -> None:
        """Describe a machine. The connection is opened when it is needed.

        `jump_host` returns the last of the jump hosts that ssh_config names for a machine. `needed_by`: the jump
        hosts that are reached through this one, and this one.
        """
        self.target = target
        self.needed_by = needed_by
        self.ended = False
        """Whether `end` was called, so that no script can run any more."""
        self._accept_new_keys = accept_new_keys
        self._jump_host = jump_host
        self._connecting = threading.Lock()
        # Guarded by _connecting.
        self._connection: Connection | None = None
        self._attempts = 0
        self._failure: HostError | None = None

    @property
    def name(self) -> str:
        """Name of the machine in the profile."""
        return self.target.name

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
        """Run a shell script, which may contain secrets, and return its result, whatever its exit code.

        With `root`, it runs through `sudo -n` if the login user is not root.

        Raises:
            HostError: The machine cannot be reached, sudo refuses, or the script exceeds its timeout.
        """
        # `sh -s` reads the script while running it. The braces make it read the whole script first, so that a
        # command in it that reads stdin cannot consume the rest.
        stdin = io.BytesIO(f"{{\n{script}\n}} </dev/null\n".encode())
        return self._run(_as_root("sh -s") if root else "exec sh -s", stdin, root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin.

        The script must not contain secrets, because `ps` shows it. Raises HostError as `run` does.
        """
        try:
            stdin = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
        except FileNotFoundError as error:
            raise PrerequisiteError(f"{content!s} was deleted", "run the command again") from error
        with stdin:
            return self._run(_as_root(f"sh -c {shlex.quote(script)}"), stdin, True, timeout_s)

    def _run(self, shell: str, stdin: IO[bytes], root: bool, timeout_s: float) -> ScriptResult:
        connection = self._open()
        # For `--verbose`, like the audit events of local programs. The script on stdin may contain secrets.
        sys.audit("k8sdds.ssh", self.name, shell)
        result = ScriptResult(*connection.run(shell, stdin, timeout_s))
        if root and "sudo:" in result.err and "password is required" in result.err:
            raise HostError(
                self.name,
                "sudo requires a password",
                "allow sudo without a password: add a line `USER ALL=(ALL) NOPASSWD: ALL` with visudo",
            )
        if root and result.code == 127 and "sudo" in result.err:
            raise HostError(self.name, "sudo is not installed", "install sudo, or let ssh log in as root")
        return result

    @contextlib.contextmanager
    def forward(self, address: str, port: int) -> Iterator[int]:
        """Yield a local port that leads to an address as this machine sees it, until the end of the block.

        Raises:
            HostError: The machine cannot be reached.
        """
        from k8sdds.system.ssh.forwarding import forwarding

        def connect() -> paramiko.Channel:
            transport = self._open().fabric.transport
            return transport.open_channel("direct-tcpip", (address, port), ("127.0.0.1", 0))

        self._open()
        with forwarding(connect) as local_port:
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
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> Connection:
        """Return the open connection. Opens it if it is not open."""
        attempts = self._attempts
        with self._connecting:
            connection = self._connection
            if connection is None or not connection.is_open:
                self._require_not_ended()
                self._close()
                if self._failure is not None and self._attempts != attempts:
                    # Another thread has just tried. Many machines may wait for the same jump host.
                    raise self._failure
                connection = self._connection = self._connect()
                # Checked after the assignment, because `end` sets the flag before it reads the connection.
                self._require_not_ended()
            return connection

    def _require_not_ended(self) -> None:
        if self.ended:
            self._close()
            raise HostError(self.name, "the command was interrupted", "run it again")

    def _connect(self) -> Connection:
        from k8sdds.system.ssh.connection import Connection

        try:
            return Connection(self.target, self._accept_new_keys, self._through)
        except HostError as error:
            self._failure = error
            raise
        finally:
            self._attempts += 1

    def _through(self, jump_hosts: str) -> Connection:
        """Return the open connection to the last of several jump hosts."""
        assert self._jump_host is not None
        try:
            return self._jump_host(jump_hosts, self)._open()
        except HostError as error:
            raise HostError(self.name, f"jump host {error.message}", error.remedy) from error


def _as_root(command: str) -> str:
    return f'if [ "$(id -u)" = 0 ]; then exec {command}; else exec {SUDO} {command}; fi'


class Connections:
    """A context with one connection per machine of a profile and per jump host, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        self._accept_new_keys = accept_new_keys
        self._concurrency = concurrency
        self.hosts = {target.name: Host(target, accept_new_keys, self._jump_host) for target in targets}
        self._lock = threading.Lock()
        # Guarded by _lock. Machines with the same jump hosts share their connections.
        self._jump_hosts: dict[tuple[str, Path | None, tuple[str, ...]], Host] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        # Machines before their jump hosts, which are added later.
        for host in (*self.hosts.values(), *self._jump_hosts.values()):
            host.end()

    def _jump_host(self, jump_hosts: str, host: Host) -> Host:
        """Return the last of the jump hosts of a machine or of another jump host. Raises HostError."""
        if jump_hosts in host.needed_by:
            raise HostError(host.name, f"its jump host {jump_hosts} needs itself", "correct ssh_config")
        key = jump_hosts, host.target.ssh_config, host.needed_by
        with self._lock:
            if key not in self._jump_hosts:
                target = Target.of_jump_hosts(jump_hosts, host.target.ssh_config)
                needed_by = (*host.needed_by, jump_hosts)
                self._jump_hosts[key] = Host(target, self._accept_new_keys, self._jump_host, needed_by)
            return self._jump_hosts[key]

    def each(
        self, work: Callable[[Host], Result], names: Iterable[str]
    ) -> tuple[dict[str, Result], dict[str, K8sddsError]]:
        """Run `work` on these machines in parallel; return the results and the failures, by machine name."""
        selected = list(names)
        results: dict[str, Result] = {}
        failures: dict[str, K8sddsError] = {}
        with ThreadPoolExecutor(max_workers=max(1, min(self._concurrency, len(selected)))) as pool:
            try:
                futures = {name: pool.submit(work, self.hosts[name]) for name in selected}
                for name, future in futures.items():
                    try:
                        results[name] = future.result()
                    except K8sddsError as error:
                        failures[name] = error
            except BaseException:
                # Ctrl-C: the scripts that run must not delay the end of the command.
                self._end()
                raise
        return results, failures

    def all(self, work: Callable[[Host], Result], names: Iterable[str]) -> dict[str, Result]:
        """Run `work` on these machines in parallel and return the results, by machine name.

        Raises:
            K8sddsError: The failure, if exactly one machine failed.
            PrerequisiteError: Several machines failed; contains all messages.
        """
        results, failures = self.each(work, names)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        if failures:
            raise PrerequisiteError("\n".join(str(error) for error in failures.values()))
        return results
