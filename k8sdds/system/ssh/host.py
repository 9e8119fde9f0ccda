"""The machines of a profile. fabric and paramiko are imported with a connection, because most commands need none."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError

if TYPE_CHECKING:
    import fabric
    import paramiko

Result = TypeVar("Result")
Connect = Callable[[Sequence["Target"]], "Connections"]
"""Returns connections to machines, which open when they are used."""
CHECK_S = 0.5
"""Time in which a thread that waits notices Ctrl-C. The kernel may deliver its signal to any other thread."""
END_S = 2
"""Time in which the threads and processes of a closed connection end."""
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec {0}; else exec env LC_ALL=C sudo -n -- {0}; fi'
"""Starts a command as root. The messages of sudo are in English, so that they are recognized."""
# Servers end the connection if input arrives after the end of a channel, which paramiko does not prevent.
READ_TO_END = "(\n{}\n); code=$?; cat >/dev/null; exit $code"
# sshd refuses some of more than 10 simultaneous logins (MaxStartups), and machines may share a jump host.
_jumps = threading.Semaphore(8)


class HostError(PrerequisiteError):
    """A machine cannot be reached, or a command failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)


class HostLost(HostError):
    """The connection to a machine was lost while a script ran."""

    def __init__(self, host: str) -> None:
        remedy = "check that the machine is on and connected, and that it has not rebooted"
        super().__init__(host, "the connection was lost while a script ran", remedy)


@dataclass(frozen=True)
class Target:
    """How SSH reaches a machine. None and empty values leave the choice to ssh_config."""

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    proxy_command: tuple[str, ...] = ()
    ssh_config: Path | None = None

    @property
    def alias(self) -> str:
        """The name under which ssh_config is searched, as in `ssh ALIAS`."""
        return self.address or self.name

    def options(self) -> list[str]:
        """Return the options with which the OpenSSH client reaches the machine."""
        given: dict[str, object] = {"User": self.user, "Port": self.port}
        for name, file in (("IdentityFile", self.key), ("UserKnownHostsFile", self.known_hosts)):
            given[name] = file and shlex.quote(str(file))
        given |= {"IdentitiesOnly": self.key and "yes", "ProxyCommand": shlex.join(self.proxy_command)}
        config = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        words = (f"{key}={value}" for key, value in given.items() if value)
        return config + [word for setting in words for word in ("-o", setting)]


@dataclass(frozen=True)
class ScriptResult:
    """The result of a finished script."""

    code: int
    out: str
    err: str


class Host:
    """A machine that runs scripts over one connection, which is opened when it is needed, by any thread."""

    def __init__(self, target: Target, accept_new_keys: bool = False) -> None:
        self.target, self.name, self._accept_new_keys = target, target.name, accept_new_keys
        self.ended = False
        """Whether `end` was called, so that no script can run any more."""
        self._connecting, self._running = threading.Lock(), threading.Lock()
        # Set under _connecting. `close` closes the connections in whatever state they are.
        self._hops: list[tuple[Target, fabric.Connection]] = []

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
        """Run a shell script, which may contain secrets, and return its result, whatever its exit code.

        With `root`, it runs through `sudo -n` if the login user is not root. Raises HostError if the machine cannot
        be reached, sudo refuses, or the script exceeds its timeout; HostLost if the connection ends.
        """
        # `sh -s` reads the script while running it. As one command, it is read as a whole first, so that a command in
        # it that reads stdin cannot consume the rest. In a subshell, `exit` leaves the end of stdin to `sh -s`.
        return self._run("sh -s", io.BytesIO(f"(\n{script}\n) </dev/null\n".encode()), root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin. `ps` shows the script, so it must not contain secrets."""
        shell = f"sh -c {shlex.quote(READ_TO_END.format(script))}"
        try:
            with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as stdin:
                return self._run(shell, stdin, True, timeout_s)
        except OSError as error:
            why = f"cannot read {error.filename}: {error.strerror}"
            raise PrerequisiteError(why, "check the file, then run the command again") from error

    def _run(self, shell: str, stdin: IO[bytes], root: bool, timeout_s: float) -> ScriptResult:
        from k8sdds.system.ssh.client import execute

        command = AS_ROOT.format(shell) if root else f"exec {shell}"
        # dropbear before 2024.86 closes a session, or the connection, if another ends before the command starts.
        with self._running if "dropbear" in self._open().remote_version else contextlib.nullcontext():
            # For `--verbose`, like the audit events of local programs. The script on stdin may contain secrets.
            sys.audit("k8sdds.ssh", self.name, command)
            result = execute(self.name, self._open(), command, stdin, timeout_s)
        if root and "sudo:" in result.err and "password is required" in result.err:
            remedy = "allow sudo without a password: add a line `USER ALL=(ALL) NOPASSWD: ALL` with visudo"
            raise HostError(self.name, "sudo requires a password", remedy)
        if root and result.code == 127 and "sudo" in result.err:
            raise HostError(self.name, "sudo is not installed", "install sudo, or let ssh log in as root")
        return result

    def forward(self, address: str, port: int) -> contextlib.AbstractContextManager[int]:
        """Return a context with a local port that leads to an address as this machine sees it."""
        from k8sdds.system.ssh.client import forwarding

        self._open()
        return forwarding(self._open, address, port)

    def close(self) -> None:
        """Close the connection, if it is open. The next script opens it again."""
        for transport in filter(None, (hop.client.get_transport() for _, hop in self._hops)):
            transport.close()
            if transport.ident is not None:
                transport.join(END_S)
            # It is still open if the handshake failed.
            transport.sock.close()

    def end(self) -> None:
        """Close the connection for good, at once: scripts that run now or later fail."""
        self.ended = True
        self.close()

    def _open(self) -> paramiko.Transport:
        """Return the open connection. Opens it if it is not open."""
        from k8sdds.system.ssh.client import log_in, route

        with self._connecting:
            if self._hops and self._hops[0][1].is_connected:
                return self._hops[0][1].transport
            self.close()
            try:
                self._hops = route(self.target, self._accept_new_keys)
                with _jumps if len(self._hops) > 1 else contextlib.nullcontext():
                    for target, hop in reversed(self._hops):
                        if not self.ended:
                            log_in(target, hop)
                return self._hops[0][1].transport
            except ValueError as error:
                remedy = "correct the file, or name another: `ssh_config`"
                raise HostError(self.name, f"cannot read ssh_config: {error}", remedy) from error
            finally:
                # `end` sets the flag before it closes the connections.
                if self.ended or not all(hop.is_connected for _, hop in self._hops):
                    self.close()
                if self.ended:
                    raise HostError(self.name, "the command was interrupted", "run it again")


class Connections(contextlib.AbstractContextManager["Connections"]):
    """A context with one connection per machine of a profile, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        self._concurrency = concurrency
        self.hosts = {target.name: Host(target, accept_new_keys) for target in targets}

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.end()

    def each(
        self, work: Callable[[Host], Result], names: Iterable[str]
    ) -> tuple[dict[str, Result], dict[str, K8sddsError]]:
        """Run `work` on these machines in parallel; return the results and the failures, by machine name."""
        futures: dict[str, Future[Result]] = {name: Future() for name in names}
        remaining = iter(list(futures.items()))

        def serve() -> None:
            for name, future in remaining:
                try:
                    future.set_result(work(self.hosts[name]))
                except BaseException as error:
                    future.set_exception(error)

        try:
            for _ in range(min(self._concurrency, len(futures))):
                # Not of a pool, which would wait for them at the end of the command.
                threading.Thread(target=serve, daemon=True).start()
            while wait(futures.values(), CHECK_S).not_done:
                pass
        except BaseException:
            # Ctrl-C: what runs must not delay the end of the command.
            self.__exit__()
            wait(futures.values(), END_S)
            raise
        results, failures = dict[str, Result](), dict[str, K8sddsError]()
        for name, future in futures.items():
            try:
                results[name] = future.result()
            except K8sddsError as error:
                failures[name] = error
        return results, failures

    def all(self, work: Callable[[Host], Result], names: Iterable[str]) -> dict[str, Result]:
        """Return the results of `each`. Raises the failure, or a PrerequisiteError with the messages of several."""
        results, failures = self.each(work, names)
        if errors := list(failures.values()):
            text = "\n".join(dict.fromkeys(map(str, errors)))
            raise errors[0] if len(errors) == 1 else PrerequisiteError(text)
        return results
