"""Declare how the machines, networks and pods of a trial are set up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from k8sdds.model import ip_families as ip
from k8sdds.model.axis import LOAD, MACHINE, NETWORK, POD, Axis, counted, named
from k8sdds.model.background import Background
from k8sdds.model.ip_families import IpFamilies
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoices
from k8sdds.model.settings import MAX_NODES, NO_TUNING, DevShm, Layout, NoneText, Number, Placement, Users
from k8sdds.model.workload_settings import WorkloadSettings
from k8sdds.system.cgroups import CPU_REQUEST, CpuResources

MAX_DEFAULT_NODES = 10
"""Nodes of a lab by default; the study's cluster had ten workers."""


def usual_nodes(publishers: int, subscribers: int) -> int:
    """Return the number of nodes for so many participants, unless a sweep sets another one."""
    return min(publishers + subscribers, MAX_DEFAULT_NODES)


def _describe_placement(value: str | Mapping[str, Any]) -> str:
    """Describe a placement of a cell, or of the tidy table, which has a mapping as JSON."""
    nodes = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    shown = nodes if isinstance(nodes, str) else ", ".join(f"{name}: {node}" for name, node in nodes.items())
    return f"placement {shown}"


class MachineSettings(WorkloadSettings):
    """The settings of machines, networks and pods. With those that it inherits, they are all settings of a cell."""

    layout: Annotated[
        str,
        Axis(
            POD,
            named("layout"),
            in_captions=True,
            values=Layout,
            several=False,
            of_experiment=True,
            any_in_claims=True,
            recorded_as="How participants are pinned to cores: `split`, `same` or `free`",
        ),
    ] = Field(
        default="split",
        description="how participants are pinned to cores; `auto`: `same` for latency, otherwise `split`",
    )
    ip_families: Annotated[
        IpFamilies,
        Axis(
            NETWORK,
            ip.describe,
            since=2,
            several=False,
            of_experiment=True,
            any_in_claims=True,
            recorded_as="IP versions of nodes and pods, the one that participants used first: `ipv4`, `ipv6`,"
            " `ipv4+ipv6` or `ipv6+ipv4`",
        ),
    ] = Field(
        default=ip.DEFAULT,
        description="IP versions of nodes and pods: `[ipv4]`, `[ipv6]`, or both; participants use the first; default:"
        " `[ipv4]`",
    )
    policies: Annotated[
        int,
        Number,
        Axis(
            NETWORK,
            lambda v: f"{v} {'policy' if v == 1 else 'policies'}" if v else "no policies",
            since=2,
            graph="refused",
        ),
    ] = Field(
        default=0,
        ge=0,
        le=10_000,
        description="number of NetworkPolicies that select the pods; each allows only what participants send",
    )
    tuning: Annotated[
        str,
        Axis(
            MACHINE,
            named("tuning", NO_TUNING, "no tuning"),
            since=2,
            choice=[NO_TUNING],
        ),
    ] = Field(default=NO_TUNING, description="tuning set of the nodes, from `deploy/tuning`; `none`: none")
    link: Annotated[
        Link,
        Axis(
            NETWORK,
            Link.describe,
            values=LinkChoices,
            several=False,
            of_experiment=True,
            in_captions=True,
            any_in_claims=True,
            recorded_as='Shaping of the links: `{"rate_mbit": number or null, "loss_percent": number, "delay_us":'
            " number}`. With other parts, such as `mtu`, if the experiment sets them",
        ),
    ] = Field(
        default=Link(),
        description="the links between the nodes: the name or file of a link (`k8sdds list links`), a mapping, or a"
        " list of them, which are measured one after the other",
    )
    cpu_quota: Annotated[
        float | None,
        Number,
        NoneText,
        Axis(
            POD,
            lambda v: f"{v:g} CPUs per pod",
            unset="no CPU limit",
            any_in_claims=True,
            choice=[None],
            choice_as="CPU limits of the pods, such as `300m`",
        ),
    ] = Field(
        default=None,
        gt=0,
        le=64,
        description="CPU limit of each participant's pod: a number of CPUs such as `0.3` or `300m`; `none`: none;"
        " `k8sdds docs cpu-limits`",
    )
    cpu_period_ms: Annotated[
        float, Number, Axis(POD, lambda v: f"CPU period {v:g} ms", since=5, any_in_claims=True)
    ] = Field(
        default=CpuResources.period_ms,
        ge=1,
        le=1000,
        description="period of that limit: a pod that has used `cpu_quota` × `cpu_period_ms` of CPU time waits until"
        " the next one (lab only)",
    )
    cpu_burst_ms: Annotated[
        float, Number, Axis(POD, lambda v: f"CPU burst {v:g} ms", since=5, any_in_claims=True)
    ] = Field(
        default=0,
        ge=0,
        le=64_000,
        description="unused CPU time of earlier periods that a pod may use in addition, at most that of one period"
        " (lab only, Linux 5.14)",
    )
    cpu_request: Annotated[
        float | None,
        Number,
        NoneText,
        Axis(
            POD,
            lambda v: f"{v:g} CPUs requested",
            unset="usual CPU request",
            since=5,
            any_in_claims=True,
        ),
    ] = Field(
        default=None,
        gt=0,
        le=64,
        description="CPU request of each participant's pod, which is its share of busy CPUs, as a number of CPUs;"
        f" `none`: {CPU_REQUEST * 1000:g}m, as the pods of `background` have",
    )
    background: Annotated[
        Background,
        Axis(LOAD, lambda v: f"background {v.describe()}" if v else "no background", since=2),
    ] = Field(
        default=Background(),
        description="load next to the participants: flows between other pods of the same nodes, and busy cores;"
        " `{}`: none",
    )
    placement: Annotated[
        Placement,
        Axis(
            POD,
            _describe_placement,
            several=False,
            of_experiment=True,
            any_in_claims=True,
            follows=("transport",),
        ),
    ] = Field(
        default="spread",
        description="how participants are distributed over nodes; `same-node`: all on one, so that samples"
        " cross no link between nodes; or a mapping such as `{pub0: 0, sub0: 1}`"
        " (participant: node; on a cluster also the name or a label of a node)",
    )
    dev_shm: Annotated[
        DevShm,
        Axis(
            POD,
            lambda v: "shared /dev/shm" if v == "shared" else "a /dev/shm for each pod",
            since=5,
            any_in_claims=True,
        ),
    ] = Field(
        default="shared",
        description="with `transport: shared-memory`: whether the participants have one `/dev/shm`, or each has its"
        " `own`, as pods have by default; `k8sdds docs shared-memory`",
    )
    users: Annotated[
        Users,
        Axis(
            POD,
            lambda v: "one user id" if v == "same" else "a user id for each pod",
            since=5,
            any_in_claims=True,
        ),
    ] = Field(
        default="same",
        description="with `transport: shared-memory`: whether the participants have the `same` user id, or each an"
        " unprivileged `other` one (`runAsUser`); `k8sdds docs shared-memory`",
    )
    nodes: Annotated[
        int | None,
        Axis(
            POD,
            counted("node"),
            several=False,
            any_in_claims=True,
            follows=("publishers", "subscribers"),
            usual=lambda row: usual_nodes(row["publishers"] or 1, row["subscribers"] or 1),
            recorded_as="Number of nodes in the topology",
        ),
    ] = Field(
        default=None,
        ge=2,
        le=MAX_NODES,
        description="number of nodes; default: one per participant, at most 10",
    )
    capture: bool = Field(
        default=False,
        description="capture packets on the publisher's link and count the IP fragments of a sample;"
        " the trial then has no valid times",
    )
    profile: bool = False
