"""Draw CPU and memory of a setting as a table of shaded cells: one row per network, one column per quantity."""

from __future__ import annotations

import textwrap
from pathlib import Path

from k8sdds.report import formats
from k8sdds.report.content import Content, Row, Setting
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.theme import INK, MUTED, PAPER
from k8sdds.results.metrics import METRICS

QUANTITIES = (
    "publisher_cpu_percent", "subscriber_cpu_percent", "publisher_host_cpu_percent",
    "subscriber_host_cpu_percent", "machine_cpu_percent", "softirq_percent", "publisher_rss_bytes",
    "subscriber_rss_bytes",
)  # fmt: skip
_ROW, _LINE = 0.34, 0.15


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw CPU and memory at one point of the setting's first test that measured them."""
    for test in setting.tests:
        names = [name for name in QUANTITIES if setting.levels(name, test)]
        if names:
            break
    else:
        return None
    # Many subscribers show best who does the work; the claims of the paper are about 1 KiB.
    points = {point for _, point in setting.levels(names[0], test)}
    point = min(points, key=lambda point: (-point.subscribers, abs(point.payload_bytes - 1024)))
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
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    margin = text_width(labels) + 0.2
    width = (WIDTH - margin - 0.05) / max(len(columns), 4)
    heads = [_head(name, width) for name in columns]
    top = _LINE * max(head.count("\n") + 1 for head in heads) + 0.12
    height = _ROW * len(labels)
    drawing = new(margin + width * len(columns) + 0.05, top + height + 0.08)
    ax = axes(drawing, margin, top, width * len(columns), height)
    shades, texts = pd.DataFrame(index=labels), pd.DataFrame(index=labels)
    for name, rows in columns.items():
        largest = max(row["mean"] for row in rows.values()) or 1
        shades[name] = [rows[label]["mean"] / largest if label in rows else 0 for label in labels]
        texts[name] = [_cell(rows.get(label), _scale(name)) for label in labels]
    # Shades are transparent, so that the text has contrast on a light and on a dark page.
    shade = LinearSegmentedColormap.from_list("shade", [to_rgba(MUTED, 0), to_rgba(MUTED, 0.35)])
    sns.heatmap(
        shades, vmin=0, vmax=1, cmap=shade, annot=texts, fmt="", cbar=False, linewidths=1, linecolor=PAPER,
        annot_kws={"size": FONT - 1.5, "color": INK, "linespacing": 1.1}, ax=ax,
    )  # fmt: skip
    ax.set(xlabel="", ylabel="")
    ax.xaxis.tick_top()
    ax.set_xticks([index + 0.5 for index in range(len(columns))], heads, rotation=0, fontsize=FONT - 0.5)
    ax.set_yticks([index + 0.5 for index in range(len(labels))], labels, rotation=0)
    ax.tick_params(length=0)
    return drawing


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
