"""Run scripts on machines over SSH.

All commands of k8sdds read and change machines through this module. It runs the OpenSSH client, so that
ssh_config, agents, jump hosts and known_hosts apply. All scripts for a machine share one connection
(ControlMaster). Scripts are passed through stdin, never as arguments.
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
"""Timeout of a connection attempt."""

SSH_FAILED = 255
"""Exit code of ssh if ssh itself fails, rather than the command."""

_STARTED = "k8sdds: script started"
"""First line on stderr of every script. Text before it comes from ssh or is the machine's login banner."""

_SOCKET_FOLDER = "k8sdds-ssh-"
"""Prefix of the folders with the sockets of shared connections."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Target:
    """How ssh reaches a machine. None and empty values leave the choice to ssh_config."""

    name: str
    address: str | None = None
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    proxy_command: tuple[str, ...] = ()
    ssh_config: Path | None = None

    def options(self) -> list[str]:
        """Return the ssh options of this target."""
        options = ["-F", str(self.ssh_config)] if self.ssh_config is not None else []
        if self.user is not None:
            options += ["-l", self.user]
        if self.port is not None:
            options += ["-p", str(self.port)]
        if self.key is not None:
            options += ["-o", f"IdentityFile={self.key}", "-o", "IdentitiesOnly=yes"]
        if self.known_hosts is not None:
            options += ["-o", f"UserKnownHostsFile={self.known_hosts}"]
        if self.proxy_command:
            options += ["-o", f"ProxyCommand={shlex.join(self.proxy_command)}"]
        return options


@dataclass(frozen=True)
class ScriptResult:
    """The result of a finished script."""

    code: int
    out: str
    err: str


class HostError(PrerequisiteError):
    """A machine cannot be reached, or a command failed on it."""

    def __init__(self, host: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{host}: {message}", remedy)
        self.host = host


@dataclass
class Host:
    """A machine that runs scripts."""

    target: Target
    sockets: Path
    """Folder of the sockets of shared connections."""
    accept_new_keys: bool = False

    @property
    def name(self) -> str:
        """Name of the machine in the profile."""
        return self.target.name

    def ssh(self, *more: str) -> list[str]:
        """Return the command line of an ssh client for this machine, without a remote command."""
        # BatchMode turns every prompt into an error, which gets a remedy below.
        return [
            "ssh",
            "-T",
            *more,
            *("-o", "BatchMode=yes"),
            *("-o", f"ConnectTimeout={CONNECT_S}"),
            *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
            *("-o", "ControlMaster=auto", "-o", "ControlPersist=60"),
            *("-o", f"ControlPath={self.sockets}/%C"),
            *("-o", f"StrictHostKeyChecking={'accept-new' if self.accept_new_keys else 'yes'}"),
            *self.target.options(),
            "--",
            self.target.address or self.target.name,
        ]

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
            'if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n -- sh -s; fi' if root else "exec sh -s"
        )
        return self._run(shell, f"{{\n{script}\n}} </dev/null\n".encode(), root, timeout_s)

    def send(self, content: Path | bytes, script: str, *, timeout_s: float = 600) -> ScriptResult:
        """Run a script as root with `content` as its stdin.

        The script must not contain secrets, because `ps` shows it. Raises HostError as `run` does.
        """
        command = f"sh -c {shlex.quote(script)}"
        shell = f'if [ "$(id -u)" = 0 ]; then exec {command}; else exec sudo -n -- {command}; fi'
        return self._run(shell, content, True, timeout_s)

    def _run(self, shell: str, content: Path | bytes, root: bool, timeout_s: float) -> ScriptResult:
        stdin: dict[str, Any] = {"input": content}
        try:
            with contextlib.ExitStack() as opened:
                if isinstance(content, Path):
                    stdin = {"stdin": opened.enter_context(content.open("rb"))}
                done = subprocess.run(
                    [*self.ssh(), f"echo '{_STARTED}' >&2; {shell}"],
                    **stdin,
                    capture_output=True,
                    timeout=timeout_s,
                    start_new_session=True,
                )
        except FileNotFoundError as error:
            if isinstance(content, Path) and error.filename == str(content):
                raise PrerequisiteError(f"{content} was deleted", "run the command again") from error
            raise PrerequisiteError(
                "the program ssh is not installed", "install the package openssh-client"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HostError(
                self.name,
                f"no answer within {timeout_s:g} s",
                "check whether the machine is overloaded or disconnected",
            ) from error
        out = done.stdout.decode(errors="replace")
        banner, started, stderr = done.stderr.decode(errors="replace").partition(f"{_STARTED}\n")
        if done.returncode == SSH_FAILED and banner.strip() and not started:
            raise self._unreachable(banner)
        if done.returncode == SSH_FAILED and not self._connected():
            # A client prints nothing when its shared connection breaks.
            raise HostError(
                self.name,
                "the connection was lost while a script ran",
                "check that the machine is on and connected, and that it has not rebooted",
            )
        stderr = stderr if started else banner
        if root and "sudo:" in stderr and "password is required" in stderr:
            raise HostError(
                self.name,
                "sudo requires a password",
                "allow sudo without a password: add a line `USER ALL=(ALL) NOPASSWD: ALL` with visudo",
            )
        if root and done.returncode == 127 and "sudo" in stderr:
            raise HostError(self.name, "sudo is not installed", "install sudo, or let ssh log in as root")
        return ScriptResult(done.returncode, out, stderr)

    def close(self) -> None:
        """Close the shared connection, if it is open."""
        self._control("exit")

    def _connected(self) -> bool:
        """Return whether the shared connection is open."""
        return self._control("check")

    def _control(self, command: str) -> bool:
        argv = self.ssh()
        argv[1:2] = ["-O", command]
        try:
            return subprocess.run(argv, capture_output=True, timeout=CONNECT_S, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _unreachable(self, stderr: str) -> HostError:
        lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("Warning:")]
        last = lines[-1].strip() if lines else "ssh failed"
        where = self.target.address or self.target.name
        if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr:
            return HostError(
                self.name,
                "its host key has changed: the machine was replaced or reinstalled",
                f"if you expect this: ssh-keygen -R {where}; then repeat with --accept-new-host-keys",
            )
        if "Host key verification failed" in stderr or "host key is known" in stderr:
            return HostError(
                self.name,
                "its host key is not known",
                f"log in once (ssh {where}) and compare the key, or use --accept-new-host-keys",
            )
        if "Permission denied" in stderr:
            return HostError(
                self.name,
                f"login refused: {last}",
                f"check that this works: ssh {where}; copy your key with ssh-copy-id",
            )
        return HostError(
            self.name,
            f"cannot be reached: {last}",
            "check that the machine is on and that its address in the profile is correct",
        )


class Connections:
    """A context with one shared connection per machine of a profile, closed on exit."""

    def __init__(
        self, targets: Iterable[Target], accept_new_keys: bool = False, concurrency: int = 20
    ) -> None:
        clean()
        self._folder, self._lock = _create_socket_folder()
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
        """Run `work` on these machines in parallel; return the results and the failures, by machine name."""
        selected = list(names)
        results: dict[str, Result] = {}
        failures: dict[str, K8sddsError] = {}
        with ThreadPoolExecutor(max_workers=max(1, min(self._concurrency, len(selected)))) as pool:
            futures = {name: pool.submit(work, self.hosts[name]) for name in selected}
            for name, future in futures.items():
                try:
                    results[name] = future.result()
                except K8sddsError as error:
                    failures[name] = error
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


def _create_socket_folder() -> tuple[Path, int]:
    """Create a folder for sockets; return it and its lock, which ends with this process."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER, dir=_base_folder()))
        # Until the folder is locked, another process may remove it as a leftover.
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _base_folder() -> Path:
    # A short path, because the path of a socket is limited to 108 bytes.
    return Path("/run" if os.geteuid() == 0 else "/tmp")


def clean() -> list[str]:
    """Remove this user's socket folders whose process was killed, and return their names.

    A connection may outlive its process while it is in use, and then for one minute. Its folder is kept.
    """
    removed = []
    for path in _base_folder().glob(f"{_SOCKET_FOLDER}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not any(_is_served(entry) for entry in path.iterdir()):
                    shutil.rmtree(path)
                    removed.append(path.name)
            finally:
                os.close(lock)
    return removed


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
