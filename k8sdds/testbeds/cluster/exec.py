"""One participant in its pod: started at an agreed moment, its files brought home whole.

All of it goes over one stream. When that breaks before the start, nothing starts; after it the supervisor in
the pod goes on, and its files are fetched over another stream.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.kubernetes.exec_stream import ExecStream, StreamLost
from k8sdds.model.measurement import Launch
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import private_folder
from k8sdds.testbeds.cluster.pods import SUPERVISOR, trouble

GRACE_S = 2
"""Between SIGTERM and SIGKILL for a participant that overstays its deadline."""
READY_S = 30
"""From the request to the supervisor's `ready`."""
FETCH_S = 60
"""How long after a trial's end its files may be out of reach before they count as lost."""
NOT_STARTED = 125
LOST = 254
"""In place of an exit code: nobody knows how the participant ended."""


@dataclass(frozen=True)
class Ending:
    """How a participant ended."""

    code: int
    message: str = ""
    lost: str = ""
    """Why its files could not be had; empty where they are in the launch's folder."""


class ParticipantExec:
    """`prepare`, then `go` or `abort`, then `finish`; each in any thread, one at a time."""

    def __init__(
        self, client: KubernetesClient, namespace: str, pod: str, launch: Launch, output: str, options: Sequence[str],
        deadline_s: float,
    ) -> None:  # fmt: skip
        """`output`: the participant's folder in the pod; `options`: further ones for the supervisor."""
        self.launch = launch
        self.pod = pod
        self.offset_ns = 0
        """The pod's clock minus ours."""
        self.uncertainty_ns = 0
        """At most so much the offset may be wrong."""
        self._client = client
        self._namespace = namespace
        self._output = output
        self._deadline_s = deadline_s
        self._stream: ExecStream | None = None
        self._released = False
        self._argv = [
            SUPERVISOR, "attend", "--dir", output, "--deadline", f"{deadline_s:.3f}", "--grace", str(GRACE_S),
            *options,
        ]  # fmt: skip
        for key, value in launch.env.items():
            self._argv += ["--env", f"{key}={value}"]
        self._argv += ["--", *launch.argv]

    def prepare(self, files: dict[str, tuple[str, bytes]]) -> str:
        """Start the supervisor and bring it its files (path to mode and content).

        Returns why it is not ready, or an empty string.
        """
        end = time.monotonic() + READY_S
        try:
            self._stream = ExecStream(self._client, self._namespace, self.pod, self._argv, stdin=True)
            for path, (mode, content) in files.items():
                self._stream.write(f"file {mode} {len(content)} {path}\n".encode() + content)
            for _ in range(len(files) + 1):
                word = self._stream.read_line(end)
                if not word.startswith((b"ready", b"taken")):
                    return word.decode(errors="replace")
            self._compare_clocks(self._stream, end)
        except (StreamLost, ApiError) as error:
            return str(error)
        except TimeoutError:
            return f"not ready after {READY_S} s"
        return ""

    def _compare_clocks(self, stream: ExecStream, end: float) -> None:
        best = None
        for _ in range(3):
            asked = time.time_ns()
            stream.write(b"clock\n")
            word = stream.read_line(end)
            answered = time.time_ns()
            there = int(word.removeprefix(b"clock "))
            if best is None or answered - asked < best:
                best = answered - asked
                self.offset_ns = there - (asked + answered) // 2
                self.uncertainty_ns = best // 2

    def go(self, at_ns: int) -> None:
        """Start the participant at a moment of the pod's own clock."""
        assert self._stream is not None
        self._released = True
        try:
            self._stream.write(f"go {at_ns}\n".encode())
        except StreamLost:
            # Whether it got the word, its files tell.
            self._stream = None

    def abort(self) -> None:
        """Let it not start."""
        if self._stream is not None:
            with contextlib.suppress(StreamLost):
                self._stream.write(b"abort\n")
            self._stream.close()

    def finish(self) -> Ending:
        """Wait for its end and bring its files home. After `go`."""
        end = time.monotonic() + self._deadline_s + GRACE_S + 15
        try:
            if self._stream is not None:
                return self._read(self._stream, end)
        except (StreamLost, TimeoutError):
            pass
        finally:
            if self._stream is not None:
                self._stream.close()
        return self._fetch(end)

    def _fetch(self, end: float) -> Ending:
        """Over new streams, until it has ended and all is here."""
        said = ""
        while time.monotonic() < end + FETCH_S:
            wait_s = max(1, round(end - time.monotonic()))
            argv = [SUPERVISOR, "fetch", "--dir", self._output, "--deadline", str(wait_s)]
            try:
                with ExecStream(self._client, self._namespace, self.pod, argv) as stream:
                    return self._read(stream, time.monotonic() + wait_s + 10)
            except ApiError as refused:
                said = refused.message
                # A kubelet that has just restarted does not know its pods yet; the API server does.
                if self._is_gone():
                    break
            except (StreamLost, TimeoutError) as error:
                said = str(error) or "no answer"
                if "holds no run" in said:
                    break
            except (PrerequisiteError, OSError) as error:
                said = str(error)
            time.sleep(0.5)
        return Ending(LOST, lost=f"pod {self.pod}: {said}")

    def _is_gone(self) -> bool:
        """Whether the pod is no more, or no longer runs."""
        try:
            found = self._client.find(f"{CORE}/namespaces/{self._namespace}/pods/{self.pod}")
        except PrerequisiteError:
            return False  # nobody knows; asked again
        return found is None or bool(trouble(found))

    def _read(self, stream: ExecStream, end: float) -> Ending:
        """Files and the end, as the supervisor prints them. Nothing is written until all is here."""
        files: dict[str, bytes] = {}
        while True:
            kind, _, rest = stream.read_line(end).decode(errors="replace").partition(" ")
            if kind == "file":
                name, _, size = rest.rpartition(" ")
                files[Path(name).name] = stream.read_bytes(int(size), end)
            elif kind == "end":
                break
            # Else an answer that nobody waits for any more.
        for name, content in files.items():
            (self.launch.directory / name).write_bytes(content)
        code, _, message = rest.partition(" ")
        if code == "lost":
            return Ending(LOST, lost=f"pod {self.pod}: the supervisor was killed")
        return Ending(int(code), message or _log(self.launch.directory))


def _log(directory: Path) -> str:
    """What the supervisor said itself; its empty log is no file worth keeping."""
    log = directory / "supervisor.log"
    try:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    if not said:
        log.unlink()
    return said


def files_of(launch: Launch) -> dict[str, tuple[str, bytes]]:
    """What a participant finds in its pod before it starts: path to (mode, content)."""
    private = private_folder(launch.participant.name)
    found = {path: ("0644", local.read_bytes()) for path, local in launch.inputs.items()}
    return found | {str(private / name): ("0600", content) for name, content in launch.private.items()}
