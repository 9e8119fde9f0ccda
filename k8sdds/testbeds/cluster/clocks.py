"""Bound the difference between the clocks of the machines of a trial, for one-way delays between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from k8sdds.model.measurement import ClockError, ClockState
from k8sdds.model.trial import Participant
from k8sdds.testbeds.cluster.pod_pool import ReadyPod

NO_ACCESS = "k8sdds did not deploy this cluster, so it cannot read the clocks of its nodes"


def read(cluster: str, nodes: Iterable[str]) -> dict[str, ClockState]:
    """Return the state of the clocks of nodes of a cluster that k8sdds deployed, over SSH. Not during a trial."""
    # Imported here because other clusters need nothing of `deploy`.
    from k8sdds.deploy import clocks, profiles
    from k8sdds.system.ssh import Connections

    # The connections end with this call, because their keepalive messages would disturb a trial.
    with Connections(profiles.targets(profiles.deployed(cluster))) as connections:
        return clocks.read(connections, nodes)


def machines(ready_pods: Mapping[str, ReadyPod]) -> dict[str, str]:
    """Return one node for each machine on which participants run."""
    return {pod.machine: pod.node for pod in ready_pods.values()}


def clock_error(
    participants: Sequence[Participant],
    ready_pods: Mapping[str, ReadyPod],
    readings: Sequence[Mapping[str, ClockState]],
) -> ClockError:
    """Return the largest possible difference between the clocks of a publisher and a subscriber.

    Args:
        participants: The participants of the trial.
        ready_pods: Their pods, by participant name.
        readings: The states of the clocks by node, before and after the trial.
    """
    pods = {participant: ready_pods[participant.name] for participant in participants}
    publishers = [pod for participant, pod in pods.items() if participant.publishes]
    subscribers = [pod for participant, pod in pods.items() if participant.subscribes]
    nodes = machines(ready_pods)
    pairs = {
        (nodes[publisher.machine], nodes[subscriber.machine])
        for publisher, subscriber in itertools.product(publishers, subscribers)
        if publisher.machine != subscriber.machine
    }
    errors_us: dict[str, float] = {}
    followed: dict[tuple[str, str], str] = {}
    for node in sorted(set(itertools.chain.from_iterable(pairs))):
        for reading in readings:
            state = reading.get(node, ClockState(reason=NO_ACCESS))
            if state.error_us is None:
                return ClockError(None, f"{node}: {state.reason}")
            errors_us[node] = max(errors_us.get(node, 0.0), state.error_us)
            followed[state.program, state.reference] = node
    if len(followed) > 1:
        clocks = ", ".join(
            f"{node} {reference} by {program}" for (program, reference), node in followed.items()
        )
        return ClockError(None, f"the nodes follow different clocks: {clocks}")
    bound_us = max(errors_us[publisher] + errors_us[subscriber] for publisher, subscriber in pairs)
    ((program, _),) = followed
    return ClockError(bound_us, program)
