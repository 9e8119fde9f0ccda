"""A sandbox: mount, PID and network namespaces held by one process, with a private /run/netns.

All that a bench makes lives in its sandbox. When the holder ends, for whatever reason, the kernel ends
its processes and frees its namespaces and links; nothing of the host's network is ever touched. As an
ordinary user the sandbox is a user namespace too.
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

from k8sdds.networks.network import Batch
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program

START_TIMEOUT_S = 20
COMMAND_TIMEOUT_S = 60

# /run is replaced by an empty one, since `ip netns` keeps its names there and an ordinary user may not
# write to the host's.
_PREPARE = "set -e; mount -t tmpfs -o mode=755 k8sdds /run; mkdir -p /run/netns /run/sys"

_END = "end-of-batch"
"""Ends the text of a batch within a script of several."""


class Sandbox:
    """One holder process and the means to run commands in its namespaces."""

    def __init__(self, name: str) -> None:
        """Ends with this process, even by kill -9, unless `stay` is called."""
        self.name = name
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._user = os.geteuid() != 0
        self._start()

    @classmethod
    def attach(cls, name: str, pid: int) -> Sandbox:
        """A sandbox that another k8sdds process started."""
        sandbox = cls.__new__(cls)
        sandbox.name, sandbox.pid, sandbox._process = name, pid, None
        sandbox._user = os.geteuid() != 0
        return sandbox

    def _start(self) -> None:
        ready, notify = os.pipe()
        os.set_inheritable(notify, True)
        argv = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL"]
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
                # Its own session: Ctrl-C is for k8sdds, which then ends trials in order.
                start_new_session=True,
            )
        finally:
            os.close(notify)
        try:
            self._await(ready)
            pid = processes.descendant(self._process.pid, 1)
            if pid is None:
                raise PrerequisiteError("the sandbox's holder ended at once", "see: k8sdds doctor")
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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        said = b"" if self._process.stderr is None else self._process.communicate()[1]
        raise PrerequisiteError(
            f"cannot make namespaces: {said.decode(errors='replace').strip() or 'no answer'}",
            unprivileged_remedy()
            if self._user
            else "run in an environment that allows unshare (CAP_SYS_ADMIN)",
        )

    # -- running things ---------------------------------------------------------------------------

    def enter(self, netns: str | None = None) -> list[str]:
        """The words before a command that run it in the sandbox, in one of its network namespaces."""
        words = ["nsenter", "--target", str(self.pid), "--mount", "--pid"]
        if self._user:
            words += ["--user", "--preserve-credentials"]
        words.append(f"--net=/proc/{self.pid}/root/run/netns/{netns}" if netns else "--net")
        return [*words, "--"]

    def run(self, argv: Sequence[str], stdin: str = "", netns: str | None = None) -> str:
        """Run a command to its end and give its stdout; a failure is a PrerequisiteError with what it said."""
        done = self._execute(argv, stdin, netns)
        if done.returncode:
            where = f" in {netns}" if netns else ""
            said = " ".join(done.stderr.split()) or "no message"
            raise PrerequisiteError(
                f"{self.name}{where}: `{' '.join(argv)}` failed: {said}",
                "see: k8sdds doctor",
            )
        return done.stdout

    def apply(self, batches: Sequence[Batch]) -> None:
        """Run batches in order, by one shell: entering the sandbox costs more than most batches.

        A failure ends the rest; the PrerequisiteError names the batch's namespace and line.
        """
        script = []
        for number, batch in enumerate(batches):
            command = (
                f"nsenter --net=/run/netns/{batch.namespace} nft -f -"
                if batch.tool == "nft"
                else f"{batch.tool} -n {batch.namespace} -batch -"
            )
            script += [f"{command} <<'{_END}' || {{ echo {number} >&2; exit 1; }}", *batch.lines, _END]
        done = self._execute(["sh"], "\n".join(script) + "\n")
        if done.returncode:
            said, _, number = done.stderr.strip().rpartition("\n")
            if not number.isdigit():
                raise PrerequisiteError(f"{self.name}: {done.stderr.strip()}", "see: k8sdds doctor")
            batch = batches[int(number)]
            raise PrerequisiteError(
                f"{self.name} in {batch.namespace}: `{batch.tool}` failed: {_failed_line(said, batch.lines)}",
                "see: k8sdds doctor",
            )

    def _execute(
        self, argv: Sequence[str], stdin: str, netns: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.enter(netns), *argv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            start_new_session=True,
        )

    def put(self, files: dict[Path, bytes]) -> None:
        """Write files into the sandbox's own /run, for root alone. They are in memory, and gone with it."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, content in files.items():
                member = tarfile.TarInfo(str(path.relative_to("/run")))
                member.size, member.mode = len(content), 0o600
                archive.addfile(member, io.BytesIO(content))
        script = "umask 077 && exec tar --extract --no-same-owner --directory /run"
        done = subprocess.run(
            [*self.enter(), "sh", "-c", script],
            input=packed.getvalue(),
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            start_new_session=True,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise PrerequisiteError(
                f"{self.name}: files could not be put into the sandbox: {said}", "see: k8sdds doctor"
            )

    def path(self, inside: str) -> Path:
        """A path inside the sandbox as seen from here, such as `/run/sys/node0/class/net`."""
        return Path(f"/proc/{self.pid}/root{inside}")

    # -- the end ------------------------------------------------------------------------------------

    def stay(self) -> None:
        """Let the sandbox outlive this process. Whoever asks for it has recorded how to find it."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(b"stay\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the holder and with it everything in the sandbox."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # unshare kills its child, and the kernel all other processes of the PID namespace.
                self._process.kill()
            for stream in (self._process.stdin, self._process.stderr):
                if stream is not None:
                    stream.close()
            self._process.wait()
        if self.pid:
            processes.wait_gone(self.pid, COMMAND_TIMEOUT_S)


def unprivileged_remedy() -> str:
    """What allows user namespaces on this machine: the exact command where it is known."""
    apparmor = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    debian = Path("/proc/sys/kernel/unprivileged_userns_clone")
    limit = Path("/proc/sys/user/max_user_namespaces")
    if _reads(apparmor, "1"):
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or run as root with sudo)"
    if _reads(debian, "0"):
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1   (or run as root with sudo)"
    if _reads(limit, "0"):
        return "sudo sysctl -w user.max_user_namespaces=15000   (or run as root with sudo)"
    return "run as root with sudo"


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text().strip() == text
    except OSError:
        return False


def _failed_line(stderr: str, lines: Sequence[str]) -> str:
    """What a batch tool said, with the line of the batch that it names (`Command failed -:7`)."""
    said = " ".join(stderr.split())
    number = stderr.rpartition("Command failed -:")[2].strip()
    if number.isdigit() and 0 < int(number) <= len(lines):
        return f"{said} (line {number}: {lines[int(number) - 1]})"
    return said or "no message"
