"""Run one participant in its pod: start it at an agreed moment and fetch all of its files.

Everything goes over one exec stream. If the stream breaks before the start, the participant does not start.
If it breaks later, the supervisor in the pod continues, and the files are fetched over another stream.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.kubernetes.exec_stream import ExecStream, StreamLost
from k8sdds.model.measurement import GRACE_S, Launch
from k8sdds.perftest.output import OUT_OF_MEMORY
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import private_folder
from k8sdds.system.processes import was_killed
from k8sdds.testbeds.cluster.pods import OUTPUT, SUPERVISOR, exceeded_memory, failure
from k8sdds.testbeds.cluster.watch import GONE

READY_TIMEOUT_S = 30
"""From the request to the supervisor's `ready`."""
FETCH_TIMEOUT_S = 60
"""How long after the end of a trial its files may be unreachable before they count as lost."""
LOST = 254
"""Exit code of a participant whose outcome is unknown."""


def output_folder(directory: Path) -> str:
    """Return a participant's output folder in its pod, named after the trial and the attempt."""
    trial, attempt = directory.parts[-3:-1]
    return f"{OUTPUT}/{trial}-{attempt}"


@dataclass(frozen=True)
class ExecResult:
    """How a participant ended."""

    code: int
    message: str = ""
    lost: str = ""
    """Why the files could not be fetched; empty if they are in the launch's folder."""


class ParticipantExec:
    """The execution of a participant: `prepare`, then `start_at` or `abort`, then `finish`.

    Each call can be made from another thread. `kill` and `end` may be called during `finish`; other calls follow each
    other. The supervisor ends the participant after `deadline_s`. Its container has its name, unless another is given.
    """

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        pod: str,
        launch: Launch,
        deadline_s: float,
        options: Sequence[str] = (),
        container: str = "",
    ) -> None:
        self.launch = launch
        self.pod = pod
        self.offset_ns = 0
        """The pod's clock minus the clock of this machine."""
        self.uncertainty_ns = 0
        """Maximum error of `offset_ns`."""
        self.unreachable = ""
        """Why the pod was lost or its supervisor killed before the start; empty if neither happened."""
        self._client = client
        self._namespace = namespace
        self._container = container or launch.participant.name
        self._output = output_folder(launch.directory)
        self._deadline_s = deadline_s
        self._at_measured: Callable[[int], None] | None = None
        self.ended = threading.Event()
        """Set when `finish` returns."""
        self._stream: ExecStream | None = None
        self._argv = [SUPERVISOR, "attend", *options, *launch.supervisor_arguments(self._output, deadline_s)]

    def report_start(self, at_measured: Callable[[int], None]) -> None:
        """Call a function when the measured interval begins, if the stream is whole. Call this before `prepare`.

        Its argument is the start of the interval, by the pod's clock: nanoseconds since 1970.
        """
        self._at_measured = at_measured
        self._argv.insert(2, "--report-start")

    def prepare(self) -> str:
        """Start the supervisor, send it the files and compare clocks; return why it is not ready, or ""."""
        end = time.monotonic() + READY_TIMEOUT_S
        files = _input_files(self.launch)
        try:
            self._stream = ExecStream(
                self._client, self._namespace, self.pod, self._argv, stdin=True, container=self._container
            )
            for path, (mode, content) in files.items():
                self._stream.write(f"file {mode} {len(content)} {path}\n".encode() + content)
            for _ in range(len(files) + 1):
                reply = self._stream.read_line(end)
                if not reply.startswith((b"ready", b"taken")):
                    return self._not_ready(self._stream, reply, end)
            self._compare_clocks(self._stream, end)
        except (StreamLost, ApiError) as error:
            if self._stream is None or self._stream.exit_code is None or was_killed(self._stream.exit_code):
                self.unreachable = f"pod {self.pod}: {error}"
            return str(error)
        except TimeoutError:
            return f"not ready after {READY_TIMEOUT_S} s"
        return ""

    def _not_ready(self, stream: ExecStream, reply: bytes, end: float) -> str:
        """Return why the supervisor did not become ready: the message after the files that it has sent instead."""
        if not reply.startswith((b"file ", b"end ")):
            return reply.decode(errors="replace")
        result = self._receive(stream, end, reply)
        if result.lost or was_killed(result.code):
            self.unreachable = result.lost or f"pod {self.pod}: its supervisor was killed"
        return result.lost or result.message or f"the supervisor exited with code {result.code}"

    def _compare_clocks(self, stream: ExecStream, end: float) -> None:
        shortest_ns = None
        for _ in range(3):
            sent_ns = time.time_ns()
            stream.write(b"clock\n")
            reply = stream.read_line(end)
            received_ns = time.time_ns()
            # After SIGTERM, a supervisor sends its files instead.
            pod_ns = _number(reply, b"clock ")
            if shortest_ns is None or received_ns - sent_ns < shortest_ns:
                shortest_ns = received_ns - sent_ns
                self.offset_ns = pod_ns - (sent_ns + received_ns) // 2
                self.uncertainty_ns = shortest_ns // 2

    def start_at(self, time_ns: int) -> None:
        """Start the participant at a time of this machine's clock; for a started server: the others start then."""
        if self._stream is None:
            return
        try:
            self._stream.write(f"go {time_ns + self.offset_ns}\n".encode())
        except StreamLost:
            # The files will show whether the supervisor received it.
            self._stream = None

    def end(self) -> None:
        """Stop a started server."""
        if self._stream is not None:
            with contextlib.suppress(StreamLost):
                self._stream.write(b"end\n")

    def kill(self) -> None:
        """Kill the started participant, after it has saved what it has measured; `finish` then returns."""
        if self._stream is not None:
            with contextlib.suppress(StreamLost):
                self._stream.write(b"kill\n")

    def abort(self) -> None:
        """Cancel a start that `prepare` prepared."""
        if self._stream is not None:
            with contextlib.suppress(StreamLost):
                self._stream.write(b"abort\n")
            self._stream.close()

    def finish(self) -> ExecResult:
        """Wait until the started participant has ended, and fetch its files."""
        try:
            return self._finish()
        finally:
            self.ended.set()

    def _finish(self) -> ExecResult:
        end = time.monotonic() + self._deadline_s + GRACE_S + 15
        try:
            if self._stream is not None:
                return self._receive(self._stream, end)
        except (StreamLost, TimeoutError):
            pass
        finally:
            if self._stream is not None:
                self._stream.close()
        return self._fetch(end)

    def _fetch(self, end: float) -> ExecResult:
        """Fetch the files over new streams until the participant has ended and all files are here."""
        code, problem = LOST, ""
        while time.monotonic() < end + FETCH_TIMEOUT_S:
            wait_s = max(1, round(end - time.monotonic()))
            argv = [SUPERVISOR, "fetch", "--dir", self._output, "--deadline", str(wait_s)]
            try:
                with ExecStream(
                    self._client, self._namespace, self.pod, argv, container=self._container
                ) as stream:
                    return self._receive(stream, time.monotonic() + wait_s + 10)
            except ApiError as error:
                problem = error.message
                # A kubelet that has just restarted does not know its pods yet, but the API server does.
                if ended := self._end_of_pod():
                    code, problem = ended
                    break
            except (StreamLost, TimeoutError) as error:
                problem = str(error) or "no answer"
                if "holds no run" in problem:
                    break
            except (PrerequisiteError, OSError) as error:
                problem = str(error)
            time.sleep(0.5)
        return ExecResult(code, lost=f"pod {self.pod}: {problem}")

    def _end_of_pod(self) -> tuple[int, str] | None:
        """Return how the pod has ended, as exit code and explanation. None if it runs, or if this is unknown."""
        try:
            pod = self._client.find(f"{CORE}/namespaces/{self._namespace}/pods/{self.pod}")
        except PrerequisiteError:
            return None  # `_fetch` tries again
        if pod is None:
            return LOST, GONE
        why = failure(pod)
        return (OUT_OF_MEMORY if exceeded_memory(pod) else LOST, why) if why else None

    def _receive(self, stream: ExecStream, end: float, line: bytes = b"") -> ExecResult:
        """Read files and exit code from the supervisor's output, which `line` begins, if one was already read from it.

        Writes no file until all have arrived.
        """
        files: dict[str, bytes] = {}
        while True:
            line = line or stream.read_line(end)
            kind, _, rest = line.decode(errors="replace").partition(" ")
            line = b""
            if kind == "file":
                name, _, size = rest.rpartition(" ")
                files[Path(name).name] = stream.read_bytes(_number(size.encode()), end)
            elif kind == "end":
                break
            elif kind == "measured" and self._at_measured:
                self._at_measured(_number(rest.encode()))
            # Ignore other lines, such as a late reply to `clock`.
        for name, content in files.items():
            (self.launch.directory / name).write_bytes(content)
        code, _, message = rest.partition(" ")
        if code == "lost":
            return ExecResult(LOST, lost=f"pod {self.pod}: the supervisor was killed")
        return ExecResult(_number(code.encode()), message or _supervisor_log(self.launch.directory))


def _number(reply: bytes, prefix: bytes = b"") -> int:
    """Return the number after a prefix in a supervisor's reply. Raises StreamLost if it is another reply."""
    digits = reply.removeprefix(prefix)
    if not reply.startswith(prefix) or not digits.isdigit():
        raise StreamLost(f"the supervisor sent {reply[:80]!r}")
    return int(digits)


def _supervisor_log(directory: Path) -> str:
    """Return the supervisor's log, and delete the file if it is empty."""
    path = directory / "supervisor.log"
    try:
        log = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    if not log:
        path.unlink()
    return log


def _input_files(launch: Launch) -> dict[str, tuple[str, bytes]]:
    """Return the files that a participant needs in its pod: path to (mode, content)."""
    private = private_folder(launch.participant.name)
    files = {path: ("0644", local.read_bytes()) for path, local in launch.inputs.items()}
    return files | {str(private / name): ("0600", content) for name, content in launch.private.items()}
