"""Group trials into settings.

A setting becomes one table and one figure: it holds all networks, payloads and numbers of subscribers with
the same transport, reliability and so on (see `k8sdds.analysis.conditions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from k8sdds import workloads
from k8sdds.analysis import conditions
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.model.trial import AXES
from k8sdds.report import formats
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, by_columns
from k8sdds.workloads import HEADLINES

THROUGHPUT = "throughput_mbps"


MAX_SLUG = 100
"""Most characters of the part of a file name that describes a setting."""


class Point(NamedTuple):
    """One point on the axes of a setting's tables and figures."""

    subscribers: int
    payload_bytes: int

    @classmethod
    def of(cls, row: Row) -> Point:
        """Return the point of a trial, level or overhead."""
        return cls(row["subscribers"] or 1, row["payload_bytes"] or 0)

    def rank(self) -> tuple[int, int]:
        """Return a sort key that is largest for the point of figures with only one: most subscribers, near 1 KiB."""
        return self.subscribers, -abs(self.payload_bytes - 1024)


Cell = tuple[str, Point]
"""(network_label, point) within a setting."""

Curve = dict[int, Row]
"""Throughput levels by number of subscribers."""

_OMITTED = {name: axis for name, axis in AXES.items() if not axis.in_captions}
"""Settings whose usual value captions omit. The experiment in the run folder lists them."""


@dataclass
class Setting:
    """The cells of one table: levels and overheads by (test, quantity), then by (network, point)."""

    values: dict[str, Any]
    title: str
    slug: str
    trials: list[Row]
    all_levels: dict[tuple[str, str], dict[Cell, Row]] = field(default_factory=dict)
    all_overheads: dict[tuple[str, str], dict[Cell, Row]] = field(default_factory=dict)

    def file_name(self, kind: str) -> str:
        """Return the name of a file of this setting, such as a kind of figure, without extension."""
        return f"{kind}-{self.slug}" if self.slug else kind

    def levels(self, quantity: str, test: str | None = None) -> dict[Cell, Row]:
        """Return the levels of a quantity by (network, point), by default from the quantity's own test."""
        return self.all_levels.get((test or self._test_of(quantity), quantity), {})

    @property
    def counts(self) -> list[tuple[Metric, dict[Cell, Row]]]:
        """The exact counts that were measured, such as IP fragments, from any test."""
        found = ((METRICS[name], rows) for (_, name), rows in self.all_levels.items())
        return [(metric, rows) for metric, rows in found if metric.exact and rows]

    def overheads(self, quantity: str) -> dict[Cell, Row]:
        """Return the overheads of a quantity by (network, point), from the quantity's own test."""
        return self.all_overheads.get((self._test_of(quantity), quantity), {})

    def _test_of(self, quantity: str) -> str:
        # Imported trials do not always record their test.
        known = workloads.WORKLOADS.keys() & set(self.tests)
        return workloads.of_metric(quantity, self.tests) if known else next(iter(self.tests), "")

    @property
    def points(self) -> list[Point]:
        """All points, sorted by subscribers, then by payload."""
        return sorted({Point.of(row) for row in self.trials})

    def point_label(self, point: Point) -> str:
        """Describe a point without the values that all points share, because the title contains them."""
        parts = []
        if "subscribers" not in self.values:
            parts.append(formats.count(point.subscribers, "subscriber"))
        if not parts or len({other.payload_bytes for other in self.points}) > 1:
            parts.append(payload(point.payload_bytes))
        return ", ".join(parts)

    @property
    def tests(self) -> list[str]:
        """The tests that were measured, throughput first."""
        return sorted({row["test"] for row in self.trials}, reverse=True)

    @property
    def scheduling(self) -> str:
        """Describe where trials had more participants than cores; empty if no trial had."""
        trials = [row for row in self.trials if row["includes_scheduling"] is True]
        if len(trials) == len(self.trials):
            return "includes scheduling: more participants than cores" if trials else ""
        points = formats.join([self.point_label(point) for point in sorted({Point.of(t) for t in trials})])
        return f"includes scheduling at {points}: more participants than cores" if trials else ""

    def repetitions(self, test: str | None = None) -> str:
        """Return n of one test, or of all tests, as text: `3` or `2 to 3`.

        It is that of the headline metrics, or of all metrics if there is none, such as of trials that are too short.
        """
        cells = {key: rows for key, rows in self.all_levels.items() if test in (None, key[0])}
        headlines = {key: rows for key, rows in cells.items() if key[1] in HEADLINES}
        return formats.range_of([row["n"] for rows in (headlines or cells).values() for row in rows.values()])

    def details(self) -> str:
        """Describe the conditions that all trials of each test share."""
        known = ("test", "payload_bytes", "subscribers", "nodes", "testbed", *self.values)
        parts = []
        for test in self.tests:
            rows = [row for row in self.trials if row["test"] == test]
            constant = {
                key: rows[0][key]
                for key in (*conditions.CONDITION, *conditions.OBSERVED)
                if key not in known and len({row[key] for row in rows}) == 1
                if key not in _OMITTED or not _OMITTED[key].is_usual(rows[0])
            }
            duration = rows[0]["duration_s"]
            text = conditions.describe(constant) + (f", {duration:g} s each" if duration else "")
            parts.append(f"{test}: {text}")
        return "; ".join(parts)


def group(best: list[Row], levels: list[Row], overheads: list[Row]) -> list[Setting]:
    """Return the settings of valid trials, with their levels and overheads."""
    # The number of subscribers is an axis of tables and figures, like the payload.
    columns = [name for name in conditions.distinguishing(best) if name != "subscribers"]
    if _tests_share_a_headline({row["test"] for row in best}):
        columns.insert(0, "test")
    grouped = by_columns(best, columns)
    settings = {}
    for key in sorted(grouped, key=lambda key: [_rank(value) for value in key]):
        values = dict(zip(columns, key, strict=True))
        shown = dict(values)
        # A title always contains transport and reliability, even if they are the same everywhere.
        for name in ("transport", "reliability", "subscribers"):
            distinct = {row[name] for row in grouped[key]}
            if len(distinct) == 1:
                shown[name] = distinct.pop()
        title = conditions.describe(shown) or "all trials"
        slug = formats.slug(conditions.describe(values))[:MAX_SLUG].strip("-")
        settings[key] = Setting(shown, title[0].upper() + title[1:], slug, grouped[key])
    for table, name in ((levels, "all_levels"), (overheads, "all_overheads")):
        for row in table:
            setting = settings[tuple(row[column] for column in columns)]
            cells = getattr(setting, name).setdefault((row["test"], row["quantity"]), {})
            cells[row[UNIT], Point.of(row)] = row
    counts: Counter[str] = Counter()
    for setting in settings.values():
        counts[setting.slug] += 1
        if counts[setting.slug] > 1:
            setting.slug += f"-{counts[setting.slug]}"
    return list(settings.values())


def _rank(value: Any) -> tuple[Any, ...]:
    """Return a sort key that puts simple values first, such as unicast, reliable, small numbers or no value."""
    order = ("unicast", "reliable", "none", "multicast", "best-effort")
    if value in order:
        return 0, order.index(value), ""
    return (1, value, "") if isinstance(value, int | float) else (2, 0, str(value or ""))


def _tests_share_a_headline(tests: Collection[str]) -> bool:
    """Return whether a table for one test, such as tcp-stream, could also be one for another, such as udp-stream."""
    names = [workload.metrics[0] for name, workload in workloads.WORKLOADS.items() if name in tests]
    return len(set(names)) < len(names)
