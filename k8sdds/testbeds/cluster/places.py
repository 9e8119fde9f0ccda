"""Run the commands that observe a network (`testbeds.fingerprint`) in pods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from k8sdds.kubernetes.exec_stream import CommandResult, ExecStream, StreamLost
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.pod_pool import PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.fingerprint import Stop

READY_TIMEOUT_S = 20
END_TIMEOUT_S = 20


class PodPlace:
    """A pod, or a node through a pod on its own network."""

    supervisor = pods.SUPERVISOR

    def __init__(self, pool: PodPool, slot: Slot) -> None:
        """Run nothing yet. `slot` must be ready when commands run."""
        self._pool = pool
        self._slot = slot

    def run(self, argv: Sequence[str]) -> bytes:
        """Return the standard output of a command; see `fingerprint.Place`."""
        return self._output(self._pool.run(self._slot, argv))

    @contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[Stop]:
        """Run a command that prints `ready` to stderr while the context lasts; see `fingerprint.Place`."""
        with self._pool.stream(self._slot, argv) as stream:
            self._wait_ready(stream)

            def stop() -> bytes:
                stream.write(b"\n")
                return self._output(stream.wait(time.monotonic() + END_TIMEOUT_S))

            yield stop

    def _wait_ready(self, stream: ExecStream) -> None:
        try:
            stream.wait_ready(time.monotonic() + READY_TIMEOUT_S)
        except StreamLost:
            if stream.exit_code is None:
                raise
            self._output(CommandResult(stream.exit_code, b"", stream.stderr))
        except TimeoutError:
            raise PrerequisiteError(f"{self._slot.participant}: a command did not start in time") from None

    def _output(self, result: CommandResult) -> bytes:
        if result.code:
            message = reading.one_line(result.stderr.decode(errors="replace"), 300)
            raise PrerequisiteError(f"{self._slot.participant}: {message or f'exit code {result.code}'}")
        return result.stdout
