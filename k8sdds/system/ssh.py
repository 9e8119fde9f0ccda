"""Machines over SSH: the one way by which a command looks at a machine or changes it.

The OpenSSH client does the work, so that ssh_config, agents, jump hosts and known_hosts are honoured. One
connection per machine (ControlMaster) carries all commands.
Scripts go through stdin, never into an argument list.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from k8sdds.system.errors import K8sddsError, PrerequisiteError

CONNECT_S = 10
"""How long a machine may take to answer."""

SSH_FAILED = 255
"""Exit code by which ssh says that it, and not the command, failed."""

_BEGUN = "k8sdds: begun"
"""What a machine says first on stderr: what comes before it is ssh's, or the machine's greeting."""

_CONTROLS = "k8sdds-ssh-"
"""How the folders of shared connections' sockets begin."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Target:
    """How ssh reaches a machine; None: as ssh_config says."""

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    proxy_command: tuple[str, ...] = ()
    ssh_config: Path | None = None

    def options(self) -> list[str]:
        """The ssh options of this target."""
        words = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        if self.user is not None:
            words += ["-l", self.user]
        if self.port is not None:
            words += ["-p", str(self.port)]
        if self.key is not None:
            words += ["-o", f"IdentityFile={self.key}", "-o", "IdentitiesOnly=yes"]
        if self.known_hosts is not None:
            words += ["-o", f"UserKnownHostsFile={self.known_hosts}"]
        if self.proxy_command:
            words += ["-o", f"ProxyCommand={shlex.join(self.proxy_command)}"]
        return words


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str


class HostError(PrerequisiteError):
    """A machine that cannot be reached, or a command that failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)
        self.host = host


@dataclass
class Host:
    """A machine that scripts can be run on."""

    target: Target
    controls: Path
    """Folder of the sockets of connections that are shared."""
    accept_new_keys: bool = False

    @property
    def name(self) -> str:
        """The machine's name in the profile."""
        return self.target.name

    def ssh(self, *more: str) -> list[str]:
        """The words of an ssh client on this machine's connection, without a command."""
        # BatchMode: ask for nothing. What would be asked is an error with a remedy instead.
        return [
            "ssh",
            "-T",
            *more,
            *("-o", "BatchMode=yes"),
            *("-o", f"ConnectTimeout={CONNECT_S}"),
            *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
            *("-o", "ControlMaster=auto", "-o", "ControlPersist=60"),
            *("-o", f"ControlPath={self.controls}/%C"),
            *("-o", f"StrictHostKeyChecking={'accept-new' if self.accept_new_keys else 'yes'}"),
            *self.target.options(),
            "--",
            self.target.address or self.target.name,
        ]

    def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> Done:
        """Run a shell script, as root through `sudo -n` where the login is another.

        Raises HostError where ssh does not get there, sudo refuses, or the time is over. What the script
        itself ends with is in the result.
        """
        # `sh -s` reads the script while it runs; the braces make it read all of it first, so that a command
        # that reads stdin cannot eat the rest.
        shell = (
            'if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n -- sh -s; fi' if root else "exec sh -s"
        )
        return self._ask(shell, f"{{\n{script}\n}} </dev/null\n".encode(), root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> Done:
        """Run a script as root with this content as its stdin. The script may hold no secret: `ps` shows it.

        Raises HostError as `run` does.
        """
        words = f"sh -c {shlex.quote(script)}"
        shell = f'if [ "$(id -u)" = 0 ]; then exec {words}; else exec sudo -n -- {words}; fi'
        return self._ask(shell, content, True, timeout_s)

    def _ask(self, shell: str, content: Path | bytes, root: bool, timeout_s: float) -> Done:
        stdin: dict[str, Any] = {"input": content}
        try:
            with contextlib.ExitStack() as opened:
                if isinstance(content, Path):
                    stdin = {"stdin": opened.enter_context(content.open("rb"))}
                ended = subprocess.run(
                    [*self.ssh(), f"echo '{_BEGUN}' >&2; {shell}"],
                    **stdin,
                    capture_output=True,
                    timeout=timeout_s,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            if isinstance(content, Path) and error.filename == str(content):
                raise PrerequisiteError(
                    f"{content} is not there any more", "run the command again"
                ) from error
            raise PrerequisiteError(
                "the program ssh is not here", "install the package openssh-client"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HostError(
                self.name, f"no answer within {timeout_s:g} s", "is the machine overloaded, or its cable out?"
            ) from error
        out = ended.stdout.decode(errors="replace")
        greeting, begun, said = ended.stderr.decode(errors="replace").partition(f"{_BEGUN}\n")
        if ended.returncode == SSH_FAILED and greeting.strip() and not begun:
            raise self._unreached(greeting)
        if ended.returncode == SSH_FAILED and not self._connected():
            # Silent otherwise: the client of a shared connection says nothing where that breaks.
            raise HostError(
                self.name,
                "the connection was lost in the middle",
                "is it on, its cable in, and has it not been booted again?",
            )
        said = said if begun else greeting
        if root and "sudo:" in said and "password is required" in said:
            raise HostError(
                self.name,
                "sudo wants a password",
                "let the login use sudo without one: a line `USER ALL=(ALL) NOPASSWD: ALL` (visudo)",
            )
        if root and ended.returncode == 127 and "sudo" in said:
            raise HostError(self.name, "there is no sudo", "install sudo, or let ssh log in as root")
        return Done(ended.returncode, out, said)

    def close(self) -> None:
        """End the shared connection, if there is one."""
        self._control("exit")

    def _connected(self) -> bool:
        """Whether the shared connection stands."""
        return self._control("check")

    def _control(self, what: str) -> bool:
        words = self.ssh()
        words[1:2] = ["-O", what]
        try:
            return subprocess.run(words, capture_output=True, timeout=CONNECT_S, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _unreached(self, said: str) -> HostError:
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith("Warning:")]
        last = lines[-1].strip() if lines else "ssh failed"
        where = self.target.address or self.target.name
        if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
            return HostError(
                self.name,
                "its host key has changed: another machine answers there, or it was installed again",
                f"if you know why: ssh-keygen -R {where}; then again with --accept-new-host-keys",
            )
        if "Host key verification failed" in said or "host key is known" in said:
            return HostError(
                self.name,
                "its host key is not known",
                f"log in once by hand (ssh {where}) and compare the key; or use --accept-new-host-keys",
            )
        if "Permission denied" in said:
            return HostError(
                self.name,
                f"login refused: {last}",
                f"does this work by hand? ssh {where}; copy your key: ssh-copy-id",
            )
        return HostError(
            self.name, f"cannot be reached: {last}", "is it on, and its address right in the profile?"
        )


class Connections:
    """The machines of a profile, each with a connection that its commands share; closed at the end."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        clean()
        self._folder, self._lock = _controls()
        self.hosts = {target.name: Host(target, self._folder, accept_new_keys) for target in targets}
        self._concurrency = concurrency

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.each(Host.close, self.hosts)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)

    def each(
        self, work: Callable[[Host], Result], names: Iterable[str]
    ) -> tuple[dict[str, Result], dict[str, K8sddsError]]:
        """The work on each of these machines, side by side: what it gave, and how it failed, by name."""
        chosen = list(names)
        results: dict[str, Result] = {}
        failures: dict[str, K8sddsError] = {}
        with ThreadPoolExecutor(max_workers=max(1, min(self._concurrency, len(chosen)))) as pool:
            futures = {name: pool.submit(work, self.hosts[name]) for name in chosen}
            for name, future in futures.items():
                try:
                    results[name] = future.result()
                except K8sddsError as error:
                    failures[name] = error
        return results, failures

    def all(self, work: Callable[[Host], Result], names: Iterable[str]) -> dict[str, Result]:
        """The same where it must succeed on each. Raises the only failure, or a PrerequisiteError that tells all."""
        results, failures = self.each(work, names)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        if failures:
            raise PrerequisiteError("\n".join(str(error) for error in failures.values()))
        return results


def _controls() -> tuple[Path, int]:
    """A new folder for sockets, and the lock on it, which ends with this process whatever ends it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_CONTROLS, dir=_place()))
        # Another process may take it for a left-over before it is locked.
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _place() -> Path:
    # A short path: the name of a socket has at most 108 bytes.
    return Path("/run" if os.geteuid() == 0 else "/tmp")


def clean() -> list[str]:
    """Remove this user's folders of sockets whose process was killed; their names.

    Connections may outlive it, for what goes on through them and then for a minute: such a folder stays.
    """
    removed = []
    for path in _place().glob(f"{_CONTROLS}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not any(_serves(one) for one in path.iterdir()):
                    shutil.rmtree(path)
                    removed.append(path.name)
            finally:
                os.close(lock)
    return removed


def _serves(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
