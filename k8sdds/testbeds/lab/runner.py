"""Run the participants of one attempt in a lab network.

All supervisors get ready, start their participants at one barrier, and are awaited until they end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.model.measurement import GRACE_S, Launch, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER
from k8sdds.perftest.output import DEADLINE, PEER_LOST
from k8sdds.results import arrivals
from k8sdds.system import processes
from k8sdds.system.cgroups import admits_realtime
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds.core_layout import Layout, supervisor_options
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.supervisors import READY_TIMEOUT_S, Supervisor, await_end, await_ready, end

if TYPE_CHECKING:
    from k8sdds.testbeds.lab.outage import Interrupter

END_POLL_S, SERVICE_POLL_S = 0.1, 0.01
MAX_LOG_CHARACTERS = 300
"""How much of a service's log an error message contains."""

MEASURED = b"measured\n"
"""What the supervisor of the first publisher prints when its measured interval begins."""


class Attempt:
    """The participants and services of one attempt in a lab network.

    `layout` has the cores of the participants, which run for at most `deadline_s`. `failing` begins with the measured
    interval of the first publisher.
    """

    def __init__(
        self,
        lab_network: LabNetwork,
        launches: Sequence[Launch],
        layout: Layout,
        deadline_s: float,
        failing: Interrupter | None = None,
    ) -> None:
        self._lab_network, self._launches, self._layout = lab_network, launches, layout
        self._deadline_s, self._failing = deadline_s, failing
        self._supervisors: dict[str, Supervisor] = {}

    def run(self, at_start: Callable[[], None]) -> dict[str, Outcome]:
        """Start all launches at one barrier and wait until they end, or until one of the participants was killed.

        No participant outlives this call, even if it raises. `at_start` is called when all supervisors are ready, right
        before the barrier opens. A service that runs until the participants end has exit code 0.
        """
        try:
            for launch in self._launches:
                reports_start = self._failing is not None and launch.participant == FIRST_PUBLISHER
                started = self._start(launch, launch.participant.name, reports_start)
                self._supervisors[started.name] = started
            return self._attend(at_start)
        finally:
            end(self._supervisors.values())
            for supervisor in self._supervisors.values():
                supervisor.close()

    def _start(self, launch: Launch, pod: str, reports_start: bool = False) -> Supervisor:
        """Start the supervisor of a launch in a pod; the participant waits at its barrier."""
        argv = [
            *self._lab_network.enter(pod),
            native_program("k8sdds-supervisor"), "run", "--barrier",
            "--capabilities", "kubernetes" if self._lab_network.plan.datapath.in_pods else "keep",
            *supervisor_options(self._layout, launch.participant.name),
        ]  # fmt: skip
        for folder in self._lab_network.cgroups.get(pod, ()):
            if not launch.realtime_priority or admits_realtime(folder):
                argv += ["--join-cgroup", str(folder)]
        argv += ["--report-start"] if reports_start else []
        process = subprocess.Popen(
            [*argv, *launch.supervisor_arguments(launch.directory, self._deadline_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A separate session, so that Ctrl-C reaches only k8sdds, which then stops the attempt cleanly.
            start_new_session=True,
        )
        return Supervisor(launch, process)

    def _start_service(self, service: Supervisor) -> str:
        """Start a service and wait until it listens; return an error message, or an empty string."""
        listener = service.launch.listens
        assert listener is not None
        service.open_barrier()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and service.process.poll() is None:
            argv = [*self._lab_network.enter(service.name), *listener.tables]
            if listener.is_ready(subprocess.run(argv, capture_output=True, text=True).stdout):
                return ""
            time.sleep(SERVICE_POLL_S)
        if service.process.poll() is not None:
            processes.require_not_stopped(service.process.returncode, service.name)
        log = _end_of_log(service.launch.directory / "stderr")
        return f"{service.name} does not listen on {listener}: {log}"

    def _attend(self, at_start: Callable[[], None]) -> dict[str, Outcome]:
        """Start services, then all participants at once; return the outcomes when they have ended."""
        supervisors = list(self._supervisors.values())
        services = [supervisor for supervisor in supervisors if supervisor.launch.listens]
        participants = [supervisor for supervisor in supervisors if not supervisor.launch.listens]
        failure = await_ready(supervisors) or next(filter(None, map(self._start_service, services)), "")
        if not failure:
            at_start()
            # A service that has started measures from now on.
            with self._interrupting():
                for supervisor in supervisors:
                    supervisor.open_barrier()
                await_end(participants, self._deadline_s + GRACE_S + 5)
        # The peers of a killed participant would wait for it until their timeouts.
        ended_as = PEER_LOST if any(each.was_killed for each in participants) else DEADLINE
        ended_here = [each.name for each in participants if each.is_away or each.process.poll() is None]
        # Services must run until all participants have ended.
        end(participants)
        served = {service.name for service in services if service.process.poll() is None}
        end(services)
        outcomes = {supervisor.name: supervisor.outcome(failure) for supervisor in supervisors}
        if failure:
            return outcomes
        # Where this method has ended a process, its exit code does not show why.
        outcomes |= {name: replace(outcomes[name], exit_code=ended_as) for name in ended_here}
        outcomes |= {name: replace(outcomes[name], exit_code=0) for name in served}
        for service in services:
            away = service.name in served or service.is_away
            if not away and processes.was_stopped(service.process.returncode):
                outcomes[service.name] = replace(outcomes[service.name], lost="it was stopped")
        return outcomes

    # -- an outage ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _interrupting(self) -> Iterator[None]:
        """Let something fail within a `with` block, in a thread that ends with the block."""
        failing = self._failing
        if failing is None:
            yield
            return
        ended = threading.Event()
        output = self._supervisors[FIRST_PUBLISHER.name].process.stdout
        assert output is not None

        def run() -> None:
            while not ended.is_set():
                if processes.has_output(output, END_POLL_S):
                    if os.read(output.fileno(), 64) == MEASURED:
                        failing.run(ended.wait, self)
                    return

        with ThreadPoolExecutor(1) as pool:
            try:
                running = pool.submit(run)
                yield
            finally:
                ended.set()
            running.result()

    def kill(self, name: str) -> None:
        """Kill a participant or service."""
        self._supervisors[name].kill()

    def start_again(self, name: str, pod: str) -> None:
        """Start a participant or service that was killed in a pod; return when it starts, or a service listens."""
        supervisor = self._supervisors[name]
        supervisor.close()
        launch = supervisor.launch
        arrivals.set_aside(launch.directory)
        again = replace(launch, argv=(*launch.argv, *launch.restarted))
        supervisor.process = self._start(again, pod).process
        failure = await_ready([supervisor])
        if not failure and launch.listens:
            failure = self._start_service(supervisor)
        elif not failure:
            supervisor.open_barrier()
        if failure:
            raise PrerequisiteError(f"after the outage: {failure}")
        supervisor.is_away = False


def _end_of_log(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()[-MAX_LOG_CHARACTERS:] or "no message"
    return "it did not start"
