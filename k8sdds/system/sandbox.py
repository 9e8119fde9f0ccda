"""Create isolated sandboxes: mount, PID and network namespaces held by one process.

A lab network and everything in it is inside one sandbox, which has a private /run/netns. When the holder
process ends, for whatever reason, the kernel kills all processes of the sandbox and frees its namespaces and
links. The host's network is never changed. For an ordinary user the sandbox is also a user namespace.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from k8sdds.system import processes
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.paths import native_program

START_TIMEOUT_S = 20
COMMAND_TIMEOUT_S = 60

# Mounts an empty /run: `ip netns` keeps its names there, and an ordinary user may not write to the host's.
# An empty /dev/shm is shared by the pods of the sandbox and removed with it. The id of the machine is empty, as in
# containers: Fast DDS 3 takes pods with the same id for processes of one host, and does not reach them by the network.
_PREPARE = (
    "set -e; mount -t tmpfs -o mode=755 k8sdds /run; mkdir -p /run/netns /run/sys;"
    " [ ! -d /dev/shm ] || mount -t tmpfs -o mode=1777 k8sdds /dev/shm;"
    " [ ! -e /etc/machine-id ] || mount --bind /dev/null /etc/machine-id"
)

RULE_LOADERS = {
    "nft": "nft -f -",
    "iptables": "iptables-nft-restore --noflush",
    "ip6tables": "ip6tables-nft-restore --noflush",
    "ipset": "ipset restore",
    "ethtool": "xargs -L 1 ethtool",
}
"""Tool → command that reads a batch as one text. `iptables` creates the objects that CNI plugins and kube-proxy create
with it: rules in nftables whose matches and targets are in part those of xtables, which take longer."""

_END = "end-of-batch"
"""Delimiter of a batch in a script of several batches."""


class Batch(Protocol):
    """Commands for one tool (`ip`, `bridge`, `tc`, `nft`, `iptables`) in one network namespace."""

    @property
    def namespace(self) -> str:
        """Name of the network namespace."""

    @property
    def tool(self) -> str:
        """Name of the program."""

    @property
    def lines(self) -> Sequence[str]:
        """Its commands, one per line."""


class Sandbox:
    """The namespaces of one holder process, and the means to run commands in them."""

    def __init__(self, name: str) -> None:
        """Start the holder. It ends with this process, even on kill -9, unless `detach` is called."""
        self.name = name
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._user = os.geteuid() != 0
        self._start()

    @classmethod
    def attach(cls, name: str, pid: int) -> Sandbox:
        """Return a sandbox that another k8sdds process started."""
        sandbox = cls.__new__(cls)
        sandbox.name, sandbox.pid, sandbox._process = name, pid, None
        sandbox._user = os.geteuid() != 0
        return sandbox

    def _start(self) -> None:
        ready, notify = os.pipe()
        os.set_inheritable(notify, True)
        argv = [*processes.UNSHARE, "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL"]
        if self._user:
            argv += ["--user", "--map-root-user"]
        argv += ["--", native_program("k8sdds-supervisor"), "pause", "--mount-proc", "--until-eof"]
        argv += ["--notify-fd", str(notify)]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(notify,),
                # A separate session, so that Ctrl-C reaches only k8sdds, which then stops trials cleanly.
                start_new_session=True,
            )
        finally:
            os.close(notify)
        try:
            self._await(ready)
            pid = processes.descendant(self._process.pid, 1)
            if pid is None:
                message = self._require_not_stopped()
                raise PrerequisiteError(
                    f"the holder process of the sandbox ended at once: {message}", "run: k8sdds doctor"
                )
            self.pid = pid
            self.run(["sh", "-c", _PREPARE])
        except BaseException:
            self.close()
            raise
        finally:
            os.close(ready)

    def _await(self, ready: int) -> None:
        assert self._process is not None
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        events = poll.poll(START_TIMEOUT_S * 1000)
        if events and os.read(ready, 1):
            return
        message = "timed out"
        if events:
            message = self._require_not_stopped()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        raise PrerequisiteError(
            f"cannot create namespaces: {message}",
            unprivileged_remedy()
            if self._user
            else "run k8sdds in an environment that allows unshare (CAP_SYS_ADMIN)",
        )

    def _require_not_stopped(self) -> str:
        """Raise PartFailed if another process ended the holder, which has ended; otherwise return what it printed."""
        assert self._process is not None
        return processes.require_unshare_not_stopped(
            self._process, f"{self.name}: its sandbox", START_TIMEOUT_S
        )

    # -- commands and files -----------------------------------------------------------------------

    def enter(self, netns: str | None = None) -> list[str]:
        """Return the command prefix that runs a command in the sandbox, in this network namespace of it."""
        argv = ["nsenter", "--target", str(self.pid), "--mount", "--pid"]
        if self._user:
            argv += ["--user", "--preserve-credentials"]
        argv.append(f"--net=/proc/{self.pid}/root/run/netns/{netns}" if netns else "--net")
        return [*argv, "--"]

    def run(self, argv: Sequence[str], stdin: str | bytes = "", netns: str | None = None) -> str:
        """Run a command and return its stdout. Raises PartFailed if it was killed."""
        done = self._execute(argv, stdin.encode() if isinstance(stdin, str) else stdin, netns)
        if done.returncode:
            what = f"{self.name}{f' in {netns}' if netns else ''}: `{' '.join(argv)}`"
            self._require_not_killed(done.returncode, what)
            stderr = " ".join(done.stderr.decode(errors="replace").split()) or "no message"
            raise PrerequisiteError(f"{what} failed: {stderr}", "run: k8sdds doctor")
        return done.stdout.decode()

    def _require_not_killed(self, exit_code: int, what: str) -> None:
        """Raise PartFailed if a command failed because it was killed, or because the holder has ended."""
        if processes.start_time(self.pid) is None:
            raise PartFailed(f"{self.name}: its sandbox has ended")
        processes.require_not_killed(exit_code, what)

    def apply(self, batches: Sequence[Batch]) -> None:
        """Run batches in order, up to the first failure. Raises PartFailed if they were killed.

        One shell runs them all, because entering the sandbox takes longer than most batches.
        """
        script = []
        for number, batch in enumerate(batches):
            command = (
                f"nsenter --net=/run/netns/{batch.namespace} {RULE_LOADERS[batch.tool]}"
                if batch.tool in RULE_LOADERS
                else f"{batch.tool} -n {batch.namespace} -batch -"
            )
            failed = f"{{ code=$?; echo {number} >&2; exit $code; }}"
            script += [f"{command} <<'{_END}' || {failed}", *batch.lines, _END]
        done = self._execute(["sh"], ("\n".join(script) + "\n").encode())
        if done.returncode:
            self._require_not_killed(done.returncode, f"{self.name}: a command that builds it")
            stderr, _, index = done.stderr.decode(errors="replace").strip().rpartition("\n")
            if not index.isdigit():
                raise PrerequisiteError(f"{self.name}: {stderr or index}", "run: k8sdds doctor")
            batch = batches[int(index)]
            raise PrerequisiteError(
                f"{self.name} in {batch.namespace}: `{batch.tool}` failed:"
                f" {_failed_line(stderr, batch.lines)}",
                "run: k8sdds doctor",
            )

    def _execute(
        self, argv: Sequence[str], stdin: bytes, netns: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.enter(netns), *argv],
            input=stdin,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            start_new_session=True,
        )

    def put(self, files: dict[Path, bytes]) -> None:
        """Write files (path in /run to content) with mode 0600. They are in memory, inside the sandbox."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, content in files.items():
                member = tarfile.TarInfo(str(path.relative_to("/run")))
                member.size, member.mode = len(content), 0o600
                archive.addfile(member, io.BytesIO(content))
        script = "umask 077 && exec tar --extract --no-same-owner --directory /run"
        self.run(["sh", "-c", script], packed.getvalue())

    def path(self, inside: str) -> Path:
        """Return the path, outside the sandbox, of a path inside, such as `/run/sys/node0/class/net`."""
        return Path(f"/proc/{self.pid}/root{inside}")

    # -- lifetime ---------------------------------------------------------------------------------

    def detach(self) -> None:
        """Let the sandbox outlive this process. The caller must record its process id first."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(b"stay\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Kill the holder, and with it everything in the sandbox."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # unshare then kills its child, and the kernel all other processes of the PID namespace.
                self._process.kill()
            for stream in (self._process.stdin, self._process.stderr):
                if stream is not None:
                    stream.close()
            self._process.wait()
        if self.pid:
            processes.wait_gone(self.pid, COMMAND_TIMEOUT_S)


def unprivileged_remedy() -> str:
    """Return the fix for forbidden user namespaces on this machine: the exact command if it is known."""
    for name, forbidding, allowing in (
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "15000"),
    ):
        with contextlib.suppress(OSError):
            if Path("/proc/sys", name.replace(".", "/")).read_text().strip() == forbidding:
                return f"sudo sysctl -w {name}={allowing}   (or run as root with sudo)"
    return "run as root with sudo"


def _failed_line(stderr: str, lines: Sequence[str]) -> str:
    """Return a batch tool's message with the line of the batch that it names (`Command failed -:7`)."""
    message = " ".join(stderr.split())
    number = stderr.rpartition("Command failed -:")[2].strip()
    if number.isdigit() and 0 < int(number) <= len(lines):
        return f"{message} (line {number}: {lines[int(number) - 1]})"
    return message or "no message"
