"""Show which way the samples of trials by shared memory took, and which settings of pods let them share memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from k8sdds import middleware
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.model.settings import HOST, SHARED_MEMORY
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.table import Cell, Table
from k8sdds.report.tables import network
from k8sdds.results import aggregate
from k8sdds.system.grouping import Row, by_columns

_HEADS = (
    "middleware",
    "network of the pods",
    "/dev/shm",
    "user ids",
    "payload",
    "samples by",
    "Mbit/s",
    "p50 µs",
    "to share memory",
)
_UNDER = (
    "memory: no interface of the publisher carried the samples. network: the middleware sent them by UDP, or Zenoh by"
    " TCP, which these trials do not measure further. nothing: the participants discovered each other, but no sample"
    " arrived; without these settings, disable shared memory in the middleware. All containers need the same user id."
    " Parts of pods with these settings: k8sdds docs shared-memory"
)
_MARKS = {"memory": "better", "nothing": "worse"}


def tables(content: Content) -> list[Table]:
    """Return the table of the ways, if the pods of a trial may not have shared memory."""
    trials = [row for row in content.best if row["transport"] == SHARED_MEMORY and row["samples_by"]]
    if all((row["network"], row["dev_shm"], row["users"]) == (HOST, "shared", "same") for row in trials):
        return []
    groups = by_columns(trials, ("middleware", UNIT, "dev_shm", "users", "payload_bytes"))
    return [
        Table(
            "Shared memory between pods",
            _HEADS,
            [_row(content, key, groups[key]) for key in sorted(groups)],
            _UNDER,
            keys=4,
        )
    ]


def _row(content: Content, key: tuple[Any, ...], trials: list[Row]) -> list[Cell]:
    name, label, dev_shm, users, size = key
    ways = Counter(row["samples_by"] for row in trials)
    text = (
        next(iter(ways)) if len(ways) == 1 else ", ".join(f"{way} ({n})" for way, n in sorted(ways.items()))
    )
    throughput = aggregate.mean(row["throughput_mbps"] for row in trials if row["test"] == "throughput")
    latency = aggregate.mean(row["latency_p50_us"] for row in trials if row["test"] == "latency")
    return [
        Cell(name), network(content, label), Cell("shared" if dev_shm == "shared" else "its own"),
        Cell("one" if users == "same" else "one each"), Cell(payload(size)),
        Cell(text, mark=_MARKS.get(text, "")), Cell(formats.number(throughput)), Cell(formats.number(latency)),
        Cell("–" if text == "memory" else _missing(trials[0])),
    ]  # fmt: skip


def _missing(row: Row) -> str:
    """Return which settings of the pods to change."""
    same = middleware.find(row["middleware"]).shares_memory_in_one_network
    missing = ["hostNetwork: true, or one pod"] if same and row["network"] != HOST else []
    missing += ["one /dev/shm"] if row["dev_shm"] != "shared" else []
    missing += ["one user id (runAsUser)"] if row["users"] != "same" else []
    return "; ".join(missing) or "unknown"
