"""Define the record of an attempt, a line of trials.jsonl, and write its documentation.

`TrialRecord` declares every key. docs/results.md shows the same tables; rewrite the page after a change with
`python -m k8sdds.results.record docs/results.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from k8sdds.results.metrics import GROUPS, Column, Metrics, column, columns_of, parsed
from k8sdds.results.run_folder import SCHEMA

BEGIN, END = "<!-- columns: begin (written by python -m k8sdds.results.record) -->", "<!-- columns: end -->"
"""Lines around the generated tables in docs/results.md."""


class Description(BaseModel):
    """The settings of a trial, the circumstances of the attempt, and whether the attempt is valid."""

    model_config = ConfigDict(extra="allow")

    # fmt: off
    schema_: int | None = Field(default=SCHEMA, alias="schema", description="Version of this format: 1",
        json_schema_extra={"group": "identity", "source": "campaign"})
    trial_id: str | None = column("identity", "campaign",
        "Stable id of the trial: `cell_id`, testbed and repetition")
    cell_id: str | None = column("identity", "campaign", "Stable id of the cell: a hash of what is measured")
    attempt: int | None = column("identity", "campaign", "Number of the attempt; 1 for the first")
    testbed: str | None = column("identity", "campaign",
        "`lab` or `cluster`; `imported` for published data of others")
    network: str | None = column("cell", "experiment", "`host`, `flannel-vxlan`, …")
    network_label: str | None = column("cell", "experiment",
        "Name of the network in tables and figures; distinguishes variants of one network")
    network_options: dict[str, Any] | None = column("cell", "experiment",
        'Options of the network, such as `{"mtu": 1376}`')
    test: str | None = column("cell", "experiment", "`throughput` or `latency`")
    payload_bytes: int | None = column("cell", "experiment",
        "Size of a sample, PerfTest's `-dataLen` (includes 28 bytes of overhead)")
    publishers: int | None = column("cell", "experiment", "Number of publishers")
    subscribers: int | None = column("cell", "experiment", "Number of subscribers")
    nodes: int | None = column("cell", "experiment", "Number of nodes of the topology")
    placement: str | dict[str, Any] | None = column("cell", "experiment", "How the participants were spread over the nodes")
    reliability: str | None = column("cell", "experiment", "`reliable` or `best-effort`")
    transport: str | None = column("cell", "experiment", "`unicast` or `multicast`")
    middleware: str | None = column("cell", "experiment", "`cyclonedds`, `fastdds`, `connext` or `raw`")
    security: str | None = column("cell", "experiment",
        "`none`, the name of a level of `security/`, or the label of a combination whose parts campaign.json lists")
    qos: str | None = column("cell", "experiment", "Name of the QoS profile: its file without folder and extension")
    batch_bytes: int | None = column("cell", "experiment", "Size of a batch; 0: no batching")
    rate: float | None = column("cell", "experiment", "Offered rate in samples per second; 0: as fast as possible")
    link: dict[str, Any] | None = column("cell", "experiment",
        'Shaping of the links: `{"rate_mbit": number or null, "loss_percent": number, "delay_us": number}`')
    layout: str | None = column("cell", "experiment", "How participants are pinned to cores: `split`, `same` or `free`")
    cpu_quota: float | None = column("cell", "experiment", "CPUs that each pod may use")
    discovery: str | None = column("cell", "experiment",
        "`auto` (by multicast with that transport, otherwise by peers), `multicast`, `peers` or `server`")
    receive_mode: str | None = column("cell", "experiment", "`listener`, `waitset` or `spin`")
    repetition: int | None = column("identity", "campaign", "Repetition, from 0")
    duration_s: float | None = column("cell", "experiment", "Requested length of the measured interval")
    warmup_s: float | None = column("cell", "experiment", "Requested length of the warm-up before it")
    block: int | None = column("attempt", "campaign", "Block in the campaign's random order, from 0")
    order: int | None = column("attempt", "campaign", "Position in the campaign's random order, from 0")
    domain: int | None = column("attempt", "campaign", "DDS domain id")
    started_at: str | None = column("attempt", "campaign", "Start of the attempt")
    mtu_bytes: int | None = column("attempt", "testbed", "MTU of the pods' interfaces")
    engine: str | None = column("attempt", "testbed",
        "What carries the datapath, for networks with a choice of engines")
    engine_mode: str | None = column("attempt", "testbed",
        "Mode of the tunnels (`tunnel` or `transport`), for networks with a choice of engines")
    fidelity: str | None = column("attempt", "testbed",
        "Of the datapath compared with the real plugin: `real`, `equivalent` or `modelled`")
    network_proof: str | None = column("validity", "testbed",
        "What was verified of the network before the trial, and what could not be verified with the reason"
        " ([cluster](cluster.md))")
    wall_s: float | None = column("attempt", "campaign", "Duration of the whole attempt, start and end included")
    middleware_version: str | None = column("attempt", "publisher",
        "Version of the middleware, as perftest reported it")
    includes_scheduling: bool | None = column("attempt", "testbed",
        "Whether there were more participants than cores to pin them to")
    cpu_mhz: float | None = column("attempt", "testbed",
        "Mean frequency of the cores right after the attempt, where the kernel reports it")
    start_skew_s: float | None = column("attempt", "testbed",
        "Upper bound of the time between the starts of the participants, by their machines' clocks compared with"
        " the clock of this machine (cluster)")
    api_calls: int | None = column("attempt", "testbed",
        "Requests to the cluster's API server since the previous trial, or since the block was prepared (cluster)")
    valid: bool | None = column("validity", "campaign", "Whether the attempt enters statistics")
    reason: str | None = column("validity", "campaign",
        "Why the attempt is not valid, as `code: explanation`, with a code such as `not-on-wire`, `lost-samples`,"
        " `peer-lost` or `deadline`")
    warnings: list[str] | None = column("validity", "campaign",
        "What may have affected a valid attempt: a disturbed machine, throttling, …")
    # fmt: on


class TrialRecord(Metrics, Description):
    """The record of one attempt. Every key is optional, because earlier versions did not write all keys."""

    @classmethod
    def read(cls, attempt: Mapping[str, Any]) -> TrialRecord:
        """Read a line of trials.jsonl: missing keys and values of the wrong type are None, unknown keys are kept."""
        known = {
            name: parsed(column.kind, attempt[name]) for name, column in COLUMNS.items() if name in attempt
        }
        known["valid"] = attempt.get("valid") is True
        record = cls.model_construct(**known)
        record.__pydantic_extra__ = {key: value for key, value in attempt.items() if key not in COLUMNS}
        return record

    def as_json(self) -> dict[str, Any]:
        """Return the line of trials.jsonl; columns of special trials only if they were set."""
        special = {name for name, column in COLUMNS.items() if column.only}
        return self.model_dump(by_alias=True, exclude=special - self.model_fields_set, warnings=False)


COLUMNS: dict[str, Column] = columns_of(TrialRecord)
"""Every key of trials.jsonl, in the order in which it is written."""


def markdown(columns: Iterable[Column]) -> str:
    """Return the tables of docs/results.md, one for each group."""
    columns, parts = list(columns), []
    for group in GROUPS:
        rows = [_markdown_row(column) for column in columns if column.group == group]
        title = f"### {group[0].upper()}{group[1:]}"
        parts.append("\n".join([title, "", "| key | type | source | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _markdown_row(column: Column) -> str:
    only = f"; only in {column.only}" if column.only else ""
    return f"| `{column.name}` | {column.kind} | {column.source} | {column.description}{only} |"


def rewritten(page: str) -> str:
    """Return the page with its tables replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{markdown(COLUMNS.values())}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    import sys

    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
