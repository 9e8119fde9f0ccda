"""Give links with a rate the offloads of an Ethernet card in TCP tests, where the experiment does not set offloads.

A veth pair passes on TCP in packets of up to 64 KiB, which no link between two machines carries. Headers, rules and
encapsulation are then paid once for about 45 packets of a real link. Without TSO, the kernel splits packets right
before the link, as it does for cards without TSO. With TSO, the card does this work. In both cases, the receiver gets
packets of the link's MTU and joins them with GRO, which is on by default for cards and off for veth pairs.

A link without a rate stays as it is. Nothing spaces its packets, so small ones overflow the queues of the receiving
core, and what TCP repeats decides the ranking (docs/explanation/lab-and-cluster.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from k8sdds import workloads
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.link import CARD


def resolved(experiment: Experiment) -> Experiment:
    """Return the experiment with the offloads of a card in sweeps of TCP tests over links with a rate.

    A sweep of TCP and other tests becomes two. The flows of an application are DDS.
    """
    if isinstance(experiment, ApplicationExperiment):
        return experiment
    sweeps = [part for sweep in experiment.sweeps for part in _parts(experiment, sweep)]
    return experiment.model_copy(update={"sweeps": sweeps})


def _parts(experiment: Experiment, sweep: Sweep) -> Iterator[Sweep]:
    link = sweep.link or experiment.link
    over_tcp = [choice for choice in sweep.test if workloads.find(choice.name).tcp]
    if not over_tcp or link.rate_mbit is None or "offloads" in link.model_fields_set:
        yield sweep
        return
    others = [choice for choice in sweep.test if choice not in over_tcp]
    if others:
        yield sweep.model_copy(update={"test": others})
    yield sweep.model_copy(update={"test": over_tcp, "link": link.model_copy(update={"offloads": [CARD]})})
