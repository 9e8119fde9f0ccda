"""Build the tables of report.html: overheads, contrasts, protection, levels, background cost, facts and attempts."""

from __future__ import annotations

from typing import Any

from k8sdds.analysis import background_cost, conditions, contrast, kubectl_top, limit
from k8sdds.analysis.capacities import Found, bounds_of, searched_by
from k8sdds.analysis.capacity import UNITS
from k8sdds.analysis.conditions import UNIT, describe
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import INTERVAL, PROTECTION_GROUP, Content, protected_name
from k8sdds.report.settings import Point, Row, Setting, test_of
from k8sdds.report.table import Cell, Table
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES
from k8sdds.workloads.capacity import RATE, SUBSCRIBERS

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

BACKGROUND_COLUMNS = (
    ("network_cpu_s_per_gbit", "CPU of its pods", "s per delivered Gbit", 1),
    ("network_memory_bytes", "memory of its pods", "MiB per node", MIB),
    ("softirq_s_per_gbit", "softirqs", "s per delivered Gbit", 1),
    ("softirq_percent", "softirqs", "% of all cores", 1),
    ("kubelet_cpu_percent", "kubelet", "% of one core", 1),
    ("kubelet_memory_bytes", "kubelet", "MiB", MIB),
    ("nft_chains", "nftables chains", "per node", 1),
    ("nft_rules", "nftables rules", "per node", 1),
    ("legacy_rules", "legacy iptables rules", "per node", 1),
    ("pod_scheduled_s", "pod scheduled", "s after creation", 1),
    ("pod_network_ready_s", "pod network ready", "s after creation", 1),
    ("pod_running_s", "pod running", "s after creation", 1),
)
"""Columns of `analysis.background_cost` with title, unit and divisor."""


def network(content: Content, label: str, text: str = "") -> Cell:
    """Return the cell of a network, with its color."""
    colors = network_colors(content.networks)
    return Cell(text or label, swatch=colors[label].light.strip("#") if label in colors else "")


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
        return [_overhead_table(content, setting, columns)] if columns else []
    return [_overhead_table(content, setting, [c for c in columns if c[0] == name]) for name in names]


def _overhead_table(content: Content, setting: Setting, columns: list[tuple[str, Point]]) -> Table:
    names = list(dict.fromkeys(name for name, _ in columns))
    rows = [row for name in names for row in setting.overheads(name).values()]
    labels = content.ordered(row[UNIT] for row in rows)
    mixed = len({row["n"] for row in rows}) > 1
    what = formats.capital(METRICS[names[0]].title) + " overhead" if len(names) == 1 else "Overhead"
    tests = {row["test"] for row in rows}
    several = len(setting.points) > 1
    place = setting.title if several else f"{setting.title}, {payload(setting.points[0].payload_bytes)}"
    base = []
    for name, point in columns:
        cell = _level(setting.levels(name).get((content.baseline, point)))
        base.append(Cell(f"{cell.text} {METRICS[name].unit}", cell.small))
    # Shades compare the columns of one quantity.
    shaded = len(names) == 1 and (len(columns) >= SHADED_PAYLOADS or len(labels) >= SHADED_NETWORKS)
    worst = max((abs(row["overhead_percent"]) for row in rows), default=0) if shaded else 0
    caption = content.caption(setting, tests.pop() if len(tests) == 1 else None, relative=True)
    return Table(
        f"{what} in %: {place}",
        [
            "network",
            *(setting.point_label(point) if len(names) == 1 else METRICS[name].title for name, point in columns),
        ],
        [
            [network(content, str(content.baseline)), *base],
            *(
                [
                    network(content, label),
                    *(_percent(setting.overheads(name).get((label, at)), mixed, worst=worst) for name, at in columns),
                ]
                for label in labels
            ),
        ],
        f"{caption} · {_detectable(rows)}.{' A stronger shade is worse; none: it spans 0.' if worst else ''}",
        bases=1,
    )  # fmt: skip


def capacities(content: Content) -> list[Table]:
    """Return one table per condition of the capacity searches: networks × goals, and delays below the capacity."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for one in content.searches:
        groups.setdefault(tuple(one.condition.values()), []).append(one)
    return [_capacity_table(content, searches) for searches in groups.values()]


_ENDS = {
    RATE: ("highest rate", "lowest rate"),
    SUBSCRIBERS: ("largest number of subscribers", "smallest number"),
}
"""What the two ends of an interval are, by what was searched."""


def _capacity_table(content: Content, searches: list[Found]) -> Table:
    first = searches[0]
    rows = []
    for one in sorted(searches, key=lambda one: content.networks.index(one.network)):
        own = [row for row in content.capacities if row[UNIT] == one.network and _is_of(row, one)]
        delays = {row["share_percent"]: row for row in one.delays}
        goals = [Cell(_interval(row), _middle_overhead(row)) for row in own]
        shares = [_delays(delays.get(share)) for share in first.search.latency_at_percent]
        rows.append([network(content, one.network), *goals, *shares])
    search = first.search
    largest, least = _ENDS[first.searched]
    return Table(
        f"Capacity in {UNITS[first.searched]}: {first.title}",
        ["network", *(goal.describe() for goal in search.goals),
         *(f"p99 at {share:g} %" for share in search.latency_at_percent)],
        rows,
        f"{content.testbed} · {largest} at which most of {search.trials} trials of"
        f" {search.duration_s:g} s met the goal – {least} at which most missed it; small: overhead in % relative to"
        f" {content.baseline}, with the range of all ratios of the two brackets · p99 and, small, p50 of the delay in"
        f" µs at shares of the capacity for {search.goals[0].describe()}.",
    )  # fmt: skip


def _middle_overhead(row: Row) -> str:
    bounds = (row["overhead_percent"], row["bracket_low_percent"], row["bracket_high_percent"])
    return "" if bounds[0] is None else formats.percent(*bounds)


def _delays(row: Row | None) -> Cell:
    """Return p99 and, small, p50 of the delay at a share of the capacity."""
    if row is None:
        return Cell()
    p99 = formats.level(row["p99_us"], row["p99_low_us"], row["p99_high_us"])
    return Cell(p99, formats.level(row["p50_us"], None, None))


def _is_of(row: Row, one: Found) -> bool:
    return all(row[key] == value for key, value in one.condition.items())


def _interval(row: Row) -> str:
    bounds, searched = bounds_of(row), searched_by(row)
    low, high = (formats.searched_value(searched, value) for value in (bounds.low, bounds.high))
    return f"{low} – {high}" + ("" if row["decided"] else " (undecided)")


def contrasts(content: Content) -> list[Table]:
    """Return one table per contrast and quantity: the change within each network, networks × points."""
    tables = []
    for name in HEADLINES:
        for versus, rows, setting in contrast.by_title(content.contrasts(name)):
            cells = {(row[UNIT], Point.of(row)): row for row in rows}
            points = sorted({point for _, point in cells})
            labels = content.ordered(label for label, _ in cells)
            tables.append(
                Table(
                    f"{formats.capital(versus)}: change of {METRICS[name].title} in %",
                    ["network", *(_point(point) for point in points)],
                    [
                        [
                            network(content, label),
                            *(_percent(cells.get((label, p)), True, "change_percent") for p in points),
                        ]
                        for label in labels
                    ],
                    f"n = {formats.range_of([row['n'] for row in rows])} · same network and repetition; {INTERVAL}"
                    + (f"; {describe(setting)} (all settings: contrasts.csv)." if setting else "."),
                )
            )
    return tables


def _point(point: Point, several: bool = True) -> str:
    size = payload(point.payload_bytes)
    return f"{formats.count(point.subscribers, 'sub')}, {size}" if several else size


def protection(content: Content) -> list[Table]:
    """Return the tables of the overhead of protection, one per quantity and link: cells × payloads."""
    tables = []
    for quantity in PROTECTION_QUANTITIES:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in content.protections:
            if row["quantity"] == quantity and row["test"] == test_of(quantity, content.tests):
                groups.setdefault(tuple(row[name] for name in PROTECTION_GROUP), []).append(row)
        for key, rows in sorted(groups.items(), key=lambda item: str(item[0])):
            group = dict(zip(PROTECTION_GROUP, key, strict=True))
            tables.append(_protection_table(content, quantity, group, rows))
    return tables


def _protection_table(content: Content, quantity: str, group: dict[str, Any], rows: list[Row]) -> Table:
    def order(row: Row) -> tuple[int, str]:
        return content.networks.index(row[UNIT]), row["security"] or ""

    sizes = sorted({row["payload_bytes"] for row in rows})
    cells = {(protected_name(row), row["payload_bytes"]): row for row in rows}
    names = dict.fromkeys(protected_name(row) for row in sorted(rows, key=order))
    reference = {protected_name(row): row["against"] for row in rows}
    counts = formats.range_of([row["n"] for row in rows])
    return Table(
        f"{formats.capital(METRICS[quantity].title)}: overhead of protection in %: {conditions.describe(group)}",
        ["protected", "relative to", *map(payload, sizes)],
        [
            [Cell(name), Cell(reference[name]), *(_percent(cells.get((name, size)), mixed=True) for size in sizes)]
            for name in names
        ],
        f"{content.testbed} · n = {counts} · relative to the same network without protection, in the same repetition;"
        f" {INTERVAL}.",
    )  # fmt: skip


def limits(content: Content) -> list[Table]:
    """Return the tables relative to the limit of the machine, one per quantity and setting: networks × payloads."""
    columns = [name for name in conditions.distinguishing(content.limits) if name != "subscribers"]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in content.limits:
        # The limits of all networks are one table, whichever mode was the fastest.
        values = [None if row["raw"] and name not in limit.SAME else row[name] for name in columns]
        groups.setdefault((row["quantity"], row["raw"], row["limit"], *values), []).append(row)
    return [
        _limit_table(content, rows, dict(zip(columns, key[3:], strict=True))) for key, rows in groups.items()
    ]


def _limit_table(content: Content, rows: list[Row], setting: dict[str, Any]) -> Table:
    metric = METRICS[rows[0]["quantity"]]
    kind = "limit" if rows[0]["limit"] == limit.MACHINE else "packet limit"
    of = f"the {kind} on {content.baseline}" if rows[0]["raw"] else f"the {kind} of its network"
    described = conditions.describe(setting)
    subject = formats.capital(described or "DDS")
    if rows[0]["raw"]:
        subject = f"Plain UDP, {described}" if described else "Plain UDP"
    n = formats.range_of([row["n"] for row in rows])
    interval = "one repetition: no 95 % interval" if n == "1" else INTERVAL
    points = sorted({Point.of(row) for row in rows})
    cells = {(row[UNIT], Point.of(row)): row for row in rows}
    labels = content.ordered(label for label, _ in cells)
    several = len({point.subscribers for point in points}) > 1
    return Table(
        f"{subject}: {metric.title} relative to {of}",
        ["network", *(_point(point, several) for point in points)],
        [
            [network(content, label), *(_limit_cell(cells.get((label, point))) for point in points)]
            for label in labels
        ],
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
    names = [name for name in METRICS if setting.levels(name, test)]
    count = -(-len(names) // MAX_QUANTITIES)
    return [
        _level_table(content, setting, test, part, f" ({index + 1} of {count})" if count > 1 else "")
        for index in range(count)
        if (part := names[len(names) * index // count : len(names) * (index + 1) // count])
    ]


def _level_table(content: Content, setting: Setting, test: str, names: list[str], part: str) -> Table:
    measured = {name: setting.levels(name, test) for name in names}
    rows = []
    for point in setting.points:
        labels = content.ordered(label for cells in measured.values() for label, at in cells if at == point)
        for label in labels:
            cells = [_level(measured[name].get((label, point))) for name in names]
            place = Cell(setting.point_label(point), mark="first" if label == labels[0] else "carried")
            rows.append([place, network(content, label), *cells])
    units = [METRICS[name].unit.replace("bytes", "MiB") for name in names]
    return Table(
        f"{setting.title}: {test} test{part}",
        ["point", "network", *zip((METRICS[name].title for name in names), units, strict=True)],
        rows,
        f"{content.caption(setting, test)}; losses and softirq: t interval without logarithm.",
    )


def background(content: Content) -> list[Table]:
    """Return the tables of the background cost of each network and of `kubectl top`, if they were measured."""
    run, tables = content.run, []
    networks = background_cost.by_network(run)
    columns = [column for column in BACKGROUND_COLUMNS if any(row[column[0]] is not None for row in networks)]
    if columns:
        rows = [
            [
                network(content, row["network"]),
                *(Cell(_background(row[name], divisor)) for name, _, _, divisor in columns),
            ]
            for row in networks
        ]
        heads = ["network", *((title, unit) for _, title, unit, _ in columns)]
        tables.append(Table("Background cost of the networks", heads, rows, BACKGROUND))
    if tops := kubectl_top.by_node(run):
        heads = ["network", "node", ("CPU", "cores"), ("memory", "MiB"), ("window", "s"), "readings"]
        rows = [
            [
                network(content, row["network"]), Cell(row["node"]), Cell(formats.number(row["cpu_cores"])),
                Cell(formats.number(row["memory_bytes"] / MIB)),
                Cell(" to ".join(map(formats.number, sorted(set(row["window_s"]))))), Cell(str(row["readings"])),
            ]
            for row in tops
        ]  # fmt: skip
        tables.append(Table("Output of kubectl top nodes", heads, rows, TOP))
    return tables


BACKGROUND = (
    "Of the network's pods, the kubelet, softirqs and packet filters on every node before and after each block, and the"
    " startup time of pods: means over the blocks. There is no confidence interval, because a block is long and its"
    " values are totals. The softirqs of nodes that share a kernel are counted only once."
)
TOP = (
    "At the end of the blocks, for comparison with studies that use this command. The metrics server averages these"
    " values over its own window; k8sdds takes its CPU and memory results from the trials. tables/tops.csv has all."
)


def _background(value: Any, divisor: float) -> str:
    if value is not None and divisor == 1 and value == int(value):
        return str(int(value))  # a count
    return formats.number(None if value is None else value / divisor)


def _percent(row: Row | None, mixed: bool, key: str = "overhead_percent", worst: float = 0) -> Cell:
    """Return the cell of a percentage.

    Args:
        row: The row, if it was measured.
        mixed: Whether n differs between cells, so that each states its own.
        key: Column of the percentage.
        worst: The percentage with the darkest shade; 0: no cell has one.
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
    if not values:
        return "smallest detectable difference: unknown"
    low, high = formats.detectable(values[0]), formats.detectable(values[-1])
    return f"smallest detectable difference: {low if low == high else f'{low} to {high}'}"


def _level(row: Row | None) -> Cell:
    if row is None:
        return Cell()
    scale = MIB if row["unit"] == "bytes" else 1
    low, high = (None, None) if row["ci_low"] is None else (row["ci_low"] / scale, row["ci_high"] / scale)
    value, _, bracket = formats.level(row["mean"] / scale, low, high).partition(" ")
    return Cell(value, bracket)
