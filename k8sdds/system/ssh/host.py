"""The machines of a profile. fabric and paramiko are imported with a connection, because most commands need none."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError

if TYPE_CHECKING:
    import fabric
    import paramiko

Result = TypeVar("Result")

CHECK_S = 0.5
"""Time in which a thread that waits notices Ctrl-C. The kernel may deliver its signal to any other thread."""
END_S = 2
"""Time in which the threads and processes of a closed connection end."""
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec {0}; else exec env LC_ALL=C sudo -n -- {0}; fi'
"""Starts a command as root. The messages of sudo are in English, so that they are recognized."""
_jumps = threading.Semaphore(8)
"""Limits simultaneous logins through jump hosts. sshd refuses some if there are more than 10 (MaxStartups)."""


class HostError(PrerequisiteError):
    """A machine cannot be reached, or a command failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)


class HostLost(HostError):
    """The connection to a machine was lost while a script ran."""


@dataclass(frozen=True)
class Login:
    """A machine as a user names it: `[USER@]ADDRESS[:PORT]`."""

    address: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Login:
        """Return the login that a text describes. Raises ValueError, whose message names the wrong part."""
        pattern = r"(?s)(?:(.*)@)?(?:\[([^]]*)\]|([^:]*)|(.*:.*:.*))(?::([^:]*))?"
        user, *addresses, port = re.fullmatch(pattern, text).groups()  # type: ignore[union-attr]  # matches any text
        address = next(filter(None, addresses), "")
        if user == "" or not address:
            raise ValueError("the address is missing" if user != "" else "the user is missing before @")
        if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
            raise ValueError(f"{port!r} is not a port")
        return cls(address, user, int(port) if port else None)


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
        settings = {
            "User": self.user,
            "Port": self.port,
            "IdentityFile": self.key and shlex.quote(str(self.key)),
            "IdentitiesOnly": self.key and "yes",
            "UserKnownHostsFile": self.known_hosts and shlex.quote(str(self.known_hosts)),
            "ProxyCommand": shlex.join(self.proxy_command),
        }
        file = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        return file + [word for key, value in settings.items() if value for word in ("-o", f"{key}={value}")]


class ScriptResult(NamedTuple):
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
        self._connecting = threading.Lock()
        # Set under _connecting. `close` closes the connections in whatever state they are.
        self._hops: list[tuple[Target, fabric.Connection]] = []

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
        """Run a shell script, which may contain secrets, and return its result, whatever its exit code.

        With `root`, it runs through `sudo -n` if the login user is not root. Raises HostError if the machine cannot
        be reached, sudo refuses, or the script exceeds its timeout; HostLost if the connection ends.
        """
        # `sh -s` reads the script while running it. The braces make it read the whole script first, so that a
        # command in it that reads stdin cannot consume the rest.
        return self._run("sh -s", io.BytesIO(f"{{\n{script}\n}} </dev/null\n".encode()), root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin. `ps` shows the script, so it must not contain secrets."""
        try:
            with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as stdin:
                return self._run(f"sh -c {shlex.quote(script)}", stdin, True, timeout_s)
        except OSError as error:
            why = f"cannot read {error.filename}: {error.strerror}"
            raise PrerequisiteError(why, "run the command again") from error

    def _run(self, shell: str, stdin: IO[bytes], root: bool, timeout_s: float) -> ScriptResult:
        from k8sdds.system.ssh.client import execute

        command = AS_ROOT.format(shell) if root else f"exec {shell}"
        transport = self._open()
        # For `--verbose`, like the audit events of local programs. The script on stdin may contain secrets.
        sys.audit("k8sdds.ssh", self.name, command)
        result = ScriptResult(*execute(self.name, transport, command, stdin, timeout_s))
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
        from k8sdds.system.ssh.client import log_in, route, watch

        with self._connecting, contextlib.ExitStack() as failed:
            if self._hops and self._hops[0][1].is_connected:
                return self._hops[0][1].transport
            failed.callback(self.close)
            self.close()
            try:
                self._hops = route(self.target, self._accept_new_keys)
            except ValueError as error:
                remedy = "correct the file, or name another: `ssh_config`"
                raise HostError(self.name, f"cannot read ssh_config: {error}", remedy) from error
            try:
                with _jumps if len(self._hops) > 1 else contextlib.nullcontext():
                    for target, hop in reversed(self._hops):
                        if not self.ended:
                            log_in(target, hop)
            finally:
                # `end` sets the flag before it closes the connections.
                if self.ended:
                    raise HostError(self.name, "the command was interrupted", "run it again")
            failed.pop_all()
        transport = self._hops[0][1].transport
        threading.Thread(target=watch, args=(transport,), name=f"asks {self.name}", daemon=True).start()
        return transport


class Connections:
    """A context with one connection per machine of a profile, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        self._concurrency = concurrency
        self.hosts = {target.name: Host(target, accept_new_keys) for target in targets}

    def __enter__(self) -> Connections:
        return self

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
        """Run `work` on these machines in parallel and return the results, by machine name.

        Raises the failure if exactly one machine failed, else a PrerequisiteError with all messages.
        """
        results, failures = self.each(work, names)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        if failures:
            raise PrerequisiteError("\n".join(dict.fromkeys(map(str, failures.values()))))
        return results
