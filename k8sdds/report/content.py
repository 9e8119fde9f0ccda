"""What a report is made of: a run folder read once, and sorted into settings.

A setting is what becomes one table and one figure: all networks, payloads and numbers of subscribers under
the same transport, reliability and so on (see `k8sdds.analysis.conditions`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from k8sdds.analysis import conditions, contrast, overhead, protection
from k8sdds.analysis.conditions import UNIT
from k8sdds.perftest.settings import STAND_IN
from k8sdds.report import formats
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS, Metric
from k8sdds.results.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


class Point(NamedTuple):
    """Where in a setting: the axes of its tables and figures."""

    subscribers: int
    payload_bytes: int

    @classmethod
    def of(cls, row: Row) -> Point:
        """The point of a trial, level or overhead."""
        return cls(row["subscribers"] or 1, row["payload_bytes"] or 0)


Cell = tuple[str, Point]
"""(network_label, point) within a setting."""

Curve = dict[int, Row]
"""Throughput levels by number of subscribers."""

_USUAL = {"publishers": 1, "security": "none", "rate": 0, "batch_bytes": 0, "placement": "spread"}
"""What goes without saying in a caption; the experiment of the run folder spells it out."""

INTERVAL = "95 % interval (t on log ratios, paired within repetition)"


@dataclass
class Setting:
    """One table's worth of cells. Levels and overheads by (test, quantity), then by (network, point)."""

    values: dict[str, Any]
    title: str
    slug: str
    trials: list[Row]
    all_levels: dict[tuple[str, str], dict[Cell, Row]] = field(default_factory=dict)
    all_overheads: dict[tuple[str, str], dict[Cell, Row]] = field(default_factory=dict)

    def levels(self, quantity: str, test: str | None = None) -> dict[Cell, Row]:
        """Levels of a quantity by (network, point), from the test that it belongs to unless one is given."""
        return self.all_levels.get((test or self._home(quantity), quantity), {})

    @property
    def counts(self) -> list[tuple[Metric, dict[Cell, Row]]]:
        """Exact counts that were measured, such as IP fragments, from whichever test has them."""
        return [
            (METRICS[name], rows)
            for (_, name), rows in self.all_levels.items()
            if METRICS[name].exact and rows
        ]

    def overheads(self, quantity: str) -> dict[Cell, Row]:
        """Overheads of a quantity by (network, point), from the test that it belongs to."""
        return self.all_overheads.get((self._home(quantity), quantity), {})

    def _home(self, quantity: str) -> str:
        # Imported data may not say which test they are from.
        known = set(self.tests) & {"throughput", "latency"}
        return home(quantity) if known else next(iter(self.tests), "")

    @property
    def points(self) -> list[Point]:
        """All points, by subscribers and then payload."""
        return sorted({Point.of(row) for row in self.trials})

    def point_words(self, point: Point) -> str:
        """A point in words, without what is the same at all points and stands in the title."""
        parts = []
        if "subscribers" not in self.values:
            parts.append(formats.count(point.subscribers, "subscriber"))
        if not parts or len({other.payload_bytes for other in self.points}) > 1:
            parts.append(conditions.payload(point.payload_bytes))
        return ", ".join(parts)

    @property
    def tests(self) -> list[str]:
        """Tests that were made, throughput first."""
        return sorted({row["test"] for row in self.trials}, reverse=True)

    @property
    def scheduling(self) -> str:
        """Where trials had more participants than cores, in words; empty where none had."""
        trials = [row for row in self.trials if row["includes_scheduling"] is True]
        if len(trials) == len(self.trials):
            return "includes scheduling: more participants than cores" if trials else ""
        points = formats.listed([self.point_words(point) for point in sorted({Point.of(t) for t in trials})])
        return f"includes scheduling at {points}: more participants than cores" if trials else ""

    def repetitions(self, test: str | None = None) -> str:
        """The n behind the cells (of one test): `3`, or `2 to 3`."""
        cells = [rows for (of, _), rows in self.all_levels.items() if test in (None, of)]
        return formats.range_of([row["n"] for rows in cells for row in rows.values()])

    def details(self, test: str | None = None) -> str:
        """What else was the same for all of these trials, in words (of one test, or of each)."""
        parts = []
        for name in self.tests if test is None else [test]:
            rows = [row for row in self.trials if row["test"] == name]
            if not rows:
                continue
            constant = {
                key: rows[0][key]
                for key in conditions.CONDITION
                if key not in ("test", "payload_bytes", "subscribers", "nodes", "testbed", *self.values)
                and len({row[key] for row in rows}) == 1
            }
            said = conditions.describe(
                {key: constant[key] for key in constant if constant[key] != _USUAL.get(key)}
            )
            duration = rows[0]["duration_s"]
            seconds = f", {duration:g} s each" if duration else ""
            parts.append(f"{name}: {said}{seconds}" if test is None else f"{said}{seconds}")
        return "; ".join(parts)


@dataclass
class Content:
    """Everything that the parts of a report read."""

    run: RunFolder
    campaign: dict[str, Any]
    table: pd.DataFrame
    best: pd.DataFrame
    levels: pd.DataFrame
    overheads: pd.DataFrame
    baseline: str | None
    networks: list[str]
    """Labels in the campaign's order, the baseline first: the order of every table and figure."""
    settings: list[Setting]
    events: list[Row]

    @property
    def name(self) -> str:
        """The experiment's name, or the folder's."""
        return str(self.campaign.get("experiment") or self.campaign.get("campaign") or self.run.path.name)

    @property
    def invalid(self) -> list[Row]:
        """Invalid attempts, in the order of their end."""
        return overhead.plain_rows(self.table[~self.table["valid"]])

    @property
    def failed(self) -> list[Row]:
        """The last attempt of each trial that was tried but has no valid attempt."""
        valid = set(self.best["trial_id"])
        return list({row["trial_id"]: row for row in self.invalid if row["trial_id"] not in valid}.values())

    @property
    def planned(self) -> int:
        """Trials that the campaign meant to make (what was tried, where nothing is known)."""
        planned = self.campaign.get("trials")
        return max(len(planned) if isinstance(planned, dict) else 0, self.table["trial_id"].nunique())

    @property
    def untried(self) -> int:
        """Trials without any attempt: the campaign was interrupted, or is running."""
        return self.planned - int(self.table["trial_id"].nunique())

    @property
    def warnings(self) -> list[tuple[str, int]]:
        """Each warning of the valid trials that count, with the number of trials, most frequent first."""
        return Counter(text for texts in self.best["warnings"] for text in texts).most_common()

    @property
    def disturbances(self) -> list[Row]:
        """Events that a reader must know of: all but starts and ends of a campaign and its parts."""
        ordinary = ("start", "end", "finish", "done", "block", "trial", "attempt", "prepared", "closed")
        return [row for row in self.events if not any(word in str(row.get("event")) for word in ordinary)]

    @property
    def curves(self) -> dict[tuple[str, str, int, tuple], Curve]:
        """Throughput by number of subscribers, for every (label, transport, payload, rest of the condition)
        that was measured with two or more of them."""
        # The number of nodes follows that of subscribers, so it cannot be part of what stays the same.
        varying = ("subscribers", "nodes", "transport", "payload_bytes")
        rest = [name for name in conditions.CONDITION if name not in varying]
        curves: dict[tuple[str, str, int, tuple], Curve] = {}
        for setting in self.settings:
            for (label, point), row in setting.levels("throughput_mbps").items():
                other = tuple(row[name] for name in rest)
                key = (label, row["transport"] or "unicast", point.payload_bytes, other)
                curves.setdefault(key, {})[point.subscribers] = row
        return {key: dict(sorted(curve.items())) for key, curve in curves.items() if len(curve) > 1}

    @cached_property
    def by_condition(self) -> dict[tuple, list[Row]]:
        """The valid trials by their condition, over all networks."""
        found: dict[tuple, list[Row]] = {}
        for setting in self.settings:
            for row in setting.trials:
                found.setdefault(tuple(row[key] for key in conditions.CONDITION), []).append(row)
        return found

    @cached_property
    def protections(self) -> list[Row]:
        """What protection costs, against the same network without it."""
        known = self.campaign.get("networks")
        return protection.protections(self.best, known if isinstance(known, dict) else {})

    def contrasts(self, quantity: str) -> list[Row]:
        """Settings compared within each network, from the test that the quantity belongs to."""
        trials = [row for setting in self.settings for row in setting.trials if row["test"] == home(quantity)]
        return contrast.contrasts(trials, quantity)

    @property
    def testbed(self) -> str:
        """The testbed in the words that every caption must have."""
        testbed = self.campaign.get("testbed")
        facts = testbed if isinstance(testbed, dict) else {"name": testbed}
        name = facts.get("name") or next(iter(self.table["testbed"].dropna()), None)
        if name == "lab":
            where = "lab: network namespaces on one machine, one kernel"
        elif name == "cluster" and _one_kernel(facts.get("facts")):
            where = "cluster whose nodes share one kernel"
        elif name == "cluster" and (sharing := _sharing(facts.get("facts"))):
            where = f"cluster in which {sharing} share one kernel"
        else:
            known = {"imported": "imported: published data of others", None: "testbed not recorded"}
            where = known.get(name, name)
        return f"{where} · {NOT_RTI}" if self._stand_in else where

    @cached_property
    def _stand_in(self) -> bool:
        """Whether something else than RTI PerfTest ran in its name."""
        return any(STAND_IN in str(version) for version in self.best["middleware_version"].dropna())

    def caption(
        self, setting: Setting, test: str | None, relative: bool = False, interval: bool = True
    ) -> str:
        """What every figure and table says: testbed, layout, n, interval and baseline."""
        n = setting.repetitions(test)
        parts = [self.testbed, setting.details(test), f"n = {n}"]
        if relative:
            parts.append(f"baseline {self.baseline}")
        if n == "1":
            parts.append("one repetition: no 95 % interval")
        elif relative or interval:
            parts.append(INTERVAL if relative else "95 % interval (t on the log scale)")
        parts.append(setting.scheduling)
        return " · ".join(part for part in parts if part)


NOT_RTI = "a stand-in ran in place of RTI PerfTest: no number here is Connext's"


def home(quantity: str) -> str:
    """The test whose trials a quantity is reported from: `latency` for the latency test's percentiles."""
    return "latency" if quantity.startswith("latency_") else "throughput"


def read(run: RunFolder, parquet: bool = False) -> Content:
    """A run folder as content. Raises InputError where campaign.json cannot be read."""
    campaign = run.campaign
    table = tidy.frame(run, parquet=parquet)
    best = tidy.best(table)
    known = campaign.get("networks")
    labels = list(dict.fromkeys([*(known if isinstance(known, dict) else {}), *table[UNIT]]))
    baseline = campaign.get("baseline") or ("host" if "host" in labels else None)
    labels.sort(key=lambda label: label != baseline)
    levels = overhead.levels(best)
    overheads = overhead.overheads(best, baseline)
    return Content(
        run, campaign, table, best, levels, overheads, baseline, labels,
        _settings(best, levels, overheads), run.events(),
    )  # fmt: skip


def _settings(best: pd.DataFrame, levels: pd.DataFrame, overheads: pd.DataFrame) -> list[Setting]:
    rows = overhead.plain_rows(best)
    # Numbers of subscribers are an axis of tables and figures, like payloads.
    columns = [name for name in conditions.distinguishing(rows) if name != "subscribers"]
    grouped: dict[tuple, list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[name] for name in columns), []).append(row)
    settings = {}
    for key in sorted(grouped, key=lambda key: [_rank(value) for value in key]):
        values = dict(zip(columns, key, strict=True))
        shown = dict(values)
        # A table without transport and reliability in its title would leave the reader guessing.
        for name in ("transport", "reliability", "subscribers"):
            found = {row[name] for row in grouped[key]}
            if len(found) == 1:
                shown[name] = found.pop()
        title = conditions.describe(shown) or "all trials"
        slug = re.sub(r"[^a-z0-9]+", "-", conditions.describe(values).lower()).strip("-")
        settings[key] = Setting(shown, title[0].upper() + title[1:], slug, grouped[key])
    for table, name in ((levels, "all_levels"), (overheads, "all_overheads")):
        for row in overhead.plain_rows(table):
            setting = settings[tuple(row[column] for column in columns)]
            cells = getattr(setting, name).setdefault((row["test"], row["quantity"]), {})
            cells[row[UNIT], Point.of(row)] = row
    _unique_slugs(list(settings.values()))
    return list(settings.values())


def _rank(value: Any) -> tuple:
    """Sorts the plain case first: unicast, reliable, small numbers, no value."""
    order = ("unicast", "reliable", "none", "multicast", "best-effort")
    if value in order:
        return (0, order.index(value), "")
    return (1, value, "") if isinstance(value, int | float) else (2, 0, str(value or ""))


def _unique_slugs(settings: list[Setting]) -> None:
    seen: Counter[str] = Counter()
    for setting in settings:
        seen[setting.slug] += 1
        if seen[setting.slug] > 1:
            setting.slug += f"-{seen[setting.slug]}"


def _sharing(facts: Any) -> str:
    """Nodes that share a kernel with another: `n1 and n2`; empty where each has its own."""
    nodes = facts.get("nodes") if isinstance(facts, dict) else None
    kernels: dict[str, list[str]] = {}
    for name, node in (nodes if isinstance(nodes, dict) else {}).items():
        if isinstance(node, dict) and node.get("boot_id"):
            kernels.setdefault(str(node["boot_id"]), []).append(str(name))
    return "; ".join(" and ".join(names) for names in kernels.values() if len(names) > 1)


def _one_kernel(facts: Any) -> bool:
    """Whether the nodes' boot ids, wherever the facts hold them, are all the same one."""
    found: set[str] = set()
    nodes = 0

    def collect(value: Any, below: bool) -> None:
        nonlocal nodes
        if isinstance(value, dict):
            for key, item in value.items():
                collect(item, below or str(key).startswith("boot_id"))
        elif isinstance(value, list):
            for item in value:
                collect(item, below)
        elif below and value:
            nodes += 1
            found.add(str(value))

    collect(facts, False)
    return nodes > 1 and len(found) == 1
