"""Let pods fail in a trial on a cluster, and come back: in outage tests, and when discovery servers restart."""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.kubernetes.exec_stream import ExecStream, StreamLost
from k8sdds.model.measurement import GRACE_S, Launch
from k8sdds.model.trial import FIRST_SUBSCRIBER
from k8sdds.results import arrivals
from k8sdds.results.arrivals import Interruption
from k8sdds.system.errors import PartFailed, PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds import read_meters
from k8sdds.testbeds.cluster import permissions
from k8sdds.testbeds.cluster.exec import ExecResult, ParticipantExec
from k8sdds.testbeds.cluster.pods import is_ready
from k8sdds.testbeds.cluster.watch import instance

REPLACED_TIMEOUT_S, REPLACED_POLL_S = 120, 0.2
"""How long Kubernetes may take to replace a pod that was deleted, and the time between two checks."""
KILL_TIMEOUT_S = GRACE_S + 10
"""How long a participant may take to end and to send its files."""
KILL_ALL = ("/bin/sh", "-c", "kill -KILL -1")
"""Kills all processes that this user may kill, except the shell itself and process 1."""
NOT_EXECUTED = (126, 127)
"""Exit codes of a shell that cannot be executed."""


class Failure(ABC):
    """Pods that fail in a trial and come back, in a thread next to the participants.

    They fail `after_s` into the measured interval, for at least `for_s`. `node` is recorded as the place of it.
    """

    def __init__(self, node: str, after_s: float, for_s: float) -> None:
        self._node, self._after_s, self._for_s = node, after_s, for_s
        self._measured, self._ended = threading.Event(), threading.Event()
        self._aborted = threading.Event()
        """Set if the trial was interrupted: what failed need not come back."""
        self._moments_ns: tuple[int, int] | None = None
        """When it failed and came back, by the clock of this machine."""
        self.second: ParticipantExec | None = None
        """The execution of a process that has taken the place of a killed one; None if there is none."""
        self.result: ExecResult | None = None
        """How this process ended."""
        self.stopped: set[str] = set()
        """NAMESPACE/NAME of the pods that were deleted or killed, and that Kubernetes has replaced or restarted."""

    def begin(self, _measured_ns: int) -> None:
        """Call this when the measured interval begins."""
        self._measured.set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let them fail and come back within a `with` block."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self._run)
            try:
                yield
            except BaseException:
                self._aborted.set()
                raise
            finally:
                self._ended.set()
                self._measured.set()
            running.result()

    def _run(self) -> None:
        self._measured.wait()
        if self._ended.wait(self._after_s):
            return
        failed_ns = time.time_ns()
        self._fail()
        ended = self._ended.wait(max(0.0, self._for_s - (time.time_ns() - failed_ns) / 1e9))
        if self._aborted.is_set():
            return
        # Also if the trial has ended: what is read after it needs everything.
        self._repair(ended)
        if not ended and not self._aborted.is_set():
            self._moments_ns = failed_ns, time.time_ns()
            self._attend()

    @abstractmethod
    def _fail(self) -> None:
        """Let it fail."""

    @abstractmethod
    def _repair(self, ended: bool) -> None:
        """Let it come back. `ended`: whether the trial has."""

    @abstractmethod
    def _attend(self) -> None:
        """Wait for the end of what has come back, if it ends with the trial."""

    def clean_up(self) -> None:  # noqa: B027  most failures leave nothing
        """Remove what would change the next trial. Call this when everything of this trial has been read."""

    def write(self, folder: Path, execs: Iterable[ParticipantExec]) -> None:
        """Write when something failed and came back: for each subscriber by the clock of its machine.

        `folder`: that of the attempt. `execs`: of the processes that ran last.
        """
        if self._moments_ns is None:
            return
        for execution in execs:
            participant, directory = execution.launch.participant, execution.launch.directory
            meters = read_meters(directory) or {}
            if participant.subscribes and meters.get("start_monotonic_ns"):
                own = _by_its_clock(self._moments_ns, execution, meters, self._node)
                arrivals.write_interruption(directory, own)
                if participant == FIRST_SUBSCRIBER:
                    arrivals.write_interruption(folder, own)


class PodFailure(Failure):
    """A participant is killed, then its pod is deleted, and another pod is created for another process with its id.

    `delete` returns when its pod is gone. `create` creates another one, and returns the execution of a launch in it.
    """

    def __init__(
        self,
        node: str,
        after_s: float,
        for_s: float,
        first: ParticipantExec,
        delete: Callable[[], None],
        create: Callable[[Launch], ParticipantExec],
    ) -> None:
        super().__init__(node, after_s, for_s)
        self._first, self._delete, self._create = first, delete, create

    @override
    def _fail(self) -> None:
        self._first.kill()
        if not self._first.ended.wait(KILL_TIMEOUT_S):
            raise PrerequisiteError(
                f"{self._first.pod} did not end within {KILL_TIMEOUT_S} s of being killed"
            )
        arrivals.set_aside(self._first.launch.directory)
        self._delete()

    @override
    def _repair(self, ended: bool) -> None:
        launch = self._first.launch
        second = self._create(replace(launch, argv=(*launch.argv, *launch.restarted)))
        if not ended:
            if problem := second.prepare():
                if second.unreachable:
                    raise PartFailed(second.unreachable)
                raise PrerequisiteError(f"after the outage: {problem}")
            second.start_at(time.time_ns())
            self.second = second

    @override
    def _attend(self) -> None:
        assert self.second is not None
        self.result = self.second.finish()


class ReplacedPods(Failure):
    """Pods of these NAMESPACE/NAME patterns, which Kubernetes replaces, are deleted: `only_on_node` those of `node`."""

    def __init__(
        self,
        node: str,
        after_s: float,
        for_s: float,
        client: KubernetesClient,
        patterns: Sequence[str],
        only_on_node: bool = False,
    ) -> None:
        super().__init__(node, after_s, for_s)
        self._client, self._patterns, self._only_on_node = client, patterns, only_on_node
        self._before: dict[str, dict[str, Any]] = {}
        """The pods that were stopped, by NAMESPACE/NAME."""

    @override
    def _fail(self) -> None:
        self._before = self._pods()
        if not self._before:
            where = f" on {self._node}" if self._only_on_node else ""
            raise PrerequisiteError(
                f"no pod is named {' or '.join(self._patterns)}{where}",
                "check that this user may list the pods of these namespaces",
            )
        self.stopped = set(self._before)
        # All at once: the first one could be back before the last one is stopped.
        in_threads(self._stop, list(self._before))

    def _stop(self, pod: str) -> None:
        namespace, name = pod.split("/")
        self._client.delete(f"{CORE}/namespaces/{namespace}/pods/{name}", grace_s=0)

    @override
    def _repair(self, ended: bool) -> None:
        before = {instance(pod) for pod in self._before.values()}
        end = time.monotonic() + REPLACED_TIMEOUT_S
        while time.monotonic() < end:
            new = {instance(pod) for pod in self._pods().values() if is_ready(pod)} - before
            # An interrupted trial does not wait for them.
            if len(new) == len(before) or self._aborted.wait(REPLACED_POLL_S):
                return
        raise PrerequisiteError(
            f"{' and '.join(self._patterns)} were not ready again within {REPLACED_TIMEOUT_S} s of being stopped",
            "inspect them: kubectl get pods --all-namespaces",
        )

    @override
    def _attend(self) -> None:
        pass

    def _pods(self) -> dict[str, dict[str, Any]]:
        found = permissions.pods_named(self._client, self._patterns)
        return {
            name: pod
            for name, pod in found.items()
            if not self._only_on_node or pod["spec"].get("nodeName") == self._node
        }


class RestartedServers(ReplacedPods):
    """Discovery servers are killed in their pods, in which the kubelet starts them again: they keep their addresses."""

    @override
    def _stop(self, pod: str) -> None:
        namespace, name = pod.split("/")
        # Their pods share process ids, so that the server is not process 1, which nothing in its container can kill.
        # The command can end with its container.
        with (
            contextlib.suppress(StreamLost, TimeoutError),
            ExecStream(self._client, namespace, name, KILL_ALL) as stream,
        ):
            killed = stream.wait(time.monotonic() + KILL_TIMEOUT_S)
            # Without a message, code 1 can also be that of a stream that ended with the container.
            if killed.code in NOT_EXECUTED or (killed.code == 1 and killed.stderr):
                why = killed.stderr.decode(errors="replace").strip() or f"exit code {killed.code}"
                raise PrerequisiteError(
                    f"cannot kill the server in pod {pod}: {why}",
                    f"inspect it: kubectl -n {namespace} describe pod {name}",
                )

    @override
    def clean_up(self) -> None:
        # The kubelet waits for 10 s and more before it restarts a container again, but not in another pod.
        if not self.stopped:
            return
        self._before = self._pods()
        in_threads(super()._stop, list(self._before))
        self._repair(ended=True)


def _by_its_clock(
    moments_ns: tuple[int, int], execution: ParticipantExec, meters: Mapping[str, Any], node: str
) -> Interruption:
    """Return the moments by CLOCK_MONOTONIC of the machine of a participant."""
    ahead_ns = execution.offset_ns - (meters["started_at_ns"] - meters["start_monotonic_ns"])
    failed_us, repaired_us = ((moment_ns + ahead_ns) // 1000 for moment_ns in moments_ns)
    return Interruption(node=node, failed_us=failed_us, repaired_us=repaired_us)
