"""Show the delays of each CPU limit of the pods, next to the share of the periods in which it stopped participants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from k8sdds.analysis.conditions import CONDITION, UNIT, named_setting
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.settings import Setting
from k8sdds.report.table import Cell, Table
from k8sdds.report.tables import network
from k8sdds.results import aggregate, machine
from k8sdds.system.grouping import Row, by_columns
from k8sdds.testbeds.selection import CLUSTER

_HEADS = (
    "CPU limit of the pods",
    "network",
    "test",
    "payload",
    "p50 µs",
    "p99 µs",
    "maximum µs",
    "throttled periods %",
    "samples above p99 in stops %",
    "by chance %",
)
_STOPS = ("throttled_periods_percent", "slow_stopped_percent", "slow_stopped_by_chance_percent")
_TIMES = {"latency": "latency", "paced": "delay"}
"""Test to the start of the names of its times."""


def tables(content: Content) -> list[Table]:
    """Return the table of delays by limit, if the trials have several of them."""
    settings = _settings(content)
    names = {name for setting in settings for name in setting.values}
    varied = [name for name in CONDITION if name in names and len({one.values[name] for one in settings}) > 1]
    rows = [
        _row(content, {name: setting.values[name] for name in varied}, key, trials)
        for setting in settings
        for key, trials in _cells(setting)
    ]
    under = (
        "Means of the trials. In a throttled period, the kernel stopped a participant until the next one; of the"
        " participants, that with most of them counts. By chance, so many samples with the delays of those above p99"
        " would be in stops of their publisher or subscriber. A latency test sends one sample at a time, so that few"
        " samples wait: look at the maximum."
    )
    under = " ".join(filter(None, (under, _cpu_managers(content))))
    return [Table("CPU limits of pods", _HEADS, rows, under, keys=4)] if rows else []


def notes(content: Content) -> list[str]:
    """Return the policy of the CPU managers as a note of a report without the table, which contains it."""
    has_table = any(True for setting in _settings(content) for _ in _cells(setting))
    return [] if has_table else [*filter(None, [_cpu_managers(content)])]


def _settings(content: Content) -> list[Setting]:
    """Return the settings with their CPU limits, the smallest limit first, if the trials have several limits."""
    found = [setting for setting in content.settings if "cpu_quota" in setting.values]
    return sorted(found, key=lambda setting: setting.values["cpu_quota"] or float("inf"))


def _cells(setting: Setting) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Yield the test, network, subscribers and payload of each row of the table, with its trials."""
    columns = ("test", UNIT, "subscribers", "payload_bytes")
    return (item for item in by_columns(setting.trials, columns).items() if item[0][0] in _TIMES)


def _cpu_managers(content: Content) -> str:
    """State the policy of the nodes' CPU managers, if pods of a cluster had CPU limits or requests; else ""."""
    if not any(
        row["testbed"] == CLUSTER and (row["cpu_quota"] or row["cpu_request"]) for row in content.best
    ):
        return ""
    found = machine.cpu_managers(content.run.facts)
    known = {policy: nodes for policy, nodes in found.items() if policy}
    if not known:
        return "The policy of the nodes' CPU managers was not recorded (reading it requires nodes/proxy)."
    policies = [
        policy if len(found) == 1 else f"{policy} ({', '.join(nodes)})" for policy, nodes in known.items()
    ]
    whole = "Pods whose limit and request are the same whole number have cores of their own with the policy static."
    return f"Policy of the nodes' CPU managers: {formats.join(policies)}. {whole}"


def _row(content: Content, limits: dict[str, Any], key: tuple[Any, ...], trials: list[Row]) -> list[Cell]:
    test, label, _, size = key
    metrics = [f"{_TIMES[test]}_{name}_us" for name in ("p50", "p99", "max")] + [*_STOPS]
    text = ", ".join(named_setting(name, value) for name, value in limits.items())
    numbers = [formats.number(aggregate.mean(row[name] for row in trials)) for name in metrics]
    return [Cell(text), network(content, label), Cell(test), Cell(payload(size)), *map(Cell, numbers)]
