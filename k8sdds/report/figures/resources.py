"""Draw CPU and memory of a setting as a table of shaded cells: one row per network, one column per quantity."""

from __future__ import annotations

import textwrap
from pathlib import Path

from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures import cells
from k8sdds.report.figures.canvas import FONT, Figure, save, text_width
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.results.metrics import METRICS

QUANTITIES = (
    "publisher_cpu_percent", "subscriber_cpu_percent", "publisher_host_cpu_percent",
    "subscriber_host_cpu_percent", "machine_cpu_percent", "softirq_percent", "publisher_rss_bytes",
    "subscriber_rss_bytes",
)  # fmt: skip


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw CPU and memory at one point of the setting's first test that measured them."""
    for test in setting.tests:
        names = [name for name in QUANTITIES if setting.levels(name, test)]
        if names:
            break
    else:
        return None
    # Many subscribers show best who does the work; the claims of the paper are about 1 KiB.
    point = max((point for _, point in setting.levels(names[0], test)), key=Point.rank)
    columns = {
        name: {label: row for (label, at), row in setting.levels(name, test).items() if at == point}
        for name in names
    }
    columns = {name: rows for name, rows in columns.items() if rows}
    labels = [label for label in content.networks if any(label in rows for rows in columns.values())]
    title = f"CPU and memory, {test} test at {setting.point_label(point)}: {setting.title}"
    caption = (
        f"{_sources(names)} Networks transfer different numbers of samples, so equal CPU is not equal cost."
        f" {content.caption(setting, test)}."
    )
    alt = f"{title}. " + "; ".join(
        f"{METRICS[name].title} ({_unit(name)}): "
        + ", ".join(f"{label} {formats.number(row['mean'] / _scale(name))}" for label, row in rows.items())
        for name, rows in columns.items()
    )
    slug = "-".join(part for part in ("resources", setting.slug) if part)
    return save(_heatmap(columns, labels), folder, slug, "resources", title, f"{alt}.", caption)


def _heatmap(columns: dict[str, dict[str, Row]], labels: list[str]):
    width = cells.column_width(labels, len(columns))
    shades, texts = {}, {}
    for name, rows in columns.items():
        largest = max(row["mean"] for row in rows.values()) or 1
        shades[name] = [rows[label]["mean"] / largest if label in rows else 0 for label in labels]
        texts[name] = [_cell(rows.get(label), _scale(name)) for label in labels]
    return cells.draw(labels, [_head(name, width) for name in columns], shades, texts)


def _cell(row: Row | None, scale: float) -> str:
    """Return the mean, and its interval in a second line."""
    if row is None:
        return "–"
    low, high = ((None if row[key] is None else row[key] / scale) for key in ("ci_low", "ci_high"))
    return formats.level(row["mean"] / scale, low, high).replace(" [", "\n[")


def _head(name: str, width: float) -> str:
    most = max(int(width / text_width("x", FONT - 0.5)) - 1, 8)
    title = textwrap.wrap(formats.capital(METRICS[name].title), most, break_long_words=False)
    return "\n".join([*title, *textwrap.wrap(_unit(name), most, break_long_words=False)])


def _unit(name: str) -> str:
    return "MiB" if METRICS[name].unit == "bytes" else METRICS[name].unit


def _scale(name: str) -> float:
    return 2**20 if METRICS[name].unit == "bytes" else 1


def _sources(names: list[str]) -> str:
    """Describe the source of the values, which for published data differs from that of k8sdds trials."""
    if "publisher_host_cpu_percent" in names or "subscriber_host_cpu_percent" in names:
        return "CPU of all cores of the host as PerfTest printed it. Machine: as kubectl top printed it."
    return (
        "Publisher and subscriber: their pods. Machine: everything, including forwarding and encapsulation."
    )
