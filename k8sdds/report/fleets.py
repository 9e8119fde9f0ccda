"""Show how long fleets of each size took to find each other, and what that cost: discovery tests and their searches."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds import workloads
from k8sdds.analysis.capacities import processes_of
from k8sdds.analysis.conditions import UNIT, describe, differing
from k8sdds.model.workload_settings import usual_discovery
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.table import Cell, Table
from k8sdds.report.tables import network
from k8sdds.results import aggregate
from k8sdds.system.grouping import Row, by_columns

_HEADS = (
    "network", "setting", "participants", "processes", "pods", "trials", "matched after s", "median s",
    "missing matches %", "packets", "CPU s",
)  # fmt: skip
_MEANS = ("fleet_matched_s", "fleet_p50_s", "unmatched_percent", "fleet_packets", "fleet_cpu_s")
_CHANGED = {"fleet_rematched_s": "after change s"}
_BROKEN = {"broken_percent": "broken matches %", "fleet_returned_s": "returned after s"}
"""More means, with their heads. They are in the table only if a trial has a value of the first one other than 0."""
_ALIKE = ("test", "fleet_accepted_s", "fleet_max_members", "width_percent", "publishers", "subscribers")
"""Columns that do not tell fleets apart, or that other columns contain."""


def tables(content: Content) -> list[Table]:
    """Return the table of fleets by setting and size, if there are several."""
    trials = [
        row | ({"discovery": usual_discovery(row["transport"])} if row["discovery"] == "auto" else {})
        for row in (*content.as_measured, *content.probes)
        if row["test"] in workloads.WORKLOADS and workloads.find(row["test"]).starts_fleets
    ]
    differ = [name for name in differing(trials) if name not in (*_ALIKE, "fleet_processes", "fleet_members")]
    named = list(dict.fromkeys(("middleware", *differ)))
    groups = by_columns(
        trials, (UNIT, *named, "publishers", "subscribers", "fleet_processes", "fleet_members")
    )
    changed = any(row["fleet_rematched_s"] for row in trials)
    broken = any(row["broken_percent"] for row in trials)
    events = (_CHANGED if changed else {}) | (_BROKEN if broken else {})
    rows = [
        _row(content, describe({name: own[0][name] for name in named}), own, (*_MEANS, *events))
        for own in groups.values()
    ]
    rows.sort(key=lambda row: (row[0].text, row[1].text, *(float(cell.text or -1) for cell in row[2:4])))
    under = (
        "Pods: with publishing + with subscribing members. Means of the trials. A time is missing if pairs did not"
        " match in one of them, or half of them for the median. Packets and CPU time: before the last `steady_s`."
    )
    if changed:
        under += " After change: of members that started late or again, from their start."
    if broken:
        under += (
            " Broken matches no longer held at some time. The time until they returned is missing if one did not, or"
            " if none broke in a trial."
        )
    return [Table("Fleets", (*_HEADS, *events.values()), rows, under, keys=2)] if len(rows) > 1 else []


def _row(content: Content, setting: str, trials: list[Row], columns: Iterable[str]) -> list[Cell]:
    processes, members = processes_of(trials[0]), trials[0]["fleet_members"]
    participants = None if None in (processes, members) else processes * members
    sizes = (Cell("" if size is None else f"{size}") for size in (participants, processes))
    pods = Cell(" + ".join(f"{trials[0][name]}" for name in ("publishers", "subscribers")))
    measured = ([row[name] for row in trials] for name in columns)
    means = (None if None in values else aggregate.mean(values) for values in measured)
    shown = (Cell(formats.number(mean)) for mean in means)
    return [network(content, trials[0][UNIT]), Cell(setting), *sizes, pods, Cell(f"{len(trials)}"), *shown]
