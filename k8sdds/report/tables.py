"""Build the tables of results in report.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from k8sdds.analysis import conditions, contrast, limit, missing
from k8sdds.analysis.capacities import Found, bounds_of, searched_by
from k8sdds.analysis.capacity import UNITS
from k8sdds.analysis.conditions import UNIT, describe
from k8sdds.model.axis import payload
from k8sdds.model.options import MEMBERS, RATE, SUBSCRIBERS
from k8sdds.report import formats
from k8sdds.report.content import INTERVAL, PROTECTION_GROUP, Content, protected_name
from k8sdds.report.settings import Point, Setting
from k8sdds.report.table import Cell, Table
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, by_columns, grouped
from k8sdds.workloads import HEADLINES, of_metric

Place = TypeVar("Place")

MIB = 2**20
MAX_QUANTITIES = 6
"""Largest number of quantities of a level table: more have no room on a page."""
SHADED_PAYLOADS, SHADED_NETWORKS = 4, 6
"""Numbers of payloads or networks from which shades help to find the worst overheads."""

PROTECTION_QUANTITIES = (
    *HEADLINES, "publisher_cpu_us_per_sample", "machine_cpu_ms_per_mb", "wire_bytes_per_payload_byte",
    "handshake_s",
)  # fmt: skip
"""Quantities with a table of the overhead of protection."""


def network(content: Content, label: str, text: str = "") -> Cell:
    """Return the cell of a network, with its color."""
    color = network_colors(content.networks).get(label)
    return Cell(text or label, swatch=color.light.strip("#") if color else "")


def _matrix(
    content: Content,
    caption: str,
    columns: Mapping[Place, str],
    cells: Mapping[tuple[str, Place], Row],
    cell: Callable[[Row | None], Cell],
    under: str = "",
) -> Table:
    """Return a table of networks × columns, which have a title each; `cell` shows a row or a missing one."""
    rows = [
        [network(content, label), *(cell(cells.get((label, place))) for place in columns)]
        for label in content.ordered(label for label, _ in cells)
    ]
    return Table(caption, ["network", *columns.values()], rows, under)


# -- results ----------------------------------------------------------------------------------------------


def overheads(content: Content, setting: Setting) -> list[Table]:
    """Return one table per quantity with networks × points, like Tables I and II of the paper.

    A setting with a single point gets one table with networks × quantities instead.
    """
    names = [name for name in HEADLINES if setting.overheads(name)]
    columns = [
        (name, point)
        for name in names
        for point in setting.points
        if any(measured == point for _, measured in setting.levels(name))
    ]
    if len(setting.points) == 1:
        return [_overheads(content, setting, columns)] if columns else []
    return [
        _overheads(content, setting, [column for column in columns if column[0] == name]) for name in names
    ]


def _overheads(content: Content, setting: Setting, columns: list[tuple[str, Point]]) -> Table:
    names = list(dict.fromkeys(name for name, _ in columns))
    cells = {
        (label, (name, at)): row for name in names for (label, at), row in setting.overheads(name).items()
    }
    rows, tests = list(cells.values()), {row["test"] for row in cells.values()}
    mixed, single = len({row["n"] for row in rows}) > 1, len(names) == 1
    base = [network(content, str(content.baseline))]
    for name, point in columns:
        cell = _level(setting.levels(name).get((str(content.baseline), point)))
        base.append(Cell(f"{cell.text} {METRICS[name].unit}", cell.small))
    # Shades compare the columns of one quantity.
    networks = len({label for label, _ in cells})
    shaded = single and (len(columns) >= SHADED_PAYLOADS or networks >= SHADED_NETWORKS)
    worst = max((abs(row["overhead_percent"]) for row in rows), default=0) if shaded else 0
    what = f"{formats.capital(METRICS[names[0]].title)} overhead" if single else "Overhead"
    place = "" if len(setting.points) > 1 else f", {payload(setting.points[0].payload_bytes)}"
    titles = {
        (name, point): setting.point_label(point) if single else METRICS[name].title
        for name, point in columns
    }
    caption = content.caption(setting, tests.pop() if len(tests) == 1 else None, relative=True)
    table = _matrix(
        content, f"{what} in %: {setting.title}{place}", titles, cells, lambda row: _percent(row, mixed, worst=worst),
        f"{caption} · {_detectable(rows)}.{' A stronger shade is worse; none: it spans 0.' if worst else ''}",
    )  # fmt: skip
    return Table(table.caption, table.heads, [base, *table.rows], table.under, bases=1)


class SingleRun(NamedTuple):
    """The overheads of one quantity within one run in percent, as papers print them: networks × payloads."""

    repetition: int
    quantity: str
    table: Table


def single_runs(content: Content) -> list[SingleRun]:
    """Return the overheads of the headline metrics within each run, for all settings with several payloads."""
    if not content.has_single_runs:
        return []
    shown = ("transport", "reliability", "subscribers", "batch_bytes", "security")
    rows = [
        row
        for row in content.overheads_by_repetition
        if row["quantity"] in HEADLINES and row["test"] == of_metric(row["quantity"], content.tests)
    ]
    found = []
    for group in by_columns(rows, ("repetition", *shown, "publishers", "qos", "quantity")).values():
        first = group[0]
        sizes = {size: payload(size) for size in sorted({row["payload_bytes"] for row in group})}
        setting = {name: first[name] for name in shown if first[name] not in (0, "none")}
        caption = (
            f"Run {first['repetition'] + 1}: {METRICS[first['quantity']].title} overhead relative to {content.baseline}"
            f" in %: {describe(setting)}"
        )
        cells = {(row[UNIT], row["payload_bytes"]): row for row in group}
        table = _matrix(content, caption, sizes, cells, _one_decimal)
        if len(sizes) > 1:
            found.append(SingleRun(first["repetition"], first["quantity"], table))
    # The largest table of a run comes first.
    return sorted(found, key=lambda one: (one.repetition, -len(one.table.heads) * (1 + len(one.table.rows))))


def _one_decimal(row: Row | None) -> Cell:
    value: float | None = row["overhead_percent"] if row else None
    return Cell() if value is None else Cell(formats.fixed(value, 1))


def capacities(content: Content) -> list[Table]:
    """Return one table per condition of the capacity searches: networks × goals, and delays below the capacity."""
    groups = grouped(content.searches, lambda one: tuple(one.condition.values()))
    return [_capacities(content, searches) for searches in groups.values()]


_ENDS = {
    RATE: ("highest rate", "lowest rate"),
    SUBSCRIBERS: ("largest number of subscribers", "smallest number"),
    MEMBERS: ("largest number of members", "smallest number"),
}
"""What the two ends of an interval are, by what was searched."""


def _capacities(content: Content, searches: list[Found]) -> Table:
    first, search = searches[0], searches[0].search
    rows = []
    for one in sorted(searches, key=lambda one: content.networks.index(one.network)):
        delays = {row["share_percent"]: row for row in one.delays}
        own = [
            row for row in content.capacities if row.items() >= {UNIT: one.network, **one.condition}.items()
        ]
        shares = [_delays(delays.get(share)) for share in search.latency_at_percent]
        rows.append([network(content, one.network), *map(_bracket, own), *shares])
    largest, least = _ENDS[first.searched]
    below = (
        f" · p99 and, small, p50 of the delay in µs at shares of the capacity for {search.goals[0].describe()}"
        if search.latency_at_percent
        else ""
    )
    return Table(
        f"Capacity in {UNITS[first.searched]}: {first.title}",
        ["network", *(goal.describe() for goal in search.goals),
         *(f"p99 at {share:g} %" for share in search.latency_at_percent)],
        rows,
        f"{content.testbed} · {largest} at which most of {search.trials} trials of"
        f" {search.duration_s:g} s met the goal – {least} at which most missed it; small: overhead in % relative to"
        f" {content.baseline}, with the range of all ratios of the two brackets{below}.",
    )  # fmt: skip


def _bracket(row: Row) -> Cell:
    bounds, searched = bounds_of(row), searched_by(row)
    low, high = (formats.searched_value(searched, value) for value in (bounds.low, bounds.high))
    overhead = (row["overhead_percent"], row["bracket_low_percent"], row["bracket_high_percent"])
    text = f"{low} – {high}" + ("" if row["decided"] else " (undecided)")
    small = [] if overhead[0] is None else [formats.percent(*overhead)]
    if searched == MEMBERS:
        ends = (row["capacity_participants"], row["missed_participants"])
        small.insert(0, " – ".join(formats.searched_value(searched, end) for end in ends) + " participants")
    return Cell(text, ", ".join(small))


def _delays(row: Row | None) -> Cell:
    """Return p99 and, small, p50 of the delay at a share of the capacity."""
    if row is None:
        return Cell()
    p99 = formats.level(row["p99_us"], row["p99_low_us"], row["p99_high_us"])
    return Cell(p99, formats.level(row["p50_us"], None, None))


def contrasts(content: Content) -> list[Table]:
    """Return one table per contrast and quantity: the change within each network, networks × points."""
    return [
        _matrix(
            content,
            f"{formats.capital(versus)}: change of {METRICS[name].title} in %",
            _points(rows, several=True),
            {(row[UNIT], Point.of(row)): row for row in rows},
            lambda row: _percent(row, True, "change_percent"),
            f"n = {formats.range_of([row['n'] for row in rows])} · same network and repetition; {INTERVAL}"
            + (f"; {describe(setting)} (all settings: contrasts.csv)." if setting else "."),
        )
        for name in HEADLINES
        for versus, rows, setting in contrast.by_title(content.contrasts(name))
    ]


def _points(rows: Sequence[Row], several: bool) -> dict[Point, str]:
    """Return the points of rows with their titles, which name the number of subscribers if there are several."""
    points = sorted({Point.of(row) for row in rows})
    return {
        point: f"{formats.count(point.subscribers, 'sub')}, " * several + payload(point.payload_bytes)
        for point in points
    }


def protection(content: Content) -> list[Table]:
    """Return the tables of the overhead of protection, one per quantity and link: cells × payloads."""
    tables = []
    for quantity in PROTECTION_QUANTITIES:
        test = of_metric(quantity, content.tests)
        own = [row for row in content.protections if (row["quantity"], row["test"]) == (quantity, test)]
        for key, rows in sorted(by_columns(own, PROTECTION_GROUP).items(), key=lambda item: str(item[0])):
            group = dict(zip(PROTECTION_GROUP, key, strict=True))
            tables.append(_protection(content, quantity, group, rows))
    return tables


def _protection(content: Content, quantity: str, group: dict[str, Any], rows: list[Row]) -> Table:
    rows = sorted(rows, key=lambda row: (content.networks.index(row[UNIT]), row["security"] or ""))
    sizes = sorted({row["payload_bytes"] for row in rows})
    cells = {(protected_name(row), row["payload_bytes"]): row for row in rows}
    reference = {protected_name(row): row["against"] for row in rows}
    return Table(
        f"{formats.capital(METRICS[quantity].title)}: overhead of protection in %: {describe(group)}",
        ["protected", "relative to", *map(payload, sizes)],
        [
            [Cell(name), Cell(against), *(_percent(cells.get((name, size)), mixed=True) for size in sizes)]
            for name, against in reference.items()
        ],
        f"{content.testbed} · n = {formats.range_of([row['n'] for row in rows])} · relative to the same network without"
        f" protection, in the same repetition; {INTERVAL}.",
    )


def limits(content: Content) -> list[Table]:
    """Return the tables relative to the limit of the machine, one per quantity and setting: networks × payloads."""
    columns = [name for name in conditions.distinguishing(content.limits) if name != "subscribers"]

    def key_of(row: Row) -> tuple[Any, ...]:
        # The limits of all networks are one table, whichever mode was the fastest.
        values = [None if row["raw"] and name not in limit.SAME else row[name] for name in columns]
        return row["quantity"], row["raw"], row["limit"], *values

    return [
        _limits(content, rows, describe(dict(zip(columns, key[3:], strict=True))))
        for key, rows in grouped(content.limits, key_of).items()
    ]


def _limits(content: Content, rows: list[Row], setting: str) -> Table:
    first = rows[0]
    kind = "limit" if first["limit"] == limit.MACHINE else "packet limit"
    of = f"the {kind} on {content.baseline}" if first["raw"] else f"the {kind} of its network"
    subject = (
        ", ".join(filter(None, ("Plain UDP", setting))) if first["raw"] else formats.capital(setting or "DDS")
    )
    n = formats.range_of([row["n"] for row in rows])
    interval = "one repetition: no 95 % interval" if n == "1" else INTERVAL
    return _matrix(
        content,
        f"{subject}: {METRICS[first['quantity']].title} relative to {of}",
        _points(rows, several=len({Point.of(row).subscribers for row in rows}) > 1),
        {(row[UNIT], Point.of(row)): row for row in rows},
        _limit_cell,
        f"n = {n} · relative to the raw middleware with the best mean, in the same repetition; {interval}.",
    )


def _limit_cell(row: Row | None) -> Cell:
    if row is None:
        return Cell()
    value, _, interval = formats.share(row).partition(" [")
    place = "" if row["limit_network"] == row[UNIT] or row["raw"] else f" on {row['limit_network']}"
    name = row["middleware"] if row["raw"] else row["limit_middleware"]
    return Cell(value, f"[{interval}" if interval else "", f"{name}{place}")


def levels(content: Content, setting: Setting, test: str) -> list[Table]:
    """Return tables with the levels of all quantities of a test: points and networks × quantities."""
    own = [row for row in setting.trials if row["test"] == test]
    names = [
        name
        for name, metric in METRICS.items()
        if setting.levels(name, test) or ((metric.censored or name in HEADLINES) and missing.share(own, name))
    ]
    count = -(-len(names) // MAX_QUANTITIES)
    return [
        _levels(content, setting, test, part, f" ({index + 1} of {count})" if count > 1 else "")
        for index in range(count)
        if (part := names[len(names) * index // count : len(names) * (index + 1) // count])
    ]


def _levels(content: Content, setting: Setting, test: str, names: list[str], part: str) -> Table:
    own = (row for row in setting.trials if row["test"] == test)
    trials = grouped(own, lambda row: (row[UNIT], Point.of(row)))
    rows = []
    for point in setting.points:
        mark = "first"
        for label in content.networks:
            cells = [
                _level(setting.levels(name, test).get((label, point)), trials.get((label, point), ()), name)
                for name in names
            ]
            if any(cell != Cell() for cell in cells):
                rows.append([Cell(setting.point_label(point), mark=mark), network(content, label), *cells])
                mark = "carried"
    titles = [(METRICS[name].title, METRICS[name].unit.replace("bytes", "MiB")) for name in names]
    return Table(
        f"{setting.title}: {test} test{part}",
        ["point", "network", *titles],
        rows,
        f"{content.caption(setting, test)}; losses and softirq: t interval without logarithm.",
    )


def _percent(row: Row | None, mixed: bool, key: str = "overhead_percent", worst: float = 0) -> Cell:
    """Return the cell of a percentage.

    With `mixed`, n differs between cells, so that each states its own. `worst` is the percentage with the darkest
    shade; 0 if no cell has one.
    """
    if row is None:
        return Cell()
    bounds = row["ci_low_percent"], row["ci_high_percent"]
    value = formats.percent(row[key], *bounds).split(" ")[0]
    n = f"n = {row['n']}" if mixed else ""
    if row["seen"] is False:
        return Cell(f"~ {value}", formats.interval(*bounds), n, mark="unseen")
    return Cell(value, formats.interval(*bounds), n, shade=max(row[key], 0) / worst if worst else 0)


def _detectable(rows: list[Row]) -> str:
    values = sorted(row["detectable_percent"] for row in rows if row["detectable_percent"] is not None)
    texts = dict.fromkeys(formats.detectable(value) for value in values[:1] + values[-1:])
    return f"smallest detectable difference: {' to '.join(texts) or 'unknown'}"


def _level(row: Row | None, trials: Sequence[Row] = (), name: str = "") -> Cell:
    """Return the cell of a level; without one, it states how many trials ended before such a time."""
    if row is None:
        return Cell(small=missing.share(trials, name) if name else "")
    scale = MIB if row["unit"] == "bytes" else 1
    bounds = (None if row[key] is None else row[key] / scale for key in ("ci_low", "ci_high"))
    value, _, bracket = formats.level(row["mean"] / scale, *bounds).partition(" ")
    return Cell(value, bracket)
