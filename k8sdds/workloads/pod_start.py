"""The pod-start workload: pods that are created at once, and how long they take until they are ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Literal

from pydantic import Field

from k8sdds.model.options import PodStartOptions
from k8sdds.model.reason import NO_MATCH, Reason
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, Cell
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.shapes import Integer, Number, Shape
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.transactions import Exchange, Transactions

FILE = "pod-starts.json"
"""What the testbed writes into the folder of an attempt."""
PAIR = (FIRST_PUBLISHER, FIRST_SUBSCRIBER)
"""What two of the pods run if they are to match."""
CONDITIONS = {
    "scheduled_s": "PodScheduled", "network_ready_s": "PodReadyToStartContainers", "ready_s": "Ready",
}  # fmt: skip
"""The condition of a pod that ends each step, in their order."""
NO_CONDITION = f"the nodes do not report the condition {CONDITIONS['network_ready_s']}"


class OneStart(Shape):
    """The seconds from the creation of a pod to each step; None if the step was not reported."""

    scheduled_s: Number | None = None
    network_ready_s: Number | None = None
    running_s: Number | None = None
    ready_s: Number | None = None
    coarse: bool = False


class Match(Shape):
    """How a publisher and a subscriber in two of the pods found each other."""

    pods: list[str] = Field(default_factory=list)
    since_request_s: Number | None = None
    since_ready_s: Number | None = None
    clock_error_s: Number | None = None
    received: Integer = 0
    failure: str = ""


class Starts(Shape):
    """The file `pod-starts.json`."""

    pods: dict[str, OneStart] = Field(default_factory=dict)
    all_ready_s: Number | None = None
    failure: str = ""
    last_step: Literal["ready_s", "network_ready_s"] = "ready_s"
    """The step that a pod has to reach. In the lab, CNI plugins set up a network, and no container is started."""
    match: Match | None = None


def read(folder: Path) -> Starts | None:
    """Return how the pods of an attempt started; None if the file is missing or of another shape."""
    return Starts.from_file(folder / FILE)


class PodStart(Exchange):
    """Starts of pods that only wait, from their creation until they are ready."""

    name = "pod-start"
    program = Transactions("--udp")
    """What the participants do after the pods were timed, which proves the path of the network."""
    histograms: tuple[str, ...] = ()
    columns = ()
    metrics: tuple[str, ...] = (
        "pods_ready_s", "pod_start_mean_s", "pod_start_p50_s", "pod_start_p90_s", "pod_scheduling_s", "pod_network_s",
        "pod_containers_s", "pods_matched_s", "pods_matching_s",
    )  # fmt: skip

    @property
    def headlines(self) -> tuple[str, ...]:
        return "pods_ready_s", "pod_network_s"

    def started_pods(self, cell: Cell) -> int:
        return PodStartOptions(**cell.test_options).pods

    def matched_middleware(self, cell: Cell) -> str | None:
        """Return the option `dds`."""
        return PodStartOptions(**cell.test_options).dds

    def unsupported(self, cell: Cell) -> str | None:
        options = PodStartOptions(**cell.test_options)
        if options.dds and options.pods < len(PAIR):
            return "dds is measured between two of the pods: set pods to 2 or more"
        if options.dds and cell.policies:
            return "dds: policies do not admit the packets of the new pods: leave out one of the two"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        starts = read(outputs.folder)
        if starts is None or not starts.pods:
            return
        record.pod_network_s = _mean(
            _step(pod.scheduled_s, pod.network_ready_s) for pod in starts.pods.values()
        )
        if starts.last_step == "ready_s":
            _set_starts(record, starts)
        if starts.match is not None:
            record.pods_matched_s = starts.match.since_request_s
            record.pods_matching_s = starts.match.since_ready_s

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        starts, wanted = read(outputs.folder), self.started_pods(outputs.trial.cell)
        if starts is None:
            return Reason("no-pods", "the times of the pods are missing")
        if starts.failure:
            return Reason("no-pods", starts.failure)
        ready = {name: pod for name, pod in starts.pods.items() if getattr(pod, starts.last_step) is not None}
        if coarse := [name for name, pod in ready.items() if pod.coarse]:
            return Reason(
                "coarse", f"several steps of {_named(coarse)} were reported at once, in whole seconds"
            )
        if len(ready) != wanted:
            late = [name for name in starts.pods if name not in ready]
            unseen = f": {CONDITIONS[starts.last_step]} of {_named(late)} was not reported" if late else ""
            return Reason("no-pods", f"{len(ready)} of {wanted} pods got ready{unseen}")
        if PodStartOptions(**outputs.trial.cell.test_options).dds and (reason := _unmatched(starts.match)):
            return Reason(NO_MATCH, reason)
        return super().invalid(outputs)

    def describe(self, record: Metrics) -> str:
        if record.pods_ready_s is None and record.pod_network_s is not None:
            return f"CNI plugins need {record.pod_network_s * 1e3:.0f} ms for a pod"
        if record.pods_ready_s is None or record.pod_start_mean_s is None:
            return "time until pods are ready unknown"
        matched = f", two matched after {record.pods_matched_s:.2f} s" if record.pods_matched_s else ""
        return (
            f"all pods ready after {record.pods_ready_s:.2f} s, mean {record.pod_start_mean_s:.2f} s{matched}"
        )


def _unmatched(match: Match | None) -> str:
    """Return why two pods are not known to have matched; empty if a sample has passed between them."""
    if match is None:
        return "no pods were to match"
    if match.failure or match.since_request_s is None:
        return f"pods {' and '.join(match.pods)}: {match.failure or 'the time of the match is missing'}"
    return "" if match.received else f"no sample passed between pods {' and '.join(match.pods)}"


def _set_starts(record: Metrics, starts: Starts) -> None:
    pods = starts.pods.values()
    record.pods_ready_s = starts.all_ready_s
    ready = sorted(pod.ready_s for pod in pods if pod.ready_s is not None)
    record.pod_start_mean_s = fmean(ready) if ready else None
    missing = {}
    for quantity, percent in (("p50", 50), ("p90", 90)):
        key, needed = f"pod_start_{quantity}_s", histograms.needed(quantity)
        if len(ready) < needed:
            missing[key] = f"{len(ready)} values, {needed} are needed"
        else:
            setattr(record, key, quantiles(ready, n=100, method="inclusive")[percent - 1])
    record.pod_scheduling_s = _mean(pod.scheduled_s for pod in pods)
    record.pod_containers_s = _mean(_step(pod.network_ready_s, pod.ready_s) for pod in pods)
    for key, steps in (
        ("pod_scheduling_s", ("scheduled_s",)),
        ("pod_network_s", ("scheduled_s", "network_ready_s")),
        ("pod_containers_s", ("network_ready_s", "ready_s")),
    ):
        if getattr(record, key) is None:
            missing[key] = _unreported(starts.pods, steps)
    if missing:
        record.missing = (record.missing or {}) | missing


def _unreported(pods: Mapping[str, OneStart], steps: Sequence[str]) -> str:
    """Return which pods did not report the first of these steps that is missing."""
    for step in steps:
        late = [name for name, pod in pods.items() if getattr(pod, step) is None]
        if len(late) == len(pods) and step == "network_ready_s":
            return NO_CONDITION
        if late:
            return f"the condition {CONDITIONS[step]} of {_named(late)} was not reported"
    return "no pod was started"


def _named(names: Sequence[str]) -> str:
    """Return pods in a message: the first by its name, the others by their number."""
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{'pods' if others else 'pod'} {names[0]}{others}"


def _step(before_s: float | None, after_s: float | None) -> float | None:
    return None if before_s is None or after_s is None else after_s - before_s


def _mean(times_s: Iterable[float | None]) -> float | None:
    """Return the mean, or None if a time is missing."""
    known = list(times_s)
    return None if None in known or not known else fmean(time_s for time_s in known if time_s is not None)
